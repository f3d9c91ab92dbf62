"""covers and overlaps: a table of cases that are exact, and Hypothesis against sampled truth."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from strategies import attributes, filters, predicates
from tidings.language import parse
from tidings.model.domain import covers, overlaps, satisfiable
from tidings.model.filter import conjunction, matches

SATISFIABLE = """
    a > 1 AND a < 1.0000000000000002
    a >= 1 AND a <= 1
    a > 9007199254740992 AND a < 9007199254740994
    a <> 1 AND a <> 2 AND a >= 1 AND a <= 2
    s STARTS WITH 'ab' AND s ENDS WITH 'bc'
    s > 'a' AND s < 'b' AND s ENDS WITH 'zz'
    s STARTS WITH 'a' AND NOT s STARTS WITH 'ab'
    s CONTAINS 'x' AND s = 'axb'
    t CONTAINS 'x' AND t SUBSET OF ('x', 'y')
    t NOT SUBSET OF ('x') AND t SUBSET OF ('x', 'y')
    d > DATE '2026-01-01' AND d < DATE '2026-01-02'
    a IS NULL AND b = 1
    a IS NOT NULL AND a = TRUE
    a NOT IN () AND a > 1
    """
UNSATISFIABLE = """
    a > 1 AND a < 1
    a >= 1 AND a < 1
    a = 5 AND a > 10
    a = 1 AND a = TRUE
    a = 1 AND a = '1'
    a IN (1, 2) AND a NOT IN (1, 2, 3)
    a >= 1 AND a <= 1 AND a <> 1
    a > 1e999
    a IN ()
    b <> TRUE AND b <> FALSE
    s STARTS WITH 'ab' AND s < 'ab'
    s STARTS WITH 'ab' AND s STARTS WITH 'b'
    s STARTS WITH 'ab' AND NOT s STARTS WITH 'a'
    s ENDS WITH 'ab' AND s ENDS WITH 'b' AND NOT s ENDS WITH 'b'
    s ENDS WITH 'ab' AND s ENDS WITH 'bb'
    s < ''
    t CONTAINS 'x' AND t SUBSET OF ('y')
    t CONTAINS 'x' AND t NOT CONTAINS 'x'
    t SUPERSET OF ('x') AND t NOT SUPERSET OF ('x')
    t SUBSET OF ('x') AND t NOT SUBSET OF ('x', 'y')
    t CONTAINS 'x' AND t CONTAINS 1
    d > TIMESTAMP '2026-01-01T00:00:00Z' AND d < TIMESTAMP '2026-01-01T00:00:00.000001Z'
    a IS NULL AND a = 1
    a IS NULL AND a IS NOT NULL
    """
COVERS = [
    ("a > 1", "a > 2 AND b = 1"),
    ("a >= 1", "a > 1"),
    ("a <> 1", "a > 1"),
    ("a IN (1, 2, 3)", "a IN (1, 2)"),
    ("a IN (1, 2)", "a = 1"),
    ("a < 3", "a IN (1, 2)"),
    ("a IS NOT NULL", "a = 1"),
    ("s STARTS WITH 'a'", "s STARTS WITH 'ab'"),
    ("s STARTS WITH 'a'", "s >= 'a' AND s < 'b'"),
    ("s >= 'a' AND s < 'b'", "s STARTS WITH 'a'"),
    ("s ENDS WITH 'b'", "s ENDS WITH 'ab'"),
    ("s <> 'x'", "s STARTS WITH 'a'"),
    ("t CONTAINS 'x'", "t SUPERSET OF ('x', 'y')"),
    ("t CONTAINS 'x'", "t = 'axb'"),
    ("s CONTAINS 'b'", "s STARTS WITH 'abc'"),
    ("t SUBSET OF ('x', 'y')", "t SUBSET OF ('x')"),
    ("a = 1 OR b = 1", "b = 1 AND c = 1"),
    ("a + b > 1", "a + b > 1 AND c = 1"),
    ("a = 1", "b > 1 AND b < 1"),
    ("d <= TIMESTAMP '2026-01-01T00:00:00Z'", "d < TIMESTAMP '2026-01-01T00:00:00.000001Z'"),
    ("", "a = 1"),
]
DOES_NOT_COVER = [
    ("a > 2", "a > 1"),
    ("a > 1", "a >= 1"),
    ("a = 1", "b = 1"),
    ("a <> 1", "a IS NOT NULL"),
    ("a IS NULL", "a = 1"),
    ("s STARTS WITH 'ab'", "s STARTS WITH 'a'"),
    ("s < 'b'", "s <= 'b'"),
    ("t CONTAINS 'x'", "t CONTAINS 'y'"),
    ("t CONTAINS 'x'", "t SUBSET OF ('x')"),
    ("a > 1", "b = 1 OR a > 1"),
    ("a = 1", ""),
]


def cases(table: str) -> list[str]:
    return [line.strip() for line in table.strip().splitlines()]


@pytest.mark.parametrize("text", cases(SATISFIABLE))
def test_satisfiable(text):
    assert overlaps(parse(text), parse(""))


@pytest.mark.parametrize("text", cases(UNSATISFIABLE))
def test_unsatisfiable(text):
    assert not overlaps(parse(text), parse(""))


@pytest.mark.parametrize(("general", "specific"), COVERS)
def test_covers(general, specific):
    assert covers(parse(general), parse(specific))


@pytest.mark.parametrize(("general", "specific"), DOES_NOT_COVER)
def test_does_not_cover(general, specific):
    assert not covers(parse(general), parse(specific))


@given(filters(), filters(), st.lists(attributes(), min_size=1, max_size=20))
def test_no_event_contradicts_covers_or_overlaps(a, b, samples):
    covering, overlapping = covers(a, b), overlaps(a, b)
    for sample in samples:
        in_a, in_b = matches(a, sample), matches(b, sample)
        assert not (in_a and in_b) or overlapping
        assert not in_b or in_a or not covering


@given(st.lists(predicates(), min_size=1, max_size=4), st.lists(attributes(), min_size=1, max_size=20))
def test_no_event_satisfies_the_unsatisfiable(conjuncts, samples):
    together = conjunction(tuple(conjuncts))
    if any(matches(together, sample) for sample in samples):
        assert satisfiable(conjuncts)
    assert covers(together, together)
