"""What the executors do with one partition of a micro-batch: set aside what does not fit, match, schedule, write Parquet.

One pass: the rows of the three tables (notifications, accounts of what expired, quarantine) are written where they arise, into
the staging folder of this run and batch, and only counts go back to the driver. A file is named by its partition and appears
by a rename, so a task that Spark runs again, or twice, leaves the same one file.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from tidings.broker.ledger import Account
from tidings.scheduling.base import DEADLINE_PASSED, TIMED_OUT
from tidings.spark.layout import ACCOUNTS, NOTIFICATIONS_VERSION, QUARANTINE, Layout
from tidings.spark.place import Place
from tidings.spark.schedule import Figures, Links, Pairs, Parameters, figures, order
from tidings.spark.worker import (
    ENDLESS_US,
    Array,
    Snapshot,
    Whole,
    chunks,
    due_us,
    instants,
    microseconds,
    taken,
    timeouts_us,
    whole,
)

NO_CHANCE = "cannot arrive in time"
REASON, ORIGINAL = "$reason", "$original"
ID, KIND, BORN, TIMEOUT, SIZE = "$id", "$type", "$timestamp", "$timeout_s", "$size_kb"
COUNTS = ("events", "quarantined", "matched", "sent", "expired")
SUMMARY = ", ".join([*(f"{name} long" for name in COUNTS), "newest_us long", "files array<string>"])
NEVER_US = -(1 << 62)


@dataclass(frozen=True)
class Stage:
    """The function that `mapInArrow` runs for a micro-batch."""

    snapshot: Snapshot
    layout: Layout
    links: Links
    parameters: Parameters
    out: Place
    staging: str
    version: int
    now_us: int | None  # None: every event is judged at its own time
    kept: tuple[str, ...]
    compact: bool
    has_timestamp: bool
    default_size_kb: float

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        from pyspark import TaskContext

        context: Any = TaskContext.get()
        files = _Files(self.out, self.staging, f"part-{context.partitionId() if context else 0:05d}.parquet")
        counts = dict.fromkeys(COUNTS, 0)
        newest = NEVER_US
        with files:
            loaded = whole(self.snapshot)
            for batch in batches:
                counts["events"] += batch.num_rows
                batch = self._set_aside(batch, files, counts)
                if batch.num_rows and self.has_timestamp:
                    newest = max(newest, int(microseconds(batch.column(BORN)).max()))
                for part, rows, slots in chunks(batch, loaded, self.layout, KIND):
                    self._scheduled(part, rows, slots, loaded, files, counts)
        arrays = [pa.array([counts[name]], pa.int64()) for name in COUNTS]
        arrays += [pa.array([newest], pa.int64()), pa.array([files.names], pa.list_(pa.string()))]
        yield pa.RecordBatch.from_arrays(arrays, names=[*COUNTS, "newest_us", "files"])

    def _set_aside(self, batch: pa.RecordBatch, files: "_Files", counts: dict[str, int]) -> pa.RecordBatch:
        reasons = batch.column(REASON)
        if reasons.null_count == len(reasons):
            return batch
        bad = batch.filter(pc.is_valid(reasons))
        counts["quarantined"] += bad.num_rows
        at = pa.array([self.now_us] * bad.num_rows, pa.int64()).cast(pa.timestamp("us", "UTC"))
        files.write(
            "quarantine",
            pa.Table.from_arrays([bad[REASON], bad[ID].cast(pa.string()), bad[ORIGINAL], at], schema=QUARANTINE),
        )
        return batch.filter(pc.is_null(reasons))

    def _scheduled(
        self, part: pa.RecordBatch, rows: Array, slots: Array, loaded: Whole, files: "_Files", counts: dict[str, int]
    ) -> None:
        if not len(rows):
            return
        terms = loaded.terms
        born_us = microseconds(part.column(BORN)) if self.has_timestamp else np.full(part.num_rows, self.now_us or 0)
        timeout_us = timeouts_us(part.column(TIMEOUT))
        due = due_us(rows, slots, terms, born_us, timeout_us)
        judged = born_us[rows] if self.now_us is None else self.now_us
        left_s = np.where(due >= ENDLESS_US, np.inf, (due - judged) / 1e6)
        pairs = Pairs(rows, terms.home[slots], left_s, terms.price[slots], terms.penalty[slots])
        size_kb = pc.fill_null(part.column(SIZE), self.default_size_kb).to_numpy(zero_copy_only=False)
        found = figures(pairs, size_kb, self.links, self.parameters)
        counts["matched"] += len(rows)
        counts["sent"] += int(found.sent.sum())
        counts["expired"] += len(rows) - int(found.sent.sum())
        at = order(pairs, found, found.sent)
        if len(at):
            build = self._copies if self.compact else self._pairs
            files.write("notifications", build(part, rows, slots, loaded, due, pairs, found, at))
        lost = np.flatnonzero(~found.sent)
        if len(lost):
            age_s = (judged - born_us[rows])[lost] / 1e6
            timed_out = (pairs.left_s < 0)[lost] & (age_s * 1e6 > timeout_us[rows[lost]])
            files.write(
                "accounts",
                self._expired(part, rows[lost], slots[lost], loaded, age_s, timed_out, pairs.left_s[lost] < 0),
            )

    def _pairs(
        self,
        part: pa.RecordBatch,
        rows: Array,
        slots: Array,
        loaded: Whole,
        due: Array,
        pairs: Pairs,
        found: Figures,
        at: Array,
    ) -> pa.Table:
        event, copy = pa.array(rows[at]), found.copy[at]
        columns = {
            **self._event(part, event),
            **{name: part.column(name).take(event) for name in self.kept},
            "subscription": taken(loaded.terms.id, slots[at]),
            "subscriber": loaded.terms.subscriber.take(pa.array(slots[at])),
            "home": self._homes(pairs.home[at]),
            "dl": instants(due[at]),
            "price": pa.array(pairs.price[at]),
            "penalty": pa.array(pairs.penalty[at]),
            "success": pa.array(found.success[at]),
            **self._sums(found, copy),
        }
        return self._stamped(columns, len(at))

    def _copies(
        self,
        part: pa.RecordBatch,
        rows: Array,
        slots: Array,
        loaded: Whole,
        due: Array,
        pairs: Pairs,
        found: Figures,
        at: Array,
    ) -> pa.Table:
        """One row per copy, with an array per column that differs between its subscriptions."""
        copy = found.copy[at]
        starts = np.flatnonzero(np.concatenate([[True], copy[1:] != copy[:-1]]))
        offsets = pa.array(np.append(starts, len(copy)).astype(np.int32))
        event = pa.array(rows[at[starts]])

        def listed(values: pa.Array) -> pa.Array:
            return pa.ListArray.from_arrays(offsets, values)

        columns = {
            **self._event(part, event),
            **{name: part.column(name).take(event) for name in self.kept},
            "home": self._homes(pairs.home[at[starts]]),
            "subscriptions": listed(taken(loaded.terms.id, slots[at])),
            "dl": listed(instants(due[at])),
            "price": listed(pa.array(pairs.price[at])),
            "penalty": listed(pa.array(pairs.penalty[at])),
            "success": listed(pa.array(found.success[at])),
            **self._sums(found, copy[starts]),
        }
        return self._stamped(columns, len(starts))

    def _event(self, part: pa.RecordBatch, event: pa.Array) -> dict[str, pa.Array]:
        found = {"event": part.column(ID).take(event), "type": part.column(KIND).take(event)}
        return found | {"timestamp": part.column(BORN).take(event)} if self.has_timestamp else found

    def _homes(self, homes: Array) -> pa.Array:
        return pa.DictionaryArray.from_arrays(pa.array(homes, pa.int32()), pa.array(self.snapshot.homes, pa.string()))

    def _sums(self, found: Figures, copy: Array) -> dict[str, pa.Array]:
        names = ("expected_earning", "expected_penalty", "postponement_cost", "priority")
        return {name: pa.array(getattr(found, name)[copy]) for name in names}

    def _stamped(self, columns: dict[str, pa.Array], count: int) -> pa.Table:
        columns["version"] = pa.repeat(pa.scalar(self.version, pa.int64()), count)
        columns["schema_version"] = pa.repeat(pa.scalar(NOTIFICATIONS_VERSION, pa.int32()), count)
        return pa.table(columns).replace_schema_metadata({"tidings.notifications": str(NOTIFICATIONS_VERSION)})

    def _expired(
        self,
        part: pa.RecordBatch,
        rows: Array,
        slots: Array,
        loaded: Whole,
        age_s: Array,
        timed_out: Array,
        passed: Array,
    ) -> pa.Table:
        event, count = pa.array(rows), len(rows)
        reason = np.where(passed, np.where(timed_out, 0, 1), 2)
        reasons = pa.array([TIMED_OUT, DEADLINE_PASSED, NO_CHANCE]).take(pa.array(reason))
        born = part.column(BORN).take(event) if self.has_timestamp else pa.nulls(count)
        return pa.Table.from_arrays(
            [
                part.column(ID).take(event).cast(pa.string()),
                taken(loaded.terms.id, slots).cast(pa.string()),
                pa.repeat(str(Account.EXPIRED), count),
                reasons,
                pa.array(self.snapshot.homes, pa.string()).take(pa.array(loaded.terms.home[slots])),
                pa.array(age_s, pa.float64()),
                pa.array(-loaded.terms.penalty[slots]),
                part.column(KIND).take(event),
                born.cast(pa.timestamp("us", "UTC")),
            ],
            schema=ACCOUNTS,
        )


class _Files:
    """The Parquet files of one task: opened when the first row comes, there only when the task ends well."""

    def __init__(self, out: Place, staging: str, name: str) -> None:
        self.out, self.staging, self.name = out, staging, name
        self.names: list[str] = []
        self._open: dict[str, tuple[Any, Any]] = {}

    def __enter__(self) -> "_Files":
        return self

    def write(self, table: str, rows: pa.Table) -> None:
        if table not in self._open:
            path = f"{self.staging}/{table}/{self.name}"
            file = self.out.writing(path)
            self._open[table] = (
                file,
                pq.ParquetWriter(file.__enter__(), rows.schema, compression="zstd", compression_level=1),
            )
            self.names.append(f"{table}/{self.name}")
        self._open[table][1].write_table(rows)

    def __exit__(self, kind: Any, error: Any, trace: Any) -> None:
        for file, writer in self._open.values():
            writer.close()
            file.__exit__(kind, error, trace)
