"""Filters: what a subscriber wants, as a boolean expression over an event's attributes.

A filter is a tree of And, Or, Not over leaves: a Predicate compares one attribute with a constant (what an index can
serve), a Comparison compares two arithmetic expressions (what must be verified on each candidate). Meaning is SQL's
three-valued logic: a leaf on a missing attribute, or on a value of another kind than its constant, is unknown, and an
event matches iff the whole is true. (mtep, section 2: an event matches iff for every predicate it has the attribute and
its value satisfies it.)

The classes are msgspec structs, so a filter travels on the wire as it is; they print as text that the parser reads back.
"""

import enum
import itertools
import math
import operator
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import msgspec

from tidings.errors import FilterError, InvalidInput
from tidings.model import like
from tidings.model.value import (
    BOOL,
    DATE,
    INT_MAX,
    INT_MIN,
    MAX_NAME_LENGTH,
    NUMBER,
    SET,
    STRING,
    Value,
    checked,
    checked_name,
    kind,
)

FAILS, SATISFIES = "fails", "satisfies"
MAX_DEPTH = 64  # parentheses, NOTs, signs and arithmetic inside each other; leaves and operands come on top
MAX_CONDITIONS = 1_024  # leaves of one filter


class Op(enum.StrEnum):
    """What a predicate demands. Each operator stands beside its negation (see NEGATION)."""

    LT, GE = "<", ">="
    LE, GT = "<=", ">"
    EQ, NE = "=", "<>"
    PREFIX, NOT_PREFIX = "STARTS WITH", "NOT STARTS WITH"
    SUFFIX, NOT_SUFFIX = "ENDS WITH", "NOT ENDS WITH"
    LIKE, NOT_LIKE = "LIKE", "NOT LIKE"
    IN, NOT_IN = "IN", "NOT IN"
    CONTAINS, NOT_CONTAINS = "CONTAINS", "NOT CONTAINS"
    SUBSET, NOT_SUBSET = "SUBSET OF", "NOT SUBSET OF"
    SUPERSET, NOT_SUPERSET = "SUPERSET OF", "NOT SUPERSET OF"
    EXISTS, MISSING = "IS NOT NULL", "IS NULL"


_PAIRS = [
    (Op.LT, Op.GE),
    (Op.LE, Op.GT),
    (Op.EQ, Op.NE),
    (Op.PREFIX, Op.NOT_PREFIX),
    (Op.SUFFIX, Op.NOT_SUFFIX),
    (Op.LIKE, Op.NOT_LIKE),
    (Op.IN, Op.NOT_IN),
    (Op.CONTAINS, Op.NOT_CONTAINS),
    (Op.SUBSET, Op.NOT_SUBSET),
    (Op.SUPERSET, Op.NOT_SUPERSET),
    (Op.EXISTS, Op.MISSING),
]
NEGATION: dict[Op, Op] = {a: b for pair in _PAIRS for a, b in (pair, pair[::-1])}
COMPARISONS: dict[Op, Callable[[Any, Any], bool]] = {
    Op.LT: operator.lt,
    Op.LE: operator.le,
    Op.EQ: operator.eq,
    Op.NE: operator.ne,
    Op.GT: operator.gt,
    Op.GE: operator.ge,
}
SET_OPS = frozenset({Op.IN, Op.NOT_IN, Op.SUBSET, Op.NOT_SUBSET, Op.SUPERSET, Op.NOT_SUPERSET})
NULL_OPS = frozenset({Op.EXISTS, Op.MISSING})

# Which kinds of constant an operator takes.
_SCALARS = {NUMBER, STRING, DATE}
_CONSTANT_KINDS: dict[Op, set[str]] = {
    **dict.fromkeys((Op.LT, Op.LE, Op.GT, Op.GE), _SCALARS),
    **dict.fromkeys((Op.EQ, Op.NE), _SCALARS | {BOOL}),
    **dict.fromkeys((Op.PREFIX, Op.NOT_PREFIX, Op.SUFFIX, Op.NOT_SUFFIX, Op.LIKE, Op.NOT_LIKE), {STRING}),
    **dict.fromkeys((Op.CONTAINS, Op.NOT_CONTAINS), {STRING, NUMBER}),
    **dict.fromkeys(SET_OPS, {SET}),
}


