"""Plans: a filter whose constants are still to come.

The grammar makes a plan from the shape of a text; given the constants, the plan makes the filter. Whatever depends on the value
of a constant happens here: signs, folding, dates, LIKE, the 64-bit limit. A value that is refused becomes a Problem at its
token.
"""

import datetime
import math
import re
from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from tidings.errors import FilterError, InvalidInput
from tidings.language import wildcard
from tidings.language.lexer import Problem
from tidings.model.filter import (
    COMPARISONS,
    And,
    Arithmetic,
    Attribute,
    Bool,
    Comparison,
    Constant,
    Filter,
    Negative,
    Op,
    Operand,
    Or,
    Predicate,
    compare,
    evaluate,
)
from tidings.model.value import INT_MAX, INT_MIN, NUMBER, checked

Constants = Sequence[Any]
Joint = type[And] | type[Or]

_FLIPPED = {**{op: op for op in COMPARISONS}, Op.LT: Op.GT, Op.LE: Op.GE, Op.GT: Op.LT, Op.GE: Op.LE}
_DAY = r"[0-9]{4}-[0-9]{2}-[0-9]{2}"
DATES = {
    "DATE": (re.compile(_DAY), "DATE '2026-11-15'"),
    "TIMESTAMP": (
        re.compile(_DAY + r"[T ][0-9]{2}:[0-9]{2}(:[0-9]{2}(\.[0-9]{1,6})?)?(Z|[+-][0-9]{2}:?[0-9]{2})?"),
        "TIMESTAMP '2026-11-15T10:00:00.5+08:00'",
    ),
}


class NamePlan(msgspec.Struct):
    """An attribute as an operand."""

    name: str
    depth: int = 0


class ValuePlan(msgspec.Struct):
    """A constant as an operand. A plain number or string knows its slot among the constants."""

    kind: str
    get: Callable[[Constants], Any]
    at: int
    depth: int = 0
    slot: int = -1


class ExpressionPlan(msgspec.Struct):
    """Arithmetic that needs an event."""

    build: Callable[[Constants], Operand]
    depth: int


class Condition(msgspec.Struct):
    """What is true, false or unknown; everything else is an operand."""


class SimplePlan(Condition, gc=False):
    """An attribute against a plain constant: most conditions."""

    name: str
    op: Op
    slot: int
    at: int

    def build(self, constants: Constants) -> Filter:
        return Predicate(self.name, self.op, allowed(constants[self.slot], self.at))


class ConditionPlan(Condition):
    """Any other condition; `parts` are those of an AND or OR."""

    build: Callable[[Constants], Filter]
    joint: Joint | None = None
    parts: Sequence["AnyCondition"] = ()


AnyCondition = SimplePlan | ConditionPlan
OperandPlan = NamePlan | ValuePlan | ExpressionPlan
Plan = OperandPlan | AnyCondition


def predicate(name: str, op: Op, get: Callable[[Constants], Any]) -> ConditionPlan:
    return ConditionPlan(lambda constants: Predicate(name, op, get(constants)))


def joined(joint: Joint, parts: list[AnyCondition]) -> ConditionPlan:
    """AND or OR of at least two parts."""

    def build(constants: Constants) -> Filter:
        return joint(tuple([part.build(constants) for part in parts]))

    names, ops, slots = [], [], []
    for part in parts:
        if not isinstance(part, SimplePlan):
            return ConditionPlan(build, joint, parts)
        names.append(part.name)
        ops.append(part.op)
        slots.append(part.slot)
    first, last = slots[0], slots[-1]
    if last - first != len(slots) - 1:
        return ConditionPlan(build, joint, parts)

    # One plain constant after the other: what most of a million subscriptions look like.
    def build_at_once(constants: Constants) -> Filter:
        try:
            return joint(tuple(map(Predicate, names, ops, constants[first : last + 1])))
        except FilterError:
            return build(constants)  # says which constant it is

    return ConditionPlan(build_at_once, joint, parts)


