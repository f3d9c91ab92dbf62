"""Every scheduler of the catalog through one suite: nothing is lost, bounds hold, the same inputs give the same order."""

import math
import os
import subprocess
import sys
from collections import Counter
from typing import Any
from unittest import mock

import pytest
from hypothesis import given
from hypothesis import strategies as st

import scheduling_worlds as worlds
from scheduling_worlds import SUBSCRIPTIONS, item
from tidings.broker.catalog import SCHEDULERS
from tidings.errors import InvalidInput
from tidings.scheduling import ranked
from tidings.scheduling.base import DEADLINE_PASSED, QUEUE_FULL, TIMED_OUT, Item, Scheduler, Target
from tidings.scheduling.delay import Link
from tidings.scheduling.fix import Fix
from tidings.scheduling.mtep import Mtep
from tidings.scheduling.rate import Known

PUSH, POP, EXPIRED, WITHDRAW = "push pop expired withdraw".split()

each_scheduler = pytest.mark.parametrize("make", SCHEDULERS.values(), ids=SCHEDULERS)

# What happens to a queue: when, what, and to which item or subscription.
actions = st.lists(
    st.tuples(
        worlds.one_of(0.0, 0.0, 0.125, 0.5),
        st.sampled_from([PUSH, PUSH, PUSH, POP, POP, EXPIRED, WITHDRAW]),
        st.sampled_from(SUBSCRIPTIONS),
    ),
    max_size=40,
)


class Run:
    """One history of one queue, and what came out of it."""

    def __init__(self, queue: Scheduler) -> None:
        self.queue = queue
        self.now = 0.0
        self.out: list[tuple[str, ...]] = []
        self.pushed: Counter[str] = Counter()
        self.ended: Counter[str] = Counter()

    def act(self, pause_s: float, action: str, subscription: str, arriving: Item | None) -> None:
        self.now += pause_s
        if action == PUSH and arriving is not None:
            self.pushed[arriving.event.id] += 1
            self.queue.push(arriving, self.now)
            self._note_dropped(self.queue.dropped())
        elif action == POP:
            found = self.queue.pop(self.now)
            if found is not None:
                assert found.why_worthless(self.now) is None
                self._note("sent", found)
            self._note_dropped(self.queue.dropped())
        elif action == EXPIRED:
            self._note_dropped(self.queue.expired(self.now))
            assert all(each.why_worthless(self.now) is None for each in self.queue)
        elif action == WITHDRAW:
            before = {each.event.id for each in self.queue}
            self.queue.withdraw(subscription)
            after = {each.event.id for each in self.queue}
            assert after <= before
            self.ended.update(before - after)
            assert not any(target.subscription == subscription for each in self.queue for target in each.targets)

    def _note(self, what: str, ended: Item) -> None:
        self.ended[ended.event.id] += 1
        self.out.append((what, ended.event.id, *(target.subscription for target in ended.targets)))

    def _note_dropped(self, dropped: list[Any]) -> None:
        for each, reason in dropped:
            self._note(reason, each)

    def drain(self) -> None:
        """Until nothing waits: all that is left is sent, or expires at the end of time."""
        while (found := self.queue.pop(self.now)) is not None:
            self._note("sent", found)
        self._note_dropped(self.queue.expired(math.inf))


@each_scheduler
@given(worlds.links(), worlds.queues(most=20), actions, st.integers(1, 6), st.sampled_from([2, 1000]))
def test_each_item_ends_exactly_once(
    make: type[Scheduler], link: Link, arrivals: list[Item], history: list[Any], capacity: int, deep: int
) -> None:
    run = Run(make(link, capacity))
    coming = iter(arrivals)
    with mock.patch.object(ranked, "DEEP", deep):
        for pause_s, action, subscription in history:
            run.act(pause_s, action, subscription, next(coming, None) if action == PUSH else None)
            waiting = [each.event.id for each in run.queue]
            assert len(waiting) == len(run.queue) <= capacity
            assert run.pushed == run.ended + Counter(waiting)
        run.drain()
    assert len(run.queue) == 0
    assert run.pushed == run.ended


@each_scheduler
@given(worlds.links(), worlds.queues(most=20), actions, st.integers(1, 6))
def test_the_same_history_gives_the_same_order(
    make: type[Scheduler], link: Link, arrivals: list[Item], history: list[Any], capacity: int
) -> None:
    runs = [Run(make(link, capacity)), Run(make(link, capacity))]
    for run in runs:
        coming = iter(arrivals)
        for pause_s, action, subscription in history:
            run.act(pause_s, action, subscription, next(coming, None) if action == PUSH else None)
        run.drain()
    assert runs[0].out == runs[1].out