class _Node(msgspec.Struct, frozen=True, array_like=True, gc=False):
    def __str__(self) -> str:
        from tidings.model.text import render

        return render(self)


class Attribute(_Node, frozen=True, array_like=True, gc=False, tag="a"):
    """The value of an attribute, as an operand of a comparison."""

    name: str

    def __post_init__(self) -> None:
        _named(self.name)


class Constant(_Node, frozen=True, array_like=True, gc=False, tag="c"):
    value: Any

    def __post_init__(self) -> None:
        msgspec.structs.force_setattr(self, "value", _constant(self.value, "constant"))
        if type(self.value) is frozenset:
            raise FilterError("a set is no operand of a comparison")

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Constant) and same(self.value, other.value)

    def __hash__(self) -> int:
        return hash(self.value)


class Arithmetic(_Node, frozen=True, array_like=True, gc=False, tag="m"):
    """`+ - * /` of two operands; `/` of two integers truncates towards zero, as in SQL and Java."""

    op: str
    left: "Operand"
    right: "Operand"

    def __post_init__(self) -> None:
        if self.op not in _ARITHMETIC:
            raise FilterError(f"unknown arithmetic operator {self.op!r}")


class Negative(_Node, frozen=True, array_like=True, gc=False, tag="-"):
    operand: "Operand"


Operand = Attribute | Constant | Arithmetic | Negative


class Predicate(_Node, frozen=True, array_like=True, gc=False, tag="p"):
    """One attribute against one constant. LIKE patterns quote with a backslash."""

    attribute: str
    op: Op
    value: Any = None

    def __post_init__(self) -> None:
        op, value = self.op, self.value
        # The common case first: a million subscriptions pass here.
        value_type, name = type(value), self.attribute
        if (
            (value_type is int and INT_MIN <= value <= INT_MAX)
            or (value_type is float and value == value)
            or (value_type is str and value.isascii())
        ) and (op in COMPARISONS and name.isascii() and 0 < len(name) <= MAX_NAME_LENGTH):
            return
        _named(self.attribute)
        if op in NULL_OPS:
            if value is not None:
                raise FilterError(f"{op} takes no constant, found {value!r}")
            return
        value = _constant(value, f"the constant of {self.attribute} {op}")
        expected = _CONSTANT_KINDS[op]
        if kind(value) not in expected:
            raise FilterError(
                f"{self.attribute} {op}: expected a constant of kind {' or '.join(sorted(expected))}, found a {kind(value)}"
            )
        if op in (Op.LIKE, Op.NOT_LIKE) and like.dangling_escape(str(value)):
            raise FilterError(f"{self.attribute} {op}: the pattern {value!r} ends in an escape character")
        if value is not self.value:
            msgspec.structs.force_setattr(self, "value", value)

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, Predicate)
            and self.attribute == other.attribute
            and self.op == other.op
            and same(self.value, other.value)
        )

    def __hash__(self) -> int:
        return hash((self.attribute, self.op, self.value))


class Comparison(_Node, frozen=True, array_like=True, gc=False, tag="x"):
    """Two expressions compared: arithmetic, or attribute against attribute."""

    op: Op
    left: Operand
    right: Operand

    def __post_init__(self) -> None:
        if self.op not in COMPARISONS:
            raise FilterError(f"{self.op} does not compare two expressions")


class Bool(_Node, frozen=True, array_like=True, gc=False, tag="b"):
    """TRUE matches every event, FALSE none."""

    value: bool


class And(_Node, frozen=True, array_like=True, gc=False, tag="&"):
    parts: tuple["Filter", ...]

    def __post_init__(self) -> None:
        _at_least_two(self.parts)


class Or(_Node, frozen=True, array_like=True, gc=False, tag="|"):
    parts: tuple["Filter", ...]

    def __post_init__(self) -> None:
        _at_least_two(self.parts)


class Not(_Node, frozen=True, array_like=True, gc=False, tag="!"):
    part: "Filter"


Filter = Predicate | Comparison | Bool | And | Or | Not
EVERYTHING = Bool(True)


def same(a: Any, b: Any) -> bool:
    """Equal and of the same type: 1, 1.0 and TRUE are three different constants."""
    if type(a) is not type(b):
        return False
    if isinstance(a, frozenset):
        return bool(a == b) and sorted(map(repr, a)) == sorted(map(repr, b))
    return bool(a == b)


