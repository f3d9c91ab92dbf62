"""The schedulers whose order does not change: fcfs, fix, lrt."""

import math
from collections import Counter

from scheduling_worlds import item
from tidings.scheduling.base import DEADLINE_PASSED, QUEUE_FULL, TIMED_OUT, Scheduler, Target
from tidings.scheduling.fcfs import Fcfs
from tidings.scheduling.fix import Fix
from tidings.scheduling.lrt import Lrt


def until(*deadlines_s: float) -> list[Target]:
    return [Target(f"s{number}", deadline_s, 1.0, 0.1) for number, deadline_s in enumerate(deadlines_s)]


def order(queue: Scheduler, now: float = 0.0) -> list[str]:
    found = []
    while (next := queue.pop(now)) is not None:
        found.append(next.event.id)
    return found


def test_fcfs_serves_first_who_came_first() -> None:
    queue = Fcfs()
    for id in "badc":
        queue.push(item(id, *until(10)), 0.0)
    assert order(queue) == list("badc")


def test_at_capacity_fcfs_turns_the_newcomer_away() -> None:
    queue = Fcfs(capacity=2)
    for id in "abc":
        queue.push(item(id, *until(10)), 0.0)
    assert [(dropped.item.event.id, dropped.reason) for dropped in queue.dropped()] == [("c", QUEUE_FULL)]


def test_lrt_takes_the_mean_over_the_targets() -> None:
    queue = Lrt()
    queue.push(item("mean 20", *until(20)), 0.0)
    queue.push(item("mean 15", *until(5, 25)), 0.0)
    queue.push(item("mean 16", *until(16, 16)), 0.0)
    assert order(queue) == ["mean 15", "mean 16", "mean 20"]


def test_lrt_counts_the_time_used() -> None:
    queue = Lrt()
    queue.push(item("30 of 60 left", *until(60), born_s=0.0), 30.0)
    queue.push(item("20 of 20 left", *until(20), born_s=30.0), 30.0)
    queue.push(item("10 of 40 left", *until(40), born_s=0.0), 30.0)
    assert order(queue, 30.0) == ["10 of 40 left", "20 of 20 left", "30 of 60 left"]


def test_lrt_without_deadlines_is_fcfs() -> None:
    queue = Lrt()
    for id in "badc":
        queue.push(item(id, *until(math.inf)), 0.0)
    assert order(queue) == list("badc")


def test_after_a_withdrawal_lrt_counts_the_rest() -> None:
    queue = Lrt()
    queue.push(item("a", *until(60, 10)), 0.0)
    queue.push(item("b", *until(40)), 0.0)
    queue.push(item("c", *until(30)), 0.0)
    queue.withdraw("s0")
    assert order(queue) == ["a"], "without s0 there is nobody for b and c"


def test_at_capacity_lrt_drops_the_one_with_most_time() -> None:
    queue = Lrt(capacity=2)
    for id, deadline_s in (("a", 30), ("b", 60), ("c", 10)):
        queue.push(item(id, *until(deadline_s)), 0.0)
    assert [dropped.item.event.id for dropped in queue.dropped()] == ["b"]
    assert order(queue) == ["c", "a"]


def test_fix_gives_an_event_the_same_priority_everywhere() -> None:
    ids = [f"e{number}" for number in range(5000)]
    ranks = [Fix().rank(item(id, *until(10))) for id in ids]
    assert ranks == [Fix().rank(item(id, *until(99))) for id in ids]
    assert set(ranks) == {1, 2, 3, 4, 5}
    assert all(900 < count < 1100 for count in Counter(ranks).values())
    assert ranks != [Fix(seed=1).rank(item(id, *until(10))) for id in ids]


def test_fix_serves_the_highest_first_and_equals_in_order() -> None:
    queue = Fix()
    ids = [f"e{number}" for number in range(100)]
    ranks = {id: queue.rank(item(id)) for id in ids}
    for id in ids:
        queue.push(item(id, *until(10)), 0.0)
    assert order(queue) == sorted(ids, key=lambda id: (-ranks[id], ids.index(id)))


def test_baselines_drop_when_every_deadline_downstream_has_passed() -> None:
    for make in (Fcfs, Fix, Lrt):
        queue = make()
        queue.push(item("one left", *until(1, 9)), 0.0)
        queue.push(item("none left", *until(1, 2)), 0.0)
        queue.push(item("timed out", *until(2), timeout_s=2.0), 0.0)
        assert order(queue, 5.0) == ["one left"], make.name
        reasons = {dropped.item.event.id: dropped.reason for dropped in queue.dropped()}
        assert reasons == {"none left": DEADLINE_PASSED, "timed out": TIMED_OUT}, make.name


def test_a_deadline_that_is_just_met_is_met() -> None:
    for make in (Fcfs, Fix, Lrt):
        queue = make()
        queue.push(item("a", *until(5)), 0.0)
        assert order(queue, 5.0) == ["a"]
