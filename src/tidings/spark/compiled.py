"""Subscriptions compiled for the workers: one engine snapshot and one table of terms per shard, as files that workers map.

Files are made on the driver and named by a fresh number, so a name never means two things. Executors on the driver's machine, or
with a shared `folder`, map them where they are, one copy in memory per host; elsewhere Spark fetches them with the task
(`addFile`). A change does not touch the big files: what was added or changed since goes into a small second engine, what was
removed or replaced into a list of dead slots; when that delta outgrows its share of the base, the base engine takes it in (by the
engine's own add and remove, not by parsing again) and is written anew.

Cost of a change: the changed rows and the size of the delta, not the number of subscriptions.
"""

import atexit
import math
import secrets
import shutil
import tempfile
import zlib
from collections import deque
from collections.abc import Iterable, Sequence
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pyarrow as pa

from tidings.broker import catalog
from tidings.errors import InvalidInput
from tidings.matching.base import Matcher
from tidings.model.filter import FAILS, names
from tidings.spark.session import is_local
from tidings.spark.subscriptions import Problem, parsed
from tidings.spark.worker import ENDLESS_US, SUFFIXES, Part, Shard, Snapshot, find_file, mapped

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SHARE_BYTES = 4 << 30  # of one shard: what a worker is expected to map
DELTA_SHARE = 0.05  # of the base, before the base takes the delta in
MIN_DELTA = 5_000
KEPT = 16  # files that are kept although newer ones replace them
_SAMPLE = 20_000


class _Row(NamedTuple):
    """What notifications need of a subscription besides its id."""

    id: Any
    subscriber: str
    home: int
    deadline_us: int
    price: float
    penalty: float


class _Half:
    """An engine on the driver, and the rows of its subscriptions."""

    def __init__(self, engine: Matcher) -> None:
        self.engine = engine
        self.rows: dict[str, _Row] = {}

    def put(self, subscription: Any, row: _Row) -> None:
        self.engine.add(subscription)
        self.rows[subscription.id] = row

    def drop(self, id: str) -> None:
        self.engine.remove(id)
        del self.rows[id]


class _ShardState:
    def __init__(self, make: Any) -> None:
        self.make = make
        self.base = _Half(make())
        self.delta = _Half(make())
        self.pending: dict[str, Any] = {}  # id -> parsed subscription in the delta, for the day the base takes it in
        self.dead: dict[str, None] = {}  # ids of the base that are no longer to be found there
        self.part: Part | None = None
        self.slots: dict[str, int] = {}  # where the ids of the base are in its file


