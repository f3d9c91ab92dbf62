"""The matching tree: what is shared, what is left out, and that nothing stays behind."""

from hypothesis import given
from hypothesis import strategies as st

import matching_worlds as worlds
from tidings.matching.tree import EDGES, FREE_EDGE, FREE_TEST, NEXT, STAR, TESTS, Tree
from tidings.model.event import Event
from tidings.model.filter import Op, Predicate, conjunction
from tidings.model.subscription import Subscription


def sizes(tree):
    """Edges and tests in use; the root counts as an edge."""
    edges, tests = tree._counters[EDGES], tree._counters[TESTS]
    free = tree._counters[FREE_EDGE]
    while free >= 0:
        edges, free = edges - 1, tree._edge[free, NEXT]
    free = tree._counters[FREE_TEST]
    while free >= 0:
        tests, free = tests - 1, tree._test[free, STAR]
    return int(edges), int(tests)


def sub(id, **wanted):
    return Subscription(id, "ann", conjunction(tuple(Predicate(name, Op.EQ, value) for name, value in wanted.items())))


def test_a_common_beginning_is_shared():
    tree = Tree()
    tree.add(sub("s", a=1, b=2, c=3))
    assert sizes(tree) == (4, 3)
    tree.add(sub("t", a=1, b=2, c=4))
    assert sizes(tree) == (5, 3)
    tree.add(sub("u", a=1, c=4))  # b does not matter: its test is passed by the don't-care edge
    assert sizes(tree) == (6, 4)
    assert sorted(tree.match(Event("e", "", {"a": 1, "b": 2, "c": 4}))) == ["t", "u"]


def test_identical_subscriptions_hang_on_one_edge():
    tree = Tree()
    for number in range(100):
        tree.add(sub(str(number), a=1, b=2))
    assert sizes(tree) == (3, 2)
    assert len(tree.match(Event("e", "", {"a": 1, "b": 2}))) == 100


few_predicates = st.lists(worlds.number_predicates, max_size=5).map(lambda found: conjunction(tuple(found)))


@given(st.lists(few_predicates, max_size=20), st.randoms(use_true_random=False))
def test_nothing_stays_behind(filters, rng):
    tree = Tree()
    ids = list(map(str, range(len(filters))))
    for id, wanted in zip(ids, filters, strict=True):
        tree.add(Subscription(id, "ann", wanted))
    rng.shuffle(ids)
    for id in ids:
        tree.remove(id)
    assert sizes(tree) == (1, 0)
    assert (tree._heads == -1).all()
