"""priced: its packed arrays against the definition, its price, and how it behaves where there is no market."""

import math
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

import scheduling_worlds as worlds
from scheduling_worlds import item
from tidings.errors import InvalidInput
from tidings.scheduling.base import DEADLINE_PASSED, HOPELESS, QUEUE_FULL, WORTH_LESS, Item, Scheduler, Target
from tidings.scheduling.delay import FAR, Link
from tidings.scheduling.priced import FREE_STEPS, LEAST_GAIN, LEAST_LOAD, WORTH_MEMORY, Priced
from tidings.scheduling.prices import Prices
from tidings.scheduling.rate import PER_KB, Known

PATIENCE, SHARE, STEP, WAIT, EPSILON = 0.7, 0.5, 0.02, 0.2, 0.04


class Reference:
    """The definition in the file's head, slow and plain."""

    def __init__(self, link: Link) -> None:
        self.link = link
        self.waiting: list[Item] = []
        self.dropped: list[tuple[Item, str]] = []
        self.level = self.level_at_s = self.mean = 0.0

    def success(self, target: Target, waiting: Item, now: float) -> float:
        link, size = self.link, waiting.event.size_kb
        ahead = target.hops * link.processing_s + link.client_s + target.mu * size
        queueing = max(0, target.hops - 1) * (WAIT * link.lmt_s)
        left = target.deadline_s - (now - waiting.born_s) - ahead - queueing
        sigma = math.sqrt(target.variance)
        deviation = math.sqrt(size) * sigma if link.sampling == PER_KB else size * sigma
        if abs(left) >= FAR * deviation:  # it makes a difference whether a chance is nothing or next to nothing
            return float(left >= 0)
        return 0.5 * math.erfc(-left / deviation / math.sqrt(2))

    def load(self, waiting: Item) -> float:
        mean = self.link.mean_size_kb
        return max(waiting.event.size_kb / mean, LEAST_LOAD) if mean else 1.0

    def worth(self, waiting: Item, now: float, path: tuple[str, ...] = ("B",)) -> float:
        """V at the broker where a path ends."""
        value = 0.0
        further: dict[str, None] = {}
        for target in waiting.targets:
            if target.path == path:
                gain = target.price + target.penalty or LEAST_GAIN
                value += gain * self.success(target, waiting, now)
            elif target.path[: len(path)] == path:
                further[target.path[len(path)]] = None
        for broker in further:
            price = self.link.prices[path[-1], broker] * self.load(waiting)
            value += max(0.0, self.worth(waiting, now, (*path, broker)) - price)
        return value

    def level_now(self, now: float) -> float:
        lmt = self.link.lmt_s
        return max(0.0, self.level - STEP * self.mean * (now - self.level_at_s) / lmt) if lmt else 0.0

    def price(self, now: float) -> float:
        return max(0.0, self.level_now(now) - FREE_STEPS * STEP * self.mean)

    def push(self, arriving: Item, now: float) -> None:
        self.waiting.append(arriving)
        if arriving.last_deadline_s == math.inf and all(t.deadline_s == math.inf for t in arriving.targets):
            return
        worth = self.worth(arriving, now) / self.load(arriving)
        level, price = self.level_now(now), self.price(now)
        self.mean += (worth - self.mean) / (WORTH_MEMORY if self.mean else 1)
        self.level, self.level_at_s = level + (STEP * self.mean if worth > price else 0.0), now

    def why_dropped(self, waiting: Item, now: float) -> str | None:
        if now > waiting.last_deadline_s:
            return DEADLINE_PASSED
        if all(self.success(target, waiting, now) <= EPSILON for target in waiting.targets):
            return HOPELESS
        worth = self.worth(waiting, now)
        if worth > 0 and worth >= SHARE * self.price(now) * self.load(waiting):
            return None
        return None if any(target.deadline_s == math.inf for target in waiting.targets) else WORTH_LESS

    def index(self, waiting: Item, now: float) -> float:
        if all(target.deadline_s == math.inf for target in waiting.targets):
            return -1.0
        postponed = self.worth(waiting, now + self.link.lmt_s)
        return (self.worth(waiting, now) - PATIENCE * postponed) / self.load(waiting)


