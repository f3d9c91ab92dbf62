"""LIKE against regular expressions, and strings that make a backtracking matcher hang."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidings.model.like import compiled, dangling_escape

PATTERNS = st.lists(
    st.sampled_from(["%", "_", "a", "b", "ab", "\\%", "\\_", "\\\\", "\\a", "\n", "é"]), max_size=8
).map("".join)
STRINGS = st.text("ab%_\\\né", max_size=10)


def oracle(pattern, string):
    parts = re.findall(r"\\.|.", pattern, re.DOTALL)
    meaning = {"%": ".*", "_": "."}
    expression = "".join(meaning.get(part, re.escape(part[-1])) for part in parts)
    return re.fullmatch(expression, string, re.DOTALL) is not None


@given(PATTERNS, STRINGS)
def test_like(pattern, string):
    assert compiled(pattern)(string) is oracle(pattern, string)


@given(PATTERNS, STRINGS, st.data())
def test_like_what_the_pattern_was_made_for(pattern, filling, data):
    parts = re.findall(r"\\.|.", pattern, re.DOTALL)
    string = "".join(
        data.draw(st.sampled_from(["", filling])) if part == "%" else "b" if part == "_" else part[-1] for part in parts
    )
    assert compiled(pattern)(string)


@pytest.mark.parametrize(
    ("pattern", "string", "expected"),
    [
        ("", "", True),
        ("", "a", False),
        ("%", "", True),
        ("_", "", False),
        ("_", "\U0001f600", True),
        ("%%", "a", True),
        ("a%a", "a", False),
        ("a%a", "aa", True),
        ("%ab%ab%", "abab", True),
        ("%ab%ab%", "aab", False),
        ("%_b%b", "abb", True),
        ("a.c", "abc", False),
        ("A", "a", False),
    ],
)
def test_table(pattern, string, expected):
    assert compiled(pattern)(string) is expected


@pytest.mark.parametrize("pattern", ["%a%a%a%a%a%a%a%a%b", "%_a%_a%_a%_a%b", "a%a%a%ab%a", "%" * 500 + "b"])
def test_no_pattern_is_slow(pattern):
    assert not compiled(pattern)("a" * 100_000)


@given(st.text("a\\", max_size=6))
def test_dangling_escape(pattern):
    backslashes = len(pattern) - len(pattern.rstrip("\\"))
    assert dangling_escape(pattern) is (backslashes % 2 == 1)
