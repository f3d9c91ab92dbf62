"""Filters against an oracle that was written from the definitions: Kleene's logic as numbers, exact fractions, regexes."""

import datetime
import math
import operator
import re
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from strategies import attributes, filters, numbers, operands, predicates
from tidings.errors import FilterError
from tidings.model import filter as f
from tidings.model.filter import And, Bool, Comparison, Constant, Not, Op, Or, Predicate, matches, positive, truth
from tidings.model.value import INT_MAX, INT_MIN

FALSE, UNKNOWN, TRUE = 0, 1, 2
ORDER = {
    "<": operator.lt,
    "<=": operator.le,
    "=": operator.eq,
    "<>": operator.ne,
    ">": operator.gt,
    ">=": operator.ge,
}


def logic(filter, event, lenient=False):
    """FALSE < UNKNOWN < TRUE: AND is the least, OR the greatest, NOT the mirror."""
    match filter:
        case And(parts):
            return min(logic(part, event, lenient) for part in parts)
        case Or(parts):
            return max(logic(part, event, lenient) for part in parts)
        case Not(part):
            return TRUE - logic(part, event, lenient)
        case Bool(value):
            return TRUE if value else FALSE
        case Comparison(op, left, right):
            return known(ordered(op, calculated(left, event), calculated(right, event)))
        case Predicate(name, op, constant):
            word = str(op).removeprefix("NOT ")
            if word.startswith("IS"):
                return known((name in event) == (op == "IS NOT NULL"))
            if name not in event:
                return UNKNOWN
            held = ordered(op, event[name], constant) if word in ORDER else held_words(word, event[name], constant)
            return known(held) if word == str(op) or held is None else known(not held)


def known(held):
    return UNKNOWN if held is None else TRUE if held else FALSE


def exact(value):
    """Values that compare like what they stand for, and what kind they are."""
    match value:
        case bool():
            return "bool", value
        case int():
            return "number", (0, Fraction(value))
        case float():
            return "number", (0, Fraction(value)) if math.isfinite(value) else (int(math.copysign(1, value)), 0)
        case str():
            return "string", [ord(character) for character in value]
        case datetime.datetime():
            return "date", value
    return "set", None


def ordered(op, left, right):
    if left is None or right is None:
        return None
    (left_kind, left), (right_kind, right) = exact(left), exact(right)
    if left_kind != right_kind or left_kind == "set" or (left_kind == "bool" and op not in ("=", "<>")):
        return None
    return ORDER[op](left, right)


def held_words(word, value, constant):
    elements = [exact(element) for element in value] if isinstance(value, frozenset) else None
    wanted = [exact(element) for element in constant] if isinstance(constant, frozenset) else None
    match word, value:
        case "STARTS WITH", str():
            return value[: len(constant)] == constant
        case "ENDS WITH", str():
            return value[max(len(value) - len(constant), 0) :] == constant
        case "LIKE", str():
            return like_oracle(constant, value)
        case "CONTAINS", str() if isinstance(constant, str):
            return re.search(re.escape(constant), value) is not None
        case "CONTAINS", frozenset():
            return exact(constant) in elements
        case "SUBSET OF", frozenset():
            return all(element in wanted for element in elements)
        case "SUPERSET OF", frozenset():
            return all(element in elements for element in wanted)
        case "IN", int() | float() | str() if not isinstance(value, bool):
            kinds = {kind for kind, _ in wanted}
            return exact(value) in wanted if kinds <= {exact(value)[0]} else None
    return None


def like_oracle(pattern, string):
    expression = re.sub(
        r"\\(.)|(%)|(_)|(.)",
        lambda m: ".*" if m[2] else "." if m[3] else re.escape(m[1] or m[4]),
        pattern,
        flags=re.DOTALL,
    )
    return re.fullmatch(expression, string, re.DOTALL) is not None


def calculated(operand, event):
    match operand:
        case f.Attribute(name):
            return event.get(name)
        case f.Constant(value):
            return value
        case f.Negative(inner):
            return bounded(
                lambda zero, value: zero - value if isinstance(value, int) else -value, 0, calculated(inner, event)
            )
        case f.Arithmetic("/", left, right):
            return bounded(divided, calculated(left, event), calculated(right, event))
        case f.Arithmetic(op, left, right):
            function = {"+": operator.add, "-": operator.sub, "*": operator.mul}[op]
            return bounded(function, calculated(left, event), calculated(right, event))


