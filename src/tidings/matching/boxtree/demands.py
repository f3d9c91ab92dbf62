"""Demands: a condition as boxes, and what is left to verify on those who meet them.

Each conjunction of the normal form becomes one box; a short IN, or CONTAINS, which speaks of sets and of strings, becomes
several while there are not too many. What a box cannot say exactly it says too widely, and the whole condition is then
verified on each candidate: order of strings, long prefixes, sets (buckets collide), LIKE, substrings, integers that are no
floats, expressions. What cannot be said at all leaves a box that only demands the attributes, or nothing.
"""

import datetime
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

from tidings.matching.boxtree.fields import (
    BOOL,
    DATE,
    ENDING,
    EXACT,
    KEY_BYTES,
    NUMBER,
    ORDER,
    PRESENT,
    SIZE,
    STRING,
    STRING_ASPECTS,
    TEXT,
    Fields,
    ending_key,
    neighbours,
    order_key,
)
from tidings.matching.boxtree.rows import HI_OPEN, LO_OPEN, NE, TAG_SHIFT
from tidings.model.domain import satisfiable
from tidings.model.filter import And, Comparison, Filter, Op, Predicate, names
from tidings.model.normal import Conjunction, normal_form
from tidings.model.value import microseconds

INFINITY = float("inf")
MAX_BOXES = 16  # so many boxes may lists and alternatives of one condition make
MAX_LISTED = 8  # so many elements of IN become boxes of their own, and of NOT IN rows

Row = tuple[float, float, int]
Rows = list[Row]
Box = tuple[Rows, bool]  # and whether it says less than the condition


class Choice(NamedTuple):
    """Rows that are met by all that satisfy a predicate (or one alternative of it); if `exact`, by nobody else."""

    rows: Rows
    exact: bool


