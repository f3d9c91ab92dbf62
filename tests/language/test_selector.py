"""The filter language: what each text means, that printing and parsing are inverse, and that nothing gets past the door."""

import datetime
import math

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from strategies import NAMES, filters, integers, numbers, strings
from tidings.errors import FilterError
from tidings.language import lexer, parse, selector
from tidings.model.filter import (
    And,
    Arithmetic,
    Attribute,
    Bool,
    Comparison,
    Constant,
    Negative,
    Not,
    Op,
    Or,
    Predicate,
    check_limits,
    truth,
)
from tidings.model.text import KEYWORDS
from tidings.model.value import INT_MAX, INT_MIN


def outcome(text):
    """The filter, or the message of the error."""
    try:
        return parse(text)
    except FilterError as error:
        return str(error)


@given(filters())
def test_printing_and_parsing_are_inverse(filter):
    assert parse(str(filter)) == filter


WORDS = [*NAMES, "$x", '"q q"', "date", *KEYWORDS, *map(str.lower, sorted(KEYWORDS))]
SIGNS = ["=", "<>", "!=", "<", "<=", ">", ">=", "+", "-", "*", "/", "(", ")", ",", "!", "&", '"', "'", "\n"]
LITERALS = [
    "1",
    "0x1F",
    "1.",
    ".5e3",
    "2L",
    "7d",
    "010",
    "1e",
    "9223372036854775808",
    "'x'",
    "''''",
    "'2026-11-15'",
    "'%'",
]
PIECES = st.lists(st.sampled_from([*WORDS, *SIGNS, *LITERALS]), max_size=12)
TEXTS = PIECES.map(" ".join) | PIECES.map("".join)


@given(TEXTS | st.text() | st.text("a1.'\"=<( )-\ud800", max_size=20))
@example("a = '\ud800'")
@example("a = 1" + "0" * 5_000)
@example("\ud800 = 1")
def test_any_text_parses_or_is_refused(text):
    found = outcome(text)
    if isinstance(found, str):
        column = int(found.removeprefix("column ").partition(":")[0])
        assert 1 <= column <= len(text) + 1
    else:
        assert parse(str(found)) == found


# A filter, and the same shape with other constants.
SHAPES = [
    "a = {i} AND b > {i} AND c < {i}",
    "a = {i} OR b = {s} AND NOT c = {i}",
    "a > -{i} AND {i} < b",
    "a BETWEEN {i} AND {i} AND b NOT BETWEEN -{i} AND {i} + {i}",
    "a IN ({i}, -{i}) OR b NOT IN ({s}, {s})",
    "a LIKE {s} AND b NOT LIKE {s} ESCAPE {s}",
    "a STARTS WITH {s} OR b SUBSET OF ({s}) OR c CONTAINS {i}",
    "a + {i} * {i} > {i} AND {i} > {i}",
    "a = DATE {s} AND b = {i}",
    "(a = {i} OR b = {i}) AND (a = {s} OR c)",
    "a = {i} AND a = {i}L AND a = {i}.5 AND -{i} = -{i}",
]


@given(st.sampled_from(SHAPES), st.data())
def test_the_cache_changes_nothing(shape, data):
    for _ in range(3):
        text = shape
        while "{" in text:
            text = text.replace("{i}", str(data.draw(integers().map(abs))), 1)
            text = text.replace("{s}", repr(data.draw(st.text("ab%_!", max_size=2) | st.just("2026-11-15"))), 1)
        kept = outcome(text)
        selector._kept.cache_clear()
        assert outcome(text) == kept
        anew = outcome(text + " " * selector.MAX_KEPT_LENGTH)  # too long to be kept
        assert anew.splitlines()[0] == kept.splitlines()[0] if isinstance(kept, str) else anew == kept


def test_one_shape_is_planned_once():
    selector._kept.cache_clear()
    for constant in range(100):
        assert parse(f"a = {constant} AND b = 'x{constant}'").parts[0].value == constant
    assert selector._kept.cache_info().misses == 1
    parse("a = 1.5 AND b = 'x'")  # a constant of another kind is another shape
    assert selector._kept.cache_info().misses == 2
    assert selector._kept.cache_info().maxsize == selector.MAX_SHAPES


