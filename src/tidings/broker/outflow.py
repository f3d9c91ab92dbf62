"""What leaves a broker: the second half of the path of an event, from the route to the account.

Each step is one method below, in order. The first half, what comes in, is broker.py; who is there is peers.py.
"""

from collections.abc import Callable, Sequence

import msgspec

from tidings.broker.ledger import Account, Ledger
from tidings.broker.outbox import Outbox
from tidings.broker.registry import Registry
from tidings.broker.tickets import Tickets
from tidings.broker.transit import Copies, Copy, Transit, handed
from tidings.matching.base import Matcher
from tidings.model import message as m
from tidings.model import step as s
from tidings.model.event import Event
from tidings.overlay.base import NO_PATH, UNSUBSCRIBED, Overlay, Relayed, routes
from tidings.overlay.lone import Lone
from tidings.scheduling.base import DEADLINE_PASSED, TIMED_OUT, Dropped, Item, Scheduler, Target
from tidings.scheduling.delay import Link

SUBSCRIBER_GONE = "subscriber gone"

Passed = tuple[float, tuple[m.Hop, ...]]  # how old an event was when it came here, and the brokers before
HERE_FIRST: Passed = (0.0, ())


class Outflow(Tickets):
    """`epoch_s` turns the driver's clock into the timestamp of events: timestamp = epoch_s + now.

    `links` describes the link to a peer when it connects; `incarnation` counts the starts of this broker; with `probing` it
    measures links to brokers that are idle. `durable`: its driver keeps what it stores, and restores it after a crash.
    """

    def __init__(
        self,
        id: str,
        matcher: Matcher,
        scheduler: Callable[..., Scheduler],
        overlay: Overlay | None = None,
        *,
        links: Callable[[str, str], Link] | None = None,
        epoch_s: float = 0.0,
        incarnation: int = 0,
        probing: bool = False,
        durable: bool = False,
    ) -> None:
        super().__init__()
        self.id = id
        self.matcher = matcher
        self.overlay = overlay or Lone()
        self.ledger = Ledger(id, hops=durable)
        self.outboxes: dict[str, Outbox] = {}
        self.registry = Registry(matcher, self.outboxes)
        self.subscriptions, self.advertisements = self.registry.subscriptions, self.registry.advertisements
        self._scheduler = scheduler
        self._links = links
        self._epoch_s = epoch_s
        self._probing = probing
        self._first_number = incarnation << 32
        self.transit = Transit(self._first_number, epoch_s) if durable else None
        self.overlay.keeping = durable
        self.overlay.join(id, self.outboxes, incarnation)

    # 1. Route: the accounts are opened; one item for each local client and each neighbour.

    def _route(
        self,
        event: Event,
        born_s: float,
        relayed: Relayed,
        via: tuple[str, ...],
        now: float,
        copies: Copies | None = None,
        *,
        received: bool = False,
        again: bool = False,
        passed: Passed = HERE_FIRST,
    ) -> None:
        if relayed.here:
            self._open(event, relayed.here, born_s, now, received=received, again=again, passed=passed)
        if not copies:
            for peer, targets in relayed.onward:
                self.ledger.carry(len(targets), received=received)
                self._schedule(peer, Item(event, born_s, targets, False, via), now)
        else:
            self.ledger.carry(sum(len(copy.targets) for _, copy in copies), received=received)
            self._go_on(copies, now)
        if relayed.lost:
            self.ledger.carry(len(relayed.lost), received=received)
            ended = self._closed(event.id, relayed.lost, Account.UNDELIVERABLE, NO_PATH, now - born_s, now)
            self._effects.append(s.Store(0, ended))

    def _open(
        self,
        event: Event,
        here: Sequence[str],
        born_s: float,
        now: float,
        *,
        received: bool = False,
        again: bool = False,
        passed: Passed = HERE_FIRST,
    ) -> None:
        received_s, hops = passed
        for client, targets in self.registry.by_client(event, here).items():
            self.ledger.open(event.id, targets, born_s, event.type, received=received, received_s=received_s, hops=hops)
            self._schedule(client, Item(event, born_s, targets, again), now)

    # 2. Schedule: into the outbox of the link, and out of it again when the link is ready.

    def _schedule(self, peer: str, item: Item, now: float) -> None:
        outbox = self.outboxes.get(peer)
        if outbox is None:
            reason = SUBSCRIBER_GONE if peer else UNSUBSCRIBED
            self._record(self.ledger.give_up(item.event.id, item.targets, reason, now - item.born_s))
        elif outbox.passed(item, now):
            if outbox.role == m.BROKER:
                self._forward(outbox, item, now)
            else:
                self._deliver(outbox, item, now)
        else:
            outbox.push(item, now)
            self._serve(outbox, now)

    def _link_ready(self, input: s.LinkReady, now: float) -> None:
        outbox = self.outboxes.get(input.peer)
        if outbox is not None:
            outbox.link_ready(now, input.took, input.events)
            if len(outbox.scheduler):
                self._serve(outbox, now)

    def _serve(self, outbox: Outbox, now: float) -> None:
        go = self._forward if outbox.role == m.BROKER else self._deliver
        while outbox.credit and (item := outbox.next(now)) is not None:
            go(outbox, item, now)
        if self._probing and (size_kb := outbox.probe(now)):
            self._send(outbox.peer, m.Probe(size_kb))
        if dropped := outbox.scheduler.dropped():
            self._account_for(outbox, dropped, now)
        self._set_alarm(outbox)

    # 3. Send to a neighbour, or deliver to a client what is in time.

    def _forward(self, outbox: Outbox, item: Item, now: float) -> None:
        age_s = now - item.born_s
        hops = (*item.hops, m.Hop(self.id, item.received_s, age_s)) if isinstance(item, Copy) else ()
        copy = m.Forward(item.event, item.via, routes(item.targets), age_s, outbox.sent(item, now), hops)
        self._effects.append(s.Send(outbox.peer, copy))

    def _deliver(self, outbox: Outbox, item: Item, now: float) -> None:
        age_s = now - item.born_s
        targets = item.targets
        if item.redelivered:  # it may have been acknowledged meanwhile
            targets = self.ledger.still_open(item.event.id, targets)
        if len(targets) == 1 and age_s <= targets[0].deadline_s:
            in_time: tuple[str, ...] = (targets[0].subscription,)
        else:
            in_time = tuple(target.subscription for target in targets if age_s <= target.deadline_s)
        if len(in_time) < len(targets):
            too_late = tuple(target for target in targets if age_s > target.deadline_s)
            reason = TIMED_OUT if age_s > item.event.timeout_s else DEADLINE_PASSED
            self._record(self.ledger.expire(item.event.id, too_late, reason, age_s))
        if in_time:
            if outbox.durable:
                outbox.delivered(item, in_time)
            if self.transit is not None:
                self.ledger.sent(item.event.id, in_time, age_s)
            self._effects.append(s.Deliver(outbox.peer, item.event, in_time, age_s, item.redelivered))
        else:
            outbox.credit += 1  # it did not go after all

    # 4. Account: the client has it, the neighbour has it, it was dropped, or nobody is there for it.

    def _acknowledged(self, peer: str, message: m.Acknowledge, now: float, transit_s: float) -> None:
        self._has(peer, ((message.event, message.subscription),), now - transit_s)

    def _has(self, peer: str, pairs: tuple[tuple[str, str], ...], now: float) -> None:
        outbox = self.outboxes[peer]
        records: list[s.AccountRecord] = []
        for event, id in pairs:
            if id in outbox.subscriptions:  # nobody closes the accounts of others
                if outbox.durable:
                    outbox.received(event, id)
                record = self.ledger.received(event, id, now)
                if record is not None:
                    records.append(record)
        self._record(records)

    def _taken(self, peer: str, message: m.Taken, now: float, transit_s: float) -> None:
        outbox = self._neighbour(peer)
        if outbox is None:
            return
        items = outbox.acknowledged(message.number)
        for item in items:
            self.ledger.hand_over(len(item.targets))
        if items and self.transit is not None:
            self._effects.append(s.Store(0, (handed(items),)))
        if message.resumed:
            for item in outbox.resumed(message.number):
                if self.transit is not None:
                    item = msgspec.structs.replace(item, redelivered=True)
                self._send_again(item, now)
            self._serve(outbox, now)

    def _account_for(self, outbox: Outbox, dropped: list[Dropped], now: float) -> None:
        for item, reason in dropped:
            age_s = now - item.born_s
            if outbox.role == m.CLIENT:
                self._record(self.ledger.expire(item.event.id, item.targets, reason, age_s))
            elif not self._doubt(outbox, item, now):
                ended = self._closed(item.event.id, item.targets, Account.EXPIRED, reason, age_s, now)
                self._effects.append(s.Store(0, (*ended, handed((item,))) if isinstance(item, Copy) else ended))

    def _doubt(self, outbox: Outbox, item: Item, now: float) -> bool:
        """A copy that the peer may have: only the peer can tell what became of it, so it gets the copy in any case."""
        if not (item.redelivered and isinstance(item, Copy)):
            return False
        if outbox.up:
            self._forward(outbox, item, now)
        else:
            outbox.doubtful.append(item)
        return True

    def _set_alarm(self, outbox: Outbox) -> None:
        at_s = outbox.alarm()
        if at_s is not None:
            self._effects.append(s.Wake(outbox.peer, at_s))

    def _send_again(self, item: Item, now: float) -> None:
        """Around a link that is gone, if there is a way; else it waits for the link to come back, or for its deadline."""
        relayed = self.overlay.relay(item.event, routes(item.targets, self.id), item.via, now)
        ended: tuple[s.Record, ...] = ()
        if relayed.lost:
            ended = self._closed(item.event.id, relayed.lost, Account.UNDELIVERABLE, NO_PATH, now - item.born_s, now)
        if self.transit is not None and isinstance(item, Copy):
            parts = self.transit.parts(item, relayed.onward)
            if not ended and parts[0][1].number == item.number:
                self._schedule(*parts[0], now)
            else:
                # Safe before it goes another way: after a crash nobody could tell which way it went.
                self._store((*self.transit.records(parts), handed((item,)), *ended), self._go_on, None, parts)
            return
        for peer, targets in relayed.onward:
            self._schedule(peer, msgspec.structs.replace(item, targets=targets), now)
        if ended:
            self._effects.append(s.Store(0, ended))

    def _go_on(self, copies: Copies, now: float) -> None:
        for peer, copy in copies:
            if self.outboxes[peer].up:
                self._schedule(peer, copy, now)
            else:  # the link went down while the store was at work
                self._send_again(copy, now)

    def _closed(
        self, event: str, targets: Sequence[Target], account: Account, reason: str, age_s: float, now: float
    ) -> tuple[s.Record, ...]:
        """Pairs on their way to another broker end here: what to keep of that."""
        ids = tuple(target.subscription for target in targets)
        matched = s.MatchRecord(event, ids, "", self._epoch_s + now - age_s)
        return matched, *self.ledger.close_carried(event, tuple(targets), account, reason, age_s)

    def _record(self, records: list[s.AccountRecord]) -> None:
        if records:
            self._effects.append(s.Store(0, tuple(records)))

    def _neighbour(self, peer: str) -> Outbox | None:
        """The outbox of a broker; what only brokers may say is ignored from anybody else."""
        outbox = self.outboxes.get(peer)
        return outbox if outbox is not None and outbox.role == m.BROKER else None

    def _outbox(self, peer: str, role: str) -> Outbox:
        outbox = self.outboxes.get(peer)
        if outbox is None:
            scheduler = self._scheduler() if self._links is None else self._scheduler(link=self._links(peer, role))
            outbox = self.outboxes[peer] = Outbox(
                peer, scheduler, role, self._first_number, probing=self._probing, weighing=self.overlay.weighing
            )
        return outbox

    def _keep_learned(self) -> None:
        """What the overlay wants to know after a crash."""
        if learned := self.overlay.learned:
            self._effects.append(s.Store(0, tuple(learned)))
            learned.clear()

    def _send(self, peer: str, message: m.Message) -> None:
        self._effects.append(s.Send(peer, message))
