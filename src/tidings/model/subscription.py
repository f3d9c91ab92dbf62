"""Subscription, Advertisement and Region: what is wanted, what will be offered, and a publication that is a whole region."""

import math
from typing import Any

import msgspec

from tidings.errors import InvalidSubscription
from tidings.model.domain import satisfiable
from tidings.model.event import MAX_ID_LENGTH
from tidings.model.filter import (
    EVERYTHING,
    And,
    Filter,
    Op,
    Predicate,
    check_limits,
    conjunction,
    leaves,
)
from tidings.model.value import TYPE, is_text

MAX_TYPES = 1_000
MAX_NOTE_LENGTH = 2_000_000


class Subscription(msgspec.Struct, frozen=True):
    """Events of these types (none = all) that match the filter, each worth `price` within `deadline_s`, else `-penalty`."""

    id: str
    subscriber: str
    filter: Filter = EVERYTHING
    types: tuple[str, ...] = ()
    deadline_s: float = math.inf
    price: float = 1.0
    penalty: float = 0.0
    durable: bool = False  # it goes on while its subscriber is away
    note: str = ""  # what its subscriber wants to be kept with it; other brokers are not told

    def __post_init__(self) -> None:
        _check_texts("subscription", self.id, self.subscriber, self.types)
        check_limits(self.filter)
        if len(self.note) > MAX_NOTE_LENGTH or not is_text(self.note):
            raise InvalidSubscription(f"note: expected text of at most {MAX_NOTE_LENGTH:,} characters")
        if not self.deadline_s > 0:
            raise InvalidSubscription(f"deadline_s {self.deadline_s!r}: expected a positive number of seconds")
        for what, amount in (("price", self.price), ("penalty", self.penalty)):
            if not 0 <= amount < math.inf:
                raise InvalidSubscription(f"{what} {amount!r}: expected a finite number that is not negative")

    @property
    def condition(self) -> Filter:
        """The filter together with the demand on the event's type: what an engine indexes."""
        return _with_types(self.types, self.filter)

    @property
    def public(self) -> "Subscription":
        """Without its note."""
        return msgspec.structs.replace(self, note="") if self.note else self


class Advertisement(msgspec.Struct, frozen=True):
    """A publisher's promise: its events have one of these types (none = any) and match the filter."""

    id: str
    publisher: str
    types: tuple[str, ...] = ()
    filter: Filter = EVERYTHING

    def __post_init__(self) -> None:
        _check_texts("advertisement", self.id, self.publisher, self.types)
        check_limits(self.filter)

    @property
    def condition(self) -> Filter:
        return _with_types(self.types, self.filter)


class Region(msgspec.Struct, frozen=True):
    """A publication that is a conjunction of predicates (ceem, section 2.3): every point that satisfies all of them.

    It matches a subscription iff some point satisfies both (Definition 5); a region without any point is refused.
    """

    predicates: tuple[Predicate, ...]

    def __post_init__(self) -> None:
        if not satisfiable(self.predicates):
            raise InvalidSubscription(f"the region {conjunction(self.predicates)} is empty: no point satisfies it")

    @classmethod
    def of(cls, filter: Filter) -> "Region":
        """The region that a conjunction of predicates describes."""
        parts = filter.parts if isinstance(filter, And) else (filter,)
        if not all(isinstance(part, Predicate) for part in parts):
            raise InvalidSubscription(f"a region is a conjunction of predicates, found: {filter}")
        return cls(tuple(leaf for leaf in leaves(filter) if isinstance(leaf, Predicate)))


def _with_types(types: tuple[str, ...], filter: Filter) -> Filter:
    if not types:
        return filter
    of_type = Predicate(TYPE, Op.EQ, types[0]) if len(types) == 1 else Predicate(TYPE, Op.IN, frozenset(types))
    if isinstance(filter, And):
        return And((of_type, *filter.parts))
    return of_type if filter == EVERYTHING else And((of_type, filter))


def _check_texts(what: str, id: Any, owner: Any, types: tuple[str, ...]) -> None:
    for text in (id, owner):
        if not 0 < len(text) <= MAX_ID_LENGTH or not is_text(text):
            raise InvalidSubscription(
                f"{what} id and owner: expected text of 1 to {MAX_ID_LENGTH} characters, found {text!r:.60}"
            )
    if len(types) > MAX_TYPES:
        raise InvalidSubscription(f"{what} {id}: expected at most {MAX_TYPES} event types, found {len(types)}")
    for type in types:
        if not isinstance(type, str) or not 0 < len(type) <= MAX_ID_LENGTH or not is_text(type):
            raise InvalidSubscription(
                f"{what} {id}: event type {type!r:.60}: expected text of 1 to {MAX_ID_LENGTH} characters"
            )
