"""ceem's own structures: sorted rows, links that hold through every change, the interface list."""

from hypothesis import given
from hypothesis import strategies as st

import matching_worlds as worlds
from tidings.matching.ceem import NEXT_COLUMN, NEXT_ROW, PREVIOUS_COLUMN, PREVIOUS_ROW, Ceem
from tidings.model.event import Event
from tidings.model.filter import And, Op, Predicate, conjunction
from tidings.model.subscription import Subscription


def check(engine):
    """Rows are sorted; each subscription can be walked from its first predicate to its last and back."""
    table, rows = engine._table, engine.rows
    link = table.extra["link"]
    for family in range(len(engine.families)):
        start, count = table.start[family], table.count[family]
        keys = table.key[start : start + count].tolist()
        assert keys == sorted(keys)
        assert count <= table.capacity[family]
    for row in range(rows.size):
        codes, keys = rows.keys(row)
        if not len(codes):
            continue  # no predicate that can be placed: it is looked at for every event
        family, column = engine._head[row].tolist()
        before = (-1, -1)
        for code, key in zip(codes.tolist(), keys.tolist(), strict=True):
            place = table.start[family] + column
            assert (family, table.key[place], table.row[place]) == (code >> 1, key, row)
            assert (link[place, PREVIOUS_ROW], link[place, PREVIOUS_COLUMN]) == before
            before = family, column
            family, column = link[place, NEXT_ROW], link[place, NEXT_COLUMN]
        assert family == -1


few_predicates = st.lists(worlds.number_predicates, min_size=1, max_size=6).map(lambda found: conjunction(tuple(found)))


@given(st.lists(st.tuples(st.integers(0, 7), st.none() | few_predicates), max_size=40), st.integers(0, 10))
def test_links_hold_through_every_change(changes, bulk):
    engine = Ceem()
    first = {str(id): wanted for id, wanted in changes[:bulk] if wanted is not None}
    engine.add_all(Subscription(id, "ann", wanted) for id, wanted in first.items())
    check(engine)
    for id, wanted in changes[bulk:]:
        if wanted is not None:
            engine.add(Subscription(str(id), "ann", wanted))
        elif str(id) in engine:
            engine.remove(str(id))
        check(engine)


def test_equalities_stand_on_top():
    engine = Ceem()
    engine.add(Subscription("s", "ann", And((Predicate("a", Op.LT, 5), Predicate("b", Op.EQ, 1)))))
    family, _ = engine._head[0].tolist()
    assert engine.families.families[family].attribute == "b"


def test_the_interface_list_says_where_an_event_goes():
    engine = Ceem()
    for id, owner, bound in (("s", "ann", 1), ("t", "ann", 2), ("u", "bob", 3), ("v", "cyd", 9)):
        engine.add(Subscription(id, owner, Predicate("a", Op.GT, bound)))
    assert engine.interfaces(Event("e", "", {"a": 5})) == ["ann", "bob"]
    engine.remove("u")
    assert engine.interfaces(Event("e", "", {"a": 5})) == ["ann"]
    assert Ceem.load(engine.snapshot()).interfaces(Event("e", "", {"a": 10})) == ["ann", "cyd"]
