"""mtep's packed arrays against the equations, one event at a time."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

import scheduling_worlds as worlds
from scheduling_worlds import item
from tidings.errors import InvalidInput
from tidings.scheduling.base import DEADLINE_PASSED, HOPELESS, QUEUE_FULL, TIMED_OUT, Item, Target
from tidings.scheduling.delay import Link
from tidings.scheduling.mtep import Mtep
from tidings.scheduling.rate import PER_KB, Known

EPSILON = 0.04


def phi(z: float) -> float:
    return 0.5 * math.erfc(-z / math.sqrt(2))


def success(target: Target, waiting: Item, link: Link, now: float) -> float:
    """Eq. 7."""
    size = waiting.event.size_kb
    left = (
        target.deadline_s - (now - waiting.born_s) - target.hops * link.processing_s - link.client_s - target.mu * size
    )
    sigma = math.sqrt(target.variance)
    deviation = math.sqrt(size) * sigma if link.sampling == PER_KB else size * sigma
    return phi(left / deviation) if deviation else float(left >= 0)


class Reference:
    """The paper, word by word."""

    def __init__(self, link: Link, weight: float, figure5: bool) -> None:
        self.link, self.weight, self.figure5 = link, weight, figure5

    def sums(self, waiting: Item, now: float) -> tuple[float, float]:
        ee = ep = 0.0
        for target in waiting.targets:
            chance = success(target, waiting, self.link, now)
            ee += target.price * chance  # eq. 2
            ep += target.penalty * (1 - chance)  # eq. 3
        return ee, ep

    def figure5_sums(self, waiting: Item, now: float) -> tuple[float, float, float, float]:
        ee = ep = ee_later = ep_later = 0.0
        for target in waiting.targets:
            chance = success(target, waiting, self.link, now)  # line 5
            if chance >= EPSILON:  # line 6
                ee += target.price * chance
                ep += target.penalty * (1 - chance)  # line 7
                later = success(target, waiting, self.link, now + self.link.lmt_s)  # line 8
                if later >= EPSILON:  # line 9
                    ee_later += target.price * later
                    ep_later += target.penalty * (1 - later)  # line 10
        return ee, ep, ee_later, ep_later

    def priority(self, waiting: Item, now: float) -> float:
        if self.figure5:
            ee, ep, ee_later, ep_later = self.figure5_sums(waiting, now)
        else:
            ee, ep = self.sums(waiting, now)
            ee_later, ep_later = self.sums(waiting, now + self.link.lmt_s)  # eq. 8 to 11
        pc = ee - ep - (ee_later - ep_later)  # eq. 12
        return self.weight * ee + (1 - self.weight) * (pc + ep)  # eq. 13

    def expired(self, waiting: Item, now: float) -> bool:
        if now > waiting.last_deadline_s:
            return True
        if self.figure5:
            return self.figure5_sums(waiting, now)[0] == 0.0  # line 15
        return all(success(target, waiting, self.link, now) <= EPSILON for target in waiting.targets)  # eq. 14


@given(
    worlds.links(),
    worlds.queues(),
    st.lists(worlds.one_of(0.0, 0.25, 0.5, 1.0), min_size=12, max_size=12),
    worlds.one_of(0.0, 0.4, 1.0),
    st.booleans(),
)
def test_packed_arrays_give_what_the_equations_give(
    link: Link, arrivals: list[Item], pauses: list[float], weight: float, figure5: bool
) -> None:
    queue = Mtep(link, weight=weight, figure5=figure5)
    reference = Reference(link, weight, figure5)
    waiting = list(arrivals)
    for arriving in arrivals:
        queue.push(arriving, 0.0)
    now = 0.0
    for pause in pauses:
        now += pause
        gone = [each for each in waiting if reference.expired(each, now)]
        waiting = [each for each in waiting if each not in gone]
        found = queue.pop(now)
        assert [dropped.item for dropped in queue.dropped()] == gone
        if found is None:
            assert not waiting
        else:
            priorities = [reference.priority(each, now) for each in waiting]
            # Sums may differ in the last bit: of two that are so close either may go.
            assert priorities[waiting.index(found)] == pytest.approx(max(priorities), abs=1e-12)
            waiting.remove(found)
        assert list(queue) == waiting


@given(worlds.links(), worlds.targets(), worlds.one_of(0.0, 0.5, 2.0), st.booleans())
def test_figures_are_the_terms_of_the_equations(
    link: Link, targets: tuple[Target, ...], now: float, figure5: bool
) -> None:
    waiting = item("e", *targets, size_kb=4.0)
    figures = Mtep(link, figure5=figure5).figures(waiting, now)
    reference = Reference(link, 0.4, figure5)
    if figure5:
        expected = reference.figure5_sums(waiting, now)
    else:
        expected = (*reference.sums(waiting, now), *reference.sums(waiting, now + link.lmt_s))
    assert figures[:4] == pytest.approx(expected)
    assert figures.priority == pytest.approx(reference.priority(waiting, now))
    assert figures.postponement_cost == pytest.approx(expected[0] - expected[1] - expected[2] + expected[3])


def test_of_equals_the_first_goes_first() -> None:
    queue = Mtep()
    for id in "badc":
        queue.push(item(id, Target("s", 10.0, 1.0, 0.0)), 0.0)
    assert [queue.pop(0.0).event.id for _ in range(4)] == list("badc")  # type: ignore[union-attr]


def test_reasons_say_what_was_wrong() -> None:
    link = Link(rate=Known(0.1, 0.0), processing_s=0.0, client_s=0.0)
    queue = Mtep(link)
    queue.push(item("hopeless", Target("s", 5.0, 1.0, 0.0, 1, 0.1), size_kb=20.0), 0.0)
    queue.push(item("passed", Target("s", 3.0, 1.0, 0.0, 1, 0.1), size_kb=20.0), 0.0)
    queue.push(item("out", Target("s", 3.0, 1.0, 0.0, 1, 0.1), size_kb=20.0, timeout_s=3.0), 0.0)
    assert queue.pop(4.0) is None
    assert {each.item.event.id: each.reason for each in queue.dropped()} == {
        "hopeless": HOPELESS,
        "passed": DEADLINE_PASSED,
        "out": TIMED_OUT,
    }


def test_at_capacity_the_lowest_priority_is_dropped_and_of_equals_the_newest() -> None:
    queue = Mtep(capacity=2)
    for id, price in (("a", 1.0), ("b", 2.0), ("c", 1.0), ("d", 3.0)):
        queue.push(item(id, Target("s", 10.0, price, 0.0)), 0.0)
    assert [(each.item.event.id, each.reason) for each in queue.dropped()] == [("c", QUEUE_FULL), ("a", QUEUE_FULL)]
    assert [each.event.id for each in queue] == ["b", "d"]


def test_at_capacity_what_is_expired_makes_room() -> None:
    queue = Mtep(capacity=1)
    queue.push(item("old", Target("s", 1.0, 9.0, 0.0)), 0.0)
    queue.push(item("new", Target("s", 9.0, 1.0, 0.0)), 2.0)
    assert [(each.item.event.id, each.reason) for each in queue.dropped()] == [("old", DEADLINE_PASSED)]


@pytest.mark.parametrize("setting", ["weight", "epsilon"])
@pytest.mark.parametrize("value", [-0.1, 1.1, math.nan])
def test_settings_outside_of_their_range_are_refused(setting: str, value: float) -> None:
    with pytest.raises(InvalidInput, match=setting):
        Mtep(**{setting: value})
