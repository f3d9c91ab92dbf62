"""A broker starts again with what its store has kept: durable subscriptions, open pairs, copies for other brokers.

Whoever was connected is gone: subscriptions that are not durable end here, and what waited for them is undeliverable.
Pure: effects out. The store's clock is the wall clock, the broker's its driver's; `epoch_s` lies between them.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Protocol

from tidings.broker.broker import Broker
from tidings.broker.ledger import Account
from tidings.broker.outflow import SUBSCRIBER_GONE
from tidings.model import step as s
from tidings.model.event import Event
from tidings.model.subscription import Advertisement, Subscription


class OpenPairs(Protocol):
    """An event that was matched and still waits for some of its subscriptions; the event is None if it was not kept."""

    @property
    def id(self) -> str: ...
    @property
    def event(self) -> Event | None: ...
    @property
    def born_s(self) -> float: ...
    @property
    def subscriptions(self) -> tuple[str, ...]: ...


class Live(Protocol):
    @property
    def subscription(self) -> Subscription: ...


class Kept(Protocol):
    """What a store has kept."""

    @property
    def subscriptions(self) -> Sequence[Live]: ...
    @property
    def advertisements(self) -> Sequence[Advertisement]: ...
    @property
    def open(self) -> Sequence[OpenPairs]: ...
    @property
    def copies(self) -> Sequence[s.CopyRecord]: ...
    @property
    def taken(self) -> Mapping[str, int]: ...
    @property
    def arrivals(self) -> Sequence[s.TakenRecord]: ...
    @property
    def neighbours(self) -> Sequence[str]: ...
    @property
    def learned(self) -> Sequence[s.OverlayRecord]: ...
    @property
    def recent_ids(self) -> Sequence[str]: ...


def restore(broker: Broker, kept: Kept, unmatched: Iterable[Event], now: float) -> list[s.Effect]:
    """Comes before any other input."""
    subscriptions = [live.subscription for live in kept.subscriptions]
    durable = {subscription.id: subscription for subscription in subscriptions if subscription.durable}
    effects: list[s.Effect] = []
    ended = [s.UnsubscriptionRecord(known.id) for known in subscriptions if not known.durable]
    if ended:
        effects.append(s.Store(0, tuple(ended)))
    for id in kept.recent_ids:
        broker.remember(id)
    broker.advertisements.update((known.id, known) for known in kept.advertisements)
    effects += broker.resubscribe(list(durable.values()), now)
    for pairs in kept.open:
        effects += _reopen(broker, pairs, durable, now)
    broker.rejoin(kept.neighbours, kept.learned, now)
    if broker.transit is not None:
        broker.transit.restore(kept.taken, kept.arrivals)
        for copy in kept.copies:
            broker.carry_again(copy)
    for event in unmatched:
        effects += broker.rematch(event, now)
    return effects


def _reopen(broker: Broker, pairs: OpenPairs, durable: dict[str, Subscription], now: float) -> list[s.Effect]:
    """What its subscriber may have seen goes out again, marked; what nobody can get any more is closed."""
    event, lasting = pairs.event, tuple(id for id in pairs.subscriptions if id in durable)
    gone = tuple(id for id in pairs.subscriptions if event is None or id not in durable)
    effects: list[s.Effect] = []
    if gone:
        age_s, type = now - broker.since(pairs.born_s), "" if event is None else event.type
        closed = (
            s.AccountRecord(pairs.id, id, Account.UNDELIVERABLE, SUBSCRIBER_GONE, broker.id, age_s, 0.0, type)
            for id in gone
        )
        effects.append(s.Store(0, tuple(closed)))
    if event is not None and lasting:
        effects += broker.reopen(event, lasting, broker.since(pairs.born_s), now)
    return effects
