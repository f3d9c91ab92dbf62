"""boxtree beyond the contract that all engines share: doubt, snapshots that are mapped, and threads."""

import mmap
import queue
import random
import threading
from pathlib import Path

import numpy as np
import pytest

from tidings.errors import SnapshotError
from tidings.matching.base import Job
from tidings.matching.boxes import Boxes
from tidings.matching.boxtree import BoxTree, fields
from tidings.matching.naive import Naive
from tidings.model.event import Event
from tidings.model.filter import FAILS, SATISFIES, And, Attribute, Comparison, Constant, Filter, Op, Or, Predicate
from tidings.model.subscription import Region, Subscription


def sub(id: str, filter: Filter) -> Subscription:
    return Subscription(id, "ann", filter)


def event(**attributes: object) -> Event:
    return Event("e", "", attributes)


def maintain(engine: BoxTree) -> None:
    while job := engine.maintenance():
        job()


TEXTS = [
    "",
    "a",
    "ab",
    "abc",
    "abcde",
    "abcdef",
    "abcdeg",
    "abcdefg",
    "abcdefgh",
    "\0",
    "a\0",
    "ab\0",
    "é",
    "éa",
    "aé",
    "日本",
    "日本語",
]


@pytest.mark.parametrize("missing", [FAILS, SATISFIES])
@pytest.mark.parametrize("op", [Op.PREFIX, Op.SUFFIX, Op.LT, Op.GE, Op.EQ, Op.NE, Op.CONTAINS, Op.NOT_PREFIX], ids=str)
def test_strings_of_all_lengths(op: Op, missing: str) -> None:
    engine, oracle = BoxTree(missing), Naive(missing)
    for matcher in (engine, oracle):
        matcher.add_all([sub(repr(text), Predicate("s", op, text)) for text in TEXTS])
    for text in [*TEXTS, "zzz", "fedcba", 5, frozenset(["ab"])]:
        assert sorted(engine.match(event(s=text))) == sorted(oracle.match(event(s=text))), text
    assert sorted(engine.match(event())) == sorted(oracle.match(event()))


def test_what_a_box_says_exactly_is_not_verified() -> None:
    engine = BoxTree()
    engine.add(sub("numbers", And((Predicate("a", Op.GT, 1), Predicate("a", Op.LE, 2.5), Predicate("b", Op.NE, 3)))))
    engine.add(sub("strings", And((Predicate("s", Op.PREFIX, "abcdef"), Predicate("s", Op.SUFFIX, "z")))))
    engine.add(sub("lists", Predicate("a", Op.IN, frozenset([1, 2, 3]))))
    engine.add(sub("elements", Predicate("t", Op.SUPERSET, frozenset(["x", "y"]))))
    engine.add(sub("alternatives", Or((Predicate("a", Op.EQ, 1), Predicate("s", Op.EQ, "x")))))
    assert engine.indexed() == 1.0
    engine.add(sub("order", Predicate("s", Op.LT, "x")))
    engine.add(sub("long prefix", Predicate("s", Op.PREFIX, "abcdefg")))
    engine.add(sub("expression", Comparison(Op.GT, Attribute("a"), Constant(1))))
    assert engine.indexed() == 5 / 8


def test_only_the_doubtful_alternative_is_verified() -> None:
    """Who meets an exact box is found without looking at the condition, and once even if a doubtful box is met too."""
    engine = BoxTree()
    for number in range(300):
        engine.add(sub(str(number), Or((Predicate("a", Op.EQ, number), Predicate("s", Op.LIKE, f"%{number}")))))
    for _ in range(2):
        assert engine.match(event(a=7)) == ["7"]
        assert engine.match(event(a=7, s="x7")) == ["7"]
        assert sorted(engine.match(event(a=8, s="x17")), key=int) == ["7", "8", "17"]
        events, slots = engine.match_batch({"a": np.array([7, 8, 9]), "s": np.array(["x7", "x17", "none"])})
        found = [(int(row), engine.ids[slot]) for row, slot in zip(events, slots, strict=True)]
        assert sorted(found) == [(0, "7"), (1, "17"), (1, "7"), (1, "8"), (2, "9")]
        assert list(zip(events.tolist(), slots.tolist(), strict=True)) == sorted(
            zip(events.tolist(), slots.tolist(), strict=True)
        )
        engine = BoxTree.load(engine.snapshot())


