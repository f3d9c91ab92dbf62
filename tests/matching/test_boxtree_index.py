"""The numeric core of boxtree against the obvious loop over all boxes."""

import math

import numpy as np
import pytest

from boxtree_oracle import EVERYTHING, Box, Range, World, meets, pairs, point, rows
from tidings.matching.boxtree.batch import match_all
from tidings.matching.boxtree.index import BoxIndex
from tidings.matching.boxtree.rows import FAILS, IS_ZERO, PAIR_BYTES, PASSES, TAG_SHIFT
from tidings.matching.boxtree.scratch import Scratch


def no_doubt(slots: np.ndarray, context: None) -> np.ndarray:
    raise AssertionError(f"{slots} need not be verified")


ABSENT = {FAILS: None, PASSES: EVERYTHING, IS_ZERO: point(0.0)}


class Pair:
    """The index and the oracle, told the same."""

    def __init__(self, dims: int, absent: int = FAILS) -> None:
        self.index = BoxIndex(no_doubt)
        for _ in range(dims):
            self.index.dimension(absent)
        self.absent = ABSENT[absent]
        self.boxes: dict[int, list[Box]] = {}

    def add(self, boxes: list[Box]) -> int:
        slot = self.index.claim()
        assert slot not in self.boxes
        self.index.add(slot, [(rows(box), False) for box in boxes])
        self.boxes[slot] = boxes
        return slot

    def extend(self, slots: list[list[Box]]) -> None:
        flat = [rows(box) for boxes in slots for box in boxes]
        words = np.empty((sum(map(len, flat)), 3))
        every = [row for box in flat for row in box]
        if every:
            words[:, :2] = [row[:2] for row in every]
            words.view(np.int64)[:, 2] = [row[2] for row in every]
        pointers = np.cumsum([0, *map(len, flat)])
        owners = np.repeat(np.arange(len(slots), dtype=np.int32), [len(boxes) for boxes in slots])
        for slot, boxes in zip(self.index.extend(pointers, words.ravel(), owners).tolist(), slots, strict=True):
            assert slot not in self.boxes
            self.boxes[slot] = boxes

    def remove(self, slot: int) -> None:
        self.index.remove(slot)
        del self.boxes[slot]

    def merge(self) -> int:
        jobs = 0
        while job := self.index.maintenance():
            job()
            jobs += 1
        return jobs

    def expected(self, event: Box, region: bool = False) -> list[int]:
        absent = EVERYTHING if region else self.absent
        return sorted(slot for slot, boxes in self.boxes.items() if any(meets(box, event, absent) for box in boxes))

    def check(self, event: Box, region: bool = False) -> int:
        found = (self.index.find_region(pairs(event)) if region else self.index.find((pairs(event), None))).tolist()
        assert sorted(found) == self.expected(event, region), event
        return len(found)

    def check_many(self, events: list[Box]) -> None:
        packed = [pairs(event) for event in events]
        pointers = np.cumsum([0, *(len(event) // PAIR_BYTES for event in packed)])
        event_of, slots = self.index.find_many(np.frombuffer(b"".join(packed), np.int64), pointers)
        expected = [(number, slot) for number, event in enumerate(events) for slot in self.expected(event)]
        assert list(zip(event_of.tolist(), slots.tolist(), strict=True)) == expected


@pytest.mark.parametrize("absent", [FAILS, PASSES])
@pytest.mark.parametrize("seed", range(3))
def test_random_boxes_added_one_by_one_then_merged(seed: int, absent: int) -> None:
    world, pair = World(seed, dims=5), Pair(5, absent)
    for _ in range(300):
        pair.add([world.box()])
    events = [world.event() for _ in range(25)]
    assert sum(map(pair.check, events)) > 0
    for _ in range(2_500):
        pair.add([world.box()])
    for event in events[:5]:
        pair.check(event)
    assert pair.merge() > 0
    for event in events:
        pair.check(event)
    pair.check_many(events)


@pytest.mark.parametrize("seed", range(3))
def test_bulk_load_and_disjunctions(seed: int) -> None:
    world, pair = World(seed, dims=6), Pair(6)
    pair.extend([[world.box() for _ in range(world.random.choice([1, 1, 1, 2, 3]))] for _ in range(1_500)])
    for _ in range(200):
        pair.add([world.box() for _ in range(world.random.choice([1, 2, 5]))])
    events = [world.event() for _ in range(30)]
    for event in events:
        pair.check(event)
    pair.check_many(events)
    pair.check_many([])


@pytest.mark.parametrize("seed", range(4))
def test_regions(seed: int) -> None:
    world, pair = World(seed, dims=4), Pair(4)
    pair.extend([[world.box()] for _ in range(1_000)])
    for _ in range(300):
        pair.add([world.box()])
    for _ in range(60):
        pair.check(world.region(), region=True)


def test_bins_are_as_exact_as_codes() -> None:
    """More different bounds than there are codes."""
    world = World(5, dims=2)
    numbers = [
        world.random.choice([world.random.uniform(0, 1), world.random.uniform(0.5, 0.5001)]) for _ in range(40_000)
    ]
    world.numbers = numbers
    pair = Pair(2)
    pair.extend([[world.box()] for _ in range(12_000)])
    for number in world.random.choices(numbers, k=4):
        for near in (number, math.nextafter(number, 2), math.nextafter(number, -2)):
            event = {0: point(near), 1: point(world.random.choice(numbers))}
            pair.check(event)
            pair.check({0: Range(near, near + 1e-5, True, True)}, region=True)


def test_bounds_outside_of_what_codes_were_learned_from() -> None:
    """Boxes that are merged into a segment may have bounds that its codes do not know: all of them are learned anew."""
    pair = Pair(1)
    pair.extend([[{0: Range(float(k), k + 0.5)}] for k in range(2_000)])
    for k in range(1_100):
        pair.add([{0: Range(-10.0 - k, -9.5 - k, k % 2 == 0, k % 3 == 0)}])
    for value in (-20.0, -19.5, -19.75, -5.0, 3.0, 3.5, 3.75, -1e9, 1e9, -math.inf, math.inf):
        pair.check({0: point(value)})
    pair.merge()
    for value in (-20.0, -19.5, -19.75, -5.0, 3.0, 3.5, 3.75, -1e9, 1e9, -math.inf, math.inf):
        pair.check({0: point(value)})


def test_integers_between_floats_are_open_intervals() -> None:
    pair = Pair(1)
    big = 2.0**53
    pair.add([{0: Range(big, math.inf, True)}])
    pair.add([{0: Range(-math.inf, big)}])
    pair.add([{0: point(big)}])
    pair.add([{0: Range(-math.inf, big + 2, False, True)}])
    pair.add([{0: EVERYTHING._replace(excluded=(big,))}])
    for _ in range(2):
        assert pair.index.find((pairs({0: Range(big, big + 2, True, True)}), None)).tolist() == [0, 3, 4]
        pair.extend([[{0: Range(5.0, 6.0)}]] * 2_000)
        pair.merge()


def test_the_two_zeros_are_one_number() -> None:
    pair = Pair(1)
    for bound in (0.0, -0.0):
        pair.add([{0: point(bound)}])
        pair.add([{0: Range(bound, 1.0, True)}])
        pair.add([{0: EVERYTHING._replace(excluded=(bound,))}])
    pair.extend([[{0: point(bound)}] for bound in (0.0, -0.0) for _ in range(100)])
    for zero in (0.0, -0.0):
        assert pair.check({0: point(zero)}) == 202


def test_flags_are_zero_where_absent() -> None:
    pair = Pair(3, IS_ZERO)
    for dims in ((0,), (1,), (0, 1), (2,)):
        for value in (0.0, 1.0):
            pair.extend([[{dim: point(value) for dim in dims}]] * 40)
            pair.add([{dim: point(value) for dim in dims}])
    for event in ({}, {0: point(1.0)}, {1: point(1.0), 2: point(1.0)}, {0: point(1.0), 1: point(1.0), 2: point(1.0)}):
        pair.check(event)


def test_one_hundred_thousand_identical_boxes() -> None:
    pair = Pair(3)
    box = {0: Range(1.0, 2.0), 1: point(3.0)}
    pair.extend([[box]] * 100_000)
    everything = {0: point(1.5), 1: point(3.0), 2: point(0.0)}
    assert np.array_equal(np.sort(pair.index.find((pairs(everything), None))), np.arange(100_000))
    assert len(pair.index.find((pairs({0: point(2.5), 1: point(3.0)}), None))) == 0
    for slot in range(0, 100_000, 2):
        pair.index.remove(slot)
    for _ in range(2):
        assert np.array_equal(np.sort(pair.index.find((pairs(everything), None))), np.arange(1, 100_000, 2))
        pair.merge()


def test_twenty_wide_ranges() -> None:
    world = World(9, dims=20, numbers=[i / 37 for i in range(38)], rows=20)
    pair = Pair(20)

    def wide() -> Box:
        middle = world.random.choice(world.numbers)
        return {dim: Range(middle - 0.7, middle + 0.7) for dim in range(20)}

    pair.extend([[wide()] for _ in range(1_500)])
    for _ in range(15):
        pair.check(world.event(1.0))
    pair.check({})


def test_more_than_a_thousand_dimensions() -> None:
    world, pair = World(3, dims=5_000, rows=6), Pair(5_000)
    pair.extend([[world.box()] for _ in range(3_000)])
    for _ in range(1_500):
        pair.add([world.box()])
    for _ in range(2):
        for _ in range(5):
            pair.check(world.event(0.9))
            pair.check(world.event(0.01))
        pair.merge()
    new = pair.index.dimension()
    pair.add([{new: point(1.0)}])
    assert pair.check({new: point(1.0)}) >= 1


def test_boxes_with_more_rows_than_a_delta_takes() -> None:
    world, pair = World(4, dims=9_000), Pair(9_000)
    big = {dim: Range(-1.0, 1.0) for dim in range(9_000)}
    slot = pair.add([big])
    pair.add([{}])
    pair.add([{dim: Range(dim - 1.0, dim + 1.0)} for dim in range(1_200)])
    for event in (
        {dim: point(0.5) for dim in range(9_000)},
        {dim: point(2.0) for dim in range(9_000)},
        {},
        {7: point(7.0)},
    ):
        pair.check(event)
    pair.remove(slot)
    pair.merge()
    pair.check(world.event())
    assert pair.check({7: point(7.0)}) == 2


def test_an_event_with_dimensions_that_nobody_knows() -> None:
    pair = Pair(2)
    pair.add([{}])
    assert pair.index.find((pairs({0: point(1.0), 77: point(1.0)}), None)).tolist() == [0]


def test_slots_come_back_after_a_merge_and_never_before() -> None:
    pair = Pair(1)
    for k in range(3_000):
        pair.add([{0: point(float(k % 10))}])
    for slot in range(0, 3_000, 2):
        pair.remove(slot)
    assert pair.add([{0: point(1.0)}]) == 3_000
    held = pair.index.view
    pair.merge()
    assert pair.add([{0: point(1.0)}]) == 3_001, "a reader still holds a view from before the merge"
    del held
    assert pair.add([{0: point(1.0)}]) < 3_000
    for value in range(11):
        pair.check({0: point(float(value))})


def test_random_steps() -> None:
    """Adding, removing, bulk loading and merging in any order; merges that run while things change."""
    world, pair = World(21, dims=4), Pair(4)
    events = [world.event() for _ in range(10)]
    running = None
    for step in range(5_000):
        match world.random.randrange(12):
            case 0 | 1 | 2 | 3 | 4 | 5:
                pair.add([world.box() for _ in range(world.random.choice([1, 1, 1, 3]))])
            case 6 | 7 | 8 | 9 if pair.boxes:
                pair.remove(world.random.choice(list(pair.boxes)))
            case 10:
                if running is None:
                    running = pair.index.maintenance()
                else:
                    running()
                    running = None
            case 11 if step % 50 == 0:
                pair.extend([[world.box()] for _ in range(500)])
        if step % 250 == 0:
            pair.check_many(events[:4])
    if running:
        running()
    pair.merge()
    for event in events:
        pair.check(event)
    assert len(pair.index.view.segments) <= 8


def test_removals_during_a_merge_do_not_come_back() -> None:
    pair = Pair(1)
    for _ in range(2_100):
        pair.add([{0: point(1.0)}, {0: point(2.0)}])
    job = pair.index.maintenance()
    assert job is not None
    for slot in range(700):
        pair.remove(slot)
    job()
    for slot in range(700, 900):
        pair.remove(slot)
    pair.check({0: point(2.0)})
    settle = pair.index.maintenance()
    assert settle is not None
    for slot in range(900, 1_000):
        pair.remove(slot)
    pair.check({0: point(1.0)})
    settle()
    for slot in range(1_000, 1_100):
        pair.remove(slot)
    pair.merge()
    assert pair.check({0: point(1.0)}) == 1_000


def test_a_merge_that_fails_changes_nothing() -> None:
    pair = Pair(1)
    for k in range(1_500):
        pair.add([{0: point(float(k))}])
    assert pair.index.maintenance() is not None
    merge = pair.index._merge
    assert merge is not None
    job = pair.index._job(lambda: 1 / 0, pair.index._take_over)  # type: ignore[arg-type]
    with pytest.raises(ZeroDivisionError):
        job()
    pair.check({0: point(7.0)})
    assert pair.merge() > 0
    pair.check({0: point(7.0)})


def test_without_maintenance_everything_is_found() -> None:
    pair = Pair(2)
    for k in range(5_000):
        pair.add([{0: point(float(k % 100)), 1: Range(float(k), math.inf)}])
    assert len(pair.index.view.deltas) == 5
    assert pair.check({0: point(7.0), 1: point(3_000.0)}) > 0


def test_a_batch_does_not_look_at_dimensions_made_after_it_began() -> None:
    """It has room for those that it knows; the delta that it reads may get a column of a later one meanwhile."""
    pair = Pair(1)
    slot = pair.add([{0: point(1.0)}])
    index = pair.index
    _view, table, _alive = index._captured()
    absent = index._absent_entries()
    later = 1 << 30  # so far out that reading there cannot go unnoticed
    index.add(index.claim(), [([(0.0, 1.0, later << TAG_SHIFT)], False)])
    event = np.frombuffer(pairs({0: point(1.0)}), np.int64).copy()
    events, slots = match_all(table, absent, Scratch(index._root), event, np.array([0, 1]))
    assert (events.tolist(), slots.tolist()) == ([0], [slot])
