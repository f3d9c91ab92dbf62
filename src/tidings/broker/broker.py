"""The broker: the path of an event, step by step, and nothing else.

publish -> store, then acknowledge -> match -> route -> schedule -> send or deliver -> account. Each step is one method below,
in this order; the algorithms live in matching, overlay, scheduling and the ledger. Pure: `handle(input, now)` returns effects.
"""

from collections.abc import Callable, Iterable

import msgspec

from tidings.broker.ledger import Account, Ledger
from tidings.broker.outbox import Outbox
from tidings.errors import InvalidSubscription, LimitExceeded, TidingsError, UnknownName
from tidings.matching.base import Matcher
from tidings.model import message as m
from tidings.model import step as s
from tidings.model.event import Event
from tidings.model.subscription import Advertisement, Subscription
from tidings.overlay.base import NO_PATH, TIMER, UNSUBSCRIBED, Overlay, Relayed, routes
from tidings.overlay.lone import Lone
from tidings.scheduling.base import DEADLINE_PASSED, TIMED_OUT, Dropped, Item, Scheduler, Target
from tidings.scheduling.delay import Link

REMEMBERED_IDS = 100_000
MAX_WAITING = 100_000

SUBSCRIBER_GONE = "subscriber gone"

# A durable subscription whose client is away has an outbox of its own; no client's name contains a colon.
DURABLE = "durable:"