STORY = """
import math
from scheduling_worlds import item
from tidings.broker.catalog import SCHEDULERS
from tidings.scheduling.base import Target
from tidings.scheduling.delay import Link
from tidings.scheduling.rate import Known
for name, make in SCHEDULERS.items():
    link = Link(rate=Known(0.5, 0.1), mean_size_kb=1.0)
    link.prices["B", "C"] = 0.5
    queue = make(link, 20)
    for n in range(60):
        path = ("B", "C", f"D{n % 7}")[: 1 + n % 3]
        ahead = 0.1, len(path), 0.5, 0.01, path
        targets = [Target(f"s{k}", 5.0 + (n * 7 + k * 3) % 11, 1.0 + (n + k) % 3, *ahead) for k in range(3)]
        queue.push(item(f"e{n}", *targets, born_s=n * 0.25), n * 0.25)
        if n % 2:
            found = queue.pop(n * 0.25)
            print(name, n, found and found.event.id, [(d.item.event.id, d.reason) for d in queue.dropped()])
"""


def test_the_order_is_the_same_in_every_process() -> None:
    """Python gives strings other hashes in each process: nothing may depend on them."""
    found = []
    for hash_seed in ("1", "2"):
        environment = os.environ | {"PYTHONHASHSEED": hash_seed, "PYTHONPATH": os.path.dirname(__file__)}
        told = subprocess.run(
            [sys.executable, "-c", STORY], env=environment, capture_output=True, text=True, check=True
        )
        found.append(told.stdout)
    assert found[0] == found[1]
    assert len(found[0].splitlines()) == 30 * len(SCHEDULERS)


def local(id: str, deadline_s: float = 10.0, price: float = 1.0, *, timeout_s: float = math.inf) -> Item:
    return item(id, Target("s", min(deadline_s, timeout_s), price, 0.0), timeout_s=timeout_s)


@each_scheduler
def test_it_can_be_made_without_knowing_its_link(make: type[Scheduler]) -> None:
    queue = make()
    assert queue.pop(0.0) is None
    assert queue.expired(0.0) == []
    assert len(queue) == 0
    assert list(queue) == []
    assert queue.price(0.0) == 0.0


@each_scheduler
def test_it_is_found_under_its_name(make: type[Scheduler]) -> None:
    assert SCHEDULERS[make.name] is make


# Events to which `fix`, too, gives one and the same priority.
EQUALS = [f"e{n}" for n in range(200) if Fix().rank(local(f"e{n}")) == 3]


@each_scheduler
def test_equals_go_in_the_order_of_their_arrival(make: type[Scheduler]) -> None:
    queue = make()
    for id in EQUALS:
        queue.push(local(id), 0.0)
    assert [found.event.id for found in iter(lambda: queue.pop(0.0), None) if found] == EQUALS


@each_scheduler
def test_many_come_and_go(make: type[Scheduler]) -> None:
    """The arrays grow, are closed up, and are found again."""
    queue = make()
    waiting: set[str] = set()
    for number in range(2000):
        queue.push(
            item(f"e{number}", *(Target(f"s{n}", 1e6, 1.0 + number % 3, 0.0) for n in range(1 + number % 4))), 0.0
        )
        waiting.add(f"e{number}")
        if number % 3 != 1:
            found = queue.pop(0.0)
            assert found is not None
            waiting.remove(found.event.id)
            assert len(found.targets) == 1 + int(found.event.id[1:]) % 4
    assert {each.event.id for each in queue} == waiting
    while (found := queue.pop(0.0)) is not None:
        waiting.remove(found.event.id)
    assert not waiting


@each_scheduler
def test_a_deep_queue_keeps_its_order(make: type[Scheduler]) -> None:
    """One ranking serves for several pops: the dearest still go first, equals in order, and the last makes room."""
    queue = make(capacity=len(EQUALS))
    with mock.patch.object(ranked, "DEEP", 10), mock.patch.object(ranked, "DEPTH", 4):
        for id in EQUALS:
            queue.push(local(id), 0.0)
        for id in EQUALS[:5]:
            queue.push(local(id), 0.0)
        assert [each.event.id for each, _ in queue.dropped()] == EQUALS[:5]
        dear = local(EQUALS[0], price=9.0)
        assert queue.pop(0.0) is not None
        queue.push(dear, 0.0)
        found = [found for found in iter(lambda: queue.pop(0.0), None) if found]
        assert [each.event.id for each in found if each is not dear] == EQUALS[1:]
        assert found.index(dear) <= len(EQUALS) // 4 or make.name not in ("mtep", "priced")


