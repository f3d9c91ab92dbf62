"""Links, targets and queues for the tests of the schedulers, drawn on a grid of binary fractions where arithmetic is exact."""

import math
from typing import Any

from hypothesis import strategies as st

from tidings.model.event import Event
from tidings.scheduling.base import Item, Target
from tidings.scheduling.delay import Link
from tidings.scheduling.prices import Prices
from tidings.scheduling.rate import PER_KB, PER_MESSAGE, Known

# The neighbour is B; below it a small tree, and one broker that two paths lead to.
PATHS = (("B",), ("B", "C"), ("B", "C", "E"), ("B", "C", "F"), ("B", "D"), ("B", "D", "F"))
EDGES = (("B", "C"), ("B", "D"), ("C", "E"), ("C", "F"), ("D", "F"))
SUBSCRIPTIONS = tuple("stuvw")


def item(id: str, *targets: Target, born_s: float = 0.0, size_kb: float = 1.0, timeout_s: float = math.inf) -> Item:
    return Item(Event(id, "", {}, timeout_s=timeout_s, size_kb=size_kb), born_s, targets)


def one_of(*values: float) -> st.SearchStrategy[float]:
    return st.sampled_from(values)


@st.composite
def links(draw: st.DrawFn) -> Link:
    prices = Prices()
    for edge in EDGES:
        prices[edge] = draw(one_of(0.0, 0.0, 0.25, 1.0, 4.0))
    return Link(
        source="A",
        peer="B",
        rate=Known(draw(one_of(0.0, 0.25, 1.0)), 0.25),
        mean_size_kb=draw(one_of(0.0, 1.0, 4.0)),
        processing_s=1 / 256,
        client_s=1 / 64,
        sampling=draw(st.sampled_from([PER_MESSAGE, PER_KB])),
        prices=prices,
    )


def _target(number: int) -> Target:
    """One draw instead of seven: the digits of a number in a mixed radix."""

    def one(choices: tuple[Any, ...]) -> Any:
        nonlocal number
        number, digit = divmod(number, len(choices))
        return choices[digit]

    path = one(PATHS)
    return Target(
        one(SUBSCRIPTIONS),
        one((0.5, 1.0, 2.0, 4.0, 8.0, 16.0, math.inf)),
        one((0.0, 0.5, 1.0, 3.0)),
        one((0.0, 0.25, 1.0)),
        len(path),
        one((0.0, 0.125, 0.5)),
        one((0.0, 0.0, 1 / 16, 0.25)),
        path,
    )


def targets(most: int = 6) -> st.SearchStrategy[tuple[Target, ...]]:
    kinds = len(PATHS) * len(SUBSCRIPTIONS) * 7 * 4 * 3 * 3 * 4
    return st.lists(st.integers(0, kinds - 1).map(_target), min_size=1, max_size=most).map(tuple)


@st.composite
def queues(draw: st.DrawFn, most: int = 12) -> list[Item]:
    """Items in the order of their arrival, all born within one second before time 0."""
    kinds = st.tuples(targets(), one_of(0.0, 0.25, 0.5, 1.0), one_of(0.0, 0.25, 1.0, 4.0))
    return [
        item(f"e{number}", *wanted, born_s=-age_s, size_kb=size_kb)
        for number, (wanted, age_s, size_kb) in enumerate(draw(st.lists(kinds, min_size=1, max_size=most)))
    ]
