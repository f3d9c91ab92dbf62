"""Workloads: deterministic, and the same as columns and as objects."""

import numpy as np
import pytest

from tidings.errors import UnknownName
from tidings.matching.columns import attributes_of_rows
from tidings.matching.counting import Counting
from tidings.matching.workloads import WORKLOADS, Workload

each_workload = pytest.mark.parametrize("name", WORKLOADS)


@each_workload
def test_the_same_seed_makes_the_same(name):
    one, same, other = Workload(name, 50, 3), Workload(name, 50, 3), Workload(name, 50, 4)
    assert list(one.subscriptions()) == list(same.subscriptions())
    assert one.events(20) == same.events(20)
    assert list(one.subscriptions()) != list(other.subscriptions())
    assert one.events(20) != other.events(20)


@each_workload
def test_events_are_the_same_as_columns_and_as_objects(name):
    workload = Workload(name, 1)
    assert list(attributes_of_rows(workload.columns(30))) == [event.attributes for event in workload.events(30)]


@each_workload
def test_more_subscriptions_continue_the_numbers(name):
    workload = Workload(name, 10)
    assert list(workload.more(4, 8)) == list(workload.subscriptions())[4:8]
    assert [subscription.id for subscription in workload.more(8, 14)] == [f"s{number}" for number in range(8, 14)]


@pytest.mark.parametrize("name", [name for name in WORKLOADS if Workload(name, 1).boxes is not None])
def test_boxes_and_objects_match_the_same(name):
    workload = Workload(name, 400)
    by_columns, by_objects = Counting(), Counting()
    by_columns.add_boxes(workload.ids(), workload.boxes)
    by_objects.add_all(workload.subscriptions())
    for event in workload.events(40):
        assert by_columns.match(event) == by_objects.match(event)


def test_every_kind_of_mixed_filter_is_there():
    text = "\n".join(str(subscription.filter) for subscription in Workload("mixed", 2_000).subscriptions())
    for wanted in (
        "STARTS WITH",
        "ENDS WITH",
        "CONTAINS",
        "SUPERSET OF",
        "IN (",
        "TIMESTAMP",
        "<>",
        " OR ",
        "price - open",
    ):
        assert wanted in text
    residuals = text.count("price - open")
    assert 60 <= residuals <= 140


def test_sparse_events_have_fifteen_attributes():
    assert {len(event.attributes) for event in Workload("sparse", 1).events(50)} == {15}
    boxes = Workload("sparse", 500).boxes
    sizes = np.diff(boxes.pointers)
    assert (sizes.min(), sizes.max()) == (3, 6)


def test_an_unknown_workload_is_named():
    with pytest.raises(UnknownName, match=r"ceem3.*ceem1"):
        Workload("ceem3", 1)