@given(worlds.links(), worlds.queues(), st.lists(worlds.one_of(0.0, 0.25, 1.0), min_size=24, max_size=24))
def test_packed_arrays_give_what_the_definition_gives(link: Link, arrivals: list[Item], pauses: list[float]) -> None:
    """Two come for each that goes, then all go."""
    queue, reference = Priced(link), Reference(link)
    coming = iter(arrivals)
    now = 0.0
    for step, pause in enumerate(pauses):
        now += pause
        arriving = next(coming, None)
        if arriving is not None:
            queue.push(arriving, now)
            reference.push(arriving, now)
            assert queue.price(now) == pytest.approx(reference.price(now), abs=1e-12)
            if step % 2:
                continue
        gone = {each.event.id: why for each in reference.waiting if (why := reference.why_dropped(each, now))}
        reference.waiting = [each for each in reference.waiting if each.event.id not in gone]
        found = queue.pop(now)
        assert {dropped.item.event.id: dropped.reason for dropped in queue.dropped()} == gone
        if found is None:
            assert not reference.waiting
        else:
            indexes = [reference.index(each, now) for each in reference.waiting]
            assert indexes[reference.waiting.index(found)] == pytest.approx(max(indexes), abs=1e-12)
            reference.waiting.remove(found)
        assert sorted(each.event.id for each in queue) == sorted(each.event.id for each in reference.waiting)


def test_long_queues_are_closed_up_and_stay_what_they_are() -> None:
    """More is gone than waits, again and again; each copy keeps its own links ahead."""
    draw = random.Random(7)
    link = crowded(BC=0.5, BD=0.25, CE=0.25, CF=1.0, DF=0.5)
    queue, reference = Priced(link, share=0.0), Reference(link)
    for step in range(400):
        now = step / 64
        for number in range(draw.choice([0, 0, 2] if step > 150 else [1, 2])):
            paths = draw.choices(worlds.PATHS, k=draw.randint(1, 5))
            targets = [target(draw.choice([1.0, 2.0, 3.5]), *path, deadline_s=draw.choice([16, 64])) for path in paths]
            arriving = item(f"{step}.{number}", *targets, born_s=now, size_kb=draw.choice([0.5, 1.0, 4.0]))
            if reference.worth(arriving, now) > 0:
                queue.push(arriving, now)
                reference.waiting.append(arriving)
        found = queue.pop(now)
        if found is None:
            assert not reference.waiting
            continue
        indexes = [reference.index(each, now) for each in reference.waiting]
        assert indexes[reference.waiting.index(found)] == pytest.approx(max(indexes), abs=1e-12)
        reference.waiting.remove(found)
    assert queue.dropped() == []


def order(queue: Scheduler, now: float = 0.0) -> list[str]:
    found = []
    while (next := queue.pop(now)) is not None:
        found.append(next.event.id)
    return found


def target(
    price: float, *path: str, deadline_s: float = 60.0, penalty: float = 0.0, mu: float = 0.0, id: str = "s"
) -> Target:
    return Target(id, deadline_s, price, penalty, len(path), mu, 0.0, path)


def crowded(**prices: float) -> Link:
    """A link from A to B that takes 1 s for a mean event; prices by link as `CE=1.0`."""
    known = Prices()
    for edge, price in prices.items():
        known[edge[0], edge[1]] = price
    return Link(rate=Known(1.0), mean_size_kb=1.0, processing_s=0.0, client_s=0.0, prices=known)


# Worth.


def test_a_copy_pays_each_link_ahead_once() -> None:
    queue = Priced(crowded(BC=2.0, CE=1.0, CF=1.0))
    queue.push(item("alone", target(4.0, "B", "C", "E")), 0.0)  # 4 - 1 - 2 = 1
    queue.push(item("shared", target(4.0, "B", "C", "E"), target(4.0, "B", "C", "F")), 0.0)  # 3 + 3 - 2 = 4
    queue.push(item("near", target(2.0, "B")), 0.0)  # 2
    assert order(queue) == ["shared", "near", "alone"]


def test_the_drawing_on_the_page() -> None:
    """docs/scheduling.md: the copy is worth 3.5."""
    queue = Priced(crowded(CE=3.0, BD=2.0))
    drawn = target(4.0, "B", "C", "E"), target(2.5, "B", "C", "F"), target(1.5, "B", "D")
    for id, targets in (("less", (target(3.45, "B"),)), ("drawn", drawn), ("more", (target(3.55, "B"),))):
        queue.push(item(id, *targets), 0.0)
    assert order(queue) == ["more", "drawn", "less"]