def comparison(left: OperandPlan, op: Op, right: OperandPlan) -> AnyCondition:
    """A predicate where one side is an attribute and the other a constant; TRUE or FALSE where both are constants."""
    if isinstance(left, ValuePlan) and isinstance(right, NamePlan):
        left, op, right = right, _FLIPPED[op], left
    if isinstance(left, NamePlan) and isinstance(right, ValuePlan):
        if right.slot >= 0:
            return SimplePlan(left.name, op, right.slot, right.at)
        return predicate(left.name, op, right.get)
    if isinstance(left, ValuePlan) and isinstance(right, ValuePlan) and left.kind == right.kind:
        a, b = left.get, right.get
        return ConditionPlan(lambda constants: Bool(bool(compare(op, a(constants), b(constants)))))
    x, y = operand(left), operand(right)
    return ConditionPlan(lambda constants: Comparison(op, x(constants), y(constants)))


def arithmetic(left: OperandPlan, op: str, right: OperandPlan, at: int) -> OperandPlan:
    """Constants are folded; beside an attribute they wait for an event."""
    depth = max(left.depth, right.depth) + 1
    if isinstance(left, ValuePlan) and isinstance(right, ValuePlan):
        a, b = left.get, right.get
        return ValuePlan(NUMBER, lambda constants: _folded(op, a(constants), b(constants), at), at, depth)
    x, y = operand(left), operand(right)
    return ExpressionPlan(lambda constants: Arithmetic(op, x(constants), y(constants)), depth)


def negative(inner: NamePlan | ExpressionPlan) -> ExpressionPlan:
    build = operand(inner)
    return ExpressionPlan(lambda constants: Negative(build(constants)), inner.depth + 1)


def signed(sign: str, value: ValuePlan, at: int) -> ValuePlan:
    """A constant number with a sign."""
    get, slot = value.get, value.slot
    if sign == "+":
        return ValuePlan(NUMBER, get, at, value.depth)
    if slot >= 0:  # -2^63 has 64 bits, though 2^63 has not
        return ValuePlan(NUMBER, lambda constants: -constants[slot], at)
    return ValuePlan(NUMBER, lambda constants: allowed(-get(constants), at), at, value.depth + 1)


def operand(plan: OperandPlan) -> Callable[[Constants], Operand]:
    match plan:
        case NamePlan():
            attribute = Attribute(plan.name)
            return lambda constants: attribute
        case ValuePlan():
            get = plan.get
            return lambda constants: Constant(get(constants))
    return plan.build


def like(name: str, negated: bool, pattern: ValuePlan, escape: ValuePlan | None) -> ConditionPlan:
    def build(constants: Constants) -> Filter:
        character = escape.get(constants) if escape else ""
        if escape and len(character) != 1:
            raise Problem(escape.at, "expected a string of one character after ESCAPE")
        pieces = wildcard.pieces(pattern.get(constants), character, {"%": wildcard.ANY, "_": wildcard.ONE})
        try:
            return wildcard.predicate(name, pieces, negated)
        except ValueError as error:
            raise Problem(pattern.at, str(error), found=False) from None

    return ConditionPlan(build)


def date(word: str, text: str, at: int) -> datetime.datetime:
    """The instant that DATE '...' or TIMESTAMP '...' names; in UTC where it has no offset."""
    form, example = DATES[word]
    try:
        if form.fullmatch(text):
            instant = datetime.datetime.fromisoformat(text)
            return (instant if instant.tzinfo else instant.replace(tzinfo=datetime.UTC)).astimezone(datetime.UTC)
    except (ValueError, OverflowError):  # no such day, or not in the years 1 to 9999
        pass
    raise Problem(at, f"expected a date such as {example}")


def allowed(value: Any, at: int) -> Any:
    if value.isascii() if type(value) is str else INT_MIN <= value <= INT_MAX:
        return value  # in most cases
    try:
        return checked(value, "constant")
    except InvalidInput as error:
        raise Problem(at, str(error).removeprefix("constant: "), found=False) from None


def _folded(op: str, left: Any, right: Any, at: int) -> Any:
    result = evaluate(Arithmetic(op, Constant(left), Constant(right)), {})
    if result is None or (math.isinf(result) and not math.isinf(left) and not math.isinf(right)):  # type: ignore[arg-type]
        why = "divides by zero" if op == "/" and right == 0 else "is too large or no number"
        raise Problem(at, f"{left!r} {op} {right!r} {why}", found=False)
    return result
