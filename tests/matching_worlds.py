"""Subscriptions, events and regions from a small world, so that random ones meet often and hit each other's bounds exactly."""

import datetime
import math

from hypothesis import strategies as st

import strategies
from tidings.model.domain import satisfiable
from tidings.model.event import Event
from tidings.model.filter import Op, Predicate, conjunction
from tidings.model.subscription import Region, Subscription
from tidings.model.value import EPOCH, INT_MAX, INT_MIN

NAMES = strategies.NAMES
TYPES = ["", "quote", "trade"]
NUMBERS = [
    *(-math.inf, INT_MIN, -1e300, -(2**53) - 1, -(2**53), -1.5, -1, -0.0, 0, 5e-324, 0.5, 1, 1.0),
    *(math.nextafter(1, 2), 2, math.nextafter(2, 3), 3, 7.25, 2**53 - 1, 2**53, float(2**53), 2**53 + 1, 2**53 + 2),
    *(2**62 + 1, INT_MAX - 1, INT_MAX, float(2**63), 1e300, math.inf),
]
# The later and the earlier ones are beyond 2^53 microseconds.
DATES = [
    *(EPOCH, EPOCH + datetime.timedelta(microseconds=1), EPOCH.replace(year=2026)),
    *(EPOCH.replace(year=2300, microsecond=1), EPOCH.replace(year=2300, microsecond=2)),
    *(EPOCH.replace(year=1), EPOCH.replace(year=9999, microsecond=999_999)),
]
SCALARS = [Op.LT, Op.LE, Op.GT, Op.GE, Op.EQ, Op.NE]

names = st.sampled_from(NAMES)
numbers = st.sampled_from([0, 1, 1.0, 1.5, 2, 3]) | st.sampled_from(NUMBERS)
dates = st.sampled_from(DATES)
values = numbers | dates | strategies.values()

number_predicates = st.builds(Predicate, names, st.sampled_from(SCALARS), numbers)
predicates = st.one_of(
    strategies.predicates(odd=False),
    number_predicates,
    st.builds(Predicate, st.just("d"), st.sampled_from(SCALARS), dates),
)
conjunctions = st.lists(predicates, max_size=4).map(lambda found: conjunction(tuple(found)))
filters = conjunctions | strategies.filters(odd=False, max_leaves=6)
attributes = strategies.attributes(odd=False) | st.dictionaries(names, values, max_size=4)
events = st.builds(Event, st.just("e"), st.sampled_from(TYPES), attributes)
regions = st.lists(predicates, min_size=1, max_size=3).filter(satisfiable).map(lambda found: Region(tuple(found)))
types = st.sampled_from([(), (), (), ("quote",), ("quote", "trade")])


def subscriptions(ids: st.SearchStrategy[str]) -> st.SearchStrategy[Subscription]:
    return st.builds(Subscription, ids, st.sampled_from(["ann", "bob"]), filters, types)
