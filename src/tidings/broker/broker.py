"""The broker: the path of an event, step by step, and nothing else.

publish -> match -> store, then acknowledge -> route -> schedule -> send or deliver -> account. Each step is one method, in this
order: what comes in below, what goes out in outflow.py, who is there in peers.py. The algorithms live in matching, overlay,
scheduling, the ledger and transit.py (copies between durable brokers). Pure: `handle(input, now)` returns effects.

An event is matched before it is stored, so that one sync keeps it together with all that it is for: after a crash nothing
has to be matched again, against subscriptions that may not be known yet.
"""

from collections.abc import Callable, Iterable
from typing import NamedTuple

import msgspec

from tidings.broker.peers import Peers
from tidings.broker.tickets import RETRY
from tidings.broker.transit import Arrival, Copies, Transit
from tidings.errors import LimitExceeded, TidingsError
from tidings.model import message as m
from tidings.model import step as s
from tidings.model.event import Event
from tidings.model.subscription import Subscription
from tidings.overlay.base import TIMER, UNSUBSCRIBED, Relayed

REMEMBERED_IDS = 100_000
MAX_WAITING = 100_000

_NOWHERE = Relayed([], [], [])


class _Publication(NamedTuple):
    """An event that waits for the store."""

    event: Event
    born_s: float
    relayed: Relayed
    copies: Copies
    askers: list[tuple[str, int]]  # whom to answer: peer and request


class _TakeOver(NamedTuple):
    """A copy that waits for the store."""

    peer: str
    arrival: Arrival
    forward: m.Forward
    born_s: float
    received_s: float
    relayed: Relayed
    copies: Copies


