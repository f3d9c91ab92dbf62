"""The normal form means the same as the filter, whatever the bound and the rule for missing attributes."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from strategies import attributes, filters
from tidings.language import parse
from tidings.model.filter import FAILS, SATISFIES, Predicate, matches
from tidings.model.normal import MAX_CONJUNCTIONS, as_filter, normal_form

FORMS = [
    ("a = 1", ["a = 1"]),
    ("TRUE", ["TRUE"]),
    ("FALSE", []),
    ("a = 1 AND FALSE OR b = 1", ["b = 1"]),
    ("a = 1 AND (b = 1 OR c = 1)", ["a = 1 AND b = 1", "a = 1 AND c = 1"]),
    ("(a OR b) AND (c OR d)", [f"{x} = TRUE AND {y} = TRUE" for x in "ab" for y in "cd"]),
    ("NOT (a = 1 AND b < 2)", ["a <> 1", "b >= 2"]),
    ("NOT (a IS NULL OR b IN (1, 2))", ["a IS NOT NULL AND b NOT IN (1, 2)"]),
    ("a BETWEEN 1 AND 2 AND b + 1 > c", ["a >= 1 AND a <= 2 AND b + 1 > c"]),
]


@pytest.mark.parametrize(("text", "alternatives"), FORMS)
def test_forms(text, alternatives):
    assert [str(alternative.as_filter()) for alternative in normal_form(parse(text))] == alternatives


@given(
    filters(odd=False, max_leaves=12),
    st.lists(attributes(odd=False), min_size=1, max_size=10),
    st.sampled_from([1, 2, 5, MAX_CONJUNCTIONS]),
    st.sampled_from([FAILS, SATISFIES]),
)
def test_it_means_the_same(filter, events, limit, missing):
    alternatives = normal_form(filter, limit)
    assert len(alternatives) <= limit
    assert all(isinstance(predicate, Predicate) for a in alternatives for predicate in a.predicates)
    for event in events:
        expected = matches(filter, event, missing)
        assert matches(as_filter(alternatives), event, missing) == expected
        assert any(matches(a.as_filter(), event, missing) for a in alternatives) == expected


def test_what_is_over_the_bound_stays_whole():
    filter = parse(" AND ".join(f"(a{i} = 1 OR b{i} = 1)" for i in range(10)) + " AND c = 1")
    alternatives = normal_form(filter)
    assert len(alternatives) == MAX_CONJUNCTIONS == 64
    for alternative in alternatives:
        assert len(alternative.predicates) == 7
        assert [str(residual) for residual in alternative.residuals] == [f"a{i} = 1 OR b{i} = 1" for i in range(6, 10)]

    wide = parse(" OR ".join(f"a = {i}" for i in range(65)))
    assert [(a.predicates, a.residuals) for a in normal_form(wide)] == [((), (wide,))]
