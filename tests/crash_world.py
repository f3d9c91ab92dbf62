"""Brokers with disks, in one process and in any order: links, syncs, crashes and clients take their steps by chance, from a seed.

Everything that a real network may do between two steps of a broker happens here: a group is synced and its answer gets lost with
the process, a link breaks with messages on it, a broker dies while its neighbour's copy waits for the disk.
"""

import math
import random
from collections import deque
from collections.abc import Callable, Iterable
from typing import Any

from tidings.broker.broker import Broker
from tidings.broker.restore import restore
from tidings.language import parse
from tidings.matching.naive import Naive
from tidings.model import message as m
from tidings.model import step as s
from tidings.model.event import checked_event
from tidings.model.subscription import Subscription
from tidings.overlay.mesh import Mesh
from tidings.scheduling.fcfs import Fcfs
from tidings.store.base import Open, State, state_of
from tidings.store.delta import Delta, World

TICK_S = 0.01


class Disk:
    """What was synced stays; what waits is lost in a crash, or is synced and nobody hears of it."""

    def __init__(self, chance: random.Random) -> None:
        self.records: list[s.Record] = []
        self.waiting: deque[tuple[int, tuple[s.Record, ...]]] = deque()
        self.answers: deque[int] = deque()
        self._chance = chance

    def sync(self, most: int) -> None:
        for _ in range(min(most, len(self.waiting))):
            ticket, records = self.waiting.popleft()
            self.records += records
            if ticket:
                self.answers.append(ticket)

    def crash(self) -> None:
        self.sync(self._chance.randrange(3))
        self.waiting.clear()
        self.answers.clear()

    def state(self) -> State:
        delta, world = Delta(), World()
        events = {record.event.id: record.event for record in self.records if isinstance(record, s.EventRecord)}
        for record in self.records:
            if not isinstance(record, s.EventRecord):
                delta.add(1, record)
        world.apply(delta.cells())
        opened = tuple(
            Open(event, events.get(event), 1, born_s, (id,)) for (event, id), (_, born_s) in world.pairs.items()
        )
        arrivals = tuple(record for record in self.records if isinstance(record, s.TakenRecord))
        return state_of(world, opened, tuple(events), 1, arrivals)


class Node:
    def __init__(self, world: "CrashWorld", id: str) -> None:
        self.world, self.id = world, id
        self.disk = Disk(world.chance)
        self.up, self.starts = False, 0

    def start(self) -> None:
        self.starts += 1
        self.up = True
        self.timers: dict[str, float] = {}
        self.broker = Broker(self.id, Naive(), Fcfs, Mesh(), incarnation=self.starts, durable=True)
        self.carry_out(restore(self.broker, self.disk.state(), (), self.world.now))

    def crash(self) -> None:
        self.up = False
        self.disk.crash()

    def feed(self, input: s.Input) -> None:
        if self.up:
            self.carry_out(self.broker.handle(input, self.world.now))
            assert self.broker.ledger.total.balanced

    def carry_out(self, effects: list[s.Effect]) -> None:
        for effect in effects:
            match effect:
                case s.Store(ticket, records):
                    self.disk.waiting.append((ticket, records))
                case s.Wake(timer, at_s):
                    self.timers[timer] = at_s
                case s.Send(peer, message):
                    self.world.sent(self.id, peer, message)
                case s.Deliver():
                    self.world.delivered(self, effect)


class Client:
    """Publishes, and repeats what was not confirmed; takes events, and acknowledges them later, all at once."""

    def __init__(self, name: str, home: str, subscription: Subscription | None = None) -> None:
        self.name, self.home, self.subscription = name, home, subscription
        self.connected = self.subscribed = False
        self.unconfirmed: dict[int, m.Publish] = {}
        self.confirmed: set[str] = set()
        self.inbox: deque[m.Message] = deque()
        self.seen: list[str] = []
        self.to_acknowledge: list[tuple[str, str]] = []
        self.acknowledging: dict[int, list[tuple[str, str]]] = {}
        self.acknowledged: set[str] = set()  # confirmed


