"""What a conjunction allows: the reasoning behind `covers`, `overlaps` and regions.

The predicates on one attribute are satisfiable iff for some kind of value a value satisfies them all. Numbers are dense, dates
are whole microseconds, strings are ordered by code point (after s comes s + NUL, so not dense), sets have required,
allowed and forbidden elements. The answers are exact for conjunctions of indexable predicates. LIKE, substrings, arithmetic
and negated set relations are reasoned about on the safe side: `covers` says no, `overlaps` and `satisfiable` say yes.

Cost: O(predicates^2) per pair of conjunctions.
"""

from collections.abc import Iterable, Sequence
from typing import Any

from tidings.model.filter import NEGATION, NULL_OPS, Filter, Op, Predicate, test
from tidings.model.normal import Conjunction, normal_form
from tidings.model.value import (
    BOOL,
    DATE,
    EPOCH,
    NUMBER,
    SET,
    STRING,
    from_microseconds,
    kind,
    microseconds,
)

Predicates = Sequence[Predicate]


def overlaps(a: Filter, b: Filter) -> bool:
    """False only if no event matches both."""
    alternatives = normal_form(b)
    return any(satisfiable(x.predicates + y.predicates) for x in normal_form(a) for y in alternatives)


def covers(a: Filter, b: Filter) -> bool:
    """True only if every event that matches b matches a."""
    alternatives = normal_form(a)
    return all(
        not satisfiable(specific.predicates) or any(_covers(general, specific) for general in alternatives)
        for specific in normal_form(b)
    )


def _covers(general: Conjunction, specific: Conjunction) -> bool:
    by_attribute = _by_attribute(specific.predicates)
    return all(
        implied(predicate, by_attribute.get(predicate.attribute, [])) for predicate in general.predicates
    ) and all(residual in specific.residuals for residual in general.residuals)


def satisfiable(predicates: Iterable[Predicate]) -> bool:
    """Whether some event satisfies all predicates; False is certain."""
    return all(_attribute_satisfiable(group) for group in _by_attribute(predicates).values())


def implied(predicate: Predicate, known: Predicates) -> bool:
    """Whether every event that satisfies `known`, all on the predicate's attribute, satisfies the predicate; True is certain."""
    if predicate in known:
        return True
    absent = any(other.op is Op.MISSING for other in known)
    if predicate.op in NULL_OPS:
        return bool(known) and absent is (predicate.op is Op.MISSING)
    if absent or not known:
        return False
    opposite = Predicate(predicate.attribute, NEGATION[predicate.op], predicate.value)
    return all(
        kind in _kinds(predicate) and not _SATISFIABLE[kind]([*known, opposite])
        for kind in _common_kinds(known)
        if _SATISFIABLE[kind](known)
    )


def _by_attribute(predicates: Iterable[Predicate]) -> dict[str, list[Predicate]]:
    groups: dict[str, list[Predicate]] = {}
    for predicate in predicates:
        groups.setdefault(predicate.attribute, []).append(predicate)
    return groups


def _attribute_satisfiable(predicates: Predicates) -> bool:
    if any(predicate.op is Op.MISSING for predicate in predicates):
        return all(predicate.op is Op.MISSING for predicate in predicates)
    return any(_SATISFIABLE[kind](predicates) for kind in _common_kinds(predicates))


def _kinds(predicate: Predicate) -> set[str]:
    """The kinds of value on which a predicate can be true."""
    op, constant = predicate.op, predicate.value
    if op in NULL_OPS:
        return {NUMBER, STRING, BOOL, DATE, SET}
    if op in (Op.IN, Op.NOT_IN):
        return {kind(next(iter(constant)))} if constant else {NUMBER, STRING}
    if op in (Op.CONTAINS, Op.NOT_CONTAINS):
        return {SET, STRING} if type(constant) is str else {SET}
    return {kind(constant)}


def _common_kinds(predicates: Predicates) -> list[str]:
    return sorted(set.intersection(*(_kinds(predicate) for predicate in predicates)))


def _all_hold(predicates: Predicates, value: Any) -> bool:
    return all(predicate.op is Op.EXISTS or test(predicate.op, value, predicate.value) for predicate in predicates)


def _points(predicates: Predicates) -> frozenset[Any] | None:
    """The only values that can satisfy the predicates, where an equality or a list names them; else None."""
    for predicate in predicates:
        if predicate.op is Op.EQ:
            return frozenset([predicate.value])
        if predicate.op is Op.IN:
            return predicate.value  # type: ignore[no-any-return]
    return None


def _excluded(predicates: Predicates) -> set[Any]:
    """The single values that inequalities and negated lists take out."""
    excluded: set[Any] = set()
    for predicate in predicates:
        if predicate.op is Op.NE:
            excluded.add(predicate.value)
        elif predicate.op is Op.NOT_IN:
            excluded |= predicate.value
    return excluded


def _bool_satisfiable(predicates: Predicates) -> bool:
    return any(_all_hold(predicates, value) for value in (False, True))