def test_a_subtree_that_is_not_worth_its_link_counts_for_nothing() -> None:
    queue = Priced(crowded(CE=5.0))
    queue.push(item("both", target(3.0, "B", "C"), target(4.0, "B", "C", "E")), 0.0)  # 3 + max(0, 4 - 5)
    queue.push(item("more", target(3.5, "B", "C")), 0.0)
    assert order(queue) == ["more", "both"]


def test_a_copy_that_no_link_ahead_is_worth_is_dropped() -> None:
    queue = Priced(crowded(BC=5.0))
    queue.push(item("a", target(4.0, "B", "C")), 0.0)
    assert queue.pop(0.0) is None
    assert [dropped.reason for dropped in queue.dropped()] == [WORTH_LESS]


def test_a_subscription_that_pays_nothing_is_served_by_links_that_cost_nothing() -> None:
    queue = Priced(crowded())
    queue.push(item("free", target(0.0, "B", "C")), 0.0)
    assert order(queue) == ["free"]
    queue = Priced(crowded(BC=0.5))
    queue.push(item("free", target(0.0, "B", "C")), 0.0)
    assert order(queue) == []


def test_the_penalty_that_is_saved_counts() -> None:
    queue = Priced(crowded())
    queue.push(item("price", target(2.0, "B")), 0.0)
    queue.push(item("price and penalty", target(1.5, "B", penalty=1.0)), 0.0)
    assert order(queue) == ["price and penalty", "price"]


def test_what_cannot_wait_goes_before_what_can() -> None:
    queue = Priced(crowded())
    queue.push(item("can", target(2.0, "B", deadline_s=60.0)), 0.0)
    queue.push(item("cannot", target(1.0, "B", deadline_s=0.5)), 0.0)
    assert order(queue) == ["cannot", "can"]


def test_a_large_event_pays_for_its_size() -> None:
    queue = Priced(crowded())
    queue.push(item("large", target(3.0, "B"), size_kb=4.0), 0.0)
    queue.push(item("small", target(1.0, "B"), size_kb=1.0), 0.0)
    assert order(queue) == ["small", "large"]


def test_waiting_ahead_is_expected() -> None:
    """0.2 s at each broker ahead but the next."""
    queue = Priced(crowded())
    queue.push(item("just", target(1.0, "B", "C", "E", deadline_s=0.5)), 0.0)
    queue.push(item("not", target(1.0, "B", "C", "E", deadline_s=0.375)), 0.0)
    assert order(queue) == ["just"]
    assert [dropped.reason for dropped in queue.dropped()] == [HOPELESS]


# The price.


def bids(queue: Priced, count: int, each_s: float, price: float = 1.0, start_s: float = 0.0) -> float:
    """Copies that come every so often, and go as fast as the link allows; the time after them."""
    sent_s = start_s
    for number in range(count):
        now = start_s + number * each_s
        queue.push(item(f"{price}:{number}", target(price, "B"), born_s=now), now)
        while sent_s <= now:
            queue.pop(sent_s)
            sent_s += 1.0
    return start_s + count * each_s


def test_a_link_that_is_not_crowded_costs_nothing() -> None:
    queue = Priced(crowded())
    for number in range(20):
        bids(queue, 10, 1.25, start_s=number * 12.5)
        assert queue.price(number * 12.5 + 12.5) == 0.0


def test_no_copy_is_dropped_for_its_price_on_a_link_that_is_not_crowded() -> None:
    queue = Priced(crowded())
    now = bids(queue, 100, 1.25, price=1.0)
    queue.push(item("cheap", target(0.0001, "B"), born_s=now), now)
    assert "cheap" in order(queue, now)


