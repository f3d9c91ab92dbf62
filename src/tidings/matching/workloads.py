"""Workloads: subscriptions and events to measure matching with, the same for the same seed.

ceem1, ceem2  ceem, Table 1: 5 attributes, 2 of them equal to one of {0..5}, 3 within a range of {0..65535} (8 families); and 7
              attributes, 3 equal and 4 within a range (11 families). Events have all attributes. The paper does not say how
              ranges are drawn: two uniform numbers, the smaller one is the lower bound, both open.
mtep          four attributes, `a_i < c_i` with c_i uniform in 0..10, events likewise (mtep, section 5).
sparse        30 attributes, even ones equal to one of 1,000 numbers, odd ones in an open range of width 0.05 in 0..1; 3 to 6
              predicates, attributes by Zipf; events have 15 random attributes.
mixed         the shapes of real filters: a symbol, prefixes, suffixes, sets, dates, `<>`, OR, and 5% residual expressions.

All but mixed are boxes (columns); every one also gives subscriptions as objects.
"""

import datetime
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from tidings.errors import UnknownName
from tidings.matching.boxes import Boxes
from tidings.model.event import Event
from tidings.model.filter import Arithmetic, Attribute, Comparison, Constant, Filter, Op, Or, Predicate, conjunction
from tidings.model.subscription import Subscription
from tidings.model.value import EPOCH, Value

Array = np.ndarray[Any, np.dtype[Any]]
Rng = np.random.Generator

CEEM_EQUALITIES, CEEM_RANGES = {"ceem1": 2, "ceem2": 3}, {"ceem1": 3, "ceem2": 4}
CEEM_VALUES, CEEM_BOUNDS = 6, 65_536
MTEP_ATTRIBUTES, MTEP_BOUND = 4, 10.0
SPARSE_ATTRIBUTES, SPARSE_VALUES, SPARSE_WIDTH, SPARSE_PRESENT = 30, 1_000, 0.05, 15
SPARSE_FEWEST, SPARSE_MOST = 3, 6
MIXED_RESIDUALS = 0.05


class Workload:
    """`count` subscriptions named s0, s1, ... and any number of events."""

    def __init__(self, name: str, count: int, seed: int = 1) -> None:
        if name not in WORKLOADS:
            raise UnknownName(f"unknown workload {name!r}: expected one of {', '.join(WORKLOADS)}")
        self.name, self.count, self._seed = name, count, seed
        make = _BOXES.get(name)
        self.boxes: Boxes | None = make(name, count, self._rng(0)) if make else None

    def ids(self) -> list[str]:
        return [f"s{number}" for number in range(self.count)]

    def subscriptions(self) -> Iterator[Subscription]:
        """All subscriptions as objects, in order."""
        return self.more(0, self.count)

    def more(self, first: int, last: int) -> Iterator[Subscription]:
        """Subscriptions by number; those beyond `count` are new ones like the others, from a seed of their own."""
        if last > self.count:
            beyond = Workload(self.name, last - self.count, self._seed + 1)
            yield from self.more(first, self.count)
            for subscription in beyond.more(max(0, first - self.count), last - self.count):
                number = int(subscription.id[1:]) + self.count
                yield Subscription(f"s{number}", subscription.subscriber, subscription.filter)
        elif self.boxes is not None:
            for box in range(first, last):
                yield self.boxes.subscription(box, f"s{box}", "workload")
        else:
            rng = self._rng(0)
            for number in range(last):
                wanted = _mixed_filter(rng)
                if number >= first:
                    yield Subscription(f"s{number}", "workload", wanted)

    def columns(self, count: int) -> dict[str, Array]:
        """Events as columns; NaN, None or NaT where an event lacks the attribute."""
        return _EVENTS[self.name](self.name, count, self._rng(1))

    def events(self, count: int) -> list[Event]:
        """The same events as objects."""
        columns = {name: _values(column) for name, column in self.columns(count).items()}
        return [
            Event(f"e{row}", "", {name: values[row] for name, values in columns.items() if values[row] is not None})
            for row in range(count)
        ]

    def _rng(self, part: int) -> Rng:
        return np.random.default_rng([self._seed, part])


