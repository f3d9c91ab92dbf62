"""JSON patterns: the filter that each means, an oracle that reads patterns directly, and errors that name the path."""

import fnmatch
import operator

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidings.errors import FilterError
from tidings.language import from_pattern, parse
from tidings.model.filter import matches

FILTERS = [
    ({}, "TRUE"),
    ({"a": ["x"]}, "a = 'x'"),
    ({"a": [1]}, "a = 1"),
    ({"a": [1.5, 2]}, "a IN (1.5, 2)"),
    ({"a": ["x", "y"]}, "a IN ('x', 'y')"),
    ({"a": [True]}, "a = TRUE"),
    ({"a": [True, False]}, "a = TRUE OR a = FALSE"),
    ({"a": [None]}, "a IS NULL"),
    ({"a": ["x", 1, None, True, "y"]}, "a IN ('x', 'y') OR a = 1 OR a = TRUE OR a IS NULL"),
    ({"a": ["x"], "b": [1]}, "a = 'x' AND b = 1"),
    ({"detail": {"state": ["ok"], "code": {"major": [1]}}}, "detail.state = 'ok' AND detail.code.major = 1"),
    ({"$type": ["trade"]}, "$type = 'trade'"),
    ({"with space": ["x"]}, "\"with space\" = 'x'"),
    ({"a": [{"prefix": "x"}]}, "a STARTS WITH 'x'"),
    ({"a": [{"suffix": ".png"}]}, "a ENDS WITH '.png'"),
    ({"a": [{"exists": True}]}, "a IS NOT NULL"),
    ({"a": [{"exists": False}]}, "a IS NULL"),
    ({"a": [{"numeric": ["=", 5]}]}, "a = 5"),
    ({"a": [{"numeric": [">", 0, "<=", 5]}]}, "a > 0 AND a <= 5"),
    ({"a": [{"numeric": ["<", 0]}, {"numeric": [">=", 5]}]}, "a < 0 OR a >= 5"),
    ({"a": [{"anything-but": "x"}]}, "a <> 'x'"),
    ({"a": [{"anything-but": ["x", "y"]}]}, "a NOT IN ('x', 'y')"),
    ({"a": [{"anything-but": [1, "y"]}]}, "a <> 1 OR a <> 'y'"),
    ({"a": [{"anything-but": True}]}, "a <> TRUE"),
    ({"a": [{"anything-but": {"prefix": "x"}}]}, "a NOT STARTS WITH 'x'"),
    ({"a": [{"anything-but": {"suffix": ["x", "y"]}}]}, "a NOT ENDS WITH 'x' AND a NOT ENDS WITH 'y'"),
    ({"a": [{"anything-but": {"wildcard": "*x*"}}]}, "a NOT LIKE '%x%'"),
    ({"a": [{"wildcard": "x*"}]}, "a STARTS WITH 'x'"),
    ({"a": [{"wildcard": "x*y"}]}, "a LIKE 'x%y'"),
    ({"a": [{"wildcard": "x\\*\\\\*y_"}]}, "a LIKE 'x*\\\\%y\\_' ESCAPE '\\'"),
    ({"a": ["x", {"prefix": "y"}, {"numeric": [">", 0]}]}, "a = 'x' OR a STARTS WITH 'y' OR a > 0"),
    ({"$or": [{"a": [1]}, {"b": [2]}]}, "a = 1 OR b = 2"),
    ({"c": [3], "$or": [{"a": [1]}, {"b": [2], "d": [4]}]}, "c = 3 AND (a = 1 OR b = 2 AND d = 4)"),
    ({"x": {"$or": [{"a": [1]}, {"b": ["p", 1]}]}}, "x.a = 1 OR x.b = 'p' OR x.b = 1"),
]


@pytest.mark.parametrize(("pattern", "text"), FILTERS, ids=[text for _, text in FILTERS])
def test_patterns(pattern, text):
    filter = from_pattern(pattern)
    assert str(filter) == text
    assert parse(text) == filter
    assert from_pattern(msgspec.json.encode(pattern).decode()) == filter


