"""scan's own bounds: columns that double while attributes come one by one, and are made anew at once."""

from tidings.matching.scan import Scan
from tidings.model.event import Event
from tidings.model.filter import Op, Predicate
from tidings.model.subscription import Subscription


def test_columns_are_made_anew_after_they_have_doubled():
    engine = Scan()
    for number in range(5):  # room for eight attributes
        engine.add(Subscription(str(number), "ann", Predicate(f"x{number}", Op.EQ, 1)))
    engine.add_all([Subscription("new", "ann", Predicate("x0", Op.EQ, 1))])
    assert engine.match(Event("e", "", {"x0": 1, "x4": 1})) == ["0", "4", "new"]
