"""Who wants what: the subscriptions of this broker's clients, advertisements, and the index of these and of remote subscriptions.

Costs as the matching engine does. Remote subscriptions are indexed when an event is published here: most brokers only pass
events on.
"""

from collections.abc import Iterable, Mapping

from tidings.errors import InvalidSubscription, UnknownName
from tidings.matching.base import Matcher
from tidings.model import message as m
from tidings.model import step as s
from tidings.model.event import Event
from tidings.model.subscription import Advertisement, Subscription
from tidings.scheduling.base import Target

# A durable subscription whose client is away has an outbox of its own; no client's name contains a colon.
DURABLE = "durable:"


class Registry:
    """`outboxes` is a live view: it tells which durable subscriptions are asleep."""

    def __init__(self, matcher: Matcher, outboxes: Mapping[str, object]) -> None:
        self.subscriptions: dict[str, Subscription] = {}
        self.advertisements: dict[str, Advertisement] = {}
        self._matcher, self._outboxes = matcher, outboxes
        self._targets: dict[str, Target] = {}  # for events that last long enough
        self._durable: set[str] = set()
        self._unindexed: dict[str, Subscription | None] = {}  # what became of remote subscriptions since the last match

    def record(self, peer: str, request: m.Request) -> s.Record | None:
        """What a request asks to be kept; None if it is so already. Whoever may not ask for it gets an error."""
        match request:
            case m.Subscribe(_, subscription):
                known = self.subscriptions.get(subscription.id)
                if subscription.subscriber != peer or (known is not None and known.subscriber != peer):
                    raise InvalidSubscription(
                        f"subscription {subscription.id!r} belongs to another subscriber than {peer!r}"
                    )
                return None if known == subscription else s.SubscriptionRecord(subscription)
            case m.Unsubscribe(_, id):
                if id not in self.subscriptions or self.subscriptions[id].subscriber != peer:
                    raise UnknownName(f"subscription {id!r} is not registered for {peer!r}")
                return s.UnsubscriptionRecord(id)
            case m.Advertise(_, advertisement):
                return s.AdvertisementRecord(advertisement)
            case m.Unadvertise(_, id):
                if id not in self.advertisements:
                    raise UnknownName(f"advertisement {id!r} is not registered")
                return s.UnadvertisementRecord(id)
            case m.Publish(_, event):
                return s.EventRecord(event)

    def add(self, subscription: Subscription) -> None:
        self.note(subscription)
        self._matcher.add(subscription)

    def add_all(self, subscriptions: list[Subscription]) -> None:
        for subscription in subscriptions:
            self.note(subscription)
        self._matcher.add_all(subscriptions)

    def note(self, subscription: Subscription) -> None:
        id = subscription.id
        self.subscriptions[id] = subscription
        self._targets[id] = Target(id, subscription.deadline_s, subscription.price, subscription.penalty)
        if subscription.durable:
            self._durable.add(id)
        else:
            self._durable.discard(id)

    def remove(self, id: str) -> Subscription:
        subscription = self.subscriptions.pop(id)
        del self._targets[id]
        self._durable.discard(id)
        self._matcher.remove(id)
        return subscription

    def remote(self, id: str, subscription: Subscription | None) -> None:
        """A subscription that lives elsewhere is new or different, or (None) gone."""
        self._unindexed[id] = subscription

    def match(self, event: Event) -> list[str]:
        if self._unindexed:
            self._index()
        return self._matcher.match(event)

    def _index(self) -> None:
        for id, subscription in self._unindexed.items():
            if id in self._matcher:
                self._matcher.remove(id)
            if subscription is not None:
                self._matcher.add(subscription)
        self._unindexed.clear()

    def by_client(self, event: Event, ids: Iterable[str]) -> dict[str, tuple[Target, ...]]:
        """The targets of each client; those of subscriptions that ended while the copy was under way under the empty name."""
        by_client: dict[str, tuple[Target, ...]] = {}
        outboxes = self._outboxes
        for id in ids:
            subscription = self.subscriptions.get(id)
            if subscription is None:
                client, target = "", Target(id, event.timeout_s, 0.0, 0.0)
            else:
                client = DURABLE + id if subscription.durable and DURABLE + id in outboxes else subscription.subscriber
                target = self._targets[id]
                if event.timeout_s < target.deadline_s:
                    target = Target(id, event.timeout_s, target.price, target.penalty)
            others = by_client.get(client)
            by_client[client] = (target,) if others is None else (*others, target)
        return by_client

    def any_durable(self, ids: Iterable[str]) -> bool:
        return not self._durable.isdisjoint(ids)