def divided(left, right):
    if right == 0:
        return None
    if isinstance(left, int) and isinstance(right, int):
        return math.trunc(Fraction(left, right))
    return left / right


def bounded(function, left, right):
    if any(type(value) not in (int, float) for value in (left, right)):
        return None
    result = function(left, right)
    if result is None or result != result or (isinstance(result, int) and not INT_MIN <= result <= INT_MAX):
        return None
    return result


@given(filters(), attributes())
def test_truth(filter, event):
    assert known(truth(filter, event)) == logic(filter, event)
    assert matches(filter, event) == (logic(filter, event) == TRUE)


@given(predicates(odd=False), attributes(odd=False))
def test_truth_of_a_predicate(predicate, event):
    assert known(truth(predicate, event)) == logic(predicate, event)


@given(filters(), attributes())
def test_negation_moves_to_the_leaves_without_a_change_of_meaning(filter, event):
    pushed = positive(filter)
    assert not any(isinstance(node, Not) for node in nodes(pushed))
    assert truth(pushed, event) is truth(filter, event)
    assert truth(positive(filter, negated=True), event) is truth(Not(filter), event)


def nodes(filter):
    yield filter
    for part in getattr(filter, "parts", ()):
        yield from nodes(part)


@given(filters(odd=False), attributes(odd=False))
def test_missing_attributes_may_satisfy(filter, event):
    """ceem's rule, said differently: every leaf on a missing attribute, after NOT moved to the leaves, becomes TRUE."""
    pushed = positive(filter)

    def filled(node):
        match node:
            case And(parts):
                return And(tuple(map(filled, parts)))
            case Or(parts):
                return Or(tuple(map(filled, parts)))
            case Predicate(_, Op.EXISTS | Op.MISSING):
                return node
            case _ if any(name not in event for name in f.names(node)):
                return Bool(True)
        return node

    assert matches(filter, event, f.SATISFIES) == (logic(filled(pushed), event) == TRUE)


@pytest.mark.parametrize(
    ("text", "event", "fails", "satisfies"),
    [
        (Predicate("a", Op.EQ, 1), {}, False, True),
        (Not(Predicate("a", Op.EQ, 1)), {}, False, True),
        (Predicate("a", Op.EQ, 1), {"a": "x"}, False, False),
        (Not(Predicate("a", Op.EQ, 1)), {"a": "x"}, False, False),
        (Predicate("a", Op.MISSING), {}, True, True),
        (Predicate("a", Op.EXISTS), {}, False, False),
        (Comparison(Op.LT, f.Attribute("a"), f.Attribute("b")), {"a": 1}, False, True),
    ],
)
def test_what_a_missing_attribute_does(text, event, fails, satisfies):
    assert matches(text, event, f.FAILS) is fails
    assert matches(text, event, f.SATISFIES) is satisfies


@given(numbers(), numbers())
def test_numbers_compare_by_exact_value(a, b):
    for op, function in ORDER.items():
        assert truth(Predicate("a", Op(op), b), {"a": a}) is function(exact(a)[1], exact(b)[1])
        assert truth(Comparison(Op(op), f.Attribute("a"), f.Attribute("b")), {"a": a, "b": b}) is function(
            exact(a)[1], exact(b)[1]
        )
    assert truth(Predicate("a", Op.IN, frozenset({b})), {"a": a}) is (exact(a) == exact(b))
    assert truth(Predicate("a", Op.CONTAINS, b), {"a": frozenset({a})}) is (exact(a) == exact(b))


EXACT = [
    (2**53 + 1, Op.GT, float(2**53), True),
    (2**53 + 1, Op.EQ, float(2**53), False),
    (2**53 + 1, Op.IN, frozenset({float(2**53)}), False),
    (float(2**53), Op.LT, 2**53 + 1, True),
    (2**53, Op.EQ, float(2**53), True),
    (INT_MAX, Op.LT, float(2**63), True),
    (INT_MAX, Op.EQ, float(2**63), False),
    (INT_MIN, Op.EQ, float(-(2**63)), True),
    (INT_MIN, Op.GT, -math.inf, True),
    (INT_MAX, Op.LT, math.inf, True),
    (0.1, Op.EQ, 0.1, True),
    (0, Op.EQ, -0.0, True),
    (1, Op.EQ, True, None),
    (True, Op.EQ, 1, None),
    (True, Op.IN, frozenset({1}), None),
    ("é", Op.GT, "z", True),
    ("\U0001f600", Op.GT, "\uffff", True),
]


