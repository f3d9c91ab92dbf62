"""A broker starts again with what its store has kept: durable subscriptions, open pairs, events that were cut short.

Whoever was connected is gone: subscriptions that are not durable end here, and what waited for them is undeliverable.
Pure: effects out. The store's clock is the wall clock, the broker's its driver's; `epoch_s` lies between them.
"""

from collections.abc import Iterable, Sequence
from typing import Protocol

from tidings.broker.broker import SUBSCRIBER_GONE, Broker
from tidings.broker.ledger import Account
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


def restore(
    broker: Broker,
    subscriptions: Sequence[Subscription],
    advertisements: Iterable[Advertisement],
    opened: Iterable[OpenPairs],
    unmatched: Iterable[Event],
    recent_ids: Iterable[str],
    now: float,
) -> list[s.Effect]:
    """Comes before any other input."""
    durable = {subscription.id: subscription for subscription in subscriptions if subscription.durable}
    effects: list[s.Effect] = []
    ended = [s.UnsubscriptionRecord(known.id) for known in subscriptions if not known.durable]
    if ended:
        effects.append(s.Store(0, tuple(ended)))
    for id in recent_ids:
        broker.remember(id)
    broker.advertisements.update((known.id, known) for known in advertisements)
    effects += broker.resubscribe(list(durable.values()), now)
    for pairs in opened:
        effects += _reopen(broker, pairs, durable, now)
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