def _values(column: Array) -> list[Value | None]:
    if column.dtype.kind == "f":
        return [None if value != value else value for value in column.tolist()]
    if column.dtype.kind == "M":
        return [None if value is None else value.replace(tzinfo=datetime.UTC) for value in column.tolist()]
    return column.tolist()  # type: ignore[no-any-return]


def _boxes(prefix: str, low: Array, high: Array, is_open: Array) -> Boxes:
    """Boxes that all mention every attribute; `is_open` by attribute."""
    count, attributes = low.shape
    opened = np.tile(is_open, count)
    return Boxes(
        tuple(f"{prefix}{number}" for number in range(attributes)),
        np.arange(count + 1, dtype=np.int64) * attributes,
        np.tile(np.arange(attributes, dtype=np.int32), count),
        low.ravel(),
        high.ravel(),
        opened & np.isfinite(low.ravel()),
        opened,
    )


def _ceem_boxes(name: str, count: int, rng: Rng) -> Boxes:
    equalities, ranges = CEEM_EQUALITIES[name], CEEM_RANGES[name]
    equal = rng.integers(0, CEEM_VALUES, (count, equalities)).astype(float)
    bounds = np.sort(rng.integers(0, CEEM_BOUNDS, (count, ranges, 2)), axis=2).astype(float)
    low, high = (np.concatenate([equal, bounds[:, :, side]], axis=1) for side in (0, 1))
    return _boxes("a", low, high, np.arange(equalities + ranges) >= equalities)


def _ceem_events(name: str, count: int, rng: Rng) -> dict[str, Array]:
    equalities, ranges = CEEM_EQUALITIES[name], CEEM_RANGES[name]
    columns = [rng.integers(0, CEEM_VALUES, count) for _ in range(equalities)]
    columns += [rng.integers(0, CEEM_BOUNDS, count) for _ in range(ranges)]
    return {f"a{number}": column for number, column in enumerate(columns)}


def _mtep_boxes(name: str, count: int, rng: Rng) -> Boxes:
    high = rng.uniform(0, MTEP_BOUND, (count, MTEP_ATTRIBUTES))
    return _boxes("a", np.full_like(high, -np.inf), high, np.ones(MTEP_ATTRIBUTES, bool))


def _mtep_events(name: str, count: int, rng: Rng) -> dict[str, Array]:
    return {f"a{number}": rng.uniform(0, MTEP_BOUND, count) for number in range(MTEP_ATTRIBUTES)}


def _sparse_boxes(name: str, count: int, rng: Rng) -> Boxes:
    sizes = rng.integers(SPARSE_FEWEST, SPARSE_MOST + 1, count)
    weight = np.log(1 / np.arange(1, SPARSE_ATTRIBUTES + 1))
    # Zipf without repeats: the greatest of weight plus Gumbel noise. In pieces, for a million rows would take gigabytes.
    chosen = np.empty((count, SPARSE_MOST), np.int32)
    for start in range(0, count, 65_536):
        noisy = weight + rng.gumbel(size=(min(65_536, count - start), SPARSE_ATTRIBUTES))
        chosen[start : start + len(noisy)] = np.argsort(-noisy, axis=1)[:, :SPARSE_MOST]
    attribute = chosen[np.arange(SPARSE_MOST) < sizes[:, None]]
    equal = attribute % 2 == 0
    value, low = rng.integers(0, SPARSE_VALUES, len(attribute)), rng.uniform(0, 1 - SPARSE_WIDTH, len(attribute))
    return Boxes(
        tuple(f"a{number}" for number in range(SPARSE_ATTRIBUTES)),
        np.concatenate([[0], np.cumsum(sizes)]),
        attribute,
        np.where(equal, value, low),
        np.where(equal, value, low + SPARSE_WIDTH),
        ~equal,
        ~equal,
    )


def _sparse_events(name: str, count: int, rng: Rng) -> dict[str, Array]:
    present = rng.random((count, SPARSE_ATTRIBUTES)).argsort(axis=1) < SPARSE_PRESENT
    columns: dict[str, Array] = {}
    for number in range(SPARSE_ATTRIBUTES):
        values = rng.integers(0, SPARSE_VALUES, count).astype(float) if number % 2 == 0 else rng.random(count)
        columns[f"a{number}"] = np.where(present[:, number], values, np.nan)
    return columns


