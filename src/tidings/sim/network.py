"""The driver of simulated brokers: nodes, links, clients, and what becomes of every effect.

A link between brokers carries one event at a time, each KB (or each message) at a rate drawn from a truncated normal
distribution; small messages between brokers, and clients' links, take a fixed time. A broker handles what it receives after its
processing delay (PD). Links are ordered and reliable while they are up, as TCP is: a message that gets lost on the way takes
its time once more. What is under way when a link goes down is gone. Disks are instant and safe.

Every random number comes from one seed, by purpose, so that one link's luck does not depend on what another one carries.
"""

from collections.abc import Callable, Iterable

import numpy as np

from tidings.broker.broker import Broker
from tidings.broker.ledger import Tally
from tidings.model import message as m
from tidings.model import step as s
from tidings.model.event import Event
from tidings.model.subscription import Subscription
from tidings.scheduling.rate import PER_KB, Sampling
from tidings.sim.loop import Loop

FASTEST = 0.001  # no KB takes less time than this (seconds)

Watcher = Callable[["Node", s.Input, list[s.Effect], float], None]


def generator(seed: int, *purpose: str) -> np.random.Generator:
    """Random numbers for one purpose, the same in every process."""
    return np.random.default_rng([seed, *"/".join(purpose).encode()])


class Rate:
    """Seconds per KB drawn from N(mu, sigma^2), truncated, anew for each KB or once for each message.

    A scheduler that is given this as its link's rate knows the truth at all times.
    """

    def __init__(self, mu: float, sigma: float, random: np.random.Generator, sampling: Sampling = PER_KB) -> None:
        self.mu, self.sigma = mu, sigma
        self._random = random
        self._per_kb = sampling == PER_KB
        self._drawn: list[float] = []

    def observe(self, size_kb: float, seconds: float) -> None:
        """There is nothing to learn."""

    def seconds(self, size_kb: float) -> float:
        if not self._drawn:
            self._drawn = self._random.standard_normal(64).tolist()
        # The sum of n draws has the deviation sigma * sqrt(n), one draw for all n KB has sigma * n.
        deviation = self.sigma * (size_kb**0.5 if self._per_kb else size_kb)
        return max(FASTEST * size_kb, self.mu * size_kb + deviation * self._drawn.pop())


class Wire:
    """One direction of a link between two brokers; without a rate it carries only small messages."""

    def __init__(self, sender: "Node", receiver: "Node", rate: Rate | None, random: np.random.Generator) -> None:
        self.sender, self.receiver, self.rate = sender, receiver, rate
        self.random = random  # for its faults
        self.up = False
        self.cut = False  # by a fault: it stays down until it is mended
        self.epoch = 0  # counts how often it went down: what was sent before is gone
        self.loss = self.repeat = self.delay_s = 0.0  # set by faults
        self.busy_s = 0.0  # how long it has carried events
        self.clear_s = 0.0  # small messages arrive in order, none before this time


class Node:
    """A broker, the wires that leave it, and its clients with their subscriptions."""

    def __init__(self, id: str, make: Callable[[int], Broker]) -> None:
        self.id, self.make = id, make
        self.incarnation = 0
        self.up = True
        self.wires: dict[str, Wire] = {}
        self.clients: dict[str, list[Subscription]] = {}
        self.start()

    def start(self) -> None:
        self.broker = self.make(self.incarnation)
        self.handle = self.broker.handle
        self.timers: dict[str, int] = {}  # name -> which of its settings counts