def test_on_a_crowded_link_the_price_rises_to_what_the_last_copy_served_is_worth() -> None:
    """Each second come one copy worth 1 and one worth 3, and one can go: the cheap ones are priced out."""
    queue = Priced(crowded(), share=1.0)
    sent = {"1.0": 0, "3.0": 0}
    for second in range(400):
        now = float(second)
        for price in (1.0, 3.0):
            queue.push(item(f"{price}:{second}", target(price, "B", deadline_s=20.0), born_s=now), now)
        found = queue.pop(now)
        if found is not None and second >= 200:
            sent[found.event.id.partition(":")[0]] += 1
    assert 0.8 <= queue.price(400.0) <= 1.2
    assert sent == {"1.0": 0, "3.0": 200}
    assert {dropped.reason for dropped in queue.dropped()} <= {WORTH_LESS, HOPELESS, DEADLINE_PASSED}


def test_the_price_falls_when_the_crowd_is_gone() -> None:
    queue = Priced(crowded())
    now = bids(queue, 200, 0.5)
    high = queue.price(now)
    assert high > 0.2
    assert queue.price(now + 1.0) == pytest.approx(high - STEP, abs=1e-3)
    assert queue.price(now + 100.0) == 0.0


@pytest.mark.parametrize("unit", [1e-3, 1.0, 1e6])
def test_the_currency_does_not_matter(unit: float) -> None:
    queue = Priced(crowded())
    now = bids(queue, 200, 0.5, price=unit)
    reference = Priced(crowded())
    bids(reference, 200, 0.5, price=1.0)
    assert queue.price(now) / unit == pytest.approx(reference.price(now))


def test_a_copy_of_less_than_half_its_links_price_is_dropped() -> None:
    queue = Priced(crowded())
    now = bids(queue, 400, 0.5)
    price = queue.price(now)
    queue.push(item("less", target(0.49 * price, "B"), born_s=now), now)
    queue.push(item("more", target(0.51 * price, "B"), born_s=now), now)
    queue.pop(now)
    reasons = {dropped.item.event.id: dropped.reason for dropped in queue.dropped()}
    assert reasons.get("less") == WORTH_LESS
    assert "more" not in reasons


# Where there is no market: a lone broker and its clients.


@given(worlds.queues())
def test_a_lone_broker_drops_nothing_that_can_still_be_delivered(arrivals: list[Item]) -> None:
    queue = Priced()
    local = [
        item(each.event.id, *(Target(t.subscription, t.deadline_s, t.price, t.penalty) for t in each.targets))
        for each in arrivals
    ]
    for each in local:
        queue.push(each, 0.0)
    for now in (0.0, 0.5, 1.0, 2.0, 4.0):
        queue.sweep(now)
        assert {each.event.id for each in queue} == {each.event.id for each in local if now <= each.last_deadline_s}


@given(st.lists(worlds.one_of(0.0, 1.0, 7.0), min_size=1, max_size=20))
def test_without_deadlines_order_is_first_come_first_served(prices: list[float]) -> None:
    for queue in (Priced(), Priced(crowded())):
        for number, price in enumerate(prices):
            queue.push(item(f"{number}", target(price, deadline_s=math.inf)), 0.0)
        assert order(queue) == [f"{number}" for number in range(len(prices))]


def test_without_deadline_one_lets_the_others_go_first_and_is_never_dropped_for_its_price() -> None:
    queue = Priced(crowded(BC=9.0))
    queue.push(item("patient", target(1.0, "B", "C", deadline_s=math.inf)), 0.0)
    queue.push(item("mixed", target(1.0, "B", "C", deadline_s=math.inf), target(1.0, "B", "C")), 0.0)
    queue.push(item("urgent", target(1.0, "B")), 0.0)
    assert order(queue) == ["urgent", "mixed", "patient"]


def test_at_capacity_those_without_deadline_go_first_and_then_the_least_index() -> None:
    queue = Priced(capacity=2)
    for id, price, deadline_s in (("a", 1.0, 60.0), ("b", 9.0, math.inf), ("c", 2.0, 60.0), ("d", 3.0, 60.0)):
        queue.push(item(id, target(price, deadline_s=deadline_s)), 0.0)
    assert [(each.item.event.id, each.reason) for each in queue.dropped()] == [("b", QUEUE_FULL), ("a", QUEUE_FULL)]


@pytest.mark.parametrize("setting", ["patience", "share", "step", "wait", "epsilon"])
@pytest.mark.parametrize("value", [-0.1, 1.1, math.nan])
def test_settings_outside_of_their_range_are_refused(setting: str, value: float) -> None:
    with pytest.raises(InvalidInput, match=setting):
        Priced(**{setting: value})