@pytest.mark.parametrize("missing", [FAILS, SATISFIES])
def test_more_elements_than_have_dimensions(missing: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fields, "MAX_ELEMENTS", 5)
    monkeypatch.setattr(fields, "MAX_LENIENT_ELEMENTS", 5)
    engine, oracle = BoxTree(missing), Naive(missing)
    for matcher in (engine, oracle):
        for number in range(100):
            matcher.add(sub(f"c{number}", Predicate("t", Op.CONTAINS, number)))
            matcher.add(sub(f"s{number}", Predicate("t", Op.SUPERSET, frozenset([number, number // 2]))))
    for published in (
        event(t=frozenset([7, 3])),
        event(t=frozenset(range(50))),
        event(t=frozenset()),
        event(t=7),
        event(),
    ):
        assert sorted(engine.match(published)) == sorted(oracle.match(published))
    assert BoxTree.load(engine.snapshot()).match(event(t=frozenset([99]))) == engine.match(event(t=frozenset([99])))


def test_a_snapshot_is_mapped_and_shared(tmp_path: Path) -> None:
    engine = BoxTree()
    engine.add_all(
        [sub(f"s{n}", And((Predicate("a", Op.GE, n), Predicate("t", Op.EQ, f"t{n % 7}")))) for n in range(3_000)]
    )
    engine.add(sub("late", Predicate("a", Op.LT, 5)))
    engine.remove("s3")
    path = tmp_path / "engine"
    path.write_bytes(engine.snapshot())
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as mapped:
        first, second = BoxTree.load(memoryview(mapped)), BoxTree.load(memoryview(mapped))
        whole = np.frombuffer(mapped, np.uint8)
        for loaded in (first, second):
            largest = loaded._index.view.segments[0][1]
            assert all(np.shares_memory(array, whole) for array in (largest.arena, largest.rows, largest.slots))
            for value in (0, 4, 100, 5_000):
                assert loaded.match(event(a=value, t="t4")) == engine.match(event(a=value, t="t4"))
        first.remove("s4")
        first.add(sub("new", Predicate("a", Op.EQ, 4)))
        assert "s4" not in first.match(event(a=4, t="t4"))
        assert second.match(event(a=4, t="t4")) == engine.match(event(a=4, t="t4"))
        for number in range(2_500):
            first.add(sub(f"more {number}", Predicate("a", Op.EQ, number)))
            if number != 3:
                second.remove(f"s{number}")
        for loaded in (first, second):
            maintain(loaded)
        assert {"new", "more 4"} <= set(first.match(event(a=4)))
        assert second.match(event(a=2_999, t="t0")) == [
            id for id in engine.match(event(a=2_999, t="t0")) if int(id[1:]) >= 2_500
        ]
        del largest, loaded, first, second, whole
    assert path.read_bytes() == bytes(engine.snapshot())


def test_a_snapshot_may_begin_anywhere() -> None:
    engine = BoxTree()
    engine.add_all([sub(str(n), Predicate("a", Op.GE, n)) for n in range(500)])
    shifted = memoryview(b"!!!" + engine.snapshot())[3:]
    assert BoxTree.load(shifted).match(event(a=250)) == engine.match(event(a=250))


def test_a_snapshot_of_another_version_is_refused() -> None:
    with pytest.raises(SnapshotError, match="version"):
        BoxTree.load(b"tidings-boxtree2" + bytes(100))


def test_dimensions_made_after_loading() -> None:
    engine = BoxTree()
    engine.add(sub("a", Predicate("a", Op.EQ, 1)))
    loaded = BoxTree.load(engine.snapshot())
    loaded.add(sub("b", And((Predicate("b", Op.EQ, "x"), Predicate("c", Op.PREFIX, "y")))))
    assert loaded.match(event(b="x", c="yy")) == ["b"]
    region = Region((Predicate("b", Op.IN, frozenset(["x", "z"])), Predicate("c", Op.LT, "z")))
    assert sorted(loaded.match_region(region)) == ["a", "b"]


def test_every_match_sees_one_set() -> None:
    """One thread keeps exactly one or two neighbours of a row alive; whoever matches must see just that, whatever merges do."""
    engine = BoxTree()
    for number in range(3_000):
        engine.add(sub(f"other {number}", Predicate("b", Op.EQ, number)))
    engine.add(sub("0", Predicate("a", Op.GE, 0)))
    engine.match_batch({"a": np.ones(1)})  # compiles, if nobody has: the others need not wait for it
    jobs: queue.SimpleQueue[Job | None] = queue.SimpleQueue()
    done = threading.Event()
    wrong: list[object] = []
    looks = [0, 0, 0]

    def judge(ids: list[str]) -> None:
        numbers = sorted(map(int, ids))
        if len(numbers) not in (1, 2) or numbers[-1] - numbers[0] != len(numbers) - 1:
            wrong.append(ids)

    def look(thread: int) -> None:
        while not done.is_set():
            judge(engine.match(event(a=1)))
            looks[thread] += 1

    def look_at_many() -> None:
        while not done.is_set():
            view = engine._index.view  # keeps the slots from being given away before they are looked up
            events, slots = engine.match_batch({"a": np.ones(64)})
            for row in range(64):
                judge([engine.ids[slot] or "" for slot in slots[events == row].tolist()])
            del view
            looks[2] += 1

    def merge() -> None:
        while job := jobs.get():
            job()

    threads = [threading.Thread(target=look, args=(n,)) for n in (0, 1)]
    threads += [threading.Thread(target=look_at_many), threading.Thread(target=merge)]
    for thread in threads:
        thread.start()
    try:
        number = 0
        while number < 8_000 or min(looks) < 20:
            number += 1
            new_string = number % 97 == 0  # now and then, a dimension or a string that is new
            condition: Filter = Predicate("a", Op.GE, 0)
            if new_string:
                condition = Or((condition, Predicate(f"c{number % 5}", Op.EQ, f"text {number}")))
            engine.add(sub(str(number), condition))
            engine.remove(str(number - 1))
            if job := engine.maintenance():
                jobs.put(job)
            assert number < 2_000_000
    finally:
        done.set()
        jobs.put(None)
        for thread in threads:
            thread.join()
    assert not wrong
    while job := engine.maintenance():
        job()
    assert len(engine._index.view.deltas) == 1, "merges were taken over"


def test_replacing_is_one_step() -> None:
    engine = BoxTree()
    for number in range(200):
        engine.add(sub(str(number), Predicate("a", Op.EQ, number)))
    done = threading.Event()
    wrong: list[object] = []

    def look() -> None:
        while not done.is_set():
            found = engine.match(event(a=5, b=5))
            if found.count("5") != 1:
                wrong.append(found)

    thread = threading.Thread(target=look)
    thread.start()
    for number in range(3_000):
        name = "a" if number % 2 else "b"
        engine.add(sub("5", Predicate(name, Op.EQ, 5)))
        if job := engine.maintenance():
            job()
    done.set()
    thread.join()
    assert not wrong


def test_slots_do_not_grow_while_ids_come_and_go() -> None:
    engine, rng = BoxTree(), random.Random(1)
    for number in range(30_000):
        engine.add(sub(str(rng.randrange(500)), Predicate("a", Op.EQ, number)))
        if number % 500 == 0:
            maintain(engine)
    assert len(engine.ids) < 5_000


@pytest.mark.parametrize("missing", [FAILS, SATISFIES])
def test_columns_mean_what_their_filters_mean(missing: str) -> None:
    """Enough boxes for a segment: infinite and open ends, empty ranges, attributes that come twice, ids that are known."""
    rng = np.random.default_rng(7)
    edges = np.array([-np.inf, -1e300, -1.0, -0.0, 0.0, 1.0, 2.0, 2.0**53, 1e300, np.inf])
    counts = rng.integers(0, 4, 600)
    total = int(counts.sum())
    low, high = rng.choice(edges, total), rng.choice(edges, total)
    unbounded = ~np.isfinite(low) & ~np.isfinite(high)
    low[unbounded] = 0.0
    boxes = Boxes(
        ("a", "b", "c"),
        np.append(0, np.cumsum(counts)),
        rng.integers(0, 3, total).astype(np.int32),
        low,
        high,
        rng.random(total) < 0.5,
        rng.random(total) < 0.5,
    )
    ids = [str(number) for number in range(600)]
    engine, oracle = BoxTree(missing), Naive(missing)
    for matcher in (engine, oracle):
        matcher.add(sub("5", Predicate("a", Op.EQ, 1)))
        matcher.add_boxes(ids, boxes)
    for a in edges.tolist():
        for attributes in ({"a": a}, {"a": a, "b": 1.0, "c": 2**53 + 1}, {"b": a, "c": "text"}):
            assert sorted(engine.match(event(**attributes))) == sorted(oracle.match(event(**attributes)))
    for region in (Region((Predicate("a", Op.GE, 1), Predicate("b", Op.LT, 2))), Region((Predicate("c", Op.EQ, 0),))):
        assert sorted(engine.match_region(region)) == sorted(oracle.match_region(region))