def _constant(value: Any, where: str) -> Value:
    try:
        return checked(value, where)
    except InvalidInput as error:
        raise FilterError(str(error)) from None


def _named(name: str) -> None:
    try:
        checked_name(name)
    except InvalidInput as error:
        raise FilterError(str(error)) from None


def _at_least_two(parts: tuple[Filter, ...]) -> None:
    if len(parts) < 2:
        raise FilterError("AND and OR join at least two parts")


def conjunction(parts: tuple[Filter, ...]) -> Filter:
    """All of the parts: TRUE for none of them, the part itself for one."""
    return And(parts) if len(parts) > 1 else parts[0] if parts else EVERYTHING


def disjunction(parts: tuple[Filter, ...]) -> Filter:
    """Any of the parts: FALSE for none of them, the part itself for one."""
    return Or(parts) if len(parts) > 1 else parts[0] if parts else Bool(False)


def truth(filter: Filter, attributes: Mapping[str, Value], lenient: bool = False) -> bool | None:
    """Three-valued truth: True, False, or None for unknown.

    `lenient` is ceem's rule (a leaf on a missing attribute is satisfied); it is meaningful on filters without Not, see
    `matches`.
    """
    match filter:
        case Predicate():
            return _predicate_truth(filter, attributes, lenient)
        case And():
            result: bool | None = True
            for part in filter.parts:
                part_truth = truth(part, attributes, lenient)
                if part_truth is False:
                    return False
                if part_truth is None:
                    result = None
            return result
        case Or():
            result = False
            for part in filter.parts:
                part_truth = truth(part, attributes, lenient)
                if part_truth:
                    return True
                if part_truth is None:
                    result = None
            return result
        case Not():
            part_truth = truth(filter.part, attributes, lenient)
            return None if part_truth is None else not part_truth
        case Comparison():
            if lenient and any(name not in attributes for name in names(filter)):
                return True
            return compare(filter.op, evaluate(filter.left, attributes), evaluate(filter.right, attributes))
        case Bool():
            return filter.value


def matches(filter: Filter, attributes: Mapping[str, Value], missing: str = FAILS) -> bool:
    """Whether an event with these attributes matches. `missing` says what a leaf on a missing attribute does."""
    if missing == FAILS:
        return truth(filter, attributes) is True
    return truth(positive(filter), attributes, lenient=True) is True


def _predicate_truth(predicate: Predicate, attributes: Mapping[str, Value], lenient: bool) -> bool | None:
    value = attributes.get(predicate.attribute)
    op = predicate.op
    if op in NULL_OPS:
        return (value is None) is (op is Op.MISSING)
    if value is None:
        return True if lenient else None
    return test(op, value, predicate.value)


def test(op: Op, value: Value, constant: Any) -> bool | None:
    """Whether a present value satisfies the operator and constant; None if they are of different kinds."""
    if op in COMPARISONS:
        return compare(op, value, constant)
    if op in _NEGATIVE_OPS:
        held = test(NEGATION[op], value, constant)
        return None if held is None else not held
    return _TESTS[op](value, constant)


def compare(op: Op, left: Value | None, right: Value | None) -> bool | None:
    """Two values of one kind by exact value; None if either is missing, the kinds differ or have no such order."""
    if left is None or right is None:
        return None
    left_kind = kind(left)
    if left_kind != kind(right) or left_kind == SET:
        return None
    if left_kind == BOOL and op not in (Op.EQ, Op.NE):
        return None
    return COMPARISONS[op](left, right)


def _string_test(held: Callable[[str, str], bool]) -> Callable[[Any, Any], bool | None]:
    return lambda value, constant: held(value, constant) if type(value) is str else None


def _set_test(held: Callable[[Any, Any], bool]) -> Callable[[Any, Any], bool | None]:
    return lambda value, constant: held(value, constant) if type(value) is frozenset else None


def _in(value: Any, constant: frozenset[Any]) -> bool | None:
    if type(value) not in (int, float, str):
        return None
    element = next(iter(constant), None)
    if element is not None and kind(element) != kind(value):
        return None
    return value in constant


def _contains(value: Any, constant: Any) -> bool | None:
    if type(value) is frozenset or (type(value) is str and type(constant) is str):
        return constant in value
    return None


