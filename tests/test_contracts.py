"""Every entry of the catalogs through one suite. Matching engines: all of them find what `naive` finds."""

import dataclasses
import importlib.util
import math
import os
import random
import threading
from collections.abc import Callable, Iterator
from typing import Any

import hypothesis.stateful as hs
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import matching_worlds as worlds
import strategies
from tidings.broker.catalog import MATCHERS
from tidings.errors import InvalidInput, SnapshotError, UnknownName
from tidings.matching.base import Matcher
from tidings.matching.boxes import Boxes
from tidings.matching.naive import Naive
from tidings.matching.scan import Scan
from tidings.model.event import Event
from tidings.model.filter import (
    FAILS,
    SATISFIES,
    And,
    Arithmetic,
    Attribute,
    Comparison,
    Constant,
    Op,
    Or,
    Predicate,
    conjunction,
    matches,
)
from tidings.model.subscription import Region, Subscription
from tidings.model.value import INT_MAX, INT_MIN

ENGINES: dict[str, type[Matcher]] = {**MATCHERS, Scan.name: Scan}
SOAK = bool(os.environ.get("TIDINGS_SOAK"))
MANY = 1_000_000

each_engine = pytest.mark.parametrize("engine", ENGINES.values(), ids=ENGINES.keys())
each_rule = pytest.mark.parametrize("missing", [FAILS, SATISFIES])
rules = st.sampled_from([FAILS, SATISFIES])
fewer = settings(max_examples=settings.default.max_examples // 3)  # of the examples that take long to draw


def sub(id: str, *parts: Any, types: tuple[str, ...] = ()) -> Subscription:
    return Subscription(id, "ann", conjunction(parts), types)


def event(type: str = "", **attributes: Any) -> Event:
    return Event("e", type, attributes)


def both(engine: type[Matcher], subscriptions: list[Subscription], missing: str = FAILS) -> tuple[Matcher, Naive]:
    """The engine, filled one by one and with its maintenance done, and the oracle."""
    matcher, oracle = engine(missing), Naive(missing)
    for subscription in subscriptions:
        matcher.add(subscription)
        oracle.add(subscription)
    maintain(matcher)
    return matcher, oracle


def maintain(matcher: Matcher) -> None:
    while (job := matcher.maintenance()) is not None:
        job()


many_subscriptions = st.lists(
    worlds.subscriptions(st.integers(0, 40).map(str)), min_size=1, max_size=25, unique_by=lambda found: found.id
)


@each_engine
@fewer
@given(rules, many_subscriptions, st.lists(worlds.events, min_size=1, max_size=8))
def test_finds_what_naive_finds(engine, missing, subscriptions, events):
    matcher, oracle = both(engine, subscriptions, missing)
    for published in events:
        assert sorted(matcher.match(published)) == sorted(oracle.match(published))


@each_engine
@fewer
@given(many_subscriptions, st.lists(worlds.events, min_size=1, max_size=4), st.data())
def test_all_at_once_is_the_same_as_one_by_one(engine, subscriptions, events, data):
    known = data.draw(st.lists(st.sampled_from(subscriptions), max_size=5))
    matcher, oracle = both(engine, known)
    matcher.add_all([*known, *subscriptions])
    for subscription in subscriptions:
        oracle.add(subscription)
    for published in events:
        assert sorted(matcher.match(published)) == sorted(oracle.match(published))


@each_engine
@fewer
@given(many_subscriptions, st.lists(worlds.regions, min_size=1, max_size=6))
def test_regions_meet_what_shares_a_point(engine, subscriptions, regions):
    matcher, oracle = both(engine, subscriptions)
    for region in regions:
        assert sorted(matcher.match_region(region)) == sorted(oracle.match_region(region))


@each_engine
@fewer
@given(st.lists(worlds.attributes.filter(bool), min_size=1, max_size=6), st.randoms(use_true_random=False))
def test_planted_matches_are_found(engine, planted, rng):
    """A filter made of what an event says must find that event among others."""
    subscriptions = [
        sub(str(number), *(_holds(name, value, rng) for name, value in attributes.items()))
        for number, attributes in enumerate(planted)
    ]
    matcher, oracle = both(engine, subscriptions)
    for number, attributes in enumerate(planted):
        found = matcher.match(event(**attributes))
        assert str(number) in found
        assert sorted(found) == sorted(oracle.match(event(**attributes)))


def _holds(name: str, value: Any, rng: random.Random) -> Predicate:
    choices = [Op.EXISTS]
    if isinstance(value, frozenset):
        choices += [Op.SUBSET, Op.SUPERSET]
    else:
        choices += [Op.EQ] if isinstance(value, bool) else [Op.EQ, Op.LE, Op.GE]
    if isinstance(value, str):
        choices += [Op.PREFIX, Op.SUFFIX, Op.CONTAINS]
    op = rng.choice(choices)
    return Predicate(name, op, None if op is Op.EXISTS else value)


EDGES = sorted(worlds.NUMBERS)


@each_engine
def test_bounds_are_hit_exactly(engine):
    """Every number of the world against every comparison with every other, all in one engine."""
    subscriptions = [sub(f"{op} {edge!r}", Predicate("a", op, edge)) for edge in EDGES for op in worlds.SCALARS]
    matcher, oracle = both(engine, subscriptions)
    for edge in EDGES:
        assert sorted(matcher.match(event(a=edge))) == sorted(oracle.match(event(a=edge)))


@each_engine
@pytest.mark.parametrize(
    ("text", "inside", "outside"),
    [
        ((Op.GE, -0.0), [0.0, -0.0, 5e-324], [-5e-324]),
        ((Op.GT, 0.0), [5e-324], [0.0, -0.0]),
        ((Op.GT, 2**53), [2**53 + 1, 2.0**53 + 2], [2**53, 2.0**53]),
        ((Op.EQ, 2**53 + 1), [2**53 + 1], [2**53, 2.0**53, 2**53 + 2]),
        ((Op.LE, INT_MAX), [INT_MAX, INT_MIN], [2.0**63, math.inf]),
        ((Op.LT, 2.0**63), [INT_MAX], [2.0**63]),
        ((Op.GE, INT_MIN), [INT_MIN, -(2.0**63)], [-math.inf]),
        ((Op.GT, -math.inf), [INT_MIN, -1e308], [-math.inf, "a", True]),
        ((Op.GE, -math.inf), [-math.inf, math.inf, 0], ["a", True]),
        ((Op.LE, math.inf), [-math.inf, math.inf, 0], ["a", False]),
        ((Op.GT, math.inf), [], [math.inf, 0]),
        ((Op.EQ, math.inf), [math.inf], [1e308, INT_MAX]),
        ((Op.EQ, 1), [1, 1.0], [True, "1", math.nextafter(1, 2)]),
        ((Op.EQ, True), [True], [1, 1.0, False]),
    ],
    ids=str,
)
def test_numbers_compare_by_exact_value(engine, text, inside, outside):
    matcher, _ = both(engine, [sub("s", Predicate("a", *text)), sub("other", Predicate("b", Op.EQ, 1))])
    for value in inside:
        assert matcher.match(event(a=value)) == ["s"], value
    for value in outside:
        assert matcher.match(event(a=value)) == [], value
    assert matcher.match(event()) == []


@each_engine
def test_open_and_closed_regions(engine):
    at, after = 1.0, math.nextafter(1, 2)
    subscriptions = [
        sub("below", Predicate("a", Op.LT, at)),
        sub("to", Predicate("a", Op.LE, at)),
        sub("from", Predicate("a", Op.GE, at)),
        sub("above", Predicate("a", Op.GT, at)),
        sub("at", Predicate("a", Op.EQ, at)),
        sub("elsewhere", Predicate("b", Op.EQ, 1)),
        sub("hidden", Predicate("a", Op.GT, at), Predicate("a", Op.LT, after)),
        sub("never", Predicate("a", Op.GT, at), Predicate("a", Op.LT, at)),
    ]
    matcher, oracle = both(engine, subscriptions)
    for predicates, expected in [
        ([(Op.GE, at)], ["to", "from", "above", "at", "elsewhere", "hidden"]),
        ([(Op.GT, at)], ["from", "above", "elsewhere", "hidden"]),
        ([(Op.LT, at)], ["below", "to", "elsewhere"]),
        ([(Op.EQ, 5)], ["from", "above", "elsewhere"]),
        ([(Op.GT, at), (Op.LT, after)], ["from", "above", "elsewhere", "hidden"]),
    ]:
        region = Region(tuple(Predicate("a", op, value) for op, value in predicates))
        assert sorted(matcher.match_region(region)) == sorted(oracle.match_region(region)) == sorted(expected)


@each_engine
def test_a_region_that_may_be_a_set_or_a_string(engine):
    """`NOT CONTAINS` of a string holds for sets and for strings; the set is what the two share here."""
    matcher, _ = both(engine, [sub("s", Predicate("c", Op.SUPERSET, frozenset([0])), Predicate("a", Op.LT, 0))])
    region = Region((Predicate("a", Op.LT, 0), Predicate("c", Op.NOT_CONTAINS, "")))
    assert matcher.match_region(region) == ["s"]


@each_engine
def test_very_many_identical_subscriptions(engine):
    """One million, loaded from columns; `naive`, which is slow by design, has to bear 20,000."""
    count = MANY if engine is not Naive else 20_000
    ids = list(map(str, range(count)))
    columns = [
        np.tile(column, count) for column in (np.array([0, 1], np.int32), np.array([3.0, 10.0]), np.array([3.0, 20.0]))
    ]
    boxes = Boxes(("kind", "size"), np.arange(count + 1) * 2, *columns, *np.zeros((2, 2 * count), bool))
    matcher = engine()
    matcher.add_boxes(ids, boxes)
    maintain(matcher)
    assert len(matcher) == count
    assert sorted(matcher.match(event(kind=3, size=20))) == sorted(ids)
    assert matcher.match(event(kind=3, size=20.5)) == []
    for id in ids[:20]:
        matcher.remove(id)
    matcher.add(sub("again", Predicate("kind", Op.EQ, 3)))
    assert len(matcher.match(event(kind=3, size=10))) == count - 19
    assert matcher.match(event(kind=3, size=9)) == ["again"]


@each_engine
def test_twenty_wide_ranges_each(engine):
    rng = np.random.default_rng(5)
    count, width = (300 if engine is Naive else 3_000), 20
    center = rng.random((count, width))
    low, high = center - rng.uniform(0.3, 0.9, (count, width)), center + rng.uniform(0.3, 0.9, (count, width))
    names = tuple(f"x{number}" for number in range(width))
    boxes = Boxes(
        names,
        np.arange(count + 1) * width,
        np.tile(np.arange(width, dtype=np.int32), count),
        low.ravel(),
        high.ravel(),
        rng.random(count * width) < 0.5,
        rng.random(count * width) < 0.5,
    )
    matcher = engine()
    matcher.add_boxes(list(map(str, range(count))), boxes)
    maintain(matcher)
    found = 0
    for values in [*rng.random((20, width)), low[0], high[1]]:
        expected = [
            str(box)
            for box in np.flatnonzero(((low <= values) & (values <= high)).all(1)).tolist()
            if matches(conjunction(boxes.predicates(box)), dict(zip(names, values.tolist(), strict=True)))
        ]
        assert sorted(matcher.match(event(**dict(zip(names, values.tolist(), strict=True))))) == sorted(expected)
        found += len(expected)
    assert found


@each_engine
@each_rule
def test_more_than_a_thousand_attributes(engine, missing):
    rng = random.Random(3)
    subscriptions = [
        sub(
            str(number),
            Predicate(f"a{number}", Op.GE, rng.random()),
            Predicate(f"a{rng.randrange(1_500)}", Op.LT, rng.random()),
            Predicate(f"a{rng.randrange(1_500)}", Op.EQ, rng.choice("xyz")),
        )
        for number in range(1_500)
    ]
    matcher, oracle = both(engine, subscriptions, missing)
    for share in (0.02, 0.5, 1.0):
        drawn = [number for number in range(1_500) if rng.random() < share]
        published = event(**{f"a{number}": rng.choice([rng.random(), 0.999, "x"]) for number in drawn})
        assert sorted(matcher.match(published)) == sorted(oracle.match(published))


@each_engine
def test_what_no_index_can_serve_is_served(engine):
    wide = Or(
        tuple(And((Predicate("a", Op.GT, n), Predicate("b", Op.LT, -n), Predicate("c", Op.NE, n))) for n in range(90))
    )
    larger = Comparison(Op.GT, Attribute("a"), Arithmetic("*", Attribute("b"), Constant(2)))
    matcher, _ = both(
        engine,
        [
            sub("all"),
            sub("larger", larger),
            sub("absent", Predicate("a", Op.MISSING)),
            sub("unlike", Predicate("s", Op.NOT_LIKE, "%x%")),
            sub("wide", wide),
            sub("both", Predicate("c", Op.EQ, 1), larger),
        ],
    )
    assert sorted(matcher.match(event())) == ["absent", "all"]
    assert sorted(matcher.match(event(a=5, b=2, c=1))) == ["all", "both", "larger"]
    assert sorted(matcher.match(event(a=5, b=-4, c=7))) == ["all", "larger", "wide"]
    assert sorted(matcher.match(event(s="abc"))) == ["absent", "all", "unlike"]


@each_engine
def test_a_disjunction_is_reported_once(engine):
    matcher, _ = both(
        engine, [sub("s", Or((Predicate("a", Op.GT, 1), Predicate("b", Op.GT, 1), Predicate("a", Op.GT, 0))))]
    )
    for published in (event(a=5, b=5), event(a=0.5), event(b=2, a=0)):
        assert matcher.match(published) == ["s"]
        assert matcher.find(matcher.encode(published.matchable())).tolist() == [matcher.slot_of("s")]
    assert matcher.match(event(a=0, b=1)) == []
    matcher.remove("s")
    assert matcher.match(event(a=5, b=5)) == []


@each_engine
def test_types_are_matched_with_the_filter(engine):
    matcher, _ = both(
        engine,
        [
            sub("quotes", types=("quote",)),
            sub("either", Predicate("a", Op.GT, 1), types=("quote", "trade")),
            sub("any", Predicate("a", Op.GT, 1)),
        ],
    )
    assert sorted(matcher.match(event("quote", a=2))) == ["any", "either", "quotes"]
    assert sorted(matcher.match(event("trade", a=2))) == ["any", "either"]
    assert sorted(matcher.match(event(a=2))) == ["any"]


@each_engine
def test_removed_replaced_and_back_again(engine):
    low, high = Predicate("a", Op.LT, 0), Predicate("a", Op.GT, 0)
    matcher, _ = both(engine, [sub("s", low), sub("t", low)])
    matcher.add(sub("s", high))
    assert matcher.match(event(a=1)) == ["s"]
    assert matcher.match(event(a=-1)) == ["t"]
    matcher.remove("s")
    maintain(matcher)
    assert "s" not in matcher
    assert matcher.match(event(a=1)) == []
    with pytest.raises(UnknownName):
        matcher.remove("s")
    matcher.add(sub("s", low))
    assert sorted(matcher.match(event(a=-1))) == ["s", "t"]
    for _ in range(3):
        matcher.remove("s")
        matcher.remove("t")
        assert len(matcher) == 0
        assert matcher.match(event(a=-1)) == []
        matcher.add_all([sub("t", low), sub("s", high)])
    assert matcher.match(event(a=1)) == ["s"]


@each_engine
def test_much_comes_and_goes(engine):
    """Far more changes than there are subscriptions at any time, with ever new names and strings."""
    rng = random.Random(11)
    matcher, oracle = engine(), Naive()
    kept = 60
    for number in range(2_500):
        name = f"n{number // 100}"
        subscription = sub(
            str(number),
            Predicate(name, Op.EQ, f"text {rng.randrange(5)} of {number // 100}"),
            Predicate("a", rng.choice([Op.LE, Op.GT]), rng.randrange(4)),
        )
        for each in (matcher, oracle):
            each.add(subscription)
            if number >= kept:
                each.remove(str(number - kept))
        if number % 100 == 99:
            maintain(matcher)
            for text in range(5):
                published = event(**{name: f"text {text} of {number // 100}", "a": rng.randrange(4)})
                assert sorted(matcher.match(published)) == sorted(oracle.match(published))


@each_engine
def test_ids_come_in_a_fixed_order(engine):
    first, second = engine(), engine()
    for matcher in (first, second):
        for number in range(50):
            matcher.add(sub(f"s{number}", Predicate("a", Op.GE, number % 7)))
        for number in range(0, 50, 3):
            matcher.remove(f"s{number}")
        matcher.add(sub("late", Predicate("a", Op.GE, 0)))
    assert first.match(event(a=5)) == second.match(event(a=5))


class ArrowLike:
    """What the core knows of an Arrow array, for where there is no Arrow."""

    def __init__(self, values: list[Any]) -> None:
        self._values = values

    def __len__(self) -> int:
        return len(self._values)

    def to_pylist(self) -> list[Any]:
        return list(self._values)


def _objects(values: list[Any]) -> Any:
    column = np.empty(len(values), object)
    column[:] = values
    return column


def _numpy(values: list[Any]) -> Any:
    """The dtype that fits, where one does: NaN or NaT for missing."""
    kinds = {type(value) for value in values if value is not None}
    if kinds <= {float}:
        return np.array([math.nan if value is None else value for value in values])
    if kinds == {int} and None not in values:
        return np.array(values, np.int64)
    if kinds == {bool} and None not in values:
        return np.array(values, bool)
    if kinds == {str} and None not in values and not any("\0" in value for value in values):
        return np.array(values)
    if kinds == {type(worlds.DATES[0])}:
        return np.array([None if value is None else value.replace(tzinfo=None) for value in values], "datetime64[us]")
    return _objects(values)


COLUMNS: dict[str, Callable[[list[Any]], Any]] = {"objects": _objects, "numpy": _numpy, "arrow-like": ArrowLike}
if importlib.util.find_spec("pyarrow"):

    def _arrow(values: list[Any]) -> Any:
        import pyarrow

        kinds = {type(value) for value in values if value is not None}
        if len(kinds) > 1 or frozenset in kinds:
            return ArrowLike(values)  # Arrow has one type per column, and no sets
        return pyarrow.array(values)

    COLUMNS["arrow"] = _arrow

one_kind = st.sampled_from(
    [
        *(
            st.floats(-3, 3) | worlds.numbers.map(float),
            st.sampled_from([0, 1, 2, 3, INT_MIN, INT_MAX]),
            strategies.strings(),
        ),
        *(worlds.dates, st.booleans(), worlds.numbers, worlds.values),
    ]
)


@st.composite
def batches(draw: st.DrawFn) -> dict[str, list[Any]]:
    length = draw(st.integers(0, 8))
    columns = {}
    for name in draw(st.lists(st.sampled_from([*worlds.NAMES, "$type"]), unique=True)):
        values = st.sampled_from(worlds.TYPES) if name == "$type" else draw(one_kind)
        values = values if name == "$type" or draw(st.booleans()) else values | st.none()
        columns[name] = draw(st.lists(values, min_size=length, max_size=length))
    return columns


@each_engine
@fewer
@given(rules, st.sampled_from(sorted(COLUMNS)), many_subscriptions, batches())
def test_a_batch_is_its_events_one_by_one(engine, missing, form, subscriptions, batch):
    column = COLUMNS[form]
    matcher, _ = both(engine, subscriptions, missing)
    indices, slots = matcher.match_batch({name: column(values) for name, values in batch.items()})
    count = len(next(iter(batch.values()), []))
    assert sorted(zip(indices.tolist(), slots.tolist(), strict=True)) == list(zip(indices, slots, strict=True))
    for index in range(count):
        attributes = {name: values[index] for name, values in batch.items() if values[index] is not None}
        published = Event("e", attributes.pop("$type", "none"), attributes)
        found = [matcher.ids[slot] for slot in slots[indices == index].tolist()]
        if "$type" in batch:
            assert found == matcher.match(published)
        expected = {
            subscription.id
            for subscription in subscriptions
            if matches(
                subscription.condition,
                published.matchable() if "$type" in batch else attributes,
                missing,
            )
        }
        assert sorted(found) == sorted(expected)


@each_engine
@fewer
@given(rules, many_subscriptions, st.lists(worlds.events, min_size=1, max_size=4), worlds.regions)
def test_a_snapshot_brings_everything_back(engine, missing, subscriptions, events, region):
    matcher, _ = both(engine, subscriptions, missing)
    loaded = engine.load(bytes(matcher.snapshot()))
    assert (loaded.missing, len(loaded)) == (missing, len(matcher))
    for published in events:
        assert loaded.match(published) == matcher.match(published)
    assert sorted(loaded.match_region(region)) == sorted(matcher.match_region(region))
    loaded.remove(subscriptions[0].id)
    loaded.add(sub("new", Predicate("a", Op.GE, 1)))
    matcher.remove(subscriptions[0].id)
    assert sorted(loaded.match(event(a=1))) == sorted([*matcher.match(event(a=1)), "new"])


@each_engine
def test_a_snapshot_of_nothing(engine):
    assert len(engine.load(engine().snapshot())) == 0


def _damaged(snapshot: bytes) -> Iterator[bytes]:
    yield b""
    yield b"something else entirely"
    yield snapshot[:-1]
    yield snapshot[: len(snapshot) // 2]
    yield snapshot + b"\0"
    for place in range(0, len(snapshot), max(1, len(snapshot) // 40)):
        yield snapshot[:place] + bytes([snapshot[place] ^ 1]) + snapshot[place + 1 :]


@each_engine
def test_a_damaged_or_foreign_snapshot_is_refused(engine):
    matcher, _ = both(
        engine,
        [
            sub(str(number), Predicate("a", Op.LT, number), Predicate("s", Op.SUFFIX, "x" * number))
            for number in range(5)
        ],
    )
    for snapshot in _damaged(bytes(matcher.snapshot())):
        with pytest.raises(SnapshotError):
            engine.load(snapshot)
    for other in ENGINES.values():
        if other is not engine:
            with pytest.raises(SnapshotError):
                engine.load(other().snapshot())


@each_engine
def test_boxes_are_refused_as_a_whole(engine):
    good = Boxes(
        ("a",), np.array([0, 1]), *(np.array([0], np.int32), np.array([1.0]), np.array([2.0])), *np.zeros((2, 1), bool)
    )
    for ids, bad in [
        (["s", "t"], good),
        (["s"], dataclasses.replace(good, pointers=np.array([0, 2]))),
        (["s"], dataclasses.replace(good, attribute=np.array([1], np.int32))),
        (["s"], dataclasses.replace(good, low=np.array([math.nan]))),
        (["s"], dataclasses.replace(good, low=np.array([-math.inf]), high=np.array([math.inf]))),
        (["s"], dataclasses.replace(good, high=np.array([1.0, 2.0]))),
    ]:
        matcher = engine()
        with pytest.raises(InvalidInput):
            matcher.add_boxes(ids, bad)
        assert len(matcher) == 0


@each_engine
@fewer
@given(st.data())
def test_boxes_mean_what_their_filters_mean(engine, data):
    edges = st.sampled_from(sorted(float(number) for number in worlds.NUMBERS))
    entries = st.tuples(st.integers(0, 2), edges, edges, st.booleans(), st.booleans())
    entries = entries.filter(lambda entry: math.isfinite(entry[1]) or math.isfinite(entry[2]))
    drawn = data.draw(st.lists(st.lists(entries, max_size=3), min_size=1, max_size=12))
    columns = list(zip(*(entry for box in drawn for entry in box), strict=True)) or [()] * 5
    boxes = Boxes(
        ("a", "b", "c"),
        np.cumsum([0, *map(len, drawn)]),
        *(np.array(column, dtype) for column, dtype in zip(columns, (np.int32, float, float, bool, bool), strict=True)),
    )
    matcher, oracle = engine(), Naive()
    ids = list(map(str, range(len(boxes))))
    matcher.add(sub("0", Predicate("a", Op.EQ, 1)))
    matcher.add_boxes(ids, boxes)
    oracle.add_all([boxes.subscription(number, id) for number, id in enumerate(ids)])
    for published in data.draw(st.lists(st.builds(event, a=worlds.numbers, b=worlds.numbers), min_size=1, max_size=5)):
        assert sorted(matcher.match(published)) == sorted(oracle.match(published))


class Changes(hs.RuleBasedStateMachine):
    """Add, replace, remove, match, maintain, save and load in any order: always what `naive` says."""

    engine: type[Matcher]
    missing = FAILS
    ids = st.integers(0, 15).map(str)

    def __init__(self) -> None:
        super().__init__()
        self.matcher, self.oracle = self.engine(self.missing), Naive(self.missing)

    @hs.rule(subscription=worlds.subscriptions(ids))
    def add(self, subscription):
        self.matcher.add(subscription)
        self.oracle.add(subscription)

    @hs.rule(subscriptions=st.lists(worlds.subscriptions(ids), max_size=6))
    def add_all(self, subscriptions):
        self.matcher.add_all(subscriptions)
        self.oracle.add_all(subscriptions)

    @hs.rule(id=ids)
    def remove(self, id):
        assert (id in self.matcher) == (id in self.oracle)
        if id in self.oracle:
            self.matcher.remove(id)
            self.oracle.remove(id)

    @hs.rule(published=worlds.events)
    def match(self, published):
        assert sorted(self.matcher.match(published)) == sorted(self.oracle.match(published))

    @hs.rule(region=worlds.regions)
    def meet(self, region):
        assert sorted(self.matcher.match_region(region)) == sorted(self.oracle.match_region(region))

    @hs.rule()
    def maintain(self):
        if (job := self.matcher.maintenance()) is not None:
            job()

    @hs.rule()
    def save_and_load(self):
        self.matcher = self.engine.load(bytes(self.matcher.snapshot()))

    @hs.invariant()
    def same_size(self):
        assert len(self.matcher) == len(self.oracle)


@each_engine
@each_rule
def test_any_sequence_of_changes(engine, missing):
    """Soak: 10,000 steps for each engine and rule."""
    machine = type("Changes", (Changes,), {"engine": engine, "missing": missing})
    steps = settings(max_examples=200 if SOAK else 8, stateful_step_count=50 if SOAK else 30, deadline=None)
    hs.run_state_machine_as_test(machine, settings=steps)


@pytest.mark.parametrize(
    "engine", [engine for engine in ENGINES.values() if engine.concurrent], ids=lambda engine: engine.name
)
def test_one_thread_changes_while_others_match(engine):
    """Stable subscriptions are always found, removed ones never after their removal, moving ones in one of their places."""
    matcher = engine()
    stable = {f"stable {number}" for number in range(300)}
    for id in stable:
        matcher.add(sub(id, Predicate("a", Op.GE, 0), Predicate("a", Op.LE, 10)))
    gone = [f"gone {number}" for number in range(50)]
    matcher.add_all([sub(id, Predicate("a", Op.GE, 0)) for id in gone])
    for id in gone:
        matcher.remove(id)
    done, failures, rounds = threading.Event(), [], [0, 0, 0]

    def look(thread: int) -> None:
        while not done.is_set():
            found = matcher.match(event(a=5))
            if len(set(found)) != len(found) or not stable <= set(found) or set(found) & set(gone):
                failures.append(found)
                return
            rounds[thread] += 1

    threads = [threading.Thread(target=look, args=(thread,)) for thread in range(len(rounds))]
    for thread in threads:
        thread.start()
    try:
        for number in range(6_000):
            matcher.add(sub(f"moving {number % 700}", Predicate("a", Op.GE, number % 10)))
            if number % 3 == 0:
                matcher.remove(f"moving {number % 700}")
            if number % 50 == 0 and (job := matcher.maintenance()) is not None:
                job()
    finally:
        done.set()
        for thread in threads:
            thread.join()
    assert not failures
    assert min(rounds) > 0