class Demands:
    def __init__(self, fields: Fields) -> None:
        self._fields, self._tag, self._lenient = fields, fields.tag, fields.lenient

    def boxes(self, condition: Filter) -> list[Box]:
        """The boxes of a condition, each with whether those who meet it must be verified; none if it never holds."""
        alternatives = _alternatives(condition)
        if len(alternatives) == 1 and not alternatives[0].residuals and not self._lenient:
            plain = self._plain(alternatives[0].predicates)
            if plain is not None:
                return plain
        room = max(1, MAX_BOXES // max(1, len(alternatives)))
        return [box for conjunction in alternatives for box in self._conjunction(conjunction, room)]

    def _plain(self, predicates: tuple[Predicate, ...]) -> list[Box] | None:
        """The common case, done fast: nothing but comparisons of numbers; None if it is not that."""
        ranges: dict[int, Row] = {}
        fields = self._fields.by_name
        for predicate in predicates:
            op, value, kind = predicate.op, predicate.value, type(predicate.value)
            if op not in _PLAIN or not (kind is float or (kind is int and -EXACT <= value <= EXACT)):
                return None
            field = fields.get(predicate.attribute)
            tag = field.tags.get(NUMBER) if field is not None else None
            if tag is None:
                tag = self._tag(predicate.attribute, NUMBER)
            low, high, flags = ranges.get(tag, _ANY_NUMBER)
            from_below, from_above, is_open = _PLAIN[op]
            if from_below and (value > low or (value == low and is_open)):
                low, flags = value + 0.0, flags & ~LO_OPEN | (LO_OPEN if is_open else 0)
            if from_above and (value < high or (value == high and is_open)):
                high, flags = value + 0.0, flags & ~HI_OPEN | (HI_OPEN if is_open else 0)
            ranges[tag] = (low, high, flags)
        for low, high, flags in ranges.values():
            if low > high or (low == high and flags):
                return []
        return [([(low, high, tag | flags) for tag, (low, high, flags) in ranges.items()], False)]

    def _conjunction(self, conjunction: Conjunction, room: int) -> list[Box]:
        """At most `room` boxes."""
        predicates, exact = conjunction.predicates, not conjunction.residuals
        repeated = _repeated(predicates)
        if repeated and not satisfiable(predicates):
            if not self._lenient:
                return []
            # An event without the attribute satisfies each of them: no box can say that.
            predicates = tuple(predicate for predicate in predicates if predicate.attribute not in repeated)
            exact = False
        boxes = [Choice([], exact)]
        for predicate in predicates:
            choices = self._place(predicate)
            if len(choices) > 1 and len(boxes) * len(choices) > room:
                choices = [self._in_one(predicate)]
            boxes = [Choice(a.rows + b.rows, a.exact and b.exact) for a in boxes for b in choices]
        for residual in conjunction.residuals:
            if isinstance(residual, Comparison) and not self._lenient:
                demanded = [self._present(name) for name in names(residual)]
                boxes = [Choice(rows + demanded, exact) for rows, exact in boxes]
        found = []
        for rows, exact in boxes:
            merged, possible = _merged(rows)
            if possible or self._lenient:
                found.append((merged, not (exact and possible)))
        return found

    def _place(self, predicate: Predicate) -> list[Choice]:
        """The alternatives of a predicate."""
        attribute, op, value = predicate.attribute, predicate.op, predicate.value
        place = _PLACES.get((op, type(value)))
        if place is not None:
            return [place(self, attribute, op, value)]
        match op:
            case Op.EXISTS | Op.MISSING:
                there = float(op is Op.EXISTS)
                return [Choice([(there, there, self._tag(attribute, PRESENT))], True)]
            case Op.IN if 0 < len(value) <= MAX_LISTED:
                return self._listed(attribute, Op.EQ, value)
            case Op.NOT_IN if 0 < len(value) <= MAX_LISTED:
                places = self._listed(attribute, Op.NE, value)
                return [Choice([row for rows, _ in places for row in rows], all(exact for _, exact in places))]
            case Op.CONTAINS:
                tag, shared = self._fields.element(attribute, value)
                choices = [Choice([(1.0, 1.0, tag)], not shared)]
                if type(value) is str:
                    choices.append(Choice([(1.0, 1.0, self._tag(attribute, STRING))], False))
                return choices
            case Op.SUPERSET if value:
                tags = [self._fields.element(attribute, element) for element in sorted(value)]
                return [Choice([(1.0, 1.0, tag) for tag, _ in tags], not any(shared for _, shared in tags))]
            case Op.SUBSET:
                return [Choice([(0.0, float(len(value)), self._tag(attribute, SIZE))], False)]
        return [self._in_one(predicate)]

    def _in_one(self, predicate: Predicate) -> Choice:
        """Everything that satisfies a predicate, and more."""
        attribute, op, value = predicate.attribute, predicate.op, predicate.value
        match op:
            case Op.IN if value:
                rows = [row for rows, _ in self._listed(attribute, Op.EQ, value) for row in rows]
                low, high = min(row[0] for row in rows), max(row[1] for row in rows)
                return Choice([(low, high, rows[0][2] >> TAG_SHIFT << TAG_SHIFT)], False)
            case Op.NOT_PREFIX | Op.NOT_SUFFIX | Op.NOT_LIKE:
                return Choice(self._is_string(attribute), False)
            case Op.SUPERSET | Op.NOT_SUBSET | Op.NOT_SUPERSET:
                return Choice([(-INFINITY, INFINITY, self._tag(attribute, SIZE))], False)
        return Choice([] if self._lenient else [self._present(attribute)], False)

    def _listed(self, attribute: str, op: Op, values: Iterable[Any]) -> list[Choice]:
        return [choice for value in sorted(values) for choice in self._place(Predicate(attribute, op, value))]

    def _number(self, attribute: str, op: Op, value: int | float, aspect: str = NUMBER) -> Choice:
        low, high = neighbours(value)
        tag = self._tag(attribute, aspect)
        if low == high:
            return Choice([_COMPARED[op](low + 0.0, tag)], True)
        if op is Op.NE:
            return Choice([(-INFINITY, INFINITY, tag)], False)
        lower = low if op in (Op.GT, Op.GE, Op.EQ) else -INFINITY
        upper = high if op in (Op.LT, Op.LE, Op.EQ) else INFINITY
        flags = (LO_OPEN if lower == low else 0) | (HI_OPEN if upper == high else 0)
        return Choice([(lower, upper, tag | flags)], False)

    def _date(self, attribute: str, op: Op, value: Any) -> Choice:
        return self._number(attribute, op, microseconds(value), DATE)

    def _bool(self, attribute: str, op: Op, value: bool) -> Choice:
        return Choice([_COMPARED[op](float(value), self._tag(attribute, BOOL))], True)

    def _text(self, attribute: str, op: Op, value: str) -> Choice:
        tag = self._tag(attribute, TEXT)
        return Choice([_COMPARED[op](self._fields.code(attribute, value), tag)], True)

    def _order(self, attribute: str, op: Op, value: str) -> Choice:
        key = order_key(value)
        lower, upper = (key, INFINITY) if op in (Op.GT, Op.GE) else (-INFINITY, key)
        return Choice([(lower, upper, self._tag(attribute, ORDER))], False)

    def _prefix(self, attribute: str, op: Op, value: str) -> Choice:
        return self._affix(attribute, ORDER, value, order_key(value))

    def _suffix(self, attribute: str, op: Op, value: str) -> Choice:
        return self._affix(attribute, ENDING, value, ending_key(value))

    def _affix(self, attribute: str, aspect: str, value: str, key: float) -> Choice:
        size = len(value.encode())
        if size == 0:
            return Choice(self._is_string(attribute), False)
        # A string that ends before the prefix is filled up with NUL: a prefix with NUL could not be told from it.
        exact = size <= KEY_BYTES and "\0" not in value
        return Choice([affix_row(key, min(size, KEY_BYTES), self._tag(attribute, aspect))], exact)

    def _like(self, attribute: str, op: Op, value: str) -> Choice:
        end = min((place for place in map(value.find, "%_\\") if place >= 0), default=len(value))
        return Choice(self._prefix(attribute, op, value[:end]).rows, False)

    def _is_string(self, attribute: str) -> Rows:
        field = self._fields.by_name.get(attribute)
        aspect = next((aspect for aspect in STRING_ASPECTS if field and aspect in field.tags), TEXT)
        return [(-INFINITY, INFINITY, self._tag(attribute, aspect))]

    def _present(self, attribute: str) -> Row:
        return (1.0, 1.0, self._tag(attribute, PRESENT))


def affix_row(key: float, size: int, tag: int) -> Row:
    """The strings that start (or end) with so many bytes of a key."""
    return (key, key + 256.0 ** (KEY_BYTES - size) - 1, tag)


_COMPARED: dict[Op, Callable[[float, int], Row]] = {
    Op.EQ: lambda number, tag: (number, number, tag),
    Op.NE: lambda number, tag: (number, number, tag | NE),
    Op.LT: lambda number, tag: (-INFINITY, number, tag | HI_OPEN),
    Op.LE: lambda number, tag: (-INFINITY, number, tag),
    Op.GT: lambda number, tag: (number, INFINITY, tag | LO_OPEN),
    Op.GE: lambda number, tag: (number, INFINITY, tag),
}


# A bound from below, a bound from above, open.
_PLAIN: dict[Op, tuple[bool, bool, bool]] = {
    Op.EQ: (True, True, False),
    Op.LT: (False, True, True),
    Op.LE: (False, True, False),
    Op.GT: (True, False, True),
    Op.GE: (True, False, False),
}
_ANY_NUMBER: Row = (-INFINITY, INFINITY, 0)

_PLACES: dict[tuple[Op, type], Callable[[Demands, str, Op, Any], Choice]] = {
    **{(op, kind): Demands._number for op in _COMPARED for kind in (int, float)},
    **{(op, datetime.datetime): Demands._date for op in _COMPARED},
    **{(op, bool): Demands._bool for op in (Op.EQ, Op.NE)},
    **{(op, str): Demands._text for op in (Op.EQ, Op.NE)},
    **{(op, str): Demands._order for op in (Op.LT, Op.LE, Op.GT, Op.GE)},
    (Op.PREFIX, str): Demands._prefix,
    (Op.SUFFIX, str): Demands._suffix,
    (Op.LIKE, str): Demands._like,
}


def _alternatives(condition: Filter) -> tuple[Conjunction, ...]:
    """The normal form; the common case, a conjunction of predicates, without the detour."""
    if type(condition) is Predicate:
        return (Conjunction((condition,)),)
    if type(condition) is And and all(type(part) is Predicate for part in condition.parts):
        return (Conjunction(condition.parts),)  # type: ignore[arg-type]
    return normal_form(condition)


def _repeated(predicates: Iterable[Predicate]) -> set[str]:
    """The attributes with several predicates, unless all compare numbers: what those allow together, their rows say."""
    seen: dict[str, bool] = {}  # attribute -> its predicates compare numbers
    repeated = set()
    for predicate in predicates:
        plain = predicate.op in _COMPARED and type(predicate.value) in (int, float)
        before = seen.get(predicate.attribute)
        if before is not None and not (before and plain):
            repeated.add(predicate.attribute)
        seen[predicate.attribute] = plain and before is not False
    return repeated


def _merged(box: Rows) -> tuple[Rows, bool]:
    """One row per dimension and those of excluded values behind it; and whether any number is left in each dimension.

    A dimension in which none is left is dropped.
    """
    ranges: dict[int, Row] = {}
    excluded: dict[int, set[float]] = {}
    for row in box:
        lower, upper, tag = row
        dim = tag >> TAG_SHIFT
        if tag & NE:
            excluded.setdefault(dim, set()).add(lower)
            continue
        other = ranges.get(dim)
        if other is not None:
            # Of two equal bounds the open one counts.
            lower, lower_open = max((lower, tag & LO_OPEN), (other[0], other[2] & LO_OPEN))
            upper, upper_closed = min((upper, not tag & HI_OPEN), (other[1], not other[2] & HI_OPEN))
            row = (lower, upper, dim << TAG_SHIFT | lower_open | (0 if upper_closed else HI_OPEN))
        ranges[dim] = row
    rows: Rows = []
    possible = True
    for dim in dict.fromkeys((*ranges, *excluded)):
        held = ranges.get(dim)
        values = sorted(excluded.get(dim, ()))
        if held is not None:
            lower, upper, tag = held
            if lower > upper or (lower == upper and (tag & (LO_OPEN | HI_OPEN) or lower in values)):
                possible = False
                continue
            rows.append(held)
        rows += [(value, value, dim << TAG_SHIFT | NE) for value in values]
    return rows, possible