@pytest.mark.parametrize(("value", "op", "constant", "expected"), EXACT)
def test_comparison(value, op, constant, expected):
    assert truth(Predicate("a", op, constant), {"a": value}) is expected


@given(operands(), attributes())
def test_arithmetic(operand, event):
    ours, expected = f.evaluate(operand, event), calculated(operand, event)
    assert (ours, type(ours)) == (expected, type(expected))


def test_big_products_are_unknown():
    product = f.Attribute("a")
    for _ in range(40):
        product = f.Arithmetic("*", product, f.Attribute("a"))
    assert f.evaluate(product, {"a": INT_MAX}) is None
    assert f.evaluate(product, {"a": 1e300}) == math.inf


REFUSED = [
    (lambda: Predicate("", Op.EQ, 1), "attribute name"),
    (lambda: Predicate("a" * 256, Op.EQ, 1), "expected 1 to 255 characters"),
    (lambda: Predicate("a", Op.EQ, math.nan), "NaN"),
    (lambda: Predicate("a", Op.EQ, INT_MAX + 1), "beyond 64 bits"),
    (lambda: Predicate("a", Op.LT, True), "expected a constant of kind"),
    (lambda: Predicate("a", Op.EQ, frozenset({1})), "expected a constant of kind"),
    (lambda: Predicate("a", Op.IN, 1), "expected a constant of kind set"),
    (lambda: Predicate("a", Op.IN, frozenset({1, "x"})), "strings or numbers, not both"),
    (lambda: Predicate("a", Op.PREFIX, 1), "expected a constant of kind string"),
    (lambda: Predicate("a", Op.LIKE, "x\\"), "ends in an escape character"),
    (lambda: Predicate("a", Op.MISSING, 1), "takes no constant"),
    (lambda: Predicate("a", Op.EQ), "not allowed"),
    (lambda: Comparison(Op.LIKE, Constant(1), Constant(2)), "does not compare"),
    (lambda: Constant(frozenset({1})), "a set is no operand"),
    (lambda: f.Arithmetic("%", Constant(1), Constant(2)), "unknown arithmetic operator"),
    (lambda: And(()), "at least two"),
    (lambda: Or((Bool(True),)), "at least two"),
]


@pytest.mark.parametrize(("build", "reason"), REFUSED)
def test_what_makes_no_filter(build, reason):
    with pytest.raises(FilterError, match=reason):
        build()


@given(st.lists(filters(max_leaves=3), max_size=3))
def test_conjunction_and_disjunction_of_any_number(parts):
    event = {"a": 1, "b": "a"}
    truths = [logic(part, event) for part in parts]
    assert logic(f.conjunction(tuple(parts)), event) == min(truths, default=TRUE)
    assert logic(f.disjunction(tuple(parts)), event) == max(truths, default=FALSE)


def test_names_and_leaves():
    less = Comparison(Op.LT, f.Attribute("c"), f.Negative(f.Attribute("a")))
    filter = Or((Not(Predicate("b", Op.EQ, 1)), And((less, Predicate("b", Op.EQ, 2)))))
    assert f.names(filter) == ["b", "c", "a"]
    assert [str(leaf) for leaf in f.leaves(filter)] == ["b = 1", "c < -a", "b = 2"]


def test_constants_of_different_types_differ():
    assert Predicate("a", Op.EQ, 1) != Predicate("a", Op.EQ, 1.0)
    assert Predicate("a", Op.EQ, 1) != Predicate("a", Op.EQ, True)
    assert Constant(1) != Constant(1.0)
    assert Predicate("a", Op.IN, [1, 2]) == Predicate("a", Op.IN, {2, 1})
    assert len({Predicate("a", Op.EQ, 1), Predicate("a", Op.EQ, 1)}) == 1