# The examples of the JMS specification, section 3.8.1.1, and their relatives: text, attributes, truth.
US = {"Country": "US"}
TRUTHS = [
    ("", {}, True),
    ("  \n ", {}, True),
    ("age BETWEEN 15 AND 19", {"age": 15}, True),
    ("age BETWEEN 15 AND 19", {"age": 19.5}, False),
    ("age BETWEEN 15 AND 19", {}, None),
    ("age NOT BETWEEN 15 AND 19", {"age": 20}, True),
    ("age NOT BETWEEN 15 AND 19", {}, None),
    ("Country IN ('UK', 'US', 'France')", US, True),
    ("Country IN ('UK', 'US', 'France')", {"Country": "Peru"}, False),
    ("Country IN ('UK', 'US', 'France')", {}, None),
    ("Country NOT IN ('UK', 'US', 'France')", {"Country": "Peru"}, True),
    ("Country NOT IN ('UK', 'US', 'France')", {}, None),
    ("phone LIKE '12%3'", {"phone": "123"}, True),
    ("phone LIKE '12%3'", {"phone": "12993"}, True),
    ("phone LIKE '12%3'", {"phone": "1234"}, False),
    ("word LIKE 'l_se'", {"word": "lose"}, True),
    ("word LIKE 'l_se'", {"word": "loose"}, False),
    ("underscored LIKE '\\_%' ESCAPE '\\'", {"underscored": "_foo"}, True),
    ("underscored LIKE '\\_%' ESCAPE '\\'", {"underscored": "bar"}, False),
    ("phone NOT LIKE '12%3'", {"phone": "1234"}, True),
    ("phone NOT LIKE '12%3'", {"phone": 1234}, None),
    ("phone NOT LIKE '12%3'", {}, None),
    ("prop_name IS NULL", {}, True),
    ("prop_name IS NULL", {"prop_name": 0}, False),
    ("prop_name IS NOT NULL", {"prop_name": ""}, True),
    ("prop_name IS NOT NULL", {}, False),
    ("JMSType = 'car' AND color = 'blue' AND weight > 2500", {"JMSType": "car", "color": "blue", "weight": 3000}, True),
    ("JMSType = 'car' AND color = 'blue' AND weight > 2500", {"JMSType": "car", "color": "red"}, False),
    ("JMSType = 'car' AND color = 'blue' AND weight > 2500", {"JMSType": "car", "color": "blue"}, None),
    ("a = 1 OR b = 1", {"a": 1}, True),
    ("a = 1 OR b = 1", {"a": 2}, None),
    ("NOT (a = 1)", {}, None),
    ("NOT (a = 1 AND b = 1)", {"a": 2}, True),
    ("NOT a", {"a": False}, True),
    ("NOT a", {"a": 0}, None),
    ("a", {"a": True}, True),
    ("a = TRUE", {"a": "TRUE"}, None),
    ("a <> FALSE", {"a": True}, True),
    ("a = 1", {"a": "1"}, None),
    ("a <> 1", {"a": "1"}, None),
    ("a = 1.0", {"a": 1}, True),
    ("a > 0x1F", {"a": 32}, True),
    ("a = b", {"a": 1, "b": 1.0}, True),
    ("a = b", {"a": 1, "b": "1"}, None),
    ("a < b", {"a": "x", "b": "y"}, True),
    ("a < b", {"a": True, "b": True}, None),
    ("a + b * 2 > 10", {"a": 1, "b": 5}, True),
    ("(a + b) * 2 > 12", {"a": 1, "b": 5}, False),
    ("a - b - c = 0", {"a": 3, "b": 2, "c": 1}, True),
    ("a / b / c = 2", {"a": 12, "b": 3, "c": 2}, True),
    ("a / 2 = -1", {"a": -3}, True),
    ("a / 2.0 = -1.5", {"a": -3}, True),
    ("a / 0 = 1", {"a": 1}, None),
    ("-a * -b = +6", {"a": 2, "b": 3}, True),
    ("-a = 1", {"a": "x"}, None),
    ("a * a > 0", {"a": INT_MAX}, None),
    ("-a > 0", {"a": INT_MIN}, None),
    ("a + 'x' = 'ax'", {"a": "a"}, None),
    ("1 = 'x'", {}, None),
    ("NOT 1 = 'x'", {}, None),
    ("1 = 'x' OR TRUE", {}, True),
    ("a IN ()", {"a": 1}, False),
    ("a NOT IN ()", {"a": 1}, True),
    ("a NOT IN ()", {}, None),
    ("a IN (1, 2.5)", {"a": 2.5}, True),
    ("a IN ('1')", {"a": 1}, None),
    ("s STARTS WITH 'ab'", {"s": "abc"}, True),
    ("s NOT STARTS WITH 'ab'", {"s": "abc"}, False),
    ("s ENDS WITH 'bc'", {"s": "abc"}, True),
    ("s CONTAINS 'b'", {"s": "abc"}, True),
    ("s CONTAINS 'b'", {"s": frozenset({"a", "b"})}, True),
    ("s CONTAINS 2", {"s": frozenset({1, 2})}, True),
    ("s NOT CONTAINS 'b'", {"s": 5}, None),
    ("s SUBSET OF ('a', 'b')", {"s": frozenset({"a"})}, True),
    ("s SUBSET OF ('a', 'b')", {"s": "a"}, None),
    ("s SUPERSET OF (1, 2)", {"s": frozenset({1, 2, 3})}, True),
    ("s NOT SUPERSET OF (1, 4)", {"s": frozenset({1, 2, 3})}, True),
    ("s SUBSET OF ()", {"s": frozenset()}, True),
    ("$type = 'trade'", {"$type": "trade"}, True),
    ("d > DATE '2026-11-15'", {"d": datetime.datetime(2026, 11, 15, 0, 0, 1, tzinfo=datetime.UTC)}, True),
    ("d > DATE '2026-11-15'", {"d": "2026-11-16"}, None),
]  # fmt: skip


