"""Predicate families: what the index structures of `counting`, `ceem`, `tree` and `scan` are made of.

A dimension is an attribute together with a kind of value (number, date, bool, string); on it a predicate is a float64
threshold: dates in microseconds, strings by a code from a dictionary (equality only). The predicates of one dimension and
direction (equal, lower bound, upper bound) form a family (ceem, section 3.2). A strict bound becomes a closed one at the next
float. Whatever this cannot say exactly (other operators, integers that are no float64, strict bounds where integers lie
between two floats) is not placed: the engine keeps the whole condition and verifies it on its candidates.

An event, or a region, becomes a probe: two thresholds per dimension, `below` and `above`. A lower bound k holds iff
k <= below, an upper bound iff k >= above, an equality iff above <= k <= below. One rule says everything: a present value has
below = above; an integer between two floats has above > below, so that no equality holds; what fails has -inf and inf; what is
satisfied whatever its threshold has inf and -inf.
"""

import math
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from tidings.model.filter import SATISFIES, Op, Predicate
from tidings.model.value import (
    BOOL,
    DATE,
    NUMBER,
    STRING,
    Value,
    from_microseconds,
    kind,
    microseconds,
)

Floats = np.ndarray[Any, np.dtype[np.float64]]
Ints = np.ndarray[Any, np.dtype[np.int32]]

EQUAL, LOWER, UPPER = 0, 1, 2  # the direction of a family
BELOW, ABOVE = 0, 1  # the two rows of a probe

_PLACES: dict[Op, tuple[int, bool]] = {  # operator -> direction, strict
    Op.EQ: (EQUAL, False),
    Op.GT: (LOWER, True),
    Op.GE: (LOWER, False),
    Op.LT: (UPPER, True),
    Op.LE: (UPPER, False),
}
_OPS = {place: op for op, place in _PLACES.items()}
# From here to 2^63 an integer may lie between two neighbouring floats.
_INTEGERS_BETWEEN, _INTEGERS_END = 2.0**53, 2.0**63


Place = tuple[int, float]  # the code of a predicate (twice its family's number, plus one if strict) and its threshold


class Family(NamedTuple):
    attribute: str
    kind: str
    direction: int


class Families:
    """The families in order of first use, and the dictionaries that turn predicates and events into float64."""

    def __init__(self, missing: str) -> None:
        self.missing = missing
        self.families: list[Family] = []
        self.dimension: Ints = np.empty(0, np.int32)  # by family
        self.direction: Ints = np.empty(0, np.int32)  # by family
        self.texts: list[str] = []  # by code
        self._codes: dict[str, int] = {}
        self._numbers: dict[Family, int] = {}
        self._dimensions: dict[str, dict[str, int]] = {}  # attribute -> kind -> dimension
        self._absent: Floats = np.empty((2, 0))

    def __len__(self) -> int:
        return len(self.families)

    def number(self, family: Family) -> int:
        """The number of a family, a new one if need be."""
        number = self._numbers.get(family)
        if number is None:
            number = self._numbers[family] = len(self.families)
            self.families.append(family)
            kinds = self._dimensions.setdefault(family.attribute, {})
            dimension = kinds.setdefault(family.kind, self._absent.shape[1])
            self.dimension = np.append(self.dimension, np.int32(dimension))
            self.direction = np.append(self.direction, np.int32(family.direction))
            if dimension == self._absent.shape[1]:
                absent = (math.inf, -math.inf) if self.missing == SATISFIES else (-math.inf, math.inf)
                self._absent = np.column_stack([self._absent, absent])
        return number

    @property
    def dimensions(self) -> int:
        return int(self._absent.shape[1])

    def place(self, predicate: Predicate) -> Place | None:
        """The place of a predicate, or None if a threshold cannot say it exactly."""
        place = _PLACES.get(predicate.op)
        if place is None:
            return None
        direction, strict = place
        value = predicate.value
        value_kind = NUMBER if type(value) in (int, float) else kind(value)
        if value_kind == STRING:
            if direction != EQUAL:
                return None
            threshold = float(self.code(value))
        else:
            exact = microseconds(value) if value_kind == DATE else value
            threshold = float(exact)
            if threshold != exact or not _exact(threshold, direction, strict):
                return None
        return 2 * self.number(Family(predicate.attribute, value_kind, direction)) + strict, threshold + 0.0

    def predicate(self, code: int, threshold: float) -> Predicate:
        """The predicate that was placed, numbers as floats."""
        family = self.families[code >> 1]
        value: Any = threshold
        if family.kind == STRING:
            value = self.texts[int(threshold)]
        elif family.kind == BOOL:
            value = bool(threshold)
        elif family.kind == DATE:
            value = from_microseconds(int(threshold))
        return Predicate(family.attribute, _OPS[family.direction, bool(code & 1)], value)

    def code(self, text: str) -> int:
        code = self._codes.get(text)
        if code is None:
            code = self._codes[text] = len(self.texts)
            self.texts.append(text)
        return code

    def probe(self, attributes: Mapping[str, Value]) -> Floats:
        """An event as two thresholds per dimension."""
        probe = self._absent.copy()
        lenient = self.missing == SATISFIES
        for name, value in attributes.items():
            kinds = self._dimensions.get(name)
            if kinds is None:
                continue
            if lenient:  # present, but of another kind: unknown, so it fails
                for dimension in kinds.values():
                    probe[BELOW, dimension], probe[ABOVE, dimension] = -math.inf, math.inf
            if type(value) is float:
                dimension = kinds.get(NUMBER, -1)
                if dimension >= 0:
                    probe[:, dimension] = value
                continue
            value_kind = kind(value)
            dimension = kinds.get(value_kind, -1)
            if dimension >= 0:
                probe[BELOW, dimension], probe[ABOVE, dimension] = self._thresholds(value_kind, value)
        return probe

    def _thresholds(self, value_kind: str, value: Any) -> tuple[float, float]:
        if value_kind == STRING:
            code = self._codes.get(value)
            return (-math.inf, math.inf) if code is None else (code, code)
        if value_kind == DATE:
            value = microseconds(value)
        return neighbours(value)

    def region_probe(self, predicates: tuple[Predicate, ...]) -> Floats:
        """A region as two thresholds per dimension: upper bounds of the one meet lower bounds of the other (Theorem 1).

        Bounds are taken as closed and equalities as ranges of one point, so that no candidate is lost (the theorem as
        printed never compares an equality with a range); what is found has to be verified.
        """
        probe = np.empty((2, self.dimensions))
        probe[BELOW], probe[ABOVE] = math.inf, -math.inf
        for predicate in predicates:
            place = _PLACES.get(predicate.op)
            if place is None:
                continue
            direction, value_kind = place[0], kind(predicate.value)
            dimension = self._dimensions.get(predicate.attribute, {}).get(value_kind, -1)
            if dimension < 0 or (value_kind == STRING and direction != EQUAL):
                continue
            floor, ceiling = self._thresholds(value_kind, predicate.value)
            if direction != LOWER:
                probe[BELOW, dimension] = min(probe[BELOW, dimension], ceiling if value_kind != STRING else floor)
            if direction != UPPER:
                probe[ABOVE, dimension] = max(probe[ABOVE, dimension], floor if value_kind != STRING else ceiling)
        return probe


