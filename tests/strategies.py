"""Random values, events and filters for every property test.

Names and values come from small sets, so that filters really match events; beside them stand the values where number formats
break (around 2^53, the limits of 64 bits, infinities, minus zero) and names that need quoting. Filters are in the form that the
parser gives: constants folded, AND in AND flattened, LIKE only where no simpler test would do. Strategies are built once: it
costs Hypothesis more to build them than to draw from them.
"""

import datetime
import functools
import math
from typing import Any

from hypothesis import strategies as st

from tidings.language import wildcard
from tidings.model.event import Event
from tidings.model.filter import (
    COMPARISONS,
    NULL_OPS,
    SET_OPS,
    And,
    Arithmetic,
    Attribute,
    Bool,
    Comparison,
    Constant,
    Filter,
    Negative,
    Not,
    Op,
    Operand,
    Or,
    Predicate,
)
from tidings.model.value import BOOL, DATE, INT_MAX, INT_MIN, NUMBER, SET, STRING, kind

NAMES = ["a", "b", "c", "d"]
_HOMES = {NUMBER: "a", STRING: "b", SET: "c", BOOL: "d", DATE: "d"}  # where values of a kind mostly live
ODD_NAMES = ["a.b", "_x", "$type", "naïve", "order", "AND", "date", "with space", 'qu"ote', "1st", "日本", "a'b", "\n"]
_TEXT = "ab%_\\'é"
_EPOCH = datetime.datetime(2026, 11, 15, tzinfo=datetime.UTC)
_EDGES = [0, 2**53, -(2**53), INT_MAX, INT_MIN, 2**62]


@functools.cache
def names(odd: bool = True) -> st.SearchStrategy[str]:
    """Attribute names; without `odd` only four plain ones."""
    plain = st.sampled_from(NAMES)
    return plain | st.sampled_from(ODD_NAMES) if odd else plain


@functools.cache
def integers() -> st.SearchStrategy[int]:
    near_edges = st.builds(
        lambda edge, by: min(max(edge + by, INT_MIN), INT_MAX), st.sampled_from(_EDGES), st.integers(-2, 2)
    )
    return st.integers(-1, 2) | near_edges


@functools.cache
def floats() -> st.SearchStrategy[float]:
    odd = [0.5, -1.5, -0.0, 1e22, 5e-324, math.inf, -math.inf, *map(float, _EDGES)]
    return st.integers(-1, 2).map(float) | st.sampled_from(odd)


@functools.cache
def numbers() -> st.SearchStrategy[int | float]:
    return integers() | floats()


@functools.cache
def strings() -> st.SearchStrategy[str]:
    return st.text("ab", max_size=2) | st.text(_TEXT, max_size=4)


@functools.cache
def dates() -> st.SearchStrategy[datetime.datetime]:
    return st.integers(-1, 1).map(lambda by: _EPOCH + datetime.timedelta(microseconds=by))


@functools.cache
def sets() -> st.SearchStrategy[frozenset[Any]]:
    return st.frozensets(strings(), max_size=3) | st.frozensets(numbers(), max_size=3)


@functools.cache
def scalars() -> st.SearchStrategy[Any]:
    return numbers() | strings() | dates() | st.booleans()


@functools.cache
def values() -> st.SearchStrategy[Any]:
    """Anything that an attribute can be."""
    return scalars() | sets()


@functools.cache
def attributes(odd: bool = True) -> st.SearchStrategy[dict[str, Any]]:
    """The attributes that a filter sees: each plain one mostly there, and mostly of its usual kind."""
    usual = [numbers(), strings(), sets(), dates() | st.booleans()]
    plain = {
        name: st.sampled_from([home, home, home, values(), st.none()]).flatmap(lambda chosen: chosen)
        for name, home in zip(NAMES, usual, strict=True)
    }
    others = st.dictionaries(st.sampled_from(ODD_NAMES), values(), max_size=3) if odd else st.just({})
    return st.builds(
        lambda plain, others: {n: v for n, v in (plain | others).items() if v is not None},
        st.fixed_dictionaries(plain),
        others,
    )


