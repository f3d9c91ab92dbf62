"""The event log: a folder of Arrow segments that only grows; events have offsets, and readers ask for ranges of them.

    log/schema.arrow                     what every segment holds
    log/00000000000000001000-250-w.arrow 250 events from offset 1,000 on, written by w

A segment appears whole, by one rename after a sync, or not at all. Writers take turns by a lock on the folder. A writer that may
be asked to write the same again (a streaming query after a crash) names what it writes, and a name that is there is not
written twice. Offsets come from the names: nothing is opened to learn how long the log is.
"""

import contextlib
import fcntl
import itertools
import os
import re
import secrets
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa

from tidings.errors import InvalidInput
from tidings.model.event import Event

_SEGMENT = re.compile(r"(\d{20})-(\d+)-([A-Za-z0-9._-]+)\.arrow")
_SCHEMA = "schema.arrow"
_SETS = {"string_sets": pa.string(), "number_sets": pa.float64()}

# Events of any attributes: one map column per kind of value.
OPEN_SCHEMA = pa.schema(
    [
        ("id", pa.string()),
        ("type", pa.string()),
        ("timestamp", pa.timestamp("us", "UTC")),
        ("timeout_s", pa.float64()),
        ("size_kb", pa.float64()),
        ("ints", pa.map_(pa.string(), pa.int64())),
        ("floats", pa.map_(pa.string(), pa.float64())),
        ("strings", pa.map_(pa.string(), pa.string())),
        ("bools", pa.map_(pa.string(), pa.bool_())),
        ("dates", pa.map_(pa.string(), pa.timestamp("us", "UTC"))),
        *((name, pa.map_(pa.string(), pa.list_(kind))) for name, kind in _SETS.items()),
    ]
)


class Segment(NamedTuple):
    first: int
    size: int
    name: str


class EventLog:
    """Append and read. `create` makes it, anything else expects it to be there."""

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        if not (self.path / _SCHEMA).is_file():
            raise InvalidInput(f"no event log at {path}")
        self._cached: pa.Schema | None = None

    @classmethod
    def create(cls, path: str | Path, schema: pa.Schema = OPEN_SCHEMA) -> "EventLog":
        """A new log, or the one that is there if its schema is the same."""
        folder = Path(path)
        folder.mkdir(parents=True, exist_ok=True)
        with _turn(folder):
            if not (folder / _SCHEMA).is_file():
                _write(folder / _SCHEMA, pa.Table.from_batches([], schema))
        log = cls(path)
        if not log.schema.equals(schema):
            raise InvalidInput(f"the event log at {path} has another schema: {_difference(log.schema, schema)}")
        return log

    @property
    def schema(self) -> pa.Schema:
        if self._cached is None:
            self._cached = pa.ipc.open_file(str(self.path / _SCHEMA)).schema
        return self._cached

    def segments(self) -> list[Segment]:
        """In order, without gap or overlap."""
        found = sorted(
            Segment(int(name[1]), int(name[2]), name[0])
            for name in map(_SEGMENT.fullmatch, os.listdir(self.path))
            if name is not None
        )
        expected = found[0].first if found else 0
        for segment in found:
            if segment.first != expected:
                raise InvalidInput(
                    f"the event log at {self.path} is damaged: offsets {expected} to {segment.first} are gone"
                )
            expected += segment.size
        return found

    def first(self) -> int:
        """The offset of the first event that is still there."""
        segments = self.segments()
        return segments[0].first if segments else 0

    def end(self) -> int:
        """The offset after the last event."""
        segments = self.segments()
        return segments[-1].first + segments[-1].size if segments else 0

    def append(self, table: pa.Table, name: str | None = None) -> int:
        """Make these rows safe and return the offset after them; a `name` that is there already is not written again."""
        try:
            table = table.select(self.schema.names).cast(self.schema)
        except (KeyError, ValueError, pa.ArrowException) as error:
            raise InvalidInput(f"these rows do not fit the event log at {self.path}: {error}") from None
        with _turn(self.path):
            segments = self.segments()
            first = segments[-1].first + segments[-1].size if segments else 0
            if name is not None:
                for segment in segments:
                    if segment.name.endswith(f"-{name}.arrow"):
                        return segment.first + segment.size
            if len(table):
                writer = name or secrets.token_hex(4)
                _write(self.path / f"{first:020d}-{len(table)}-{writer}.arrow", table)
            return first + len(table)

    def append_events(self, events: Iterable[Event], name: str | None = None) -> int:
        return self.append(table_of_events(events), name)

    def read(self, start: int, end: int) -> Iterator[pa.RecordBatch]:
        """The events from one offset to another."""
        segments = self.segments()
        at = max(0, bisect_right([segment.first for segment in segments], start) - 1)
        for segment in segments[at:]:
            if segment.first >= end:
                return
            table = pa.ipc.open_file(pa.memory_map(str(self.path / segment.name))).read_all()
            low = max(start - segment.first, 0)
            yield from table.slice(low, max(0, min(end - segment.first, segment.size) - low)).to_batches()

    def ranges(self, start: int, end: int, parts: int) -> list[tuple[int, int]]:
        return even_ranges(start, end, parts)


def even_ranges(start: int, end: int, parts: int) -> list[tuple[int, int]]:
    """The events from one offset to another in at most so many even ranges."""
    parts = max(1, min(parts, end - start))
    bounds = [start + (end - start) * part // parts for part in range(parts + 1)]
    return [(low, high) for low, high in itertools.pairwise(bounds) if low < high]


def table_of_events(events: Iterable[Event]) -> pa.Table:
    """Events as rows of OPEN_SCHEMA."""
    rows: list[dict[str, Any]] = []
    for event in events:
        row: dict[str, Any] = {name: {} for name in OPEN_SCHEMA.names[5:]}
        for name, value in event.attributes.items():
            row[_column_of(value)][name] = sorted(value) if isinstance(value, frozenset) else value
        row |= {"id": event.id, "type": event.type, "timestamp": int(event.timestamp_s * 1e6)}
        row |= {"timeout_s": event.timeout_s, "size_kb": event.size_kb}
        rows.append(row)
    columns = {
        field.name: pa.array(
            [list(row[field.name].items()) if pa.types.is_map(field.type) else row[field.name] for row in rows],
            field.type,
        )
        for field in OPEN_SCHEMA
    }
    return pa.table(columns, schema=OPEN_SCHEMA)


def _column_of(value: Any) -> str:
    match value:
        case bool():
            return "bools"
        case int():
            return "ints"
        case float():
            return "floats"
        case str():
            return "strings"
        case frozenset():
            return "string_sets" if isinstance(next(iter(value), ""), str) else "number_sets"
    return "dates"


def _write(path: Path, table: pa.Table) -> None:
    """All or nothing, also when the power goes."""
    fresh = path.with_name(f".{path.name}.{os.getpid()}")
    with open(fresh, "wb") as file:
        with pa.ipc.new_file(file, table.schema) as writer:
            writer.write_table(table, max_chunksize=65_536)
        file.flush()
        os.fsync(file.fileno())
    fresh.rename(path)
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


@contextlib.contextmanager
def _turn(folder: Path) -> Iterator[None]:
    with open(folder / ".lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _difference(have: pa.Schema, given: pa.Schema) -> str:
    columns: Sequence[str] = sorted({*have.names, *given.names})
    for name in columns:
        old = have.field(name).type if name in have.names else "nothing"
        new = given.field(name).type if name in given.names else "nothing"
        if old != new:
            return f"{name} is {old} there and {new} here"
    return "its columns are in another order"