class Broker(Peers):
    """See Outflow for the parameters."""

    def handle(self, input: s.Input, now: float) -> list[s.Effect]:
        """One input, and all effects that follow from it, in order."""
        self._effects = []
        _STEPS[type(input)](self, input, now)
        return self._effects

    def _received(self, input: s.Received, now: float) -> None:
        message = input.message
        step = _MESSAGES.get(type(message))
        if step is not None:
            step(self, input.peer, message, now, input.transit_s)
        elif isinstance(message, m.Request):
            self._requested(input.peer, message, now, now - input.transit_s)
        elif isinstance(message, m.Overlaid):
            self._effects += self.overlay.received(input.peer, message, now)
            self._remote_subscriptions_changed(now)

    # 1. A request is checked and stored; what it asks for happens, and is acknowledged, once its records are safe.

    def _requested(self, peer: str, request: m.Request, now: float, born_s: float) -> None:
        try:
            if self.waiting >= MAX_WAITING:
                raise LimitExceeded(f"{MAX_WAITING} requests wait for the store; try again later")
            if isinstance(request, m.Publish):
                if self._changing in self._waiting:  # an event comes after the subscriptions asked for before it
                    self._held.append((self._changing, peer, request, born_s))
                else:
                    self._publish(peer, request, born_s, now)
            else:
                self._change(peer, request, now)
        except TidingsError as error:
            self._send(peer, m.Failed(request.request, type(error).__name__, str(error)))

    def _change(self, peer: str, request: m.Request, now: float) -> None:
        record = self.registry.record(peer, request)
        if record is None and isinstance(request, m.Subscribe):  # its subscriber is back, or asks twice
            self._resume(request.subscription, now)
            self._send(peer, m.Done(request.request, request.subscription.id, repeated=True))
        elif record is not None:
            ticket = self._store((record,), self._changed, self._not_changed, (peer, request))
            if isinstance(request, m.Subscribe | m.Unsubscribe):
                self._changing = ticket

    def _stored(self, input: s.Stored, now: float) -> None:
        super()._stored(input, now)
        if self._held:
            self._release(input.ticket, now)

    def _store_failed(self, input: s.StoreFailed, now: float) -> None:
        super()._store_failed(input, now)
        if self._held:
            self._release(input.ticket, now)

    def _release(self, ticket: int, now: float) -> None:
        while self._held and self._held[0][0] <= ticket:
            _, peer, request, born_s = self._held.popleft()
            self._publish(peer, request, born_s, now)

    def _changed(self, what: tuple[str, m.Request], now: float) -> None:
        peer, request = what
        self._send(peer, m.Done(request.request, self._carry_out(request, now)))

    def _not_changed(self, what: tuple[str, m.Request], reason: str, now: float) -> None:
        self._send(what[0], m.Failed(what[1].request, "StoreError", reason))

    def _carry_out(self, request: m.Request, now: float) -> str:
        match request:
            case m.Subscribe(_, subscription):
                known = self.subscriptions.get(subscription.id)
                if known is not None and known.public == subscription.public:
                    self.registry.note(subscription)
                    self._resume(subscription, now)
                    return subscription.id
                if known is not None:
                    self._forget(subscription.id, UNSUBSCRIBED, now)
                self.registry.add(subscription)
                self._attach(subscription)
                self._effects += self.overlay.subscribed(subscription.public, now)
                return subscription.id
            case m.Unsubscribe(_, id):
                if id in self.subscriptions:
                    self._forget(id, UNSUBSCRIBED, now)
                return id
            case m.Advertise(_, advertisement):
                self.advertisements[advertisement.id] = advertisement
                self._effects += self.overlay.advertised(advertisement, now)
                return advertisement.id
            case m.Unadvertise(_, id):
                if self.advertisements.pop(id, None) is not None:
                    self._effects += self.overlay.unadvertised(id, now)
                return id
            case m.Publish(_, event):
                return event.id

    # 2. An event is matched once, where it was published, and stored with all that it is for; then it is acknowledged.

    def _publish(self, peer: str, request: m.Publish, born_s: float, now: float) -> None:
        event = request.event
        if event.id in self._seen:
            self._published_again(peer, request.request, event.id)
            return
        event = msgspec.structs.replace(event, timestamp_s=self._epoch_s + born_s)
        relayed, copies, records = self._match(event, born_s, now)
        what = _Publication(event, born_s, relayed, copies, [(peer, request.request)])
        ticket = self._store((s.EventRecord(event), *records), self._published, self._not_published, what)
        self.remember(event.id, ticket)

    def _match(self, event: Event, born_s: float, now: float) -> tuple[Relayed, Copies, list[s.Record]]:
        """Where it goes, and what to keep of that. In the stores a pair is matched where it ends: here, if it is for a client of
        ours."""
        ids = self.registry.match(event)
        relayed = self.overlay.spread(event, ids, now) if ids else _NOWHERE
        if self.overlay.learned:
            self._keep_learned()
        found: list[s.Record] = [s.MatchRecord(event.id, tuple(relayed.here), event.type, self._epoch_s + born_s)]
        if self.transit is None or not relayed.onward:
            return relayed, [], found
        copies = self.transit.copies(event, born_s, relayed.onward, (self.id,))
        return relayed, copies, found + self.transit.records(copies)

    def _published_again(self, peer: str, number: int, id: str) -> None:
        """The same id twice delivers once; the second publisher, too, hears only when the first is safe."""
        ticket = self._seen[id]
        if ticket:
            self._waiting[ticket].what.askers.append((peer, number))
        else:
            self._send(peer, m.Done(number, id, repeated=True))

    def remember(self, id: str, ticket: int = 0) -> None:
        """This event was published."""
        self._seen[id] = ticket
        if len(self._seen) > REMEMBERED_IDS:
            del self._seen[next(iter(self._seen))]

    def _published(self, what: _Publication, now: float) -> None:
        event, born_s, relayed, copies, askers = what
        if event.id in self._seen:
            self._seen[event.id] = 0
        for position, (peer, number) in enumerate(askers):
            self._send(peer, m.Done(number, event.id, repeated=position > 0))
        self._route(event, born_s, relayed, (self.id,), now, copies)

    def _not_published(self, what: _Publication, reason: str, now: float) -> None:
        self._seen.pop(what.event.id, None)
        for peer, number in what.askers:
            self._send(peer, m.Failed(number, "StoreError", reason))

    # 3. Or a copy is taken over from the broker that sends it, which may forget it when it is safe here.

    def _forwarded(self, peer: str, forward: m.Forward, now: float, transit_s: float) -> None:
        outbox = self._neighbour(peer)
        if outbox is None:
            return  # from a stranger
        born_s = now - forward.age_s - transit_s
        if self.transit is not None:
            self._take_over(self.transit, peer, forward, born_s, now)
        elif forward.number > outbox.taken:  # else it came twice
            outbox.taken = forward.number
            self._effects.append(s.Send(peer, m.Taken(forward.number)))
            relayed = self.overlay.relay(forward.event, forward.routes, forward.via, now)
            if relayed.here:
                self._effects.append(s.Store(0, self._kept_here(forward.event, relayed.here, born_s)))
            self._route(forward.event, born_s, relayed, (*forward.via, self.id), now, received=True)

    def _kept_here(self, event: Event, here: list[str], born_s: float) -> tuple[s.Record, ...]:
        matched = s.MatchRecord(event.id, tuple(here), event.type, self._epoch_s + born_s)
        return (s.EventRecord(event, copied=True), matched) if self.registry.any_durable(here) else (matched,)

    def _take_over(self, transit: Transit, peer: str, forward: m.Forward, born_s: float, now: float) -> None:
        link, event = transit.link(peer), forward.event
        arrival = link.arrived(forward.number)
        if arrival is None:
            return
        received_s, via = now - born_s, (*forward.via, self.id)
        relayed, copies = _NOWHERE, []
        records: list[s.Record] = []
        ids: tuple[str, ...] = ()
        if new := transit.news(event.id, forward.routes):
            ids = tuple(id for route in new for id in route.subscriptions)
            link.remember(event.id, ids)
            relayed = self.overlay.relay(event, new, forward.via, now)
            copies = transit.copies(event, born_s, relayed.onward, via, received_s, forward.hops)
            records = transit.records(copies)
            if relayed.here:
                records += self._kept_here(event, relayed.here, born_s)
        what = _TakeOver(peer, arrival, forward, born_s, received_s, relayed, copies)
        # If the store refuses it, it is tried again: its sender still has it, and waits.
        self._store((s.TakenRecord(peer, link.taken, event.id, ids), *records), self._taken_over, None, what)

    def _taken_over(self, what: _TakeOver, now: float) -> None:
        peer, arrival, forward, born_s, received_s, relayed, copies = what
        assert self.transit is not None
        if number := self.transit.link(peer).stored(arrival):
            self._send(peer, m.Taken(number))
        passed = received_s, forward.hops
        self._route(forward.event, born_s, relayed, (*forward.via, self.id), now, copies, received=True, passed=passed)

    # 4. Route, schedule, send, account: outflow.py. What is left are alarms, and acknowledgements that want an answer.

    def _woke(self, input: s.Woke, now: float) -> None:
        if input.timer.startswith(TIMER):
            self._effects += self.overlay.woke(input.timer, now)
            self._keep_learned()
            if self._probing:
                for each in self.outboxes.values():
                    self._serve(each, now)
        elif input.timer == RETRY:
            self._retry()
        elif (outbox := self.outboxes.get(input.timer)) is not None:
            self._account_for(outbox, outbox.alarmed(now), now)
            self._set_alarm(outbox)

    def _acknowledged_all(self, peer: str, message: m.Acknowledgements, now: float, transit_s: float) -> None:
        self._has(peer, message.pairs, now - transit_s)
        if message.request:  # stores keep the order: when this is safe, all before it are
            self._store((), self._told, self._not_told, (peer, message.request))

    def _told(self, what: tuple[str, int], now: float) -> None:
        self._send(what[0], m.Done(what[1]))

    def _not_told(self, what: tuple[str, int], reason: str, now: float) -> None:
        self._send(what[0], m.Failed(what[1], "StoreError", reason))

    def _pinged(self, peer: str, message: m.Ping, now: float, transit_s: float) -> None:
        self._send(peer, m.Pong(message.number))

    # After a restart (restore.py).

    def since(self, wall_s: float) -> float:
        """A time of the wall clock on this broker's own."""
        return wall_s - self._epoch_s

    def resubscribe(self, subscriptions: list[Subscription], now: float) -> list[s.Effect]:
        """Their subscribers are not there, but may come back."""
        self._effects = []
        self.registry.add_all(subscriptions)
        for subscription in subscriptions:
            self._attach(subscription)
            self._effects += self.overlay.subscribed(subscription.public, now)
        return self._effects

    def rematch(self, event: Event, now: float) -> list[s.Effect]:
        """It was stored by somebody who did not match it."""
        self._effects = []
        born_s = self.since(event.timestamp_s)
        relayed, copies, records = self._match(event, born_s, now)
        self._effects.append(s.Store(0, tuple(records)))
        self._route(event, born_s, relayed, (self.id,), now, copies, again=True)
        return self._effects

    def reopen(self, event: Event, ids: tuple[str, ...], born_s: float, now: float) -> list[s.Effect]:
        """It was matched, and may have been delivered."""
        self._effects = []
        self._open(event, ids, born_s, now, again=True)
        return self._effects

    def rejoin(self, neighbours: Iterable[str], learned: Iterable[s.OverlayRecord], now: float) -> None:
        """The neighbours are not there, but may come back; what was learned from them is good until they tell more."""
        for peer in neighbours:
            self._outbox(peer, m.BROKER)
        self.overlay.restore(learned)
        self._remote_subscriptions_changed(now)

    def carry_again(self, record: s.CopyRecord) -> None:
        """A copy that its next broker may have, or not."""
        assert self.transit is not None
        peer, copy = self.transit.restored(record)
        self.ledger.carry(len(copy.targets))
        self._outbox(peer, m.BROKER).doubtful.append(copy)


_STEPS: dict[type, Callable[..., None]] = {
    s.Received: Broker._received,
    s.LinkReady: Broker._link_ready,
    s.Stored: Broker._stored,
    s.StoreFailed: Broker._store_failed,
    s.Woke: Broker._woke,
    s.Connected: Broker._connected,
    s.Disconnected: Broker._disconnected,
}
_MESSAGES: dict[type, Callable[..., None]] = {
    m.Acknowledge: Broker._acknowledged,
    m.Acknowledgements: Broker._acknowledged_all,
    m.Forward: Broker._forwarded,
    m.Taken: Broker._taken,
    m.Ping: Broker._pinged,
}
