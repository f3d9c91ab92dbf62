"""counting's own bounds: counters of one byte, families that grow and shrink."""

import numpy as np

from tidings.matching.counting import Counting
from tidings.model.event import Event
from tidings.model.filter import Op, Predicate, conjunction
from tidings.model.subscription import Subscription


def test_more_predicates_than_a_counter_can_count():
    names = [f"a{number}" for number in range(300)]
    engine = Counting()
    engine.add(Subscription("s", "ann", conjunction(tuple(Predicate(name, Op.GE, 1) for name in names))))
    full = dict.fromkeys(names, 1)
    assert engine.match(Event("e", "", full)) == ["s"]
    for left_out in (names[0], names[254], names[255], names[299]):
        assert engine.match(Event("e", "", {**full, left_out: 0})) == []
    assert engine.indexed() == 0
    engine.remove("s")
    assert engine.match(Event("e", "", full)) == []


def test_families_stay_sorted_while_they_grow_and_shrink():
    rng = np.random.default_rng(1)
    engine = Counting()
    for number in range(600):
        engine.add(Subscription(str(number), "ann", Predicate("a", Op.GT, int(rng.integers(50)))))
        if number % 3 == 2:
            engine.remove(str(number - 1))
        table = engine._table
        keys = table.key[table.start[0] : table.start[0] + table.count[0]].tolist()
        assert keys == sorted(keys)
        assert len(keys) == len(engine)
