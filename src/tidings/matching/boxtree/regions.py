"""Regions: a publication that is a conjunction of predicates, as what the index searches with; and boxes back as predicates.

An interval per dimension finds all candidates. That is exact for equalities, for comparisons of numbers and for presence,
which are points and intervals. For everything else (order and affixes of strings, lists, inequalities, dates, of which
there are only whole microseconds, sets) the model decides on each candidate, whose predicates are read off its rows.
"""

from collections.abc import Iterable
from typing import Any

from tidings.matching.boxtree.demands import affix_row
from tidings.matching.boxtree.fields import (
    BOOL,
    DATE,
    ENDING,
    KEY_BYTES,
    NUMBER,
    ORDER,
    PRESENT,
    STRING_ASPECTS,
    TEXT,
    Aspect,
    Field,
    Fields,
    Pairs,
    ending_key,
    neighbours,
    order_key,
)
from tidings.matching.boxtree.rows import HI_OPEN, LO_OPEN, NE, NOTHING, TAG_SHIFT, UPPER_FOLLOWS
from tidings.model.filter import Op, Predicate
from tidings.model.value import BOOL as BOOL_KIND
from tidings.model.value import DATE as DATE_KIND
from tidings.model.value import NUMBER as NUMBER_KIND
from tidings.model.value import SET, STRING, from_microseconds, kind, microseconds

_ORDERED = (Op.LT, Op.LE, Op.GT, Op.GE)
_KIND_OF: dict[Aspect, str] = {NUMBER: NUMBER_KIND, DATE: DATE_KIND, BOOL: BOOL_KIND}  # the others are of sets
_KIND_OF |= dict.fromkeys(STRING_ASPECTS, STRING)

Interval = tuple[float, float, int]  # lower, upper, flags


def region_pairs(fields: Fields, predicates: Iterable[Predicate]) -> tuple[Pairs, bool]:
    """What the index searches with, and whether all that it finds shares a point with the region."""
    groups: dict[str, list[Predicate]] = {}
    for predicate in predicates:
        groups.setdefault(predicate.attribute, []).append(predicate)
    pairs: Pairs = []
    exact = True
    for attribute, group in groups.items():
        exact &= all(map(_is_simple, group))
        if attribute in fields.by_name:
            _encode(fields.by_name[attribute], group, pairs)
    return pairs, exact


def _is_simple(predicate: Predicate) -> bool:
    if predicate.op in (Op.EXISTS, Op.MISSING):
        return True
    if predicate.op is not Op.EQ and (predicate.op not in _ORDERED or kind(predicate.value) != NUMBER_KIND):
        return False
    exact = predicate.value if kind(predicate.value) == NUMBER_KIND else 0
    if kind(predicate.value) == DATE_KIND:
        exact = microseconds(predicate.value)
    low, high = neighbours(exact)
    return low == high


def _encode(field: Field, group: list[Predicate], pairs: Pairs) -> None:
    absent = any(predicate.op is Op.MISSING for predicate in group)
    kinds = set() if absent else set.intersection(*map(_kinds, group))
    for aspect, tag in field.tags.items():
        if aspect == PRESENT:
            pairs += (tag, 0.0 if absent else 1.0)
        elif _KIND_OF.get(aspect, SET) not in kinds:
            pairs += (tag | NOTHING, 0.0)
        else:
            low, high, flags = _interval(field, aspect, group)
            if low == high:
                pairs += (tag, low)
            elif low < high:
                pairs += (tag | flags | UPPER_FOLLOWS, low, 0, high)


def _kinds(predicate: Predicate) -> set[str]:
    """The kinds of value on which a predicate can be true."""
    op, constant = predicate.op, predicate.value
    if op is Op.EXISTS:
        return {NUMBER_KIND, STRING, BOOL_KIND, DATE_KIND, SET}
    if op in (Op.IN, Op.NOT_IN):
        return {kind(element) for element in constant} or {NUMBER_KIND, STRING}
    if op in (Op.CONTAINS, Op.NOT_CONTAINS):
        return {SET, STRING} if type(constant) is str else {SET}
    return {kind(constant)}