class Compiler:
    """Keeps the compiled form of one subscriptions table in step with its changes, on the driver."""

    def __init__(
        self,
        spark: "SparkSession",
        *,
        engine: str | None = None,
        missing: str = FAILS,
        shards: int | None = None,
        share_bytes: int = SHARE_BYTES,
        folder: str | None = None,
    ) -> None:
        self.spark = spark
        self.engine = engine or catalog.DEFAULT_MATCHER
        self.missing = missing
        self.share_bytes = share_bytes
        self.folder = folder or _own_folder()
        self.problems: list[Problem] = []
        self.attributes: dict[str, None] = {}  # that any filter asks for
        self.id_type = pa.string()
        self.shards = shards  # as asked for
        self._states: list[_ShardState] = []
        self._homes: dict[str, int] = {}
        self._ship = not (folder or is_local(spark.sparkContext.master))
        self._made: Snapshot | None = None
        self._written: deque[str] = deque()

    @property
    def homes(self) -> tuple[str, ...]:
        return tuple(self._homes)

    @property
    def snapshot(self) -> Snapshot:
        """The newest, for the workers. Files are written when it is first asked for, so that checks come before writing."""
        if not self._states:
            raise InvalidInput("no subscriptions are loaded yet")
        if self._made is None:
            for state in self._states:
                self._write_base(state)
            self._made = self._snapshot([None] * len(self._states))
        return self._made

    def __len__(self) -> int:
        return sum(len(state.base.rows) - len(state.dead) + len(state.delta.rows) for state in self._states)

    def load(self, table: pa.Table) -> None:
        """Compile a whole table (in the normal form of `subscriptions.py`)."""
        self.problems.clear()
        self.id_type = table.schema.field("id").type
        count = self.shards or self._shards_for(table)
        make = catalog.matcher(self.engine)
        self._states = [_ShardState(lambda: make(self.missing)) for _ in range(count)]
        rows = self._rows(table)
        if count == 1:
            self._fill(self._states[0].base, self._usable(table, rows))
        else:
            usable: list[list[Any]] = [[] for _ in range(count)]
            for subscription, row in self._usable(table, rows):
                usable[shard_of(subscription.id, count)].append((subscription, row))
            for state, items in zip(self._states, usable, strict=True):
                self._fill(state.base, items)
        self._made = None

    def whole_parts(self) -> list[Part] | None:
        """The files that hold everything; None while some of it is in deltas."""
        shards = self.snapshot.shards
        return None if any(shard.delta for shard in shards) else [shard.base for shard in shards]

    def adopt(
        self,
        parts: Sequence[Part],
        id_type: str,
        homes: Sequence[str],
        attributes: Iterable[str],
        problems: Iterable[Problem],
    ) -> None:
        """Take what was compiled before, from files in the folder."""
        self.problems[:] = problems
        self.id_type = pa.int64() if id_type == str(pa.int64()) else pa.string()
        self._homes = {home: number for number, home in enumerate(homes)}
        self.attributes = dict.fromkeys(attributes)
        make = catalog.matcher(self.engine)
        self._states = [_ShardState(lambda: make(self.missing)) for _ in parts]
        for state, part in zip(self._states, parts, strict=True):
            state.base.engine = make.load(mapped(find_file(self.folder, f"{part.name}.engine")))
            terms = pa.ipc.open_file(pa.memory_map(find_file(self.folder, f"{part.name}.arrow"))).read_all()
            rows = map(_Row, *(terms[name].to_pylist() for name in _Row._fields))
            state.base.rows = {str(row.id): row for row in rows if row.id is not None}
            state.part, state.slots = part, state.base.engine.slots.copy()
            self._shipped(part.name)
        self._snapshot([None] * len(parts))

    def change(self, added: pa.Table, removed: Iterable[Any]) -> Snapshot:
        """Add or replace the rows of `added` and forget `removed`. A row that cannot be used changes nothing."""
        made = self.snapshot
        self.problems.clear()
        touched: set[int] = set()
        for id in map(str, removed):
            touched.add(self._forget(id))
        rows = self._rows(added)
        for subscription, row in self._usable(added, rows):
            at = self._forget(subscription.id)
            touched.add(at)
            self._states[at].delta.put(subscription, row)
            self._states[at].pending[subscription.id] = subscription
        deltas: list[Shard | None] = list(made.shards)
        for at in sorted(touched):
            deltas[at] = self._rewritten(self._states[at])
        return self._snapshot(deltas)

    def _forget(self, id: str) -> int:
        at = shard_of(id, len(self._states))
        state = self._states[at]
        if id in state.delta.rows:
            state.delta.drop(id)
            del state.pending[id]
        if id in state.base.rows:
            state.dead[id] = None
        return at

    def _rewritten(self, state: _ShardState) -> Shard:
        if len(state.delta.rows) + len(state.dead) > max(MIN_DELTA, DELTA_SHARE * len(state.base.rows)):
            for id in state.dead:
                state.base.drop(id)
            self._fill(state.base, ((wanted, state.delta.rows[id]) for id, wanted in state.pending.items()))
            state.delta, state.pending, state.dead = _Half(state.make()), {}, {}
            self._write_base(state)
        assert state.part is not None
        if not state.delta.rows and not state.dead:
            return Shard(state.part, None)
        dead = np.array([state.slots[id] for id in state.dead], np.int64)
        return Shard(state.part, self._write(state.delta, dead)[0])

    def _fill(self, half: _Half, items: Iterable[tuple[Any, _Row]]) -> None:
        def noted() -> Iterable[Any]:
            for subscription, row in items:
                half.rows[subscription.id] = row
                yield subscription

        half.engine.add_all(noted())

    def _usable(self, table: pa.Table, rows: Sequence[_Row]) -> Iterable[tuple[Any, _Row]]:
        for at, subscription in parsed(table, self.problems):
            for name in names(subscription.filter):
                self.attributes[name] = None
            yield subscription, rows[at]

    def _rows(self, table: pa.Table) -> list[_Row]:
        homes = [self._homes.setdefault(home, len(self._homes)) for home in table["home"].to_pylist()]
        columns = (table[name].to_pylist() for name in ("id", "subscriber", "deadline_s", "price", "penalty"))
        return [
            _Row(id, subscriber, home, _microseconds(deadline_s), price, penalty)
            for home, id, subscriber, deadline_s, price, penalty in zip(homes, *columns, strict=True)
        ]

    def _shards_for(self, table: pa.Table) -> int:
        if len(table) <= _SAMPLE:
            return 1
        engine = catalog.matcher(self.engine)(self.missing)
        engine.add_all(subscription for _, subscription in parsed(table.slice(0, _SAMPLE), []))
        return max(1, math.ceil(len(engine.snapshot()) / _SAMPLE * len(table) / self.share_bytes))

    def _write_base(self, state: _ShardState) -> None:
        while (job := state.base.engine.maintenance()) is not None:
            job()
        state.part, state.slots = self._write(state.base)

    def _write(self, half: _Half, dead: np.ndarray | None = None) -> tuple[Part, dict[str, int]]:
        """The files of one half, and which slot each id has for whoever loads them."""
        Path(self.folder).mkdir(parents=True, exist_ok=True)
        name = f"tidings-{secrets.token_hex(8)}"
        files = [Path(self.folder, f"{name}.{suffix}") for suffix in SUFFIXES]
        buffer = half.engine.snapshot()
        files[0].write_bytes(buffer)
        seen = type(half.engine).load(buffer)
        nobody = _Row(None, "", 0, 0, 0.0, 0.0)
        rows = [nobody if id is None else half.rows[id] for id in seen.ids]
        columns = list(zip(*rows, strict=True)) or [()] * len(_Row._fields)
        kinds = (self.id_type, pa.string(), pa.int32(), pa.int64(), pa.float64(), pa.float64())
        terms = pa.table(
            {field: pa.array(column, kind) for field, column, kind in zip(_Row._fields, columns, kinds, strict=True)}
        )
        with pa.OSFile(str(files[1]), "wb") as sink, pa.ipc.new_file(sink, terms.schema) as file:
            file.write_table(terms.combine_chunks())
        files[2].write_bytes(np.empty(0, np.int64).tobytes() if dead is None else dead.tobytes())
        self._shipped(name)
        return Part(name, len(buffer)), seen.slots

    def _shipped(self, name: str) -> None:
        self._written.append(name)
        for path in Path(self.folder).glob(f"{name}.*") if self._ship else ():
            self.spark.sparkContext.addFile(str(path))

    def _snapshot(self, shards: Sequence[Shard | None]) -> Snapshot:
        full = []
        for state, shard in zip(self._states, shards, strict=True):
            assert state.part is not None
            full.append(shard or Shard(state.part, None))
        self._made = Snapshot(self.engine, self.folder, self.homes, tuple(full))
        self._tidy()
        return self._made

    def _tidy(self) -> None:
        """Remove what no snapshot of the last few uses: batches that still run may use the one before.

        Not what Spark ships: an executor that joins later fetches every file that was ever added.
        """
        assert self._made is not None
        if self._ship:
            return
        used = {part.name for shard in self._made.shards for part in shard if part is not None}
        for name in [name for name in list(self._written)[:-KEPT] if name not in used]:
            self._written.remove(name)
            for suffix in SUFFIXES:
                Path(self.folder, f"{name}.{suffix}").unlink(missing_ok=True)


def shard_of(id: str, shards: int) -> int:
    return zlib.crc32(id.encode()) % shards if shards > 1 else 0


def _microseconds(deadline_s: float | None) -> int:
    if deadline_s is None or deadline_s != deadline_s or deadline_s * 1e6 >= ENDLESS_US:
        return ENDLESS_US
    return round(deadline_s * 1e6)


@cache
def _own_folder() -> str:
    folder = tempfile.mkdtemp(prefix="tidings-compiled-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return folder