class CrashWorld:
    def __init__(self, seed: int, links: Iterable[tuple[str, str]], clients: Iterable[Client]) -> None:
        self.seed, self.chance = seed, random.Random(seed)
        self.now = 0.0
        self.numbers = 0
        self.links = {tuple(sorted(link)): False for link in links}
        self.wires: dict[tuple[str, str], deque[m.Message]] = {}
        self.nodes = {id: Node(self, id) for link in self.links for id in link}
        self.clients = {client.name: client for client in clients}
        for node in self.nodes.values():
            node.start()

    def number(self) -> int:
        self.numbers += 1
        return self.numbers

    # What brokers send.

    def sent(self, sender: str, peer: str, message: m.Message) -> None:
        if peer in self.clients:
            client = self.clients[peer]
            if client.connected:
                client.inbox.append(message)
        elif (sender, peer) in self.wires:
            self.wires[sender, peer].append(message)

    def delivered(self, node: Node, effect: s.Deliver) -> None:
        client = self.clients[effect.client]
        if not client.connected:
            return
        client.inbox.append(m.Notify(effect.event, effect.subscriptions, effect.age_s, effect.redelivered))

    # Steps.

    def connect(self, link: tuple[str, str]) -> None:
        a, b = link
        if self.links[link] or not (self.nodes[a].up and self.nodes[b].up):
            return
        self.links[link] = True
        self.wires[a, b], self.wires[b, a] = deque(), deque()
        for here, there in ((a, b), (b, a)):
            self.nodes[here].feed(s.Connected(there, m.BROKER))
            self.nodes[here].feed(s.LinkReady(there))

    def cut(self, link: tuple[str, str]) -> None:
        a, b = link
        if self.links[link]:
            self.links[link] = False
            del self.wires[a, b], self.wires[b, a]
            for here, there in ((a, b), (b, a)):
                self.nodes[here].feed(s.Disconnected(there))

    def pass_on(self, wire: tuple[str, str]) -> None:
        sender, receiver = wire
        if self.wires.get(wire):
            message = self.wires[wire].popleft()
            self.nodes[receiver].feed(s.Received(sender, message))
            if isinstance(message, m.Forward):
                self.nodes[sender].feed(s.LinkReady(receiver))

    def crash(self, id: str) -> None:
        node = self.nodes[id]
        if not node.up:
            return
        node.crash()
        for link in self.links:
            if id in link:
                self.cut(link)
        for client in self.clients.values():
            if client.home == id:
                self.leave(client)

    def restart(self, id: str) -> None:
        if not self.nodes[id].up:
            self.nodes[id].start()

    def answer(self, node: Node) -> None:
        if node.up and node.disk.answers:
            node.feed(s.Stored(node.disk.answers.popleft()))

    def fail(self, node: Node) -> None:
        """The disk refuses the ticket that waits first; what has no ticket is tried again."""
        for place, (ticket, _) in enumerate(node.disk.waiting):
            if ticket:
                del node.disk.waiting[place]
                node.feed(s.StoreFailed(ticket, "no space"))
                return

    def wake(self, node: Node) -> None:
        if node.up:
            for timer, at_s in list(node.timers.items()):
                if at_s <= self.now:
                    del node.timers[timer]
                    node.feed(s.Woke(timer))

    # Clients.

    def join(self, client: Client) -> None:
        node = self.nodes[client.home]
        if client.connected or not node.up:
            return
        client.connected = True
        node.feed(s.Connected(client.name))
        if client.subscription is not None:
            node.feed(s.Received(client.name, m.Subscribe(self.number(), client.subscription)))
        for request in client.unconfirmed.values():
            node.feed(s.Received(client.name, request))
        for number, pairs in client.acknowledging.items():
            node.feed(s.Received(client.name, m.Acknowledgements(tuple(pairs), number)))
        node.feed(s.LinkReady(client.name))

    def leave(self, client: Client) -> None:
        if client.connected:
            client.connected = client.subscribed = False
            client.inbox.clear()
            self.nodes[client.home].feed(s.Disconnected(client.name))

    def hear(self, client: Client) -> None:
        if not client.inbox:
            return
        match client.inbox.popleft():
            case m.Done(number, id):
                if number in client.unconfirmed:
                    del client.unconfirmed[number]
                    client.confirmed.add(id)
                elif number in client.acknowledging:
                    client.acknowledged.update(event for event, _ in client.acknowledging.pop(number))
                else:
                    client.subscribed = True
            case m.Failed(number):
                if number in client.unconfirmed:
                    self.say(client, client.unconfirmed[number])
                elif number in client.acknowledging:
                    self.say(client, m.Acknowledgements(tuple(client.acknowledging[number]), number))
                else:
                    self.leave(client)
            case m.Notify(event, (id,), _, redelivered):
                assert event.id not in client.acknowledged, (
                    f"{event.id} comes again after its confirmed acknowledgement"
                )
                assert redelivered or event.id not in client.seen, f"{event.id} comes twice, unmarked"
                if event.id not in client.seen:
                    client.seen.append(event.id)
                client.to_acknowledge.append((event.id, id))
                self.say(client, None)

    def say(self, client: Client, message: m.Message | None) -> None:
        node = self.nodes[client.home]
        node.feed(s.LinkReady(client.name) if message is None else s.Received(client.name, message))

    def acknowledge(self, client: Client) -> None:
        if client.connected and client.to_acknowledge:
            pairs, client.to_acknowledge = client.to_acknowledge, []
            number = self.number()
            client.acknowledging[number] = pairs
            self.say(client, m.Acknowledgements(tuple(pairs), number))

    def publish(self, client: Client, event: str) -> None:
        request = m.Publish(self.number(), checked_event(event, {"n": 1}, "number"))
        client.unconfirmed[request.request] = request
        if client.connected:
            self.say(client, request)

    # By chance, then in peace.

    def calm_step(self) -> None:
        """One of the things that go on by themselves."""
        self.now += TICK_S
        node = self.chance.choice(list(self.nodes.values()))
        client = self.chance.choice(list(self.clients.values()))
        wire = self.chance.choice(list(self.wires)) if self.wires else ("", "")
        steps: list[Callable[[], Any]] = [
            lambda: self.pass_on(wire),
            lambda: node.up and node.disk.sync(self.chance.randrange(1, 6)),
            lambda: self.answer(node),
            lambda: self.wake(node),
            lambda: self.hear(client),
            lambda: self.acknowledge(client),
            lambda: self.join(client),
            lambda: self.connect(self.chance.choice(list(self.links))),
            lambda: self.restart(node.id),
        ]
        self.chance.choices(steps, weights=[8, 4, 8, 2, 8, 2, 1, 1, 0.3])[0]()

    def fault(self) -> None:
        node = self.chance.choice(list(self.nodes.values()))
        kinds: list[Callable[[], None]] = [
            lambda: self.crash(node.id),
            lambda: self.cut(self.chance.choice(list(self.links))),
            lambda: self.leave(self.chance.choice(list(self.clients.values()))),
            lambda: self.fail(node),
        ]
        self.chance.choice(kinds)()

    def settle(self, done: Callable[[], bool], steps: int = 60_000) -> None:
        for _ in range(steps):
            if done():
                return
            self.calm_step()
        raise AssertionError("it never came to rest")

    def accounts(self) -> list[s.AccountRecord]:
        return [r for node in self.nodes.values() for r in node.disk.records if isinstance(r, s.AccountRecord)]

    def at_rest(self) -> bool:
        return not any(
            client.unconfirmed or client.acknowledging or client.to_acknowledge for client in self.clients.values()
        ) and all(
            not node.disk.waiting and not node.broker.ledger.total.pending for node in self.nodes.values() if node.up
        )


def subscriber(name: str, home: str, deadline_s: float = math.inf) -> Client:
    return Client(name, home, Subscription(f"s-{name}", name, parse("n = 1"), (), deadline_s, durable=True))