@pytest.mark.parametrize(("text", "attributes", "expected"), TRUTHS, ids=[f"{t[0]} {t[2]}" for t in TRUTHS])
def test_truth(text, attributes, expected):
    assert truth(parse(text), attributes) is expected


def utc(*parts):
    return datetime.datetime(*parts, tzinfo=datetime.UTC)


CONSTANTS = [
    ("10", 10),
    ("+10", 10),
    ("-10", -10),
    ("- -10", 10),
    ("5L", 5),
    ("0", 0),
    ("0x1F", 31),
    ("0Xffl", 255),
    ("0x1D", 29),
    ("-9223372036854775808", INT_MIN),
    ("9223372036854775807", INT_MAX),
    ("1.5", 1.5),
    (".5", 0.5),
    ("1.", 1.0),
    ("1e3", 1000.0),
    ("1.5E-3", 0.0015),
    ("7D", 7.0),
    ("7f", 7.0),
    ("1e999", math.inf),
    ("-1e999", -math.inf),
    ("2 * 3", 6),
    ("2 + 3 * 4 - 1", 13),
    ("(2 + 3) * 4", 20),
    ("7 / 2", 3),
    ("-7 / 2", -3),
    ("7 / 2.0", 3.5),
    ("-(3)", -3),
    ("'x'", "x"),
    ("''", ""),
    ("'it''s'", "it's"),
    ("'say \"1\" = 1'", 'say "1" = 1'),
    ("TRUE", True),
    ("false", False),
    ("DATE '2026-11-15'", utc(2026, 11, 15)),
    ("date '0001-01-01'", utc(1, 1, 1)),
    ("TIMESTAMP '2026-11-15T10:00:00Z'", utc(2026, 11, 15, 10)),
    ("TIMESTAMP '2026-11-15 10:00'", utc(2026, 11, 15, 10)),
    ("TIMESTAMP '2026-11-15T10:00:00.25'", utc(2026, 11, 15, 10, 0, 0, 250_000)),
    ("Timestamp '2026-11-15T10:00:00.000001+08:00'", utc(2026, 11, 15, 2, 0, 0, 1)),
    ("TIMESTAMP '2026-11-15 23:30:00-0130'", utc(2026, 11, 16, 1)),
]