def _interval(field: Field, aspect: Aspect, group: list[Predicate]) -> Interval:
    """All numbers that values which satisfy the predicates can have in one aspect, or more."""
    low, high, flags = float("-inf"), float("inf"), 0
    for predicate in group:
        if predicate.op in (Op.EXISTS, Op.MISSING) or type(predicate.value) is frozenset:
            continue
        lower, upper, open_ends = _one_interval(field, aspect, predicate)
        if lower > low or (lower == low and open_ends & LO_OPEN):
            low, flags = lower, flags & ~LO_OPEN | open_ends & LO_OPEN
        if upper < high or (upper == high and open_ends & HI_OPEN):
            high, flags = upper, flags & ~HI_OPEN | open_ends & HI_OPEN
    return low, high, flags


def _one_interval(field: Field, aspect: Aspect, predicate: Predicate) -> Interval:
    op, value = predicate.op, predicate.value
    infinity = float("inf")
    if aspect in (NUMBER, DATE) and (op in _ORDERED or op is Op.EQ):
        low, high = neighbours(microseconds(value) if aspect == DATE else value)
        inexact = LO_OPEN | HI_OPEN if low != high else 0
        match op:
            case Op.EQ:
                return low, high, inexact
            case Op.GT | Op.GE:
                return low, infinity, LO_OPEN if op is Op.GT or inexact else 0
        return -infinity, high, HI_OPEN if op is Op.LT or inexact else 0
    if aspect == BOOL and op is Op.EQ:
        return float(value), float(value), 0
    if aspect == TEXT and op is Op.EQ:
        code = float(field.codes.get(value, -1))
        return code, code, 0
    if aspect == ORDER and (op in _ORDERED or op is Op.EQ):
        key = order_key(value)
        return (-infinity if op in (Op.LT, Op.LE) else key), (infinity if op in (Op.GT, Op.GE) else key), 0
    if aspect == ENDING and op is Op.EQ:
        return ending_key(value), ending_key(value), 0
    if (aspect, op) in ((ORDER, Op.PREFIX), (ENDING, Op.SUFFIX)):
        key = order_key(value) if op is Op.PREFIX else ending_key(value)
        low, high, _ = affix_row(key, min(KEY_BYTES, len(value.encode())), 0)
        return low, high, 0
    return -infinity, infinity, 0


def box_predicates(fields: Fields, rows: Iterable[tuple[float, float, int]]) -> tuple[Predicate, ...]:
    """The rows of a box that says all that its condition says, as predicates."""
    return tuple(predicate for row in rows for predicate in _read(fields, *row))


def _read(fields: Fields, low: float, high: float, tag: int) -> list[Predicate]:
    attribute, aspect = fields.dimensions[tag >> TAG_SHIFT]
    if aspect == PRESENT:
        return [Predicate(attribute, Op.EXISTS if low else Op.MISSING)]
    if isinstance(aspect, tuple):  # an element of a set: shared buckets are in boxes that are verified
        return [Predicate(attribute, Op.SUPERSET, frozenset([aspect[1]]))]
    if aspect in (ORDER, ENDING):
        return [_affix(attribute, aspect, low, high)]

    def value(number: float) -> Any:
        match aspect:
            case "date":
                return from_microseconds(int(number))
            case "bool":
                return bool(number)
            case "text":
                return fields.by_name[attribute].texts[int(number)]
        return number

    if tag & NE:
        return [Predicate(attribute, Op.NE, value(low))]
    if low == high:
        return [Predicate(attribute, Op.EQ, value(low))]
    found = []
    if low > float("-inf") or tag & LO_OPEN:
        found.append(Predicate(attribute, Op.GT if tag & LO_OPEN else Op.GE, value(low)))
    if high < float("inf") or tag & HI_OPEN:
        found.append(Predicate(attribute, Op.LT if tag & HI_OPEN else Op.LE, value(high)))
    return found or [Predicate(attribute, Op.GE, low)]


def _affix(attribute: str, aspect: str, low: float, high: float) -> Predicate:
    open_bytes = (int(high - low).bit_length() + 7) // 8
    text = int(low).to_bytes(KEY_BYTES, "big")[: KEY_BYTES - open_bytes]
    if aspect == ORDER:
        return Predicate(attribute, Op.PREFIX, text.decode())
    return Predicate(attribute, Op.SUFFIX, text[::-1].decode())
