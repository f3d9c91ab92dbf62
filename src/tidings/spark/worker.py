"""What runs on the executors: map a compiled snapshot, match Arrow batches against it, build the rows that come out.

Nothing here looks at the driver: a snapshot is found in its folder where that is shared, else among the files that Spark
fetched with the task. A loaded snapshot stays in the worker process, so a stream pays for it once per version, and the big files
are memory-mapped: all workers of a host share one copy.

Memory is bounded by CHUNK_PAIRS: a batch is cut so that about so many pairs are held at a time.
"""

import gc
import math
import mmap
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tidings.broker import catalog
from tidings.matching.base import Matcher
from tidings.model.value import TYPE
from tidings.spark.layout import Layout

ENDLESS_US = 1 << 61  # no deadline; leaves room to add a timestamp
CHUNK_PAIRS = 2_000_000
FIRST_CHUNK = 1_024
SUFFIXES = ("engine", "arrow", "dead")

Array = np.ndarray[Any, np.dtype[Any]]


class Part(NamedTuple):
    """Three files of one name: an engine, the terms of its subscriptions, and which slots of the base are dead."""

    name: str
    nbytes: int


class Shard(NamedTuple):
    base: Part
    delta: Part | None


class Snapshot(NamedTuple):
    """All that a worker needs to know to match: small, because it travels with every task."""

    engine: str
    folder: str
    homes: tuple[str, ...]
    shards: tuple[Shard, ...]


class Terms(NamedTuple):
    """By slot: what notifications say about a subscription."""

    id: pa.Array
    subscriber: pa.Array
    home: Array
    deadline_us: Array
    price: Array
    penalty: Array


class Loaded:
    """One shard, ready to match. Slots of the delta follow those of the base."""

    def __init__(self, base: Matcher, terms: Terms, dead: Array, delta: Matcher | None) -> None:
        self.base, self.terms, self.delta = base, terms, delta
        self.offset = len(base.ids)
        self.alive = np.ones(self.offset, bool)
        self.alive[dead] = False
        self.all_alive = not len(dead)

    def find(self, columns: Mapping[str, Any]) -> tuple[Array, Array]:
        """(event, slot) of every match, ordered by event."""
        events, slots = self.base.match_batch(columns)
        if not self.all_alive:
            alive = self.alive[slots]
            events, slots = events[alive], slots[alive]
        if self.delta is not None:
            more, new = self.delta.match_batch(columns)
            if len(more):
                events = np.concatenate([events, more])
                slots = np.concatenate([slots.astype(np.int64), new.astype(np.int64) + self.offset])
                order = np.argsort(events, kind="stable")
                events, slots = events[order], slots[order]
        return events, slots


def find_file(folder: str, name: str) -> str:
    """The file where the driver made it, if this host sees it, else the copy that came with the task."""
    path = Path(folder, name)
    if path.is_file():
        return str(path)
    from pyspark import SparkFiles

    return str(SparkFiles.get(name))


def mapped(path: str) -> memoryview:
    with open(path, "rb") as file:
        if not Path(path).stat().st_size:
            return memoryview(b"")
        return memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))


@lru_cache(maxsize=4)
def _engine(kind: str, folder: str, name: str) -> Matcher:
    engine = catalog.matcher(kind).load(mapped(find_file(folder, f"{name}.engine")))
    gc.freeze()  # Spark's workers collect garbage after every task, and an engine is none
    return engine


@lru_cache(maxsize=4)
def _terms(folder: str, name: str) -> pa.Table:
    return pa.ipc.open_file(pa.memory_map(find_file(folder, f"{name}.arrow"))).read_all()


@lru_cache(maxsize=4)
def load(kind: str, folder: str, shard: Shard) -> Loaded:
    """The shard as this process holds it; a change loads only the delta."""
    base = _engine(kind, folder, shard.base.name)
    table = _terms(folder, shard.base.name)
    dead: Array = np.empty(0, np.int64)
    delta = None
    if shard.delta is not None:
        delta = _engine(kind, folder, shard.delta.name)
        table = pa.concat_tables([table, _terms(folder, shard.delta.name)])
        dead = np.frombuffer(mapped(find_file(folder, f"{shard.delta.name}.dead")), np.int64)
    id, subscriber = (_one_chunk(table[name]) for name in ("id", "subscriber"))
    home, deadline, price, penalty = (
        _one_chunk(table[name]).to_numpy(zero_copy_only=False) for name in ("home", "deadline_us", "price", "penalty")
    )
    return Loaded(base, Terms(id, subscriber, home, deadline, price, penalty), dead, delta)


