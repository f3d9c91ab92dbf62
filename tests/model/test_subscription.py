"""Subscriptions, advertisements and regions at the door."""

import math

import pytest

from tidings.errors import InvalidSubscription
from tidings.language import parse
from tidings.model.filter import Op, Predicate
from tidings.model.subscription import Advertisement, Region, Subscription


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"deadline_s": 0.0}, "deadline_s"),
        ({"deadline_s": math.nan}, "deadline_s"),
        ({"price": -1.0}, "price"),
        ({"price": math.inf}, "price"),
        ({"penalty": math.nan}, "penalty"),
        ({"types": ("",)}, "event type"),
        ({"types": ("t",) * 1001}, "at most 1000 event types"),
        ({"id": ""}, "id and owner"),
        ({"subscriber": "x" * 256}, "id and owner"),
    ],
)
def test_a_subscription_that_cannot_be_served_is_refused(fields, reason):
    with pytest.raises(InvalidSubscription, match=reason):
        Subscription(**{"id": "s", "subscriber": "me", **fields})


@pytest.mark.parametrize(
    ("types", "filter", "condition"),
    [
        ((), "a = 1", "a = 1"),
        (("quote",), "", "$type = 'quote'"),
        (("quote",), "a = 1 OR b = 2", "$type = 'quote' AND (a = 1 OR b = 2)"),
        (("b", "a"), "a = 1 AND b = 2", "$type IN ('a', 'b') AND a = 1 AND b = 2"),
    ],
)
def test_the_condition_joins_types_and_filter(types, filter, condition):
    assert str(Subscription("s", "me", parse(filter), types).condition) == condition
    assert str(Advertisement("a", "me", types, parse(filter)).condition) == condition


@pytest.mark.parametrize(
    "text", ["a > 1 AND a < 1", "a >= 1 AND a < 1", "a = 1 AND a = 2", "s = 'x' AND s STARTS WITH 'y'"]
)
def test_an_empty_region_is_refused(text):
    with pytest.raises(InvalidSubscription, match="is empty"):
        Region.of(parse(text))


def test_a_region_is_a_conjunction_of_predicates():
    assert Region.of(parse("a > 1 AND a < 2")).predicates == (Predicate("a", Op.GT, 1), Predicate("a", Op.LT, 2))
    for text in ("a > 1 OR a < 0", "NOT a = 1", "a + 1 > b", "a > 1 AND (b > 1 OR c > 1)"):
        with pytest.raises(InvalidSubscription, match="conjunction of predicates"):
            Region.of(parse(text))