_TESTS: dict[Op, Callable[[Any, Any], bool | None]] = {
    Op.PREFIX: _string_test(str.startswith),
    Op.SUFFIX: _string_test(str.endswith),
    Op.LIKE: _string_test(lambda value, pattern: like.compiled(pattern)(value)),
    Op.IN: _in,
    Op.CONTAINS: _contains,
    Op.SUBSET: _set_test(frozenset.issubset),
    Op.SUPERSET: _set_test(frozenset.issuperset),
}
_NEGATIVE_OPS = frozenset(NEGATION[op] for op in _TESTS)


def _divide(left: Any, right: Any) -> int | float:
    if isinstance(left, int) and isinstance(right, int):
        quotient = abs(left) // abs(right)
        return quotient if (left < 0) == (right < 0) else -quotient
    return float(left / right)


_ARITHMETIC: dict[str, Callable[[Any, Any], Any]] = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "/": _divide,
}


def evaluate(operand: Operand, attributes: Mapping[str, Value]) -> Value | None:
    """The value of an expression, or None (unknown): missing, not a number, division by zero, overflow."""
    match operand:
        case Attribute():
            return attributes.get(operand.name)
        case Constant():
            return operand.value  # type: ignore[no-any-return]
        case Negative():
            value = evaluate(operand.operand, attributes)
            return _number(-value) if isinstance(value, int | float) and not isinstance(value, bool) else None
        case Arithmetic():
            left, right = evaluate(operand.left, attributes), evaluate(operand.right, attributes)
            if type(left) not in (int, float) or type(right) not in (int, float):
                return None
            try:
                result = _ARITHMETIC[operand.op](left, right)
            except ArithmeticError:
                return None
            return _number(result)


def _number(result: int | float) -> int | float | None:
    if isinstance(result, int):
        return result if INT_MIN <= result <= INT_MAX else None
    return None if math.isnan(result) else result


def positive(filter: Filter, negated: bool = False) -> Filter:
    """The same filter without Not: negation is pushed down to the leaves, where three-valued logic keeps its meaning."""
    match filter:
        case Not():
            return positive(filter.part, not negated)
        case And() | Or():
            parts = tuple(positive(part, negated) for part in filter.parts)
            return And(parts) if isinstance(filter, And) is not negated else Or(parts)
        case _ if not negated:
            return filter
        case Predicate():
            return Predicate(filter.attribute, NEGATION[filter.op], filter.value)
        case Comparison():
            return Comparison(NEGATION[filter.op], filter.left, filter.right)
        case Bool():
            return Bool(not filter.value)


def leaves(filter: Filter) -> Iterator[Predicate | Comparison | Bool]:
    """The leaves of a filter from left to right."""
    match filter:
        case And() | Or():
            for part in filter.parts:
                yield from leaves(part)
        case Not():
            yield from leaves(filter.part)
        case _:
            yield filter


def names(filter: Filter) -> list[str]:
    """The attributes that a filter mentions, each once, in order of appearance."""
    found: dict[str, None] = {}

    def visit(operand: Operand) -> None:
        match operand:
            case Attribute():
                found[operand.name] = None
            case Negative():
                visit(operand.operand)
            case Arithmetic():
                visit(operand.left)
                visit(operand.right)

    for leaf in leaves(filter):
        match leaf:
            case Predicate():
                found[leaf.attribute] = None
            case Comparison():
                visit(leaf.left)
                visit(leaf.right)
    return list(found)


def check_limits(filter: Filter) -> None:
    """FilterError if the filter is deeper or wider than the system carries, whoever built it."""
    conditions = 0
    level: list[Any] = [filter]
    for depth in itertools.count(1):
        if not level:
            return
        if depth > 2 * MAX_DEPTH + 3:  # one parenthesis can hold an OR of ANDs
            raise FilterError(f"a filter nests at most {MAX_DEPTH} levels deep")
        conditions += sum(isinstance(node, Predicate | Comparison | Bool) for node in level)
        if conditions > MAX_CONDITIONS:
            raise FilterError(f"a filter has at most {MAX_CONDITIONS:,} conditions")
        level = [child for node in level for child in _children(node)]


def _children(node: Any) -> tuple[Any, ...]:
    match node:
        case And() | Or():
            return node.parts
        case Not():
            return (node.part,)
        case Comparison() | Arithmetic():
            return (node.left, node.right)
        case Negative():
            return (node.operand,)
    return ()