@each_scheduler
def test_at_capacity_one_is_dropped_and_told(make: type[Scheduler]) -> None:
    """Of equals the newest."""
    queue = make(capacity=3)
    for id in EQUALS[:5]:
        queue.push(local(id), 0.0)
    assert [each.event.id for each in queue] == EQUALS[:3]
    assert [(each.event.id, reason) for each, reason in queue.dropped()] == [(id, QUEUE_FULL) for id in EQUALS[3:5]]
    assert queue.dropped() == []


@each_scheduler
def test_a_queue_needs_room_for_one(make: type[Scheduler]) -> None:
    with pytest.raises(InvalidInput, match="capacity"):
        make(capacity=0)


@each_scheduler
def test_what_expires_while_nothing_is_sent_comes_out_once(make: type[Scheduler]) -> None:
    queue = make()
    queue.push(local("short", 1.0), 0.0)
    queue.push(local("gone", 9.0, timeout_s=1.0), 0.0)
    queue.push(local("long", 9.0), 0.0)
    assert queue.expired(1.0) == []
    assert {each.event.id: reason for each, reason in queue.expired(1.5)} == {
        "short": DEADLINE_PASSED,
        "gone": TIMED_OUT,
    }
    assert queue.expired(1.5) == []
    assert [each.event.id for each in queue] == ["long"]


@each_scheduler
def test_without_variance_a_deadline_that_is_just_met_is_met(make: type[Scheduler]) -> None:
    link = Link(rate=Known(0.5), mean_size_kb=4.0, processing_s=0.25, client_s=0.5)
    # 4 KB at 0.5 s, one broker, the client's link: sending must begin 2.75 s before the deadline.
    waiting = item("e", Target("s", 10.0, 1.0, 0.0, 1, 0.5, 0.0, ("B",)), size_kb=4.0)
    queue = make(link)
    queue.push(waiting, 0.0)
    assert queue.pop(7.25) is waiting
    queue.push(waiting, 0.0)
    late = queue.pop(math.nextafter(7.25, 8.0))
    assert late is (None if make.name in ("mtep", "priced") else waiting)


@each_scheduler
@given(worlds.links(), worlds.queues(most=1), worlds.one_of(0.0, 0.5, 1.0, 4.0))
def test_what_may_pass_an_empty_queue_would_be_sent(
    make: type[Scheduler], link: Link, arrivals: list[Item], now: float
) -> None:
    queue = make(link)
    if queue.passes(arrivals[0], now):
        queue.push(arrivals[0], now)
        assert queue.pop(now) is arrivals[0]
        assert queue.dropped() == []


@pytest.mark.parametrize("options", [{}, {"epsilon": 0.6}, {"figure5": True}])
def test_mtep_lets_pass_what_is_just_in_time_and_asks_its_equations_for_the_rest(options: dict[str, Any]) -> None:
    link = Link(rate=Known(0.5), mean_size_kb=4.0, processing_s=0.25, client_s=0.5)
    coming = item("e", Target("s", 10.0, 1.0, 0.0, 1, 0.5, 0.0, ("B",)), size_kb=4.0)
    queue = Mtep(link, **options)
    assert queue.passes(coming, 7.25) is not bool(options)
    assert not queue.passes(coming, math.nextafter(7.25, 8.0))


@each_scheduler
def test_an_unsubscribed_target_leaves_its_items(make: type[Scheduler]) -> None:
    queue = make()
    s, t = Target("s", 10.0, 1.0, 0.0), Target("t", math.inf, 1.0, 0.0)
    for id, targets in (("both", (s, t)), ("only s", (s,)), ("only t", (t,))):
        queue.push(item(id, *targets), 0.0)
    queue.withdraw("s")
    assert {each.event.id: [target.subscription for target in each.targets] for each in queue} == {
        "both": ["t"],
        "only t": ["t"],
    }
    queue.withdraw("nobody")
    assert len(queue) == 2
    queue.withdraw("t")
    assert len(queue) == 0
    assert queue.pop(0.0) is None
    assert queue.dropped() == []


@each_scheduler
def test_whole_numbers_are_times_too(make: type[Scheduler]) -> None:
    queue = make()
    queue.push(item("e", Target("s", 10, 1, 0), born_s=0, size_kb=1), 0)
    assert queue.expired(10) == []
    assert queue.pop(10) is not None
