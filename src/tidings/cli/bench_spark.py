"""`tidings bench spark`: the pipeline against what a user would write in SQL, in DuckDB and in Polars, on the same data.

CPU seconds count everything that works for a measurement: this process, Spark's Java and its Python workers. Each measurement
runs a few times to warm up (Java compiles what runs often) and is then the best of as many. Opponents get the bounds of the
subscriptions as columns, the best that SQL can be given: an equality join with a residual condition, or a nested loop.
"""

import contextlib
import functools
import importlib
import os
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from tidings.cli.output import complain, fail, on_terminal, print_json, print_table

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

    from tidings.matching.workloads import Workload

HELP = """Measure the pipeline on Spark.

Rows are `join` (Spark SQL), `duckdb`, `polars` and ours, `pairs` and `compact`; then what a stream does, and how long a change of
1,000 subscriptions takes.

\b
  tidings bench spark
  tidings bench spark --subscriptions 1000000 --only batch --json
"""
PARTS = ("batch", "mtep", "stream", "change", "executors")
CHANGED = 1_000
PER_BATCH = 100_000
SMALL_BATCH, SMALL_BATCHES = 1_000, 40
_TICKS = os.sysconf("SC_CLK_TCK")

Row = dict[str, Any]


def spark(
    subscriptions: str = typer.Option("50000", metavar="NUMBERS", help="How many; several with commas."),
    events: int = typer.Option(100_000, min=1_000, help="Events of the batch."),
    only: str = typer.Option("batch,mtep,stream,change", metavar="PARTS", help=f"Some of {', '.join(PARTS)}."),
    opponents: bool = typer.Option(True, help="Also measure the SQL join, DuckDB and Polars."),
    json: bool = typer.Option(False, "--json", help="The rows as a JSON list."),
) -> None:
    parts = [part.strip() for part in only.split(",")]
    if unknown := [part for part in parts if part not in PARTS]:
        fail(f"--only {', '.join(unknown)}: expected some of {', '.join(PARTS)}")
    rows: list[Row] = []
    folder = tempfile.mkdtemp(prefix="tidings-bench-")
    try:
        for count in [int(number) for number in subscriptions.split(",")]:
            for part in parts:
                rows += _MEASURES[part](count, events, opponents, Path(folder, f"{part}-{count}"))
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    if json:
        print_json(rows)
        return
    columns = ["name", "workload", "subscriptions", "events", "pairs", "cpu_s", "wall_s", "note"]
    print_table(columns, [[_shown(row.get(column, "")) for column in columns] for row in rows])


def _shown(value: Any) -> Any:
    return round(value, 3) if isinstance(value, float) else value


def _say(text: str) -> None:
    if on_terminal(sys.stderr):
        complain(text)


def _session(conf: dict[str, str] | None = None, master: str = "local[2]") -> "SparkSession":
    from tidings.spark.session import session

    return session("tidings bench", master, {"spark.driver.memory": "6g", **(conf or {})})


def cpu_s() -> float:
    """CPU seconds of this process and all below it, those that have ended included."""
    parents: dict[int, int] = {}
    used: dict[int, float] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError, IndexError):
                fields = (entry / "stat").read_text().rpartition(")")[2].split()
                parents[int(entry.name)] = int(fields[1])
                used[int(entry.name)] = sum(map(int, fields[11:15])) / _TICKS
    ours = {os.getpid()}
    while more := {child for child, parent in parents.items() if parent in ours} - ours:
        ours |= more
    return sum(used[pid] for pid in ours if pid in used)


def measured(name: str, run: Callable[[], int | None], repeats: int = 4, **row: Any) -> Row:
    """The best of some runs after as many that warm up; `run` returns how many pairs it found, if it knows."""
    best: tuple[float, float] | None = None
    pairs: int | None = None
    for _ in range(repeats):
        pairs = run() or pairs
    for _ in range(repeats):
        cpu, wall = cpu_s(), time.perf_counter()
        pairs = run() or pairs
        spent = cpu_s() - cpu, time.perf_counter() - wall
        best = min(best, spent) if best else spent
    assert best is not None
    _say(f"{name}: {best[0]:.2f} CPU s, {best[1]:.2f} s")
    return {"name": name, **row, "pairs": pairs, "cpu_s": best[0], "wall_s": best[1]}


def _match_all(frame: "DataFrame", compiler: Any, compact: bool = False) -> None:
    from tidings.spark.match import match

    _noop(match(frame, compiler, compact=compact))


def _noop(frame: "DataFrame") -> None:
    frame.write.format("noop").mode("overwrite").save()


def _table(workload: "Workload") -> "pa.Table":
    import pyarrow as pa

    filters = [str(subscription.filter) for subscription in workload.subscriptions()]
    return pa.table({"id": pa.array(range(workload.count), pa.int64()), "filter": filters})