class Whole:
    """All shards of a snapshot, one after the other: for a step that must see all matches of an event together."""

    def __init__(self, snapshot: Snapshot) -> None:
        self.snapshot = snapshot
        terms = [self._shard(at).terms for at in range(len(snapshot.shards))]
        self.offsets = np.concatenate([[0], np.cumsum([len(each.home) for each in terms])])
        self.terms = terms[0] if len(terms) == 1 else _joined(terms)

    def _shard(self, at: int) -> Loaded:
        return load(self.snapshot.engine, self.snapshot.folder, self.snapshot.shards[at])

    def find(self, columns: Mapping[str, Any]) -> tuple[Array, Array]:
        if len(self.snapshot.shards) == 1:
            return self._shard(0).find(columns)
        found = [self._shard(at).find(columns) for at in range(len(self.snapshot.shards))]
        events = np.concatenate([rows for rows, _ in found])
        slots = np.concatenate([slots + offset for (_, slots), offset in zip(found, self.offsets, strict=False)])
        order = np.argsort(events, kind="stable")
        return events[order], slots[order]


@lru_cache(maxsize=2)
def whole(snapshot: Snapshot) -> Whole:
    return Whole(snapshot)


def _joined(terms: list[Terms]) -> Terms:
    arrows = (pa.concat_arrays([each[at] for each in terms]) for at in range(2))
    return Terms(*arrows, *(np.concatenate([each[at] for each in terms]) for at in range(2, len(Terms._fields))))


def _one_chunk(column: pa.ChunkedArray) -> pa.Array:
    return column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()


def attributes(batch: pa.RecordBatch, layout: Layout, type: str | None) -> dict[str, Any]:
    """The columns of a batch as the engine takes them."""
    columns: dict[str, Any] = {name: batch.column(column) for name, column in layout.columns.items()}
    open_values: dict[str, list[pa.Array]] = {}
    for column, keys in layout.maps.items():
        maps = batch.column(column)
        present = set(pc.unique(maps.keys).to_pylist()) if len(maps.keys) else set()
        for key in keys:
            if key in present and key not in columns:
                open_values.setdefault(key, []).append(pc.map_lookup(maps, key, "first"))
    for key, found in open_values.items():
        columns[key] = _merged(found)
    if type is not None:
        columns[TYPE] = batch.column(type)
    if not columns:  # an engine takes the number of events from its columns
        columns[TYPE] = pa.nulls(batch.num_rows, pa.string())
    return columns


def _merged(found: list[pa.Array]) -> Any:
    """One attribute that came in several kinds: whatever each event has."""
    found = [column for column in found if column.null_count < len(column)] or found[:1]
    if len(found) == 1:
        return found[0]
    merged = np.empty(len(found[0]), object)
    for column in found:
        for row, value in enumerate(column.to_pylist()):
            if value is not None:
                merged[row] = value
    return merged


def chunks(
    batch: pa.RecordBatch, loaded: Loaded | Whole, layout: Layout, type: str | None
) -> Iterator[tuple[pa.RecordBatch, Array, Array]]:
    """(events, event, slot) of a batch, cut so that CHUNK_PAIRS bounds what is held at a time."""
    start, size = 0, FIRST_CHUNK
    while start < batch.num_rows:
        part = batch.slice(start, size)
        events, slots = loaded.find(attributes(part, layout, type))
        yield part, events, slots
        start += part.num_rows
        size = max(1, int(CHUNK_PAIRS / max(len(events) / part.num_rows, 1)))


def due_us(events: Array, slots: Array, terms: Terms, born_us: Array, timeout_us: Array | None) -> Array:
    """dl = min(timeout, deadline) as an absolute time (mtep, eq. 1); ENDLESS_US and more where there is none."""
    allowed = terms.deadline_us[slots]
    if timeout_us is not None:
        allowed = np.minimum(allowed, timeout_us[events])
    return np.where(allowed >= ENDLESS_US, ENDLESS_US, allowed + born_us[events])


def instants(us: Array) -> pa.Array:
    """Microseconds since 1970 as Arrow timestamps; null where there is no end."""
    return pa.array(us, pa.int64(), mask=us >= ENDLESS_US).cast(pa.timestamp("us", "UTC"))