class Network:
    """Build it with `node`, `link` and `client`, then `run`. Watchers see every step after it happened."""

    def __init__(
        self,
        seed: int = 0,
        *,
        processing_s: float = 0.002,
        client_s: float = 0.020,
        control_s: float = 0.020,
        watchers: Iterable[Watcher] = (),
    ) -> None:
        self.seed = seed
        self.loop = Loop()
        self.nodes: dict[str, Node] = {}
        self.homes: dict[str, Node] = {}  # client -> node
        self.watchers = list(watchers)
        self.fallen: list[Broker] = []  # brokers that crashed, with the pairs they held
        self.handled = 0
        self.deliveries = 0
        self._processing_s, self._client_s, self._control_s = processing_s, client_s, control_s
        self._request = 0
        self._setting = 0
        self._carry: dict[type, Callable[..., None]] = {
            s.Send: self._send,
            s.Deliver: self._deliver,
            s.Store: self._store,
            s.Wake: self._wake,
        }

    # Building.

    def node(self, id: str, make: Callable[[int], Broker]) -> Node:
        """`make` gives the broker for its n-th start."""
        node = self.nodes[id] = Node(id, make)
        return node

    def link(self, sender: str, receiver: str, rate: Rate, back: Rate | None = None) -> None:
        """A link that carries events there, and back too if that has a rate; small messages travel both ways."""
        a, b = self.nodes[sender], self.nodes[receiver]
        a.wires[b.id] = Wire(a, b, rate, generator(self.seed, "faults", a.id, b.id))
        b.wires[a.id] = Wire(b, a, back, generator(self.seed, "faults", b.id, a.id))

    def client(self, id: str, node: str) -> None:
        self.nodes[node].clients[id] = []
        self.homes[id] = self.nodes[node]

    def start(self) -> None:
        """All links come up and all clients connect, in the order they were made."""
        for node in self.nodes.values():
            for client in node.clients:
                self._connect_client(node, client)
        for node in self.nodes.values():
            for wire in node.wires.values():
                self._bring_up(wire)

    def run(self, until_s: float) -> None:
        self.loop.run(until_s)

    def totals(self) -> Tally:
        """The accounts of the whole network, those of fallen brokers included."""
        total = Tally()
        for broker in (*self.fallen, *(node.broker for node in self.nodes.values())):
            total += broker.ledger.total
        return total

    # Clients.

    def subscribe(self, client: str, subscription: Subscription) -> None:
        node = self.homes[client]
        node.clients[client].append(subscription)
        self._ask(node, client, m.Subscribe(self._next_request(), subscription))

    def unsubscribe(self, client: str, id: str) -> None:
        node = self.homes[client]
        node.clients[client] = [known for known in node.clients[client] if known.id != id]
        self._ask(node, client, m.Unsubscribe(self._next_request(), id))

    def publish(self, client: str, event: Event) -> None:
        """The publisher lets go of it now; its link and the broker's processing come on top."""
        self._ask(self.homes[client], client, m.Publish(self._next_request(), event))

    def _ask(self, node: Node, client: str, request: m.Request) -> None:
        transit_s = self._client_s + self._processing_s
        self.loop.at(self.loop.now + transit_s, self.feed, node, s.Received(client, request, transit_s))

    def _next_request(self) -> int:
        self._request += 1
        return self._request

    def _connect_client(self, node: Node, client: str) -> None:
        self.feed(node, s.Connected(client))
        self.feed(node, s.LinkReady(client))

    # The machine: an input goes in, and its effects are carried out.

    def feed(self, node: Node, input: s.Input) -> None:
        if not node.up:
            return
        self.handled += 1
        effects = node.handle(input, self.loop.now)
        for watcher in self.watchers:
            watcher(node, input, effects, self.loop.now)
        carry = self._carry
        for effect in effects:
            carry[type(effect)](node, effect)

    def _store(self, node: Node, effect: s.Store) -> None:
        if effect.ticket:
            self.feed(node, s.Stored(effect.ticket))

    def _wake(self, node: Node, effect: s.Wake) -> None:
        self._setting += 1
        node.timers[effect.timer] = self._setting
        self.loop.at(max(effect.at_s, self.loop.now), self._woke, node, effect.timer, self._setting, priority=1)

    def _woke(self, node: Node, timer: str, setting: int) -> None:
        if node.timers.get(timer) == setting:
            del node.timers[timer]
            self.feed(node, s.Woke(timer))

    def _deliver(self, node: Node, effect: s.Deliver) -> None:
        self.loop.at(self.loop.now + self._client_s, self._delivered, node, node.broker, effect)

    def _delivered(self, node: Node, broker: Broker, effect: s.Deliver) -> None:
        """The client has it. Its acknowledgement takes no time, so that the account tells when the client had it."""
        if broker is not node.broker:
            return  # the broker crashed meanwhile, and the client's connection with it
        self.deliveries += 1
        for subscription in effect.subscriptions:
            self.feed(node, s.Received(effect.client, m.Acknowledge(effect.event.id, subscription)))
        self.feed(node, s.LinkReady(effect.client))

    def _send(self, node: Node, effect: s.Send) -> None:
        wire = node.wires.get(effect.peer)
        if wire is None or not wire.up:
            return  # an answer to a client, or a link that has just gone
        message = effect.message
        if isinstance(message, m.Taken) and not message.resumed:
            # An acknowledgement rides back at once: it decides nothing but when the sender may forget.
            self.feed(wire.receiver, s.Received(node.id, message))
        elif isinstance(message, m.Forward):
            self._transmit(wire, message, message.event.size_kb)
        elif isinstance(message, m.Probe):
            self._transmit(wire, message, message.size_kb)
        else:
            wire.clear_s = max(wire.clear_s, self.loop.now + self._control_s + self._misfortune(wire, self._control_s))
            self.loop.at(wire.clear_s, self._arrived, wire, wire.epoch, message, self.loop.now)

    def _transmit(self, wire: Wire, message: m.Message, size_kb: float) -> None:
        """One event at a time: the link is ready again when this one has left it."""
        assert wire.rate is not None, f"{wire.sender.id} sends an event to {wire.receiver.id}, where none may go"
        now = self.loop.now
        end_s = now + wire.rate.seconds(size_kb)
        if wire.loss or wire.delay_s:
            end_s += self._misfortune(wire, end_s - now)
        wire.busy_s += end_s - now
        self.loop.at(end_s, self._ready, wire, wire.epoch)
        self.loop.at(end_s + self._processing_s, self._arrived, wire, wire.epoch, message, now)
        if wire.repeat and wire.random.random() < wire.repeat:
            self.loop.at(end_s + self._processing_s, self._arrived, wire, wire.epoch, message, now)

    def _misfortune(self, wire: Wire, again_s: float) -> float:
        """The time that losses and delays cost."""
        extra_s = wire.delay_s * wire.random.random() if wire.delay_s else 0.0
        while wire.loss and wire.random.random() < wire.loss:
            extra_s += again_s
        return extra_s

    def _ready(self, wire: Wire, epoch: int) -> None:
        if wire.epoch == epoch:
            self.feed(wire.sender, s.LinkReady(wire.receiver.id))

    def _arrived(self, wire: Wire, epoch: int, message: m.Message, since_s: float) -> None:
        if wire.epoch == epoch:
            self.feed(wire.receiver, s.Received(wire.sender.id, message, self.loop.now - since_s))

    # Faults.

    def cut(self, a: str, b: str) -> None:
        """The link between two brokers goes down, and both notice."""
        for wire in self._both(a, b):
            wire.cut = True
        self._take_down(a, b)

    def mend(self, a: str, b: str) -> None:
        """The link between two brokers comes up again, as soon as both are there."""
        for wire in self._both(a, b):
            wire.cut = False
        self._bring_up_both(a, b)

    def _both(self, a: str, b: str) -> tuple[Wire, Wire]:
        return self.nodes[a].wires[b], self.nodes[b].wires[a]

    def _take_down(self, a: str, b: str) -> None:
        for wire in self._both(a, b):
            if wire.up:
                wire.up = False
                wire.epoch += 1
                self.feed(wire.sender, s.Disconnected(wire.receiver.id))

    def _bring_up_both(self, a: str, b: str) -> None:
        for wire in self._both(a, b):
            self._bring_up(wire)

    def _bring_up(self, wire: Wire) -> None:
        if wire.up or wire.cut or not (wire.sender.up and wire.receiver.up):
            return
        wire.up = True
        wire.clear_s = self.loop.now
        self.feed(wire.sender, s.Connected(wire.receiver.id, m.BROKER))
        if wire.rate is not None:
            self.feed(wire.sender, s.LinkReady(wire.receiver.id))

    def crash(self, id: str) -> None:
        """A broker stops: its memory is gone, its neighbours and clients lose the connection."""
        node = self.nodes[id]
        if not node.up:
            return
        node.up = False
        self.fallen.append(node.broker)
        for peer in node.wires:
            self._take_down(id, peer)

    def restart(self, id: str) -> None:
        """A crashed broker starts anew; neighbours connect, clients connect and subscribe again."""
        node = self.nodes[id]
        if node.up:
            return
        node.incarnation += 1
        node.up = True
        node.start()
        for client, subscriptions in node.clients.items():
            self._connect_client(node, client)
            for subscription in subscriptions:
                self._ask(node, client, m.Subscribe(self._next_request(), subscription))
        for peer in node.wires:
            self._bring_up_both(id, peer)