# mixed: quotes of a stock exchange.
_SYMBOLS = [
    f"{first}{second}{third}.{place}"
    for place in ("SH", "HK", "N")
    for first in "ABCDEFG"
    for second in "LMNOP"
    for third in "UVWXYZ"
]
_TAGS = [f"tag{number}" for number in range(200)]
_HOURS = 24 * 365


def _date(hour: int) -> datetime.datetime:
    return EPOCH.replace(year=2026) + datetime.timedelta(hours=hour)


def _pick(rng: Rng, of: list[str]) -> str:
    return of[int(rng.integers(len(of)))]


def _price_range(rng: Rng) -> Filter:
    low = float(rng.uniform(0, 95))
    return conjunction((Predicate("price", Op.GT, low), Predicate("price", Op.LE, low + 5)))


# One kind of predicate each: how selective it is, is said beside it.
_MIXED: list[Callable[[Rng], Filter]] = [
    lambda rng: Predicate("symbol", Op.EQ, _pick(rng, _SYMBOLS)),  # 1 in 630
    lambda rng: Predicate("symbol", Op.PREFIX, _pick(rng, _SYMBOLS)[:2]),  # 1 in 35
    lambda rng: Predicate("symbol", Op.SUFFIX, _pick(rng, _SYMBOLS)[2:]),  # 1 in 18
    lambda rng: Predicate("tags", Op.CONTAINS, _pick(rng, _TAGS)),  # 1 in 50
    lambda rng: Predicate("tags", Op.SUPERSET, frozenset([_pick(rng, _TAGS), _pick(rng, _TAGS)])),  # 1 in 2,500
    lambda rng: Predicate("venue", Op.IN, frozenset(int(venue) for venue in rng.integers(0, 100, 3))),  # 3 in 100
    lambda rng: Predicate("day", Op.GE, _date(int(rng.integers(_HOURS)))),  # 1 in 2
    lambda rng: Predicate("venue", Op.NE, int(rng.integers(0, 100))),  # 99 in 100
    lambda rng: Predicate("halted", Op.EQ, bool(rng.random() < 0.1)),
    _price_range,  # 1 in 20
]


def _mixed_filter(rng: Rng) -> Filter:
    """A strong predicate and two to four others; one in ten with OR, one in twenty with an expression to verify."""
    parts: list[Filter] = [_MIXED[(0, 0, 0, 3, 4)[int(rng.integers(5))]](rng)]
    parts += [_MIXED[kind](rng) for kind in rng.choice(len(_MIXED), int(rng.integers(2, 5)), replace=False).tolist()]
    if rng.random() < 0.1:
        parts.append(Or((Predicate("venue", Op.LT, int(rng.integers(0, 50))), _price_range(rng))))
    if rng.random() < MIXED_RESIDUALS:
        change = Arithmetic("-", Attribute("price"), Attribute("open"))
        parts.append(Comparison(Op.GT, change, Constant(float(rng.uniform(-2, 2)))))
    return conjunction(tuple(parts))


def _mixed_events(name: str, count: int, rng: Rng) -> dict[str, Array]:
    tags = np.empty(count, object)
    tags[:] = [frozenset(_TAGS[tag] for tag in drawn) for drawn in rng.integers(0, len(_TAGS), (count, 4)).tolist()]
    symbols = np.array(_SYMBOLS, object)[rng.integers(0, len(_SYMBOLS), count)]
    price = rng.uniform(0, 100, count)
    return {
        "symbol": symbols,
        "tags": tags,
        "venue": rng.integers(0, 100, count),
        "day": np.array(
            [_date(hour).replace(tzinfo=None) for hour in rng.integers(0, _HOURS, count).tolist()], "datetime64[us]"
        ),
        "halted": rng.random(count) < 0.1,
        "price": price,
        "open": np.where(rng.random(count) < 0.9, price + rng.normal(0, 1, count), np.nan),
    }


_BOXES: dict[str, Callable[[str, int, Rng], Boxes]] = {
    "ceem1": _ceem_boxes,
    "ceem2": _ceem_boxes,
    "mtep": _mtep_boxes,
    "sparse": _sparse_boxes,
}
_EVENTS: dict[str, Callable[[str, int, Rng], dict[str, Array]]] = {
    "ceem1": _ceem_events,
    "ceem2": _ceem_events,
    "mtep": _mtep_events,
    "sparse": _sparse_events,
    "mixed": _mixed_events,
}
WORKLOADS = tuple(_EVENTS)