def _number_satisfiable(predicates: Predicates) -> bool:
    points = _points(predicates)
    if points is None:
        low: int | float = max((p.value for p in predicates if p.op in (Op.GT, Op.GE)), default=float("-inf"))
        high: int | float = min((p.value for p in predicates if p.op in (Op.LT, Op.LE)), default=float("inf"))
        if low < high:
            return True  # dense: an interval has more values than any list can exclude
        points = frozenset([low]) if low == high else frozenset()
    return any(_all_hold(predicates, point) for point in points)


_FIRST_DATE, _LAST_DATE = (
    microseconds(EPOCH.replace(year=1)),
    microseconds(EPOCH.replace(year=9999, month=12, day=31, hour=23, minute=59, second=59, microsecond=999_999)),
)


def _date_satisfiable(predicates: Predicates) -> bool:
    low, high = _FIRST_DATE, _LAST_DATE
    for predicate in predicates:
        match predicate.op:
            case Op.GE | Op.EQ | Op.GT:
                low = max(low, microseconds(predicate.value) + (predicate.op is Op.GT))
        match predicate.op:
            case Op.LE | Op.EQ | Op.LT:
                high = min(high, microseconds(predicate.value) - (predicate.op is Op.LT))
    # Among more instants than there are exclusions, one is left.
    last = min(high, low + len(_excluded(predicates)))
    return any(_all_hold(predicates, from_microseconds(instant)) for instant in range(low, last + 1))


Interval = tuple[str, str | None]  # strings s with low <= s < high; None = no upper end


def _string_satisfiable(predicates: Predicates) -> bool:
    points = _points(predicates)
    if points is not None:
        return any(_all_hold(predicates, point) for point in points)
    return any(_interval_satisfiable(interval, predicates) for interval in _string_intervals(predicates))


def _string_intervals(predicates: Predicates) -> list[Interval]:
    """The ranges that order and prefixes leave, half open: `s > x` is `s >= x + NUL`, `s <= x` is `s < x + NUL`."""
    intervals: list[Interval] = [("", None)]
    for predicate in predicates:
        constant = predicate.value
        within: list[Interval]
        match predicate.op:
            case Op.GE | Op.GT:
                within = [(constant + "\0" * (predicate.op is Op.GT), None)]
            case Op.LE | Op.LT:
                within = [("", constant + "\0" * (predicate.op is Op.LE))]
            case Op.PREFIX:
                within = [(constant, _after_prefix(constant))]
            case Op.NOT_PREFIX:
                after = _after_prefix(constant)
                within = [("", constant)] + ([(after, None)] if after is not None else [])
            case _:
                continue
        intervals = [
            (max(low, other_low), min((h for h in (high, other_high) if h is not None), default=None))
            for low, high in intervals
            for other_low, other_high in within
        ]
        intervals = [(low, high) for low, high in intervals if high is None or low < high]
    return intervals


def _after_prefix(prefix: str) -> str | None:
    """The least string above all that start with the prefix; None if there is none."""
    stem = prefix.rstrip("\U0010ffff")
    if not stem:
        return None
    code = ord(stem[-1]) + 1
    return stem[:-1] + chr(0xE000 if code == 0xD800 else code)  # surrogates are no text


def _interval_satisfiable(interval: Interval, predicates: Predicates) -> bool:
    low, high = interval
    if high is not None and high.startswith(low) and not high[len(low) :].strip("\0"):
        # Between s and s + NULs there are only s with fewer NULs.
        return any(_all_hold(predicates, high[:length]) for length in range(len(low), len(high)))
    # Otherwise some string of the interval can be continued freely, so any ending is possible, with any part before it ...
    suffixes = sorted((p.value for p in predicates if p.op is Op.SUFFIX), key=len)
    ending = suffixes[-1] if suffixes else ""
    parts = [p.value for p in predicates if p.op in (Op.PREFIX, Op.SUFFIX, Op.CONTAINS)] + [ending]
    return all(ending.endswith(suffix) for suffix in suffixes) and not any(
        # ... unless what every such string has is forbidden.
        (p.op is Op.NOT_SUFFIX and ending.endswith(p.value))
        or (p.op is Op.NOT_CONTAINS and any(p.value in part for part in parts))
        for p in predicates
    )


def _set_satisfiable(predicates: Predicates) -> bool:
    required: set[Any] = set()
    forbidden: set[Any] = set()
    allowed: frozenset[Any] | None = None
    for predicate in predicates:
        match predicate.op:
            case Op.CONTAINS:
                required.add(predicate.value)
            case Op.SUPERSET:
                required |= predicate.value
            case Op.NOT_CONTAINS:
                forbidden.add(predicate.value)
            case Op.SUBSET:
                allowed = predicate.value if allowed is None else allowed & predicate.value
    if required & forbidden or (allowed is not None and not required <= allowed):
        return False
    if len({kind(element) for element in required}) > 1:
        return False
    for predicate in predicates:
        if predicate.op is Op.NOT_SUPERSET and predicate.value <= required:
            return False
        if predicate.op is Op.NOT_SUBSET and allowed is not None and allowed - forbidden <= predicate.value:
            return False
    return True


_SATISFIABLE = {
    BOOL: _bool_satisfiable,
    NUMBER: _number_satisfiable,
    DATE: _date_satisfiable,
    STRING: _string_satisfiable,
    SET: _set_satisfiable,
}