ERRORS = [
    ([1], "pattern: expected an object, found [1]"),
    ({"a": "x"}, 'pattern at a: expected an array with at least one element, found "x"'),
    ({"a": []}, "pattern at a: expected an array with at least one element, found []"),
    ({"a": {}}, "pattern at a: expected an object with at least one field, found {}"),
    ({"a": {"b": 5}}, "pattern at a.b: expected an array with at least one element, found 5"),
    ({"a": [["x"]]}, 'pattern at a[0]: expected a string, number or bool, found ["x"]'),
    ({"a": ["x", {}]}, "pattern at a[1]: expected an object with one test, found {}"),
    ({"a": [{"prefix": "x", "suffix": "y"}]}, "pattern at a[0]: expected an object with one test"),
    ({"a": [{"cidr": "10.0.0.0/8"}]}, "pattern at a[0].cidr: expected prefix, suffix, wildcard, numeric, exists or"),
    ({"a": [{"equals-ignore-case": "x"}]}, "pattern at a[0].equals-ignore-case: expected prefix"),
    ({"a": [{"prefix": 5}]}, "pattern at a[0].prefix: expected a string, found 5"),
    ({"a": [{"prefix": {"equals-ignore-case": "x"}}]}, "pattern at a[0].prefix: expected a string"),
    ({"a": [{"wildcard": "x\\"}]}, "pattern at a[0].wildcard: the pattern ends in its escape character"),
    ({"a": [{"exists": "yes"}]}, 'pattern at a[0].exists: expected true or false, found "yes"'),
    ({"a": [{"numeric": [">"]}]}, "pattern at a[0].numeric: expected pairs such as"),
    ({"a": [{"numeric": ["!=", 5]}]}, 'pattern at a[0].numeric[0]: expected one of < <= = >= >, found "!="'),
    ({"a": [{"numeric": [">", "5"]}]}, 'pattern at a[0].numeric[1]: expected a number, found "5"'),
    ({"a": [{"anything-but": []}]}, "pattern at a[0].anything-but: expected an array with at least one element"),
    ({"a": [{"anything-but": [None]}]}, "pattern at a[0].anything-but[0]: expected a string, number or bool, found null"),
    ({"a": [{"anything-but": {"numeric": [">", 5]}}]}, "pattern at a[0].anything-but.numeric: expected prefix"),
    ({"a": [{"anything-but": {}}]}, "pattern at a[0].anything-but: expected an object with one test"),
    ({"$or": {"a": [1]}}, "pattern at $or: expected an array with at least one element"),
    ({"x": {"$or": [{"a": [1]}, 5]}}, "pattern at x.$or[1]: expected an object, found 5"),
    ({"a": [2**64]}, "pattern at a: the constant of a =: the integer 18446744073709551616 is beyond 64 bits"),
    ({"a": [float("nan")]}, "pattern at a: the constant of a =: NaN"),
    ({"": ["x"]}, "pattern at '': attribute name ''"),
    ({"a" * 300: ["x"]}, "expected 1 to 255 characters, found 300"),
    ({5: ["x"]}, "pattern: expected a field name, found 5"),
    ({"a": [b"x"]}, "pattern at a[0]: expected a string, number or bool"),
    ("{", "the pattern is no JSON"),
    ('{"a": [1]} x', "the pattern is no JSON"),
    ("\ud800", "the pattern is no JSON"),
    ("[" * 60_000, "the pattern is no JSON"),
    (" " * 65_537, "a pattern has at most 65,536 characters, found 65,537"),
    ({f"a{i}": ["x"] for i in range(1_025)}, "a pattern has at most 1,024 conditions, found 1,025"),
]  # fmt: skip


@pytest.mark.parametrize(("pattern", "reason"), ERRORS, ids=[reason[:60] for _, reason in ERRORS])
def test_errors_name_the_path(pattern, reason):
    with pytest.raises(FilterError) as caught:
        from_pattern(pattern)
    assert reason in str(caught.value)


