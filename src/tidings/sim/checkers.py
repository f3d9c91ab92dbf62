"""Laws that hold after every step of every simulation, whatever fails: a breach ends the run and tells how to replay it.

The ledger of every broker balances; a pair (event, subscription) is delivered to its client once and ends in one account;
a copy never goes where it has been; queues stay within their bounds; all copies of an event name disjoint subscriptions.
Now and then the pending pairs of a ledger are counted anew from what waits.
"""

from tidings.broker.broker import Broker
from tidings.model import message as m
from tidings.model import step as s
from tidings.sim.network import Network, Node
from tidings.sim.trace import Trace

RECOUNT_EVERY = 1_000  # steps


class Violation(AssertionError):
    """A law was broken; the message has the seed and the last steps."""


class Checkers:
    """A watcher. It remembers every pair, so it is for tests and not for the longest runs."""

    def __init__(self, network: Network, trace: Trace | None = None) -> None:
        self.network = network
        self.delivered: set[tuple[str, str]] = set()
        self.closed: dict[tuple[str, str], str] = {}
        self.steps = 0
        self._trace = trace or Trace()

    def __call__(self, node: Node, input: s.Input, effects: list[s.Effect], now: float) -> None:
        self._trace(node, input, effects, now)
        self.steps += 1
        broker = node.broker
        self._law(broker.ledger.total.balanced, "the ledger of {} does not balance: {}", node.id, broker.ledger.total)
        for effect in effects:
            if isinstance(effect, s.Send):
                if isinstance(effect.message, m.Forward):
                    self._forward(node, effect.peer, effect.message)
            elif isinstance(effect, s.Deliver):
                self._deliver(effect)
            elif isinstance(effect, s.Store):
                self._store(effect)
        if self.steps % RECOUNT_EVERY == 0:
            self.recount(broker)

    def _forward(self, node: Node, peer: str, forward: m.Forward) -> None:
        self._law(peer not in forward.via, "{} sends {} back to {}", node.id, forward.event.id, peer)
        self._law(node.id == forward.via[-1], "{} is not the last of {}", node.id, forward.via)
        ids = [id for route in forward.routes for id in route.subscriptions]
        self._law(len(ids) == len(set(ids)), "{} names a subscription twice", forward.event.id)
        outbox = node.broker.outboxes[peer]
        self._law(len(outbox) <= outbox.scheduler.capacity, "the queue of {} to {} has {}", node.id, peer, len(outbox))

    def _deliver(self, effect: s.Deliver) -> None:
        for id in effect.subscriptions:
            pair = (effect.event.id, id)
            self._law(effect.redelivered or pair not in self.delivered, "{} is delivered twice", pair)
            self.delivered.add(pair)

    def _store(self, effect: s.Store) -> None:
        for record in effect.records:
            if isinstance(record, s.AccountRecord):
                pair = (record.event, record.subscription)
                self._law(
                    pair not in self.closed, "{} was {} and becomes {}", pair, self.closed.get(pair), record.account
                )
                self.closed[pair] = record.account

    def recount(self, broker: Broker) -> None:
        """Pending pairs are those that wait for a client's acknowledgement, in an outbox, or for a neighbour's."""
        waiting = sum(len(events) for events in broker.ledger.pending.values())
        for outbox in broker.outboxes.values():
            if outbox.role == m.BROKER:
                waiting += sum(len(item.targets) for item in outbox.scheduler)
                waiting += sum(len(item.targets) for item in outbox.unacknowledged.values())
        pending = broker.ledger.total.pending
        self._law(pending == waiting, "the ledger of {} has {} pending pairs, but {} wait", broker.id, pending, waiting)

    def at_rest(self) -> None:
        """Nothing is under way any more: every pair that was matched has ended, but for those that fell with a broker."""
        total = self.network.totals()
        fallen = sum(broker.ledger.total.pending for broker in self.network.fallen)
        for node in self.network.nodes.values():
            self.recount(node.broker)
            self._law(not node.broker.ledger.total.pending, "{} still has pending pairs", node.id)
        self._law(total.closed == len(self.closed), "{} pairs ended, {} were recorded", total.closed, len(self.closed))
        lost = total.matched - total.closed
        self._law(0 <= lost <= fallen, "{} pairs were matched, {} ended, {} fell", total.matched, total.closed, fallen)

    def _law(self, holds: bool, breach: str, *what: object) -> None:
        if not holds:
            latest = "\n".join(self._trace.latest())
            at = f"seed {self.network.seed}, step {self.steps}, {self.network.loop.now:.6f} s"
            raise Violation(f"{breach.format(*what)}\n({at}; replay with this seed)\n{latest}")
