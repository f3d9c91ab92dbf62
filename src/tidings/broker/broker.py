"""The broker: the path of an event, step by step, and nothing else.

publish -> store, then acknowledge -> match -> schedule -> send or deliver -> account. Each step is one method below, in
this order; the algorithms live in matching, scheduling and the ledger. Pure: `handle(input, now)` returns effects.
"""

from collections.abc import Callable

import msgspec

from tidings.broker.ledger import Ledger
from tidings.broker.outbox import Outbox
from tidings.errors import InvalidSubscription, LimitExceeded, TidingsError, UnknownName
from tidings.matching.base import Matcher
from tidings.model import message as m
from tidings.model import step as s
from tidings.model.event import Event
from tidings.model.subscription import Advertisement, Subscription
from tidings.scheduling.base import DEADLINE_PASSED, TIMED_OUT, Dropped, Item, Scheduler, Target

REMEMBERED_IDS = 100_000
MAX_WAITING = 100_000

UNSUBSCRIBED = "unsubscribed"
SUBSCRIBER_GONE = "subscriber gone"


class Broker:
    """`epoch_s` turns the driver's clock into the timestamp of events: timestamp = epoch_s + now."""

    def __init__(self, id: str, matcher: Matcher, scheduler: Callable[[], Scheduler], *, epoch_s: float = 0.0) -> None:
        self.id = id
        self.matcher = matcher
        self.ledger = Ledger(id)
        self.subscriptions: dict[str, Subscription] = {}
        self.advertisements: dict[str, Advertisement] = {}
        self.outboxes: dict[str, Outbox] = {}
        self._scheduler = scheduler
        self._epoch_s = epoch_s
        self._ticket = 0
        self._waiting: dict[int, tuple[m.Request, float]] = {}  # ticket -> what its records complete, since when
        self._askers: dict[int, list[tuple[str, int]]] = {}  # ticket -> (peer, request) to answer
        self._seen: dict[str, int] = {}  # event id -> ticket, 0 once stored; the oldest are forgotten
        self._effects: list[s.Effect] = []

    def handle(self, input: s.Input, now: float) -> list[s.Effect]:
        """One input, and all effects that follow from it, in order."""
        self._effects = []
        match input:
            case s.Received(peer, message):
                self._received(peer, message, now)
            case s.LinkReady(peer):
                self._link_ready(peer, now)
            case s.Stored(ticket):
                self._stored(ticket, now)
            case s.StoreFailed(ticket, reason):
                self._store_failed(ticket, reason)
            case s.Woke(peer):
                self._woke(peer, now)
            case s.Connected(peer):
                self.outboxes.setdefault(peer, Outbox(peer, self._scheduler()))
            case s.Disconnected(peer):
                self._disconnected(peer, now)
        return self._effects

    def _received(self, peer: str, message: m.Message, now: float) -> None:
        match message:
            case m.Acknowledge(event, subscription):
                self._acknowledged(event, subscription, now)
            case m.Publish() | m.Subscribe() | m.Unsubscribe() | m.Advertise() | m.Unadvertise():
                try:
                    self._requested(peer, message, now)
                except TidingsError as error:
                    self._send(peer, m.Failed(message.request, type(error).__name__, str(error)))
            case m.Ping(number):
                self._send(peer, m.Pong(number))

    # 1. A request is checked and stored; what it asks for happens, and is acknowledged, once its records are safe.

    def _requested(self, peer: str, request: m.Request, now: float) -> None:
        record: s.Record
        match request:
            case m.Publish(number, event):
                if event.id in self._seen:
                    self._published_again(peer, number, event.id)
                    return
                event = msgspec.structs.replace(event, timestamp_s=self._epoch_s + now)
                request = m.Publish(number, event)
                record = s.EventRecord(event)
            case m.Subscribe(_, subscription):
                self._check_owner(peer, subscription)
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
        self._store(peer, request, record, now)

    def _check_owner(self, peer: str, subscription: Subscription) -> None:
        known = self.subscriptions.get(subscription.id)
        if subscription.subscriber != peer or (known is not None and known.subscriber != peer):
            raise InvalidSubscription(f"subscription {subscription.id!r} belongs to another subscriber than {peer!r}")

    def _store(self, peer: str, request: m.Request, record: s.Record, now: float) -> None:
        if len(self._waiting) >= MAX_WAITING:
            raise LimitExceeded(f"{MAX_WAITING} requests wait for the store; try again later")
        self._ticket += 1
        if isinstance(request, m.Publish):
            self._remember(request.event.id, self._ticket)
        self._waiting[self._ticket] = (request, now)
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

    def _stored(self, ticket: int, now: float) -> None:
        request, since_s = self._waiting.pop(ticket)
        id = self._carry_out(request, now)
        for position, (peer, number) in enumerate(self._askers.pop(ticket)):
            self._send(peer, m.Done(number, id, repeated=position > 0))
        if isinstance(request, m.Publish):
            self._match(request.event, since_s, now)

    def _carry_out(self, request: m.Request, now: float) -> str:
        match request:
            case m.Publish(_, event):
                if event.id in self._seen:
                    self._seen[event.id] = 0
                return event.id
            case m.Subscribe(_, subscription):
                if subscription.id in self.subscriptions:
                    self._forget(subscription.id, UNSUBSCRIBED, now)
                self.matcher.add(subscription)
                self.subscriptions[subscription.id] = subscription
                return subscription.id
            case m.Unsubscribe(_, id):
                if id in self.subscriptions:
                    self._forget(id, UNSUBSCRIBED, now)
                return id
            case m.Advertise(_, advertisement):
                self.advertisements[advertisement.id] = advertisement
                return advertisement.id
            case m.Unadvertise(_, id):
                self.advertisements.pop(id, None)
                return id

    def _store_failed(self, ticket: int, reason: str) -> None:
        request, _ = self._waiting.pop(ticket)
        if isinstance(request, m.Publish):
            self._seen.pop(request.event.id, None)
        for peer, number in self._askers.pop(ticket):
            self._send(peer, m.Failed(number, "StoreFailed", reason))

    # 3. Match: the accounts are opened.

    def _match(self, event: Event, born_s: float, now: float) -> None:
        by_client: dict[str, list[Target]] = {}
        for id in self.matcher.match(event):
            subscription = self.subscriptions[id]
            deadline_s = min(event.timeout_s, subscription.deadline_s)
            target = Target(id, deadline_s, subscription.price, subscription.penalty)
            by_client.setdefault(subscription.subscriber, []).append(target)
        for client, targets in by_client.items():
            item = Item(event, born_s, tuple(targets))
            self.ledger.open(event.id, item.targets, born_s)
            self._schedule(client, item, now)

    # 4. Schedule: into the outbox of the link, and out of it again when the link is ready.

    def _schedule(self, peer: str, item: Item, now: float) -> None:
        outbox = self.outboxes.get(peer)
        if outbox is None:
            self._record(self.ledger.give_up(item.event.id, item.targets, SUBSCRIBER_GONE, now - item.born_s))
            return
        outbox.push(item, now)
        self._serve(outbox, now)

    def _link_ready(self, peer: str, now: float) -> None:
        outbox = self.outboxes.get(peer)
        if outbox is not None:
            outbox.ready = True
            self._serve(outbox, now)

    def _serve(self, outbox: Outbox, now: float) -> None:
        while outbox.ready and (item := outbox.next(now)) is not None:
            self._deliver(outbox, item, now)
        self._account_for(outbox.dropped(), now)
        self._set_alarm(outbox)

    # 5. Deliver: what is in time goes to the client; the client's acknowledgement closes the account.

    def _deliver(self, outbox: Outbox, item: Item, now: float) -> None:
        age_s = now - item.born_s
        in_time = tuple(target for target in item.targets if age_s <= target.deadline_s)
        too_late = tuple(target for target in item.targets if age_s > target.deadline_s)
        reason = TIMED_OUT if age_s > item.event.timeout_s else DEADLINE_PASSED
        self._record(self.ledger.expire(item.event.id, too_late, reason, age_s))
        if in_time:
            ids = tuple(target.subscription for target in in_time)
            self._effects.append(s.Deliver(outbox.peer, item.event, ids, age_s, item.redelivered))
        else:
            outbox.ready = True

    def _acknowledged(self, event: str, subscription: str, now: float) -> None:
        self._record(self.ledger.received(event, subscription, now))

    # 6. Account: what was dropped, and what nobody is there for.

    def _account_for(self, dropped: list[Dropped], now: float) -> None:
        for item, reason in dropped:
            self._record(self.ledger.expire(item.event.id, item.targets, reason, now - item.born_s))

    def _set_alarm(self, outbox: Outbox) -> None:
        """Without traffic on its link, a waiting item must still be accounted for when its time is over."""
        at_s = outbox.alarm()
        if at_s is not None:
            self._effects.append(s.Wake(outbox.peer, at_s))

    def _woke(self, peer: str, now: float) -> None:
        outbox = self.outboxes.get(peer)
        if outbox is not None:
            self._account_for(outbox.alarmed(now), now)
            self._set_alarm(outbox)

    def _disconnected(self, peer: str, now: float) -> None:
        self.outboxes.pop(peer, None)
        for id in [id for id, subscription in self.subscriptions.items() if subscription.subscriber == peer]:
            self._forget(id, SUBSCRIBER_GONE, now)

    def _forget(self, id: str, reason: str, now: float) -> None:
        subscription = self.subscriptions.pop(id)
        self.matcher.remove(id)
        outbox = self.outboxes.get(subscription.subscriber)
        if outbox is not None:
            outbox.scheduler.withdraw(id)
        self._record(self.ledger.abandon(id, reason, now))

    def _record(self, records: list[s.AccountRecord]) -> None:
        if records:
            self._effects.append(s.Store(0, tuple(records)))

    def _send(self, peer: str, message: m.Message) -> None:
        self._effects.append(s.Send(peer, message))