@functools.cache
def events(odd: bool = True) -> st.SearchStrategy[Event]:
    """Events as they passed the door."""
    own = attributes(odd).map(lambda found: {name: value for name, value in found.items() if name != "$type"})
    return st.builds(
        Event,
        id=st.text("abc123", min_size=1, max_size=4),
        type=st.sampled_from(["", "trade", "quote"]),
        attributes=own,
        timestamp_s=st.floats(0, 1e6),
        timeout_s=st.sampled_from([1.0, 60.0, math.inf]),
        data=st.binary(max_size=8),
        content_type=st.sampled_from(["", "text/plain"]),
        size_kb=st.floats(0, 100),
    )


@st.composite
def predicates(draw: st.DrawFn, odd: bool = True) -> Predicate:
    """One attribute against one constant, with every operator."""
    op = draw(st.sampled_from(Op))
    if op in NULL_OPS:
        return Predicate(draw(names(odd)), op)
    if op in (Op.LIKE, Op.NOT_LIKE):
        name = draw(st.sampled_from([_HOMES[STRING], *ODD_NAMES] if odd else [_HOMES[STRING]]))
        return wildcard.predicate(name, draw(_PATTERNS), op is Op.NOT_LIKE)
    if op in SET_OPS:
        value = draw(sets())
        kinds = {STRING, NUMBER} & set(map(kind, value)) if op in (Op.IN, Op.NOT_IN) else {SET}
    elif op in (Op.CONTAINS, Op.NOT_CONTAINS):
        value, kinds = draw(strings() | numbers()), {SET}
    elif op in COMPARISONS:
        value = draw(scalars() if op in (Op.EQ, Op.NE) else numbers() | strings() | dates())
        kinds = {kind(value)}
    else:
        value, kinds = draw(strings()), {STRING}
    homes = [_HOMES[kind] for kind in sorted(kinds)]
    return Predicate(draw(st.sampled_from(3 * homes + NAMES + (ODD_NAMES if odd else []))), op, value)


_PATTERNS = st.lists(
    st.sampled_from([(True, "%"), (True, "_"), (True, "%"), *((False, c) for c in "aab%_\\")]), max_size=5
)


@functools.cache
def operands(odd: bool = True) -> st.SearchStrategy[Operand]:
    """Arithmetic that the parser cannot fold."""
    constants: st.SearchStrategy[Operand] = scalars().map(Constant)
    return st.recursive(
        names(odd).map(Attribute) | constants,
        lambda inner: (
            st.builds(Arithmetic, st.sampled_from("+-*/"), inner, inner).filter(
                lambda node: not (isinstance(node.left, Constant) and isinstance(node.right, Constant))
            )
            | st.builds(Negative, inner.filter(lambda node: not isinstance(node, Constant)))
        ),
        max_leaves=4,
    )


@functools.cache
def comparisons(odd: bool = True) -> st.SearchStrategy[Comparison]:
    """Two expressions compared that are no predicate."""
    return st.builds(Comparison, st.sampled_from(list(COMPARISONS)), operands(odd), operands(odd)).filter(_stays)


def _stays(comparison: Comparison) -> bool:
    """Whether the parser would leave the comparison as it is."""
    sides = [comparison.left, comparison.right]
    constants = [side.value for side in sides if isinstance(side, Constant)]
    if comparison.op not in (Op.EQ, Op.NE) and any(kind(value) == BOOL for value in constants):
        return False
    if len(constants) == 2:
        return kind(constants[0]) != kind(constants[1])
    return not (constants and any(isinstance(side, Attribute) for side in sides))


@functools.cache
def filters(odd: bool = True, max_leaves: int = 8, arithmetic: bool = True) -> st.SearchStrategy[Filter]:
    """Whole filters."""
    leaves: st.SearchStrategy[Filter] = predicates(odd) | st.builds(Bool, st.booleans())
    if arithmetic:
        leaves = predicates(odd) | predicates(odd) | comparisons(odd) | st.builds(Bool, st.booleans())
    return st.recursive(
        leaves,
        lambda inner: (
            st.lists(inner, min_size=2, max_size=3).map(lambda parts: And(_flat(And, parts)))
            | st.lists(inner, min_size=2, max_size=3).map(lambda parts: Or(_flat(Or, parts)))
            | st.builds(Not, inner)
        ),
        max_leaves=max_leaves,
    )


def _flat(joint: type[And] | type[Or], parts: list[Filter]) -> tuple[Filter, ...]:
    return tuple(leaf for part in parts for leaf in (part.parts if isinstance(part, joint) else (part,)))
