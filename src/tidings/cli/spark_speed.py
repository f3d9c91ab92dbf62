"""How the pipeline on Spark is measured: CPU and wall, a stream's rate and latency, a change of subscriptions, executors.

CPU seconds count everything that works for a measurement: this process, Spark's Java and its Python workers. Whatever is measured
runs for WARM_S to warm up (Java compiles what runs often), the opponents as long as we, and is then the best of what WARM_S has
room for; both at least twice, unless that takes longer than PATIENCE_S.
"""

import contextlib
import functools
import os
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tidings.cli.output import complain, on_terminal

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

    from tidings.matching.workloads import Workload

CHANGED = 1_000
PER_BATCH = 100_000
SMALL_BATCH, SMALL_BATCHES = 1_000, 100
WARM_S, PATIENCE_S = 8.0, 60.0
_TICKS = os.sysconf("SC_CLK_TCK")

Row = dict[str, Any]


def say(text: str) -> None:
    if on_terminal(sys.stderr):
        complain(text)


def session_for_bench(conf: dict[str, str] | None = None, master: str = "local[2]") -> "SparkSession":
    from tidings.spark.session import session

    return session("tidings bench", master, {"spark.driver.memory": "6g", **(conf or {})})


class _Meter:
    """CPU seconds of this process and all below it. Of one that has ended, what it had used when last seen."""

    def __init__(self) -> None:
        self.used: dict[int, float] = {}

    def __call__(self) -> float:
        parents: dict[int, int] = {}
        now: dict[int, float] = {}
        for entry in Path("/proc").iterdir():
            if entry.name.isdigit():
                with contextlib.suppress(OSError, IndexError):
                    fields = (entry / "stat").read_text().rpartition(")")[2].split()
                    parents[int(entry.name)] = int(fields[1])
                    now[int(entry.name)] = sum(map(int, fields[11:13])) / _TICKS
        ours = {os.getpid()}
        while more := {child for child, parent in parents.items() if parent in ours} - ours:
            ours |= more
        self.used |= {pid: now[pid] for pid in ours if pid in now}
        return sum(self.used.values())


cpu_s = _Meter()


def measured(name: str, run: Callable[[], int | None], **row: Any) -> Row:
    """The best run after a warm-up; `run` returns how many pairs it found, if it knows."""
    pairs: int | None = None
    best = (float("inf"), float("inf"))
    for counts in (False, True):
        begun, runs = time.perf_counter(), 0
        while True:
            cpu, wall = cpu_s(), time.perf_counter()
            pairs = run() or pairs
            spent = cpu_s() - cpu, time.perf_counter() - wall
            if counts:
                best = min(best, spent)
            runs += 1
            taken = time.perf_counter() - begun
            if taken > PATIENCE_S or (taken > WARM_S and runs > 1):
                break
    say(f"{name}: {best[0]:.2f} CPU s, {best[1]:.2f} s")
    load = os.getloadavg()[0]
    return {"name": name, **row, "pairs": pairs, "cpu_s": best[0], "wall_s": best[1], "load": round(load, 1)}


def match_all(frame: "DataFrame", compiler: Any, compact: bool = False) -> None:
    from tidings.spark.match import match

    noop(match(frame, compiler, compact=compact))


def noop(frame: "DataFrame") -> None:
    frame.write.format("noop").mode("overwrite").save()


def subscriptions_table(workload: "Workload") -> "pa.Table":
    import pyarrow as pa

    filters = [str(subscription.filter) for subscription in workload.subscriptions()]
    return pa.table({"id": pa.array(range(workload.count), pa.int64()), "filter": filters})


def bounds_table(workload: "Workload") -> "pa.Table":
    """lo and hi of every attribute as columns: what the opponents join with."""
    import pyarrow as pa

    boxes = workload.boxes
    assert boxes is not None
    width = len(boxes.names)
    columns: dict[str, Any] = {"sub": pa.array(range(workload.count), pa.int64())}
    for at, name in enumerate(boxes.names):
        columns[f"{name}_lo"], columns[f"{name}_hi"] = boxes.low[at::width], boxes.high[at::width]
    return pa.table(columns)


def events_table(workload: "Workload", count: int) -> "pa.Table":
    import pyarrow as pa

    columns = {name: column.astype("float64") for name, column in workload.columns(count).items()}
    return pa.table({"id": pa.array(range(count), pa.int64()), **columns})