@pytest.mark.parametrize(("text", "value"), CONSTANTS)
def test_constants(text, value):
    assert parse(f"a = {text}") == parse(f"{text} = a") == Predicate("a", Op.EQ, value)


# How a text prints once it is parsed: the one form that means it.
CANONICAL = [
    ("a=1 and b<>2 Or not c!=3", "a = 1 AND b <> 2 OR NOT c <> 3"),
    ("a = 1 AND (b = 2 AND (c = 3))", "a = 1 AND b = 2 AND c = 3"),
    ("(a = 1 OR b = 2) OR c = 3", "a = 1 OR b = 2 OR c = 3"),
    ("(a = 1 OR b = 2) AND c = 3", "(a = 1 OR b = 2) AND c = 3"),
    ("NOT NOT a", "NOT NOT a = TRUE"),
    ("NOT a = 1 AND b", "NOT a = 1 AND b = TRUE"),
    ("(((a)))", "a = TRUE"),
    ("(a) = (1)", "a = 1"),
    ("5 < a", "a > 5"),
    ("5 >= a", "a <= 5"),
    ("2 * 3 <> a", "a <> 6"),
    ("1 < 2", "TRUE"),
    ("'b' < 'a'", "FALSE"),
    ("TRUE = FALSE", "FALSE"),
    ("1 = 'x'", "1 = 'x'"),
    ("a BETWEEN 1 AND 2", "a >= 1 AND a <= 2"),
    ("a BETWEEN 1 AND 2 AND b", "a >= 1 AND a <= 2 AND b = TRUE"),
    ("a NOT BETWEEN 1 AND 2", "a < 1 OR a > 2"),
    ("a BETWEEN b AND c + 1", "a >= b AND a <= c + 1"),
    ("5 BETWEEN a AND b", "a <= 5 AND b >= 5"),
    ("-a < -(3)", "-a < -3"),
    ("a - (b - c) > (d * e)", "a - (b - c) > d * e"),
    ("-(a + b) = - - c", "-(a + b) = - -c"),
    ("+a = 1", "a = 1"),
    ("s LIKE 'abc'", "s = 'abc'"),
    ("s NOT LIKE 'abc'", "s <> 'abc'"),
    ("s LIKE 'abc%'", "s STARTS WITH 'abc'"),
    ("s LIKE '%abc'", "s ENDS WITH 'abc'"),
    ("s NOT LIKE '%abc'", "s NOT ENDS WITH 'abc'"),
    ("s LIKE '%'", "s STARTS WITH ''"),
    ("s LIKE ''", "s = ''"),
    ("s LIKE '%abc%'", "s LIKE '%abc%'"),
    ("s LIKE 'a_c'", "s LIKE 'a_c'"),
    ("s LIKE '10!%' ESCAPE '!'", "s = '10%'"),
    ("s LIKE '_10!%' ESCAPE '!'", "s LIKE '_10\\%' ESCAPE '\\'"),
    ("s LIKE 'c:\\%_'", "s LIKE 'c:\\\\%_' ESCAPE '\\'"),
    ("s LIKE 'c:\\%'", "s STARTS WITH 'c:\\'"),
    ("s in ( 'b' , 'a' )", "s IN ('a', 'b')"),
    ("s IN (-1, +2, 0x10)", "s IN (-1, 2, 16)"),
    ("s is not null", "s IS NOT NULL"),
    ('"a b" = 1', '"a b" = 1'),
    ('"plain" = 1', "plain = 1"),
    ('"say ""1""" = 1', '"say ""1""" = 1'),
    ('"and" = 1', '"and" = 1'),
    ("contains CONTAINS 'x'", "\"contains\" CONTAINS 'x'"),
    ("date > DATE '2026-11-15'", "\"date\" > TIMESTAMP '2026-11-15T00:00:00+00:00'"),
    ("größe.in_cm > 5 AND $type = 'x' AND _a$1", "größe.in_cm > 5 AND $type = 'x' AND _a$1 = TRUE"),
]  # fmt: skip


