"""Families: what a threshold says exactly, and what a probe makes of an event."""

import math

import numpy as np
import pytest
from hypothesis import given

import matching_worlds as worlds
from tidings.matching.families import ABOVE, BELOW, EQUAL, LOWER, Families, closed, neighbours, ranges
from tidings.model.filter import FAILS, SATISFIES, Op, Predicate, matches


def holds(families, code, threshold, probe):
    """Whether a placed predicate holds for a probe: the one rule that all structures follow."""
    codes = np.array([code], np.int32)
    (key,) = closed(codes, np.array([threshold]), families.direction)
    at, direction = families.dimension[code >> 1], families.direction[code >> 1]
    below, above = probe[BELOW, at], probe[ABOVE, at]
    if direction == EQUAL:
        return above <= key <= below
    return key <= below if direction == LOWER else key >= above


@pytest.mark.parametrize("missing", [FAILS, SATISFIES])
@given(worlds.predicates, worlds.attributes)
def test_a_placed_predicate_holds_iff_it_matches(missing, predicate, attributes):
    families = Families(missing)
    place = families.place(predicate)
    if place is not None:
        assert holds(families, *place, families.probe(attributes)) == matches(predicate, attributes, missing)


@given(worlds.predicates)
def test_a_placed_predicate_can_be_read_back(predicate):
    families = Families(FAILS)
    place = families.place(predicate)
    if place is not None:
        again = families.predicate(*place)
        assert (again.attribute, again.op) == (predicate.attribute, predicate.op)
        assert again.value == predicate.value


@pytest.mark.parametrize(
    "predicate",
    [
        Predicate("a", Op.EQ, 2**53 + 1),
        Predicate("a", Op.GT, 2**53),
        Predicate("a", Op.LT, -(2.0**60)),
        Predicate("a", Op.GT, math.inf),
        Predicate("a", Op.GE, -math.inf),
        Predicate("a", Op.LE, math.inf),
        Predicate("a", Op.LT, "text"),
        Predicate("a", Op.NE, 1),
        Predicate("a", Op.EXISTS),
    ],
    ids=str,
)
def test_what_no_threshold_says_exactly_is_not_placed(predicate):
    assert Families(FAILS).place(predicate) is None


@pytest.mark.parametrize("value", [0, 1.5, 2**53 + 1, -(2**53) - 1, 2**63 - 1, -(2**63), math.inf, 5e-324])
def test_neighbours_enclose_a_number_exactly(value):
    low, high = neighbours(value)
    assert low <= value <= high
    assert (low == value) == (high == value) == (float(value) == value)
    assert low == high or math.nextafter(low, math.inf) == high


def test_rows_become_one_range_per_dimension():
    families = Families(FAILS)
    rows = [
        [Predicate("a", Op.GT, 1), Predicate("a", Op.GE, 0), Predicate("b", Op.EQ, 3), Predicate("a", Op.LT, 9)],
        [Predicate("b", Op.LE, 2)],
    ]
    places = [[families.place(predicate) for predicate in row] for row in rows]
    codes = np.array([code for row in places for code, _ in row], np.int32)
    thresholds = np.array([threshold for row in places for _, threshold in row])
    counts = np.array([4, 1], np.int32)
    found = ranges(counts, codes, closed(codes, thresholds, families.direction), families)
    assert found.counts.tolist() == [2, 1]
    assert found.dimension.tolist() == [0, 1, 1]
    assert found.low.tolist() == [math.nextafter(1, 2), 3, -math.inf]
    assert found.high.tolist() == [math.nextafter(9, 8), 3, 2]