def test_the_depth_is_bounded():
    def nested(depth):
        pattern = {"a": [1]}
        for _ in range(depth - 1):
            pattern = {"$or": [pattern, {"b": [1]}]}
        return pattern

    filter = from_pattern(nested(64))
    assert parse(str(filter)) == filter
    for depth in (65, 500):
        with pytest.raises(FilterError, match="at most 64 levels"):
            from_pattern(nested(depth))


SCALARS = st.sampled_from(["", "a", "ab", "b", 0, 1, 1.5, True, False])
STRINGS = st.text("ab", max_size=2)
TESTS = st.one_of(
    SCALARS,
    st.none(),
    st.fixed_dictionaries({"prefix": STRINGS}),
    st.fixed_dictionaries({"suffix": STRINGS}),
    st.fixed_dictionaries({"wildcard": st.text("ab*", max_size=3)}),
    st.fixed_dictionaries({"exists": st.booleans()}),
    st.fixed_dictionaries({"anything-but": SCALARS | st.lists(SCALARS, min_size=1, max_size=3)}),
    st.fixed_dictionaries({"anything-but": st.fixed_dictionaries({"prefix": STRINGS})}),
    st.fixed_dictionaries(
        {"numeric": st.tuples(st.sampled_from([">", ">=", "<", "<=", "="]), st.sampled_from([0, 1, 1.5])).map(list)}
    ),
)
FIELDS = st.dictionaries(st.sampled_from(["x", "y", "z"]), st.lists(TESTS, min_size=1, max_size=3), min_size=1)
PATTERNS = st.recursive(
    FIELDS,
    lambda inner: st.builds(
        lambda fields, more: fields | more,
        FIELDS,
        st.fixed_dictionaries({"$or": st.lists(inner, min_size=1, max_size=3)}) | st.fixed_dictionaries({"n": inner}),
    ),
    max_leaves=3,
)
EVENTS = st.dictionaries(st.sampled_from(["x", "y", "z", "n.x", "n.y", "n.n.x"]), SCALARS)


def kind(value):
    return "bool" if isinstance(value, bool) else "string" if isinstance(value, str) else "number"


def oracle(pattern, event, prefix=""):
    """Whether the event matches, read off the pattern itself."""
    for key, wanted in pattern.items():
        if key == "$or":
            held = any(oracle(part, event, prefix) for part in wanted)
        elif isinstance(wanted, dict):
            held = oracle(wanted, event, f"{prefix}{key}.")
        else:
            held = any(one(test, event.get(prefix + key)) for test in wanted)
        if not held:
            return False
    return True


def one(test, value):
    if not isinstance(test, dict):
        return value is None if test is None else value is not None and kind(value) == kind(test) and value == test
    ((word, wanted),) = test.items()
    if word == "exists":
        return (value is not None) == wanted
    if value is None:
        return False
    match word, wanted:
        case "anything-but", dict():
            return isinstance(value, str) and not value.startswith(wanted["prefix"])
        case "anything-but", _:
            same = [item for item in (wanted if isinstance(wanted, list) else [wanted]) if kind(item) == kind(value)]
            return bool(same) and value not in same
        case "numeric", [op, number]:
            functions = {">": operator.gt, ">=": operator.ge, "<": operator.lt, "<=": operator.le, "=": operator.eq}
            return kind(value) == "number" and functions[op](value, number)
    if not isinstance(value, str):
        return False
    glob = {"prefix": f"{wanted}*", "suffix": f"*{wanted}", "wildcard": wanted}[word]
    return fnmatch.fnmatchcase(value, glob)


@given(PATTERNS, st.lists(EVENTS, min_size=1, max_size=5))
def test_patterns_mean_what_they_say(pattern, events):
    filter = from_pattern(pattern)
    assert parse(str(filter)) == filter
    for event in events:
        assert matches(filter, event) == oracle(pattern, event)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=3),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["a", "$or", "prefix", "numeric", "anything-but", "exists", "wildcard", "<"]), inner
        )
    ),
    max_leaves=8,
)


@given(JSON | st.text(max_size=20))
def test_any_json_is_a_pattern_or_refused(pattern):
    try:
        filter = from_pattern(pattern)
    except FilterError:
        return
    assert parse(str(filter)) == filter
