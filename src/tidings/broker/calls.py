"""What every bus, embedded or over the network, takes from its callers and shows them."""

from collections.abc import Mapping
from typing import Any, NoReturn

import msgspec

from tidings import errors
from tidings.broker.ledger import Tally
from tidings.errors import TidingsError
from tidings.language import from_pattern, parse
from tidings.model.event import Event
from tidings.model.filter import Filter
from tidings.model.message import Failed


class Notification(msgspec.Struct, frozen=True):
    """An event that a subscription wants, as its subscriber receives it."""

    event: Event
    subscription: str
    age_s: float
    redelivered: bool = False

    def __str__(self) -> str:
        return f"{self.event.summary()} for {self.subscription} after {self.age_s:.3f} s"


class LedgerReport(msgspec.Struct, frozen=True):
    """The accounts at one moment: in all, and by subscription; and why pairs expired or could not be delivered."""

    total: Tally
    by_subscription: dict[str, Tally]
    reasons: dict[str, int]


def as_filter(filter: str | Mapping[str, Any] | Filter) -> Filter:
    """Filter text, a JSON pattern, or a Filter."""
    if isinstance(filter, str):
        return parse(filter)
    return from_pattern(dict(filter)) if isinstance(filter, Mapping) else filter


def as_types(types: str | Any) -> tuple[str, ...]:
    return (types,) if isinstance(types, str) else tuple(types)


def raise_failed(failed: Failed) -> NoReturn:
    """The error that the broker named, as if it had been raised here."""
    kind = getattr(errors, failed.error, TidingsError)
    raise (
        kind(failed.reason)
        if isinstance(kind, type) and issubclass(kind, TidingsError)
        else TidingsError(failed.reason)
    )