def neighbours(value: float) -> tuple[float, float]:
    """The greatest float that is not above an exact number, and the least that is not below it."""
    near = float(value)
    if near == value:
        return near, near
    return (math.nextafter(near, -math.inf), near) if near > value else (near, math.nextafter(near, math.inf))


def closed(codes: Ints, thresholds: Floats, direction: Ints) -> Floats:
    """The keys of placed predicates: strict bounds moved to the next float."""
    toward = np.where(direction[codes >> 1] == LOWER, math.inf, -math.inf)
    return np.where(codes & 1, np.nextafter(thresholds, toward), thresholds)


def _exact(threshold: float, direction: int, strict: bool) -> bool:
    if math.isinf(threshold):
        # `> inf` and `< -inf` never hold, `>= -inf` and `<= inf` hold for every number: no bound of a box says that.
        return direction == EQUAL or (threshold > 0) is (direction == (UPPER if strict else LOWER))
    return not (strict and _INTEGERS_BETWEEN <= abs(threshold) <= _INTEGERS_END)


class Ranges(NamedTuple):
    """Rows as boxes, one after the other: for each row `counts` ranges [low, high], ordered by dimension."""

    counts: Ints
    dimension: Ints
    low: Floats
    high: Floats


def ranges(counts: Ints, codes: Ints, keys: Floats, families: Families) -> Ranges:
    """The closed keys of rows, one range per row and dimension. A range may be empty: no value satisfies it."""
    if not len(codes):
        return Ranges(counts, np.empty(0, np.int32), np.empty(0), np.empty(0))
    of = np.repeat(np.arange(len(counts)), counts)
    family = codes >> 1
    dimension, direction = families.dimension[family], families.direction[family]
    order = np.lexsort((dimension, of))
    of, dimension, direction, keys = of[order], dimension[order], direction[order], keys[order]
    first = np.flatnonzero(np.append(True, (of[1:] != of[:-1]) | (dimension[1:] != dimension[:-1])))
    return Ranges(
        np.bincount(of[first], minlength=len(counts)).astype(np.int32),
        dimension[first],
        np.maximum.reduceat(np.where(direction == UPPER, -math.inf, keys), first),
        np.minimum.reduceat(np.where(direction == LOWER, math.inf, keys), first),
    )
