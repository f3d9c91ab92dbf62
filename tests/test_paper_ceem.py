"""What the ceem paper claims, one test per claim; where we resolved a contradiction, the test says ours."""

import numpy as np
import pytest

from tidings.errors import InvalidSubscription
from tidings.matching.ceem import Ceem
from tidings.matching.counting import Counting
from tidings.matching.tree import Tree
from tidings.matching.workloads import Workload
from tidings.model.event import Event
from tidings.model.filter import SATISFIES, Op, Predicate, conjunction
from tidings.model.subscription import Region, Subscription


def sub(id, *predicates, owner="ann"):
    return Subscription(id, owner, conjunction(tuple(Predicate(*predicate) for predicate in predicates)))


def region(*predicates):
    return Region(tuple(Predicate(*predicate) for predicate in predicates))


def event(**attributes):
    return Event("e", "", attributes)


def test_section_3_2_predicates_of_one_attribute_and_operator_form_a_family():
    engine = Ceem()
    engine.add(sub("s", ("a", Op.EQ, 1), ("b", Op.GT, 2), ("b", Op.LT, 9)))
    engine.add(sub("t", ("b", Op.LT, 5), ("a", Op.EQ, 3)))
    assert len(engine.families) == 3
    assert sorted(engine._table.count[:3].tolist()) == [1, 2, 2]


@pytest.mark.parametrize("name", ["ceem1", "ceem2"])
def test_table_1_settings(name):
    workload = Workload(name, 300)
    attributes, families, equalities = {"ceem1": (5, 8, 2), "ceem2": (7, 11, 3)}[name]
    engine = Ceem()
    engine.add_all(workload.subscriptions())
    assert (engine.families.dimensions, len(engine.families)) == (attributes, families)
    filters = [subscription.filter.parts for subscription in workload.subscriptions()]
    assert {len(parts) for parts in filters} == {families}
    assert {sum(part.op is Op.EQ for part in parts) for parts in filters} == {equalities}
    values = {part.value for parts in filters for part in parts if part.op is Op.EQ}
    bounds = [part.value for parts in filters for part in parts if part.op is not Op.EQ]
    assert values == set(range(6))
    assert min(bounds) >= 0
    assert max(bounds) <= 65_535


def test_section_3_3_and_3_4_insert_and_remove_at_any_time():
    engine = Ceem()
    engine.add(sub("s", ("a", Op.GT, 1), ("b", Op.LT, 5)))
    assert engine.match(event(a=2, b=4)) == ["s"]
    engine.add(sub("t", ("b", Op.LT, 7), ("c", Op.EQ, 1)))
    assert engine.match(event(a=2, b=4, c=1)) == ["s", "t"]
    engine.remove("s")
    assert engine.match(event(a=2, b=4, c=1)) == ["t"]


def test_section_3_4_a_row_whose_attribute_the_event_lacks_is_satisfied_if_asked_for():
    """Resolved: the system's rule is mtep's (it fails); the paper's is an option."""
    for missing, expected in ((SATISFIES, ["s"]), ("fails", [])):
        engine = Ceem(missing)
        engine.add(sub("s", ("a", Op.GT, 1), ("b", Op.LT, 5)))
        assert engine.match(event(a=2)) == expected
        assert engine.match(event(a=0)) == []


def test_section_3_4_step_3_matches_become_directions():
    engine = Ceem()
    engine.add(sub("s", ("a", Op.GT, 1), owner="left"))
    engine.add(sub("t", ("a", Op.GT, 2), owner="left"))
    engine.add(sub("u", ("a", Op.LT, 0), owner="right"))
    assert engine.interfaces(event(a=3)) == ["left"]


@pytest.mark.parametrize("engine_class", [Ceem, Counting, Tree])
def test_theorem_1_bounds_are_compared_crosswise(engine_class):
    engine = engine_class()
    engine.add(sub("s", ("x", Op.GT, 10), ("x", Op.LT, 20), ("y", Op.GT, 10), ("y", Op.LT, 20)))
    assert engine.match_region(region(("x", Op.GT, 15), ("x", Op.LT, 30), ("y", Op.GT, 0), ("y", Op.LT, 11))) == ["s"]
    assert engine.match_region(region(("x", Op.GT, 15), ("x", Op.LT, 30), ("y", Op.GT, 0), ("y", Op.LT, 10))) == []
    assert engine.match_region(region(("x", Op.GT, 0))) == ["s"]  # the same direction always intersects
    assert engine.match_region(region(("z", Op.EQ, 1))) == ["s"]  # what only one side constrains prevents nothing


@pytest.mark.parametrize("engine_class", [Ceem, Counting, Tree])
def test_theorem_1_as_printed_forgets_equality_against_range(engine_class):
    """Resolved: `a = 5` and `a > 10` share no point, so they do not match."""
    engine = engine_class()
    engine.add(sub("five", ("a", Op.EQ, 5)))
    engine.add(sub("many", ("a", Op.GT, 10)))
    assert engine.match_region(region(("a", Op.GT, 10))) == ["many"]
    assert engine.match_region(region(("a", Op.EQ, 5))) == ["five"]
    assert engine.match_region(region(("a", Op.GE, 5), ("a", Op.LE, 10))) == ["five"]


def test_an_empty_region_is_refused_at_the_door():
    with pytest.raises(InvalidSubscription):
        region(("a", Op.GT, 1), ("a", Op.LT, 1))


def test_section_3_5_space_grows_with_predicates():
    """O(AS): twice the subscriptions, twice the bytes; 11 families take 11/8 of what 8 take."""
    sizes = {}
    for name in ("ceem1", "ceem2"):
        for count in (20_000, 40_000):
            workload, engine = Workload(name, count), Ceem()
            engine.add_boxes(workload.ids(), workload.boxes)
            sizes[name, count] = engine.nbytes()
    assert sizes["ceem1", 40_000] / sizes["ceem1", 20_000] == pytest.approx(2, rel=0.05)
    assert sizes["ceem2", 40_000] / sizes["ceem1", 40_000] == pytest.approx(11 / 8, rel=0.05)


def test_section_4_2_a_subscription_is_discarded_at_its_first_failing_predicate():
    """What lies in the bucket of the third row passed both equalities, about one subscription in 36."""
    workload, engine = Workload("ceem1", 36_000), Ceem()
    engine.add_boxes(workload.ids(), workload.boxes)
    (published,) = workload.events(1)
    table, third = engine._table, 2
    start, count = table.start[third], table.count[third]
    table.extra["bucket"][start : start + count] = -1
    engine.match(published)
    entered = table.row[start:][
        table.extra["bucket"][start : start + np.count_nonzero(table.extra["bucket"][start : start + count] >= 0)]
    ]
    low = workload.boxes.low.reshape(-1, 5)
    wanted = (low[:, 0] == published.attributes["a0"]) & (low[:, 1] == published.attributes["a1"])
    assert sorted(entered.tolist()) == np.flatnonzero(wanted).tolist()
    assert len(entered) == pytest.approx(1_000, rel=0.2)


def test_theorem_2_what_matches_arrives_and_nothing_else_does():
    """Every engine of the comparison finds the same on both settings; the contract suite compares them with `naive`."""
    for name in ("ceem1", "ceem2"):
        workload = Workload(name, 5_000)
        engines = [engine_class() for engine_class in (Ceem, Counting, Tree)]
        for engine in engines:
            engine.add_boxes(workload.ids(), workload.boxes)
        for published in workload.events(50):
            found = [sorted(engine.match(published)) for engine in engines]
            assert found[0] == found[1] == found[2]