def _bounds(workload: "Workload") -> "pa.Table":
    """lo and hi of every attribute as columns: what the opponents join with."""
    import pyarrow as pa

    boxes = workload.boxes
    assert boxes is not None
    width = len(boxes.names)
    columns: dict[str, Any] = {"sub": pa.array(range(workload.count), pa.int64())}
    for at, name in enumerate(boxes.names):
        columns[f"{name}_lo"], columns[f"{name}_hi"] = boxes.low[at::width], boxes.high[at::width]
    return pa.table(columns)


def _events(workload: "Workload", count: int) -> "pa.Table":
    import pyarrow as pa

    columns = {name: column.astype("float64") for name, column in workload.columns(count).items()}
    return pa.table({"id": pa.array(range(count), pa.int64()), **columns})


def _condition(workload: "Workload") -> str:
    names = list(workload.columns(1))
    if workload.name == "mtep":
        return " AND ".join(f"e.{name} < s.{name}_hi" for name in names)
    equal, ranges = names[:2], names[2:]
    parts = [f"e.{name} = s.{name}_lo" for name in equal]
    return " AND ".join(parts + [f"e.{name} > s.{name}_lo AND e.{name} < s.{name}_hi" for name in ranges])


def _batch(name: str, count: int, events: int, opponents: bool) -> list[Row]:
    from tidings.matching.workloads import Workload
    from tidings.spark.compiled import Compiler
    from tidings.spark.match import match
    from tidings.spark.subscriptions import table_of

    workload = Workload(name, count)
    spark = _session()
    table = _events(workload, events)
    frame = spark.createDataFrame(table.to_pandas()).repartition(2).cache()
    frame.count()
    shared: Row = {"workload": name, "subscriptions": count, "events": events}
    cpu, wall = cpu_s(), time.perf_counter()
    compiler = Compiler(spark)
    compiler.load(table_of(_table(workload)))
    rows: list[Row] = [
        {"name": "compile", **shared, "pairs": None, "cpu_s": cpu_s() - cpu, "wall_s": time.perf_counter() - wall}
    ]
    pairs = match(frame, compiler).count()
    rows.append(measured("pairs", functools.partial(_match_all, frame, compiler), 8, **shared) | {"pairs": pairs})
    rows.append(
        measured("compact", functools.partial(_match_all, frame, compiler, True), 8, **shared) | {"pairs": pairs}
    )
    if opponents:
        rows += _opponents(workload, spark, frame, table, shared, pairs)
    _ratios(rows)
    frame.unpersist()
    return rows


def _opponents(
    workload: "Workload", spark: "SparkSession", frame: "DataFrame", table: "pa.Table", shared: Row, pairs: int
) -> list[Row]:
    bounds = _bounds(workload)
    condition = _condition(workload)
    subs = spark.createDataFrame(bounds.to_pandas()).repartition(2).cache()
    subs.count()
    frame.createOrReplaceTempView("bench_events")
    subs.createOrReplaceTempView("bench_subs")
    query = f"SELECT e.id, s.sub FROM bench_events e JOIN bench_subs s ON {condition}"
    repeats = 4 if pairs < 20_000_000 else 1
    rows = [measured("join", lambda: _noop(spark.sql(query)), repeats, **shared) | {"pairs": pairs}]
    subs.unpersist()
    with contextlib.suppress(ImportError):
        rows.append(_duckdb(table, bounds, condition, shared, repeats))
    with contextlib.suppress(ImportError):
        rows.append(_polars(workload, table, bounds, shared, repeats))
    for row in rows[1:]:
        if row["pairs"] != pairs:
            fail(f"{row['name']} found {row['pairs']} pairs, Spark {pairs}", 1)
    return rows


def _duckdb(events: "pa.Table", bounds: "pa.Table", condition: str, shared: Row, repeats: int) -> Row:
    duckdb: Any = importlib.import_module("duckdb")

    base = duckdb.connect()
    base.execute("SET threads = 2")
    base.register("e_arrow", events)
    base.register("s_arrow", bounds)
    base.execute("CREATE TABLE e AS SELECT * FROM e_arrow")
    base.execute("CREATE TABLE s AS SELECT * FROM s_arrow")

    def run() -> int:
        reader = base.sql(f"SELECT e.id, s.sub FROM e JOIN s ON {condition}").to_arrow_reader(1_000_000)
        return sum(batch.num_rows for batch in reader)

    return measured("duckdb", run, repeats, **shared)