@pytest.mark.parametrize(("text", "printed"), CANONICAL)
def test_canonical_form(text, printed):
    assert str(parse(text)) == printed
    assert parse(printed) == parse(text)


def test_trees():
    a, b = Predicate("a", Op.EQ, 1), Predicate("b", Op.EQ, True)
    assert parse("a = 1 AND NOT b OR FALSE") == Or((And((a, Not(b))), Bool(False)))
    total = Arithmetic("+", Attribute("a"), Arithmetic("*", Attribute("b"), Constant(2)))
    assert parse("a + b * 2 <= c") == Comparison(Op.LE, total, Attribute("c"))


ERRORS = [
    ("a >", 4, "expected a constant or an attribute after '>', found end of text"),
    ("a > ", 4, "expected a constant or an attribute after '>', found end of text"),
    ("a = 1 b", 7, "expected AND, OR or end of text, found 'b'"),
    ("a = 1 = 2", 7, "expected AND, OR or end of text, found '='"),
    ("(a = 1 = 2)", 8, "expected AND, OR or ), found '='"),
    ("a 5", 3, "expected an operator or end of text after 'a', found 5"),
    ("a == 5", 4, "expected a constant or an attribute after '=', found '='"),
    ("a = 1 && b", 7, "expected AND, OR or end of text, found '&'"),
    ("a = 1 AND", 10, "expected a condition after AND, found end of text"),
    ("AND a", 1, "expected a condition, found AND"),
    ("NOT", 4, "expected a condition after NOT, found end of text"),
    ("()", 2, "expected a condition after '(', found ')'"),
    ("(a = 1", 7, "expected AND, OR or ), found end of text"),
    ("(a", 3, "expected an operator or ) after 'a', found end of text"),
    ("a = 1)", 6, "expected AND, OR or end of text, found ')'"),
    ("5", 2, "expected a comparison such as = or < after 5, found end of text"),
    ("a + 1 AND b", 7, "expected a comparison such as = or < after 1, found AND"),
    ("a = NOT b", 5, "expected a constant or an attribute after '=', found NOT"),
    ("a = (b = 1)", 5, "expected a constant or an attribute, found a condition"),
    ("-(a = 1) = 2", 2, "expected a constant or an attribute, found a condition"),
    ("a = NULL", 5, "expected a constant or an attribute after '=', found NULL"),
    ("a = 'x", 5, "expected a constant or an attribute after '=', found a string that is not closed"),
    ('"a = 1', 1, "expected a condition, found a name that is not closed"),
    ('"" = 1', 1, "attribute name '': expected 1 to 255 characters, found 0"),
    (f"{'n' * 256} = 1", 1, "expected 1 to 255 characters, found 256"),
    ("a = 12abc", 5, "expected a constant or an attribute after '=', found 12abc"),
    ("a = 1.2.3", 5, "found 1.2.3"),
    ("a = 010", 5, "the number 010 begins with 0"),
    ("a = 1.5L", 5, "1.5L is not a number"),
    ("b = 1 AND a = 9223372036854775808", 15, "the integer 9223372036854775808 is beyond 64 bits"),
    ("a > 9223372036854775808 - 1", 5, "the integer 9223372036854775808 is beyond 64 bits"),
    ("a = -9223372036854775809", 6, "the integer 9223372036854775809 is beyond 64 bits"),
    (f"a = {'9' * 5000}", 5, "is beyond 64 bits"),
    ("a IN (1, 0x8000000000000000)", 10, "the integer 9223372036854775808 is beyond 64 bits"),
    ("a = 1 / 0", 7, "1 / 0 divides by zero"),
    ("a = 9223372036854775807 + 1", 25, "9223372036854775807 + 1 is too large"),
    ("a = -(-9223372036854775808)", 5, "beyond 64 bits"),
    ("a = 1e308 * 10", 11, "1e+308 * 10 is too large"),
    ("a = 'x' + 'y'", 5, "expected a number beside +, found 'x'"),
    ("a = 1 + TRUE", 9, "expected a number beside +, found TRUE"),
    ("a = -'x'", 6, "expected a number beside -, found 'x'"),
    ("a < TRUE", 5, "< orders numbers, strings and dates, found TRUE"),
    ("FALSE >= a", 1, ">= orders numbers, strings and dates, found FALSE"),
    ("a BETWEEN TRUE AND 5", 11, ">= orders numbers, strings and dates, found TRUE"),
    ("a BETWEEN 1 OR 5", 13, "expected AND after the lower bound of BETWEEN, found OR"),
    ("a NOT", 6, "expected BETWEEN, IN, LIKE, STARTS, ENDS, CONTAINS, SUBSET or SUPERSET after NOT, found end of"),
    ("a NOT IS NULL", 7, "after NOT, found IS"),
    ("a NOT = 5", 7, "after NOT, found '='"),
    ("a IS 5", 6, "expected NULL after IS, found 5"),
    ("a IS NOT 5", 10, "expected NULL after IS NOT, found 5"),
    ("1 IS NULL", 3, "expected an attribute before IS, found an expression"),
    ("a + 1 IN (1)", 7, "expected an attribute before IN, found an expression"),
    ("a IN 1", 6, "expected ( after IN, found 1"),
    ("a IN (1, 'x')", 10, "expected another number: a list holds one kind, found 'x'"),
    ("a IN (1,)", 9, "expected a string or a number after ',', found ')'"),
    ("a IN (,)", 7, "expected a string or a number after '(', found ','"),
    ("a IN (1 2)", 9, "expected , or ) in the list of IN, found 2"),
    ("a IN (b)", 7, "expected a string or a number after '(', found 'b'"),
    ("a IN (-'x')", 8, "expected a number after '-', found 'x'"),
    ("a IN (1", 8, "expected , or ) in the list of IN, found end of text"),
    ("a LIKE 5", 8, "expected a string after LIKE, found 5"),
    ("a LIKE '%' ESCAPE 'xy'", 19, "expected a string of one character after ESCAPE, found 'xy'"),
    ("a LIKE '%' ESCAPE ''", 19, "expected a string of one character after ESCAPE, found ''"),
    ("a LIKE 'x!' ESCAPE '!'", 8, "the pattern ends in its escape character"),
    ("a STARTS 'x'", 10, "expected WITH after STARTS, found 'x'"),
    ("a STARTS WITH 5", 15, "expected a string after STARTS WITH, found 5"),
    ("a CONTAINS TRUE", 12, "expected a string or a number after CONTAINS, found TRUE"),
    ("a SUBSET ('x')", 10, "expected OF after SUBSET, found '('"),
    ("a = DATE '2026-02-30'", 10, "expected a date such as DATE '2026-11-15', found '2026-02-30'"),
    ("a = DATE '20261115'", 10, "expected a date such as DATE '2026-11-15'"),
    ("a = TIMESTAMP '2026-11-15'", 15, "expected a date such as TIMESTAMP"),
    ("a = TIMESTAMP '2026-11-15T24:00:00'", 15, "expected a date such as TIMESTAMP"),
    ("a = TIMESTAMP '0001-01-01T00:00:00+01:00'", 15, "expected a date such as TIMESTAMP"),
    ("a = '\ud800'", 5, "a string with a lone surrogate is not text"),
    ("a = #", 5, "expected a constant or an attribute after '=', found '#'"),
    ("ａ = ٣", 5, "found ٣"),
]  # fmt: skip