def microseconds(column: pa.Array) -> Array:
    """Arrow timestamps as microseconds since 1970; 0 for null."""
    kind = pa.timestamp("us", column.type.tz)
    return pc.fill_null(column.cast(kind).cast(pa.int64()), 0).to_numpy(zero_copy_only=False)  # type: ignore[no-any-return]


def timeouts_us(column: pa.Array) -> Array:
    """Seconds as microseconds; ENDLESS_US for null, NaN and infinity."""
    seconds = pc.fill_null(column.cast(pa.float64()), math.inf).to_numpy(zero_copy_only=False)
    with np.errstate(invalid="ignore", over="ignore"):
        us = seconds * 1e6
        return np.where(us < ENDLESS_US, np.rint(np.where(us < ENDLESS_US, us, 0)), ENDLESS_US).astype(np.int64)


@dataclass(frozen=True)
class MatchStep:
    """The function that `mapInArrow` runs for `match`: batches of events in, batches of notifications out."""

    snapshot: Snapshot
    layout: Layout
    kept: tuple[str, ...]
    wanted: tuple[str, ...]  # columns of the notification, see COLUMNS
    compact: bool
    type: str | None
    timestamp: str | None
    timeout_s: str | None
    shard: str | None = None

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for shard, events in self._by_shard(batch):
                loaded = load(self.snapshot.engine, self.snapshot.folder, self.snapshot.shards[shard])
                for part, rows, slots in chunks(events, loaded, self.layout, self.type):
                    if len(rows):
                        yield (
                            self._compact(part, rows, slots, loaded)
                            if self.compact
                            else self._pairs(part, rows, slots, loaded)
                        )

    def _by_shard(self, batch: pa.RecordBatch) -> Iterator[tuple[int, pa.RecordBatch]]:
        if self.shard is None:
            yield 0, batch
            return
        column = batch.column(self.shard)
        for shard in sorted(pc.unique(column).to_pylist()):
            yield shard, batch.filter(pc.equal(column, shard))

    def _pairs(self, part: pa.RecordBatch, rows: Array, slots: Array, loaded: Loaded) -> pa.RecordBatch:
        index = pa.array(rows)
        columns = [part.column(name).take(index) for name in self.kept]
        columns += [self._value(name, part, rows, slots, loaded) for name in self.wanted]
        return pa.RecordBatch.from_arrays(columns, names=[*self.kept, *self.wanted])

    def _compact(self, part: pa.RecordBatch, rows: Array, slots: Array, loaded: Loaded) -> pa.RecordBatch:
        counts = np.bincount(rows, minlength=part.num_rows)
        hit = np.flatnonzero(counts)
        offsets = pa.array(np.concatenate([[0], np.cumsum(counts[hit])]).astype(np.int32))
        index = pa.array(hit)
        columns = [part.column(name).take(index) for name in self.kept]
        columns += [
            pa.ListArray.from_arrays(offsets, self._value(name, part, rows, slots, loaded)) for name in self.wanted
        ]
        return pa.RecordBatch.from_arrays(columns, names=[*self.kept, *self.wanted])

    def _value(self, name: str, part: pa.RecordBatch, rows: Array, slots: Array, loaded: Loaded) -> pa.Array:
        terms = loaded.terms
        match name:
            case "subscription":
                return taken(terms.id, slots)
            case "subscriber":
                return terms.subscriber.take(pa.array(slots))
            case "home":
                return pa.array(self.snapshot.homes, pa.string()).take(pa.array(terms.home[slots]))
            case "dl":
                timeout = timeouts_us(part.column(self.timeout_s)) if self.timeout_s else None
                return instants(due_us(rows, slots, terms, microseconds(part.column(self.timestamp)), timeout))
            case "deadline_s":
                deadlines = terms.deadline_us[slots]
                return pa.array(deadlines / 1e6, mask=deadlines >= ENDLESS_US)
            case "price":
                return pa.array(terms.price[slots])
            case _:
                return pa.array(terms.penalty[slots])


def taken(ids: pa.Array, slots: Array) -> pa.Array:
    """The ids at these slots; integers go through NumPy, which is several times faster."""
    if pa.types.is_int64(ids.type) and not ids.null_count:
        return pa.array(ids.to_numpy()[slots])
    return ids.take(pa.array(slots))