def _polars(workload: "Workload", events: "pa.Table", bounds: "pa.Table", shared: Row, repeats: int) -> Row:
    polars: Any = importlib.import_module("polars")

    e, s = polars.from_arrow(events), polars.from_arrow(bounds)
    names = list(workload.columns(1))
    if workload.name == "mtep":
        conditions = [polars.col(name) < polars.col(f"{name}_hi") for name in names]
    else:
        conditions = [polars.col(name) == polars.col(f"{name}_lo") for name in names[:2]]
        conditions += [polars.col(name) > polars.col(f"{name}_lo") for name in names[2:]]
        conditions += [polars.col(name) < polars.col(f"{name}_hi") for name in names[2:]]

    def run() -> int:
        found = e.lazy().join_where(s.lazy(), *conditions).select("id", "sub")
        return int(found.collect(engine="streaming").height)

    return measured("polars", run, repeats, **shared)


def _ratios(rows: list[Row]) -> None:
    ours = {row["name"]: row["cpu_s"] for row in rows if row["name"] in ("pairs", "compact")}
    for row in rows:
        if row["name"] in ("join", "duckdb", "polars"):
            row["ratio_pairs"], row["ratio_compact"] = row["cpu_s"] / ours["pairs"], row["cpu_s"] / ours["compact"]
            row["note"] = f"{row['ratio_pairs']:.1f} times pairs, {row['ratio_compact']:.1f} times compact"


def _ceem(count: int, events: int, opponents: bool, folder: Path) -> list[Row]:
    return _batch("ceem1", count, events, opponents)


def _mtep(count: int, events: int, opponents: bool, folder: Path) -> list[Row]:
    return _batch("mtep", min(count, 50_000), max(100, events // 50), opponents)


def _stream(count: int, events: int, opponents: bool, folder: Path) -> list[Row]:
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

    spark = _session()
    workload = Workload("ceem1", count)
    wanted = table_of(_table(workload))
    total = max(events, 4 * PER_BATCH)
    table = _events(workload, total)
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
    _say(f"{name}: {rate:,.0f} events/s, p50 {p50:.0f} ms")
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


def _change(count: int, events: int, opponents: bool, folder: Path) -> list[Row]:
    """A change of 1,000 subscriptions until the next batch has it."""
    import pyarrow as pa

    from tidings.matching.workloads import Workload
    from tidings.spark.compiled import Compiler
    from tidings.spark.match import match
    from tidings.spark.subscriptions import table_of
    from tidings.spark.versions import SubscriptionTable

    spark = _session()
    workload = Workload("ceem1", count)
    wanted = table_of(_table(workload))
    table = SubscriptionTable.create(str(folder / "table"), wanted)
    compiler = Compiler(spark)
    compiler.load(wanted)
    frame = spark.createDataFrame(_events(workload, 1_000).to_pandas()).repartition(2).cache()
    _noop(match(frame, compiler))
    rows: list[Row] = []
    for turn in range(3):
        more = Workload("ceem1", CHANGED, seed=turn + 7)
        put = _table(more).set_column(0, "id", pa.array(range(turn * CHANGED, (turn + 1) * CHANGED), pa.int64()))
        cpu, wall = cpu_s(), time.perf_counter()
        version = table.change(put)
        compiler.change(*table.between(version - 1, version))
        _noop(match(frame, compiler))
        spent = cpu_s() - cpu, time.perf_counter() - wall
        rows.append(
            {"workload": "ceem1", "subscriptions": count, "events": 1_000, "cpu_s": spent[0], "wall_s": spent[1]}
        )
    best = min(rows, key=lambda row: row["wall_s"])
    return [{"name": "change", **best, "pairs": None, "note": f"{CHANGED:,} subscriptions changed and in effect"}]


def _executors(count: int, events: int, opponents: bool, folder: Path) -> list[Row]:
    """Two executors against one, on this machine: whatever it is."""
    from pyspark.sql import SparkSession

    from tidings.matching.workloads import Workload
    from tidings.spark.compiled import Compiler
    from tidings.spark.subscriptions import table_of

    rows = []
    workload = Workload("ceem1", count)
    for executors in (1, 2):
        if (running := SparkSession.getActiveSession()) is not None:
            running.stop()
        spark = _session(master=f"local-cluster[{executors},1,2048]", conf={"spark.executor.memory": "2g"})
        compiler = Compiler(spark)
        compiler.load(table_of(_table(workload)))
        frame = spark.createDataFrame(_events(workload, events).to_pandas()).repartition(4).cache()
        frame.count()
        row = measured(
            "executors",
            functools.partial(_match_all, frame, compiler),
            workload="ceem1",
            subscriptions=count,
            events=events,
        )
        rows.append(row | {"name": f"{executors} executor{'s' * (executors > 1)}"})
        spark.stop()
    rows[1]["note"] = f"{rows[0]['wall_s'] / rows[1]['wall_s']:.2f} times as fast as one"
    return rows


_MEASURES: dict[str, Callable[[int, int, bool, Path], list[Row]]] = {
    "batch": _ceem,
    "mtep": _mtep,
    "stream": _stream,
    "change": _change,
    "executors": _executors,
}