@pytest.mark.parametrize(("text", "column", "phrase"), ERRORS, ids=[text[:40] for text, _, _ in ERRORS])
def test_errors_point_at_the_place(text, column, phrase):
    for _ in range(2):  # a refused shape is not kept
        with pytest.raises(FilterError) as caught:
            parse(text)
        assert phrase in caught.value.reason
        assert caught.value.column == column


def test_an_error_shows_the_place():
    with pytest.raises(FilterError) as caught:
        parse("price > 10 AND symbol =")
    assert str(caught.value) == (
        "column 24: expected a constant or an attribute after '=', found end of text\n"
        "  price > 10 AND symbol =\n"
        "                         ^"
    )


def test_the_length_is_bounded():
    longest = "a = '" + "x" * (selector.MAX_LENGTH - 6) + "'"
    assert len(parse(longest).value) == selector.MAX_LENGTH - 6
    with pytest.raises(FilterError, match="at most 65,536 characters, found 65,537"):
        parse(longest + " ")


def test_the_number_of_conditions_is_bounded():
    assert len(parse(" AND ".join(["a = 1"] * 1024)).parts) == 1024
    with pytest.raises(FilterError, match="at most 1,024 conditions, found number 1,025"):
        parse(" AND ".join(["a = 1"] * 1025))
    with pytest.raises(FilterError, match="at most 1,024 conditions"):
        parse(" OR ".join(["a"] * 2000))