def stream(count: int, events: int, opponents: bool, folder: Path) -> list[Row]:
    """Events a second to a no-op sink and through the whole path, and the latency of small batches."""

    from tidings.matching.workloads import Workload
    from tidings.spark.compiled import Compiler
    from tidings.spark.journal import Identity
    from tidings.spark.log import EventLog
    from tidings.spark.match import match
    from tidings.spark.sources import source
    from tidings.spark.stream import Options, Pipeline
    from tidings.spark.subscriptions import table_of
    from tidings.spark.versions import SubscriptionTable

    spark = session_for_bench()
    workload = Workload("ceem1", count)
    wanted = table_of(subscriptions_table(workload))
    total = max(events, 4 * PER_BATCH)
    table = events_table(workload, total)
    log = EventLog.create(folder / "log", table.schema)
    for start in range(0, total, 20_000):
        log.append(table.slice(start, 20_000))
    compiler = Compiler(spark)
    compiler.load(wanted)
    shared: Row = {"workload": "ceem1", "subscriptions": count, "pairs": None}
    rows = []
    reader = spark.readStream.format("tidings").option("maxEventsPerTrigger", PER_BATCH)
    for name, compact in (("stream pairs noop", False), ("stream compact noop", True)):
        found = match(reader.load(str(folder / "log")), compiler, compact=compact)
        writer = found.writeStream.format("noop").option("checkpointLocation", str(folder / name.replace(" ", "-")))
        cpu, wall = cpu_s(), time.perf_counter()
        query = writer.trigger(availableNow=True).start()
        query.awaitTermination()
        rows.append(_stream_row(name, shared, query.recentProgress, cpu_s() - cpu, time.perf_counter() - wall))
    SubscriptionTable.create(str(folder / "table"), wanted)
    for name, compact, size in (
        ("stream pairs parquet", False, PER_BATCH),
        ("stream compact parquet", True, PER_BATCH),
        ("stream latency", True, SMALL_BATCH),
    ):
        there = folder / "log"
        if size == SMALL_BATCH:
            there = folder / "small"
            small = EventLog.create(there, table.schema)
            for start in range(0, SMALL_BATCH * SMALL_BATCHES, SMALL_BATCH):
                small.append(table.slice(start, SMALL_BATCH))
        given = source(spark, str(there), options={"maxEventsPerTrigger": str(size)})
        identity = Identity(given, str(folder / "table"), "id", compact=compact)
        pipeline = Pipeline(spark, identity, str(folder / f"out-{name.replace(' ', '-')}"), Options(clock="event"))
        cpu, wall = cpu_s(), time.perf_counter()
        query = pipeline.start()
        query.awaitTermination()
        row = _stream_row(name, shared, query.recentProgress, cpu_s() - cpu, time.perf_counter() - wall)
        rows.append(row | {"pairs": sum(commit.matched for commit in pipeline.journal.commits())})
    return rows


def _stream_row(name: str, shared: Row, progress: Any, cpu: float, wall: float) -> Row:
    """The first batch starts workers and loads kernels: rates and latencies are those of the others."""
    batches = [each for each in progress if each.numInputRows]
    warm = batches[1:] or batches
    latencies = sorted(each.durationMs["triggerExecution"] for each in warm)
    rate = sum(each.numInputRows for each in warm) / max(sum(latencies) / 1000, 1e-9)
    events = sum(each.numInputRows for each in batches)
    p50 = statistics.median(latencies)
    say(f"{name}: {rate:,.0f} events/s, p50 {p50:.0f} ms")
    return {
        "name": name,
        **shared,
        "events": events,
        "cpu_s": cpu,
        "wall_s": wall,
        "events_per_s": rate,
        "p50_ms": p50,
        "note": f"{rate:,.0f} events/s, p50 {p50:.0f} ms per batch",
    }


def change(count: int, events: int, opponents: bool, folder: Path) -> list[Row]:
    """A change of 1,000 subscriptions until the next batch has it."""
    import pyarrow as pa

    from tidings.matching.workloads import Workload
    from tidings.spark.compiled import Compiler
    from tidings.spark.match import match
    from tidings.spark.subscriptions import table_of
    from tidings.spark.versions import SubscriptionTable

    spark = session_for_bench()
    workload = Workload("ceem1", count)
    wanted = table_of(subscriptions_table(workload))
    table = SubscriptionTable.create(str(folder / "table"), wanted)
    compiler = Compiler(spark)
    compiler.load(wanted)
    frame = spark.createDataFrame(events_table(workload, 1_000).to_pandas()).repartition(2).cache()
    noop(match(frame, compiler))
    rows: list[Row] = []
    for turn in range(3):
        more = Workload("ceem1", CHANGED, seed=turn + 7)
        put = subscriptions_table(more).set_column(
            0, "id", pa.array(range(turn * CHANGED, (turn + 1) * CHANGED), pa.int64())
        )
        cpu, wall = cpu_s(), time.perf_counter()
        version = table.change(put)
        compiler.change(*table.between(version - 1, version))
        noop(match(frame, compiler))
        spent = cpu_s() - cpu, time.perf_counter() - wall
        rows.append(
            {"workload": "ceem1", "subscriptions": count, "events": 1_000, "cpu_s": spent[0], "wall_s": spent[1]}
        )
    best = min(rows, key=lambda row: row["wall_s"])
    return [{"name": "change", **best, "pairs": None, "note": f"{CHANGED:,} subscriptions changed and in effect"}]


def executors(count: int, events: int, opponents: bool, folder: Path) -> list[Row]:
    """Two executors against one, on this machine: whatever it is."""
    from pyspark.sql import SparkSession

    from tidings.matching.workloads import Workload
    from tidings.spark.compiled import Compiler
    from tidings.spark.subscriptions import table_of

    rows = []
    workload = Workload("ceem1", count)
    for number in (1, 2):
        if (running := SparkSession.getActiveSession()) is not None:
            running.stop()
        spark = session_for_bench(master=f"local-cluster[{number},1,2048]", conf={"spark.executor.memory": "2g"})
        compiler = Compiler(spark)
        compiler.load(table_of(subscriptions_table(workload)))
        frame = spark.createDataFrame(events_table(workload, events).to_pandas()).repartition(4).cache()
        frame.count()
        row = measured(
            "executors",
            functools.partial(match_all, frame, compiler),
            workload="ceem1",
            subscriptions=count,
            events=events,
        )
        rows.append(row | {"name": f"{number} executor{'s' * (number > 1)}"})
        spark.stop()
    rows[1]["note"] = f"{rows[0]['wall_s'] / rows[1]['wall_s']:.2f} times as fast as one"
    return rows