class Broker:
    """`epoch_s` turns the driver's clock into the timestamp of events: timestamp = epoch_s + now.

    `links` describes the link to a peer when it connects; `incarnation` counts the starts of this broker; with `probing` it
    measures links to brokers that are idle.
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
    ) -> None:
        self.id = id
        self.matcher = matcher
        self.overlay = overlay or Lone()
        self.ledger = Ledger(id)
        self.subscriptions: dict[str, Subscription] = {}
        self.advertisements: dict[str, Advertisement] = {}
        self._targets: dict[str, Target] = {}  # of our clients' subscriptions, for events that last long enough
        self.outboxes: dict[str, Outbox] = {}
        self._scheduler = scheduler
        self._links = links
        self._epoch_s = epoch_s
        self._probing = probing
        self._first_number = incarnation << 32
        self._ticket = 0
        self._waiting: dict[int, tuple[m.Request, float]] = {}  # ticket -> what its records complete, since when
        self._askers: dict[int, list[tuple[str, int]]] = {}  # ticket -> (peer, request) to answer
        self._seen: dict[str, int] = {}  # event id -> ticket, 0 once stored; the oldest are forgotten
        self._unindexed: dict[str, Subscription | None] = {}  # what became of remote subscriptions since the last match
        self._effects: list[s.Effect] = []
        self._steps: dict[type, Callable[..., None]] = {
            s.Received: self._received,
            s.LinkReady: self._link_ready,
            s.Stored: self._stored,
            s.StoreFailed: self._store_failed,
            s.Woke: self._woke,
            s.Connected: self._connected,
            s.Disconnected: self._disconnected,
        }
        self._messages: dict[type, Callable[..., None]] = {
            m.Acknowledge: self._acknowledged,
            m.Acknowledgements: self._acknowledged_all,
            m.Forward: self._forwarded,
            m.Taken: self._taken,
            m.Ping: self._pinged,
        }
        self.overlay.join(id, self.outboxes, incarnation)

    @property
    def waiting(self) -> int:
        """Requests that wait for the store."""
        return len(self._waiting)

    def handle(self, input: s.Input, now: float) -> list[s.Effect]:
        """One input, and all effects that follow from it, in order."""
        self._effects = []
        self._steps[type(input)](input, now)
        return self._effects

    def _received(self, input: s.Received, now: float) -> None:
        message = input.message
        step = self._messages.get(type(message))
        if step is not None:
            step(input.peer, message, now, input.transit_s)
        elif isinstance(message, m.Request):
            try:
                self._requested(input.peer, message, now, now - input.transit_s)
            except TidingsError as error:
                self._send(input.peer, m.Failed(message.request, type(error).__name__, str(error)))
        elif isinstance(message, m.Overlaid):
            self._effects += self.overlay.received(input.peer, message, now)
            self._remote_subscriptions_changed(now)

    # 1. A request is checked and stored; what it asks for happens, and is acknowledged, once its records are safe.

    def _requested(self, peer: str, request: m.Request, now: float, born_s: float) -> None:
        record: s.Record
        match request:
            case m.Publish(number, event):
                if event.id in self._seen:
                    self._published_again(peer, number, event.id)
                    return
                event = msgspec.structs.replace(event, timestamp_s=self._epoch_s + born_s)
                request = m.Publish(number, event)
                record = s.EventRecord(event)
            case m.Subscribe(_, subscription):
                self._check_owner(peer, subscription)
                if self.subscriptions.get(subscription.id) == subscription:  # its subscriber is back, or asks twice
                    self._resume(subscription, now)
                    self._send(peer, m.Done(request.request, subscription.id, repeated=True))
                    return
                record = s.SubscriptionRecord(subscription)
            case m.Unsubscribe(_, id):
                if id not in self.subscriptions or self.subscriptions[id].subscriber != peer:
                    raise UnknownName(f"subscription {id!r} is not registered for {peer!r}")
                record = s.UnsubscriptionRecord(id)
            case m.Advertise(_, advertisement):
                record = s.AdvertisementRecord(advertisement)
            case m.Unadvertise(_, id):
                if id not in self.advertisements:
                    raise UnknownName(f"advertisement {id!r} is not registered")
                record = s.UnadvertisementRecord(id)
        self._store(peer, request, record, born_s)

    def _check_owner(self, peer: str, subscription: Subscription) -> None:
        known = self.subscriptions.get(subscription.id)
        if subscription.subscriber != peer or (known is not None and known.subscriber != peer):
            raise InvalidSubscription(f"subscription {subscription.id!r} belongs to another subscriber than {peer!r}")

    def _store(self, peer: str, request: m.Request, record: s.Record, born_s: float) -> None:
        if len(self._waiting) >= MAX_WAITING:
            raise LimitExceeded(f"{MAX_WAITING} requests wait for the store; try again later")
        self._ticket += 1
        if isinstance(request, m.Publish):
            self._remember(request.event.id, self._ticket)
        self._waiting[self._ticket] = (request, born_s)
        self._askers[self._ticket] = [(peer, request.request)]
        self._effects.append(s.Store(self._ticket, (record,)))

    def _published_again(self, peer: str, number: int, id: str) -> None:
        """The same id twice delivers once; the second publisher, too, hears only when the first is safe."""
        ticket = self._seen[id]
        if ticket:
            self._askers[ticket].append((peer, number))
        else:
            self._send(peer, m.Done(number, id, repeated=True))

    def _remember(self, id: str, ticket: int) -> None:
        self._seen[id] = ticket
        if len(self._seen) > REMEMBERED_IDS:
            del self._seen[next(iter(self._seen))]

    # 2. Stored: carry out, acknowledge.

    def _stored(self, input: s.Stored, now: float) -> None:
        request, born_s = self._waiting.pop(input.ticket)
        id = self._carry_out(request, now)
        for position, (peer, number) in enumerate(self._askers.pop(input.ticket)):
            self._send(peer, m.Done(number, id, repeated=position > 0))
        if isinstance(request, m.Publish):
            self._match(request.event, born_s, now)

    def _carry_out(self, request: m.Request, now: float) -> str:
        match request:
            case m.Publish(_, event):
                if event.id in self._seen:
                    self._seen[event.id] = 0
                return event.id
            case m.Subscribe(_, subscription):
                known = self.subscriptions.get(subscription.id)
                if known is not None:
                    self._forget(subscription.id, UNSUBSCRIBED, now)
                self._add(subscription)
                self.matcher.add(subscription)
                self._effects += self.overlay.subscribed(subscription, now)
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

    def _store_failed(self, input: s.StoreFailed, now: float) -> None:
        request, _ = self._waiting.pop(input.ticket)
        if isinstance(request, m.Publish):
            self._seen.pop(request.event.id, None)
        for peer, number in self._askers.pop(input.ticket):
            self._send(peer, m.Failed(number, "StoreError", input.reason))

    # 3. Match, once, where the event was published; or take over from the broker that sends a copy.

    def _match(self, event: Event, born_s: float, now: float, *, again: bool = False) -> None:
        if self._unindexed:
            self._index()
        ids = self.matcher.match(event)
        if ids:
            relayed = self.overlay.spread(event, ids, now)
            self._found(event, relayed.here, born_s)
            self._route(event, born_s, relayed, (self.id,), now, again=again)
        else:
            self._found(event, (), born_s)

    def _found(self, event: Event, here: Iterable[str], born_s: float) -> None:
        """In the stores a pair is matched where it ends: here, if it is for a client of ours. Those that are carried on are not
        kept on the way."""
        self._effects.append(s.Store(0, (s.MatchRecord(event.id, tuple(here), event.type, self._epoch_s + born_s),)))

    def _forwarded(self, peer: str, forward: m.Forward, now: float, transit_s: float) -> None:
        outbox = self._neighbour(peer)
        if outbox is None or forward.number <= outbox.taken:
            return  # from a stranger, or it came twice
        outbox.taken = forward.number
        self._effects.append(s.Send(peer, m.Taken(forward.number)))
        relayed = self.overlay.relay(forward.event, forward.routes, forward.via, now)
        born_s = now - forward.age_s - transit_s
        if relayed.here:
            if any(id in self.subscriptions and self.subscriptions[id].durable for id in relayed.here):
                self._effects.append(s.Store(0, (s.EventRecord(forward.event),)))
            self._found(forward.event, relayed.here, born_s)
        self._route(forward.event, born_s, relayed, (*forward.via, self.id), now, received=True)

    # 4. Route: the accounts are opened; one item for each local client and each neighbour.

    def _route(
        self,
        event: Event,
        born_s: float,
        relayed: Relayed,
        via: tuple[str, ...],
        now: float,
        *,
        received: bool = False,
        again: bool = False,
    ) -> None:
        if relayed.here:
            for client, targets in self._by_client(event, relayed.here).items():
                self.ledger.open(event.id, targets, born_s, event.type, received=received)
                self._schedule(client, Item(event, born_s, targets, again), now)
        for peer, targets in relayed.onward:
            self.ledger.carry(len(targets), received=received)
            self._schedule(peer, Item(event, born_s, targets, False, via), now)
        if relayed.lost:
            self.ledger.carry(len(relayed.lost), received=received)
            self._lose(event.id, relayed.lost, NO_PATH, now - born_s, now)

    def _by_client(self, event: Event, ids: Iterable[str]) -> dict[str, tuple[Target, ...]]:
        by_client: dict[str, tuple[Target, ...]] = {}
        outboxes = self.outboxes
        for id in ids:
            subscription = self.subscriptions.get(id)
            if subscription is None:  # it ended while the copy was under way
                client, target = "", Target(id, event.timeout_s, 0.0, 0.0)
            else:
                client = DURABLE + id if subscription.durable and DURABLE + id in outboxes else subscription.subscriber
                target = self._targets[id]
                if event.timeout_s < target.deadline_s:
                    target = Target(id, event.timeout_s, target.price, target.penalty)
            others = by_client.get(client)
            by_client[client] = (target,) if others is None else (*others, target)
        return by_client

    # 5. Schedule: into the outbox of the link, and out of it again when the link is ready.

    def _schedule(self, peer: str, item: Item, now: float) -> None:
        outbox = self.outboxes.get(peer)
        if outbox is None:
            reason = SUBSCRIBER_GONE if peer else UNSUBSCRIBED
            self._record(self.ledger.give_up(item.event.id, item.targets, reason, now - item.born_s))
        elif outbox.role == m.CLIENT and outbox.idle():
            outbox.ready = False
            self._deliver(outbox, item, now)
        else:
            outbox.push(item, now)
            self._serve(outbox, now)

    def _link_ready(self, input: s.LinkReady, now: float) -> None:
        outbox = self.outboxes.get(input.peer)
        if outbox is not None:
            outbox.link_ready(now, input.took)
            if len(outbox.scheduler):
                self._serve(outbox, now)

    def _serve(self, outbox: Outbox, now: float) -> None:
        go = self._forward if outbox.role == m.BROKER else self._deliver
        while outbox.ready and (item := outbox.next(now)) is not None:
            go(outbox, item, now)
        if self._probing and (size_kb := outbox.probe(now)):
            self._send(outbox.peer, m.Probe(size_kb))
        self._account_for(outbox, outbox.dropped(), now)
        self._set_alarm(outbox)

    # 6. Send to a neighbour, or deliver to a client what is in time.

    def _forward(self, outbox: Outbox, item: Item, now: float) -> None:
        copy = m.Forward(item.event, item.via, routes(item.targets), now - item.born_s, outbox.sent(item, now))
        self._effects.append(s.Send(outbox.peer, copy))

    def _deliver(self, outbox: Outbox, item: Item, now: float) -> None:
        age_s = now - item.born_s
        targets = item.targets
        if len(targets) == 1 and age_s <= targets[0].deadline_s:
            in_time: tuple[str, ...] = (targets[0].subscription,)
        else:
            in_time = tuple(target.subscription for target in targets if age_s <= target.deadline_s)
        if len(in_time) < len(targets):
            too_late = tuple(target for target in item.targets if age_s > target.deadline_s)
            reason = TIMED_OUT if age_s > item.event.timeout_s else DEADLINE_PASSED
            self._record(self.ledger.expire(item.event.id, too_late, reason, age_s))
        if in_time:
            if outbox.durable:
                outbox.delivered(item, in_time)
            self._effects.append(s.Deliver(outbox.peer, item.event, in_time, age_s, item.redelivered))
        else:
            outbox.ready = True

    # 7. Account: the client has it, the neighbour has it, it was dropped, or nobody is there for it.

    def _acknowledged(self, peer: str, message: m.Acknowledge, now: float, transit_s: float) -> None:
        self._has(peer, ((message.event, message.subscription),), now - transit_s)

    def _acknowledged_all(self, peer: str, message: m.Acknowledgements, now: float, transit_s: float) -> None:
        self._has(peer, message.pairs, now - transit_s)

    def _has(self, peer: str, pairs: tuple[tuple[str, str], ...], now: float) -> None:
        outbox = self.outboxes[peer]
        records: list[s.AccountRecord] = []
        for event, id in pairs:
            if id in outbox.subscriptions:  # nobody closes the accounts of others
                if outbox.durable:
                    outbox.received(event, id)
                records += self.ledger.received(event, id, now)
        self._record(records)

    def _taken(self, peer: str, message: m.Taken, now: float, transit_s: float) -> None:
        outbox = self._neighbour(peer)
        if outbox is None:
            return
        self.ledger.hand_over(outbox.acknowledged(message.number))
        if message.resumed:
            for item in outbox.resumed():
                self._send_again(item, now)
            self._serve(outbox, now)

    def _account_for(self, outbox: Outbox, dropped: list[Dropped], now: float) -> None:
        for item, reason in dropped:
            id, age_s = item.event.id, now - item.born_s
            if outbox.role == m.BROKER:
                self._close_carried(id, item.targets, Account.EXPIRED, reason, age_s, now)
            else:
                self._record(self.ledger.expire(id, item.targets, reason, age_s))

    def _set_alarm(self, outbox: Outbox) -> None:
        at_s = outbox.alarm()
        if at_s is not None:
            self._effects.append(s.Wake(outbox.peer, at_s))

    def _woke(self, input: s.Woke, now: float) -> None:
        if input.timer.startswith(TIMER):
            self._effects += self.overlay.woke(input.timer, now)
            if self._probing:
                for each in self.outboxes.values():
                    self._serve(each, now)
            return
        outbox = self.outboxes.get(input.timer)
        if outbox is not None:
            self._account_for(outbox, outbox.alarmed(now), now)
            self._set_alarm(outbox)

    # Peers and subscriptions come and go.

    def _connected(self, input: s.Connected, now: float) -> None:
        outbox = self._outbox(input.peer, input.role)
        if input.role == m.BROKER:
            self._send(input.peer, m.Taken(outbox.taken, resumed=True))
            self._effects += self.overlay.connected(input.peer, now)

    def _neighbour(self, peer: str) -> Outbox | None:
        """The outbox of a broker; what only brokers may say is ignored from anybody else."""
        outbox = self.outboxes.get(peer)
        return outbox if outbox is not None and outbox.role == m.BROKER else None

    def _outbox(self, peer: str, role: str) -> Outbox:
        outbox = self.outboxes.get(peer)
        if outbox is None:
            scheduler = self._scheduler() if self._links is None else self._scheduler(link=self._links(peer, role))
            outbox = self.outboxes[peer] = Outbox(peer, scheduler, role, self._first_number, probing=self._probing)
        return outbox

    def _disconnected(self, input: s.Disconnected, now: float) -> None:
        outbox = self.outboxes.get(input.peer)
        if outbox is None:
            return
        if outbox.role == m.CLIENT:
            self._client_left(outbox, now)
            return
        outbox.link_lost()
        self._effects += self.overlay.disconnected(input.peer, now)
        for item in outbox.emptied():
            self._send_again(item, now)

    def _client_left(self, outbox: Outbox, now: float) -> None:
        """What is durable waits for the client to come back; the rest ends."""
        for id in sorted(outbox.subscriptions - outbox.durable):
            self._forget(id, SUBSCRIBER_GONE, now)
        del self.outboxes[outbox.peer]
        for id in sorted(outbox.durable):
            self._outbox(DURABLE + id, m.CLIENT)
        for item in (*outbox.taken_back(), *outbox.emptied()):
            for target in item.targets:
                self._schedule(DURABLE + target.subscription, msgspec.structs.replace(item, targets=(target,)), now)

    def _resume(self, subscription: Subscription, now: float) -> None:
        """The subscriber is back: what waited for it goes to its own outbox."""
        asleep = self.outboxes.get(DURABLE + subscription.id)
        if asleep is not None and subscription.subscriber in self.outboxes:
            del self.outboxes[asleep.peer]
            self._add(subscription)
            for item in asleep.emptied():
                self._schedule(subscription.subscriber, item, now)

    def _send_again(self, item: Item, now: float) -> None:
        """Around a link that is gone, if there is a way; else it waits for the link to come back, or for its deadline."""
        relayed = self.overlay.relay(item.event, routes(item.targets, self.id), item.via, now)
        for peer, targets in relayed.onward:
            self._schedule(peer, msgspec.structs.replace(item, targets=targets), now)
        if relayed.lost:
            self._lose(item.event.id, relayed.lost, NO_PATH, now - item.born_s, now)

    def _add(self, subscription: Subscription) -> None:
        id = subscription.id
        self.subscriptions[id] = subscription
        self._targets[id] = Target(id, subscription.deadline_s, subscription.price, subscription.penalty)
        outbox = self.outboxes.get(subscription.subscriber)
        if outbox is not None:
            outbox.subscriptions.add(subscription.id)
            if subscription.durable:
                outbox.durable.add(subscription.id)
        elif subscription.durable:
            self._outbox(DURABLE + subscription.id, m.CLIENT)

    def _forget(self, id: str, reason: str, now: float) -> None:
        subscription = self.subscriptions.pop(id)
        del self._targets[id]
        self.matcher.remove(id)
        self.outboxes.pop(DURABLE + id, None)
        outbox = self.outboxes.get(subscription.subscriber)
        if outbox is not None:
            outbox.forget(id)
        self._record(self.ledger.abandon(id, reason, now))
        self._effects += self.overlay.unsubscribed(id, now)

    def _remote_subscriptions_changed(self, now: float) -> None:
        for id, subscription in self.overlay.changes():
            self._unindexed[id] = subscription
            if subscription is None:
                for outbox in self.outboxes.values():
                    for item, target in outbox.withdraw(id):
                        self._lose(item.event.id, [target], UNSUBSCRIBED, now - item.born_s, now)

    def _index(self) -> None:
        """Remote subscriptions are indexed when an event is published here: most brokers only pass events on."""
        for id, subscription in self._unindexed.items():
            if id in self.matcher:
                self.matcher.remove(id)
            if subscription is not None:
                self.matcher.add(subscription)
        self._unindexed.clear()

    # After a restart (restore.py).

    def since(self, wall_s: float) -> float:
        """A time of the wall clock on this broker's own."""
        return wall_s - self._epoch_s

    def remember(self, id: str) -> None:
        """This event was published before."""
        self._remember(id, 0)

    def resubscribe(self, subscriptions: list[Subscription], now: float) -> list[s.Effect]:
        """Their subscribers are not there, but may come back."""
        self._effects = []
        self.matcher.add_all(subscriptions)
        for subscription in subscriptions:
            self._add(subscription)
            self._effects += self.overlay.subscribed(subscription, now)
        return self._effects

    def rematch(self, event: Event, now: float) -> list[s.Effect]:
        """It was stored, and cut short: perhaps after it was delivered."""
        self._effects = []
        self._match(event, self.since(event.timestamp_s), now, again=True)
        return self._effects

    def reopen(self, event: Event, ids: tuple[str, ...], born_s: float, now: float) -> list[s.Effect]:
        """It was matched, and may have been delivered."""
        self._effects = []
        for client, targets in self._by_client(event, ids).items():
            self.ledger.open(event.id, targets, born_s, event.type)
            self._schedule(client, Item(event, born_s, targets, redelivered=True), now)
        return self._effects

    def _lose(self, event: str, targets: list[Target], reason: str, age_s: float, now: float) -> None:
        self._close_carried(event, tuple(targets), Account.UNDELIVERABLE, reason, age_s, now)

    def _close_carried(
        self, event: str, targets: tuple[Target, ...], account: Account, reason: str, age_s: float, now: float
    ) -> None:
        """Pairs on their way to another broker end here."""
        ids = tuple(target.subscription for target in targets)
        matched = s.MatchRecord(event, ids, "", self._epoch_s + now - age_s)
        closed = self.ledger.close_carried(event, targets, account, reason, age_s)
        self._effects.append(s.Store(0, (matched, *closed)))

    def _record(self, records: list[s.AccountRecord]) -> None:
        if records:
            self._effects.append(s.Store(0, tuple(records)))

    def _pinged(self, peer: str, message: m.Ping, now: float, transit_s: float) -> None:
        self._send(peer, m.Pong(message.number))

    def _send(self, peer: str, message: m.Message) -> None:
        self._effects.append(s.Send(peer, message))