# Texts that nest, and the levels that one round of them takes.
DEEP = [
    (lambda n: "(" * n + "a = 1" + ")" * n, 1),
    (lambda n: "b OR c AND (" * n + "a = 1" + ")" * n, 1),
    (lambda n: "NOT " * n + "a", 1),
    (lambda n: "NOT (b AND " * n + "a" + ")" * n, 2),
    (lambda n: "- " * n + "a = 1", 1),
    (lambda n: "-(" * n + "a" + ")" * n + " = 1", 2),
    (lambda n: "a + " * n + "a = 1", 1),
    (lambda n: "a - (" * n + "a" + ")" * n + " = 1", 1),
    (lambda n: "1 + " * n + "1 = a", 1),
    (lambda n: "NOT " * (n - 1) + "a BETWEEN 1 AND 2", 1),
    (lambda n: "(" * (n - 1) + "b AND a NOT BETWEEN 1 AND 2" + ")" * (n - 1), 1),
]


@pytest.mark.parametrize(("nested", "levels"), DEEP)
def test_the_depth_is_bounded(nested, levels):
    deepest = selector.MAX_DEPTH // levels
    filter = parse(nested(deepest))
    assert parse(str(filter)) == filter
    check_limits(filter)
    truth(filter, {"a": 1})
    for depth in (deepest + 1, 3 * deepest, 5_000):
        with pytest.raises(FilterError, match="at most 64 levels deep, found level 65"):
            parse(nested(depth))


@pytest.mark.parametrize("character", "'\"1a(.$ \n")
def test_hostile_text_is_read_once(character):
    assert not isinstance(outcome(character * 64_999), Exception)


@pytest.mark.parametrize("wrong", [None, b"a = 1", 5, {"a": 1}])
def test_only_text_is_parsed(wrong):
    with pytest.raises(FilterError, match="expected the text of a filter"):
        parse(wrong)


# Filters that no text gives: they come from programs, and print as text that means the same.
BUILT = [
    And((And((Predicate("a", Op.GT, 0), Predicate("b", Op.GT, 0))), Predicate("c", Op.EQ, 1))),
    Comparison(Op.LT, Constant(2), Attribute("a")),
    Comparison(Op.EQ, Arithmetic("+", Constant(1), Constant(2)), Attribute("a")),
    Comparison(Op.LT, Negative(Constant(2)), Attribute("a")),
    Predicate("s", Op.LIKE, "x%"),
    Predicate("s", Op.NOT_LIKE, "\\x\\%"),
]


@pytest.mark.parametrize("filter", BUILT, ids=str)
@given(a=numbers(), s=strings())
def test_what_programs_build_prints_as_what_it_means(filter, a, s):
    event = {"a": a, "b": 1, "c": 1, "s": "x" + s}
    assert truth(parse(str(filter)), event) is truth(filter, event)


@given(TEXTS)
def test_both_ways_to_find_constants_agree(text):
    if '"' in text:
        return
    try:
        shape, constants = lexer.split(text)
        tokens, others = lexer.scan(text)
    except (lexer.BadConstant, lexer.Problem):
        return
    assert constants == others
    assert lexer.shape_tokens(shape) == tokens
