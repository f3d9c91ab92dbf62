"""Explanations say the truth, leaf by leaf, and what the index sees."""

import math

import msgspec
import pytest
from hypothesis import given

from strategies import attributes, filters
from tidings.errors import InvalidEvent
from tidings.language import explain, parse
from tidings.model.filter import SATISFIES, leaves, matches, truth
from tidings.model.normal import as_filter, normal_form


def test_an_event():
    filter = parse("symbol = 'LEGEND' AND change > 1 AND NOT (size < 5 OR name LIKE '%x%') AND bid + 1 > ask")
    event = {"symbol": "LEGEND", "change": 0.5, "size": "big", "name": "axb", "bid": 3, "tags": {"b", "a"}}
    explanation = explain(filter, event)
    assert explanation.matches is False
    assert (
        str(explanation)
        == f"""\
does not match: {filter}
  ✓ symbol = 'LEGEND'  symbol is 'LEGEND'
  ✗ change > 1         change is 0.5
  ? size < 5           size is the string 'big'
  ✓ name LIKE '%x%'    name is 'axb'
  ? bid + 1 > ask      bid is the number 3, ask is missing"""
    )


def test_a_match():
    explanation = explain(parse("tags CONTAINS 'a' OR b"), {"tags": {"b", "a"}})
    assert explanation.matches is True
    assert (
        str(explanation)
        == """\
matches: tags CONTAINS 'a' OR b = TRUE
  ✓ tags CONTAINS 'a'  tags is ('a', 'b')
  ? b = TRUE           b is missing"""
    )


def test_a_filter_alone():
    explanation = explain(parse("(a = 1 OR NOT b IN (1, 2)) AND c LIKE '_x' AND d > e"))
    assert explanation.matches is None
    assert [leaf.indexed for leaf in explanation.leaves] == [True, True, False, False]
    assert (
        str(explanation)
        == """\
(a = 1 OR NOT b IN (1, 2)) AND c LIKE '_x' AND d > e
alternative 1 of 2
  index   a = 1
  verify  c LIKE '_x'
  verify  d > e
alternative 2 of 2
  index   b NOT IN (1, 2)
  verify  c LIKE '_x'
  verify  d > e"""
    )


def test_what_matches_everything_or_nothing():
    assert str(explain(parse(""))) == "TRUE\nalternative 1 of 1\n  every event"
    assert str(explain(parse("a = 1 AND FALSE"))) == "a = 1 AND FALSE\nno event can match"
    assert str(explain(parse(""), {})) == "matches: TRUE\n  ✓ TRUE"


def test_alternatives_over_the_bound_are_verified():
    explanation = explain(parse(" OR ".join(f"a = {i}" for i in range(65)) + " OR b = 1"))
    assert not any(leaf.indexed for leaf in explanation.leaves)
    assert [len(a.indexed) for a in explanation.alternatives] == [0]


def test_json():
    explanation = explain(parse("a SUBSET OF ('x', 'y') AND b > 1"), {"a": ["y", "x"], "b": math.inf, "$type": "t"})
    assert msgspec.json.decode(msgspec.json.encode(explanation)) == {
        "filter": "a SUBSET OF ('x', 'y') AND b > 1",
        "matches": True,
        "leaves": [
            {"text": "a SUBSET OF ('x', 'y')", "indexed": True, "held": True, "seen": {"a": ["x", "y"]}, "missing": []},
            {"text": "b > 1", "indexed": True, "held": True, "seen": {"b": None}, "missing": []},
        ],
        "alternatives": [{"indexed": ["a SUBSET OF ('x', 'y')", "b > 1"], "verified": []}],
    }


def test_the_type_and_nulls():
    explanation = explain(parse("$type = 'trade' AND a IS NULL"), {"$type": "trade", "a": None})
    assert explanation.matches is True


def test_an_event_that_no_filter_can_see_is_refused():
    with pytest.raises(InvalidEvent, match="attribute 'a': NaN"):
        explain(parse("a = 1"), {"a": math.nan})


def test_missing_attributes_may_satisfy():
    explanation = explain(parse("NOT a = 1 AND b > 2"), {"b": 3}, SATISFIES)
    assert explanation.matches is True
    assert [(leaf.text, leaf.held) for leaf in explanation.leaves] == [("a <> 1", True), ("b > 2", True)]


@given(filters(), attributes())
def test_it_says_the_truth(filter, event):
    explanation = explain(filter, event)
    assert explanation.matches == matches(filter, event)
    assert [leaf.held for leaf in explanation.leaves] == [truth(leaf, event) for leaf in leaves(filter)]
    for leaf in explanation.leaves:
        assert set(leaf.seen) <= event.keys()
        assert not set(leaf.missing) & event.keys()
    assert len(explanation.alternatives) == len(normal_form(filter))
    assert str(explanation).startswith(("matches: ", "does not match: "))
    assert str(explain(filter))
    msgspec.json.encode(explanation)


@given(filters(odd=False), attributes(odd=False))
def test_the_alternatives_are_the_filter(filter, event):
    texts = [" AND ".join(f"({part})" for part in a.indexed + a.verified) for a in explain(filter).alternatives]
    rebuilt = parse(" OR ".join(f"({text or 'TRUE'})" for text in texts) or "FALSE")
    assert matches(rebuilt, event) == matches(filter, event) == matches(as_filter(normal_form(filter)), event)
