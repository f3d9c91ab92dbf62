"""`tidings bench spark`: the pipeline against what a user would write in SQL, in DuckDB and in Polars, on the same data.

Opponents get the bounds of the subscriptions as columns, the best that SQL can be given: an equality join with a residual
condition, or a nested loop. How measurements are made, and those that have no opponents: `spark_speed.py`.
"""

import contextlib
import functools
import importlib
import shutil
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from tidings.cli.output import fail, print_json, print_table
from tidings.cli.spark_speed import (
    Row,
    bounds_table,
    change,
    cpu_s,
    events_table,
    executors,
    match_all,
    measured,
    noop,
    session_for_bench,
    stream,
    subscriptions_table,
)

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
    columns = ["name", "workload", "subscriptions", "events", "pairs", "cpu_s", "wall_s", "load", "note"]
    print_table(columns, [[_shown(row.get(column, "")) for column in columns] for row in rows])


def _shown(value: Any) -> Any:
    return round(value, 3) if isinstance(value, float) else value


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
    spark = session_for_bench()
    table = events_table(workload, events)
    frame = spark.createDataFrame(table.to_pandas()).repartition(2).cache()
    frame.count()
    shared: Row = {"workload": name, "subscriptions": count, "events": events}
    cpu, wall = cpu_s(), time.perf_counter()
    compiler = Compiler(spark)
    compiler.load(table_of(subscriptions_table(workload)))
    rows: list[Row] = [
        {"name": "compile", **shared, "pairs": None, "cpu_s": cpu_s() - cpu, "wall_s": time.perf_counter() - wall}
    ]
    pairs = match(frame, compiler).count()
    rows.append(measured("pairs", functools.partial(match_all, frame, compiler), **shared) | {"pairs": pairs})
    rows.append(measured("compact", functools.partial(match_all, frame, compiler, True), **shared) | {"pairs": pairs})
    if opponents:
        rows += _opponents(workload, spark, frame, table, shared, pairs)
    _ratios(rows)
    frame.unpersist()
    return rows


def _opponents(
    workload: "Workload", spark: "SparkSession", frame: "DataFrame", table: "pa.Table", shared: Row, pairs: int
) -> list[Row]:
    bounds = bounds_table(workload)
    condition = _condition(workload)
    subs = spark.createDataFrame(bounds.to_pandas()).repartition(2).cache()
    subs.count()
    frame.createOrReplaceTempView("bench_events")
    subs.createOrReplaceTempView("bench_subs")
    query = f"SELECT e.id, s.sub FROM bench_events e JOIN bench_subs s ON {condition}"
    rows = [measured("join", lambda: noop(spark.sql(query)), **shared) | {"pairs": pairs}]
    subs.unpersist()
    with contextlib.suppress(ImportError):
        rows.append(_duckdb(table, bounds, condition, shared))
    with contextlib.suppress(ImportError):
        rows.append(_polars(workload, table, bounds, shared))
    for row in rows[1:]:
        if row["pairs"] != pairs:
            fail(f"{row['name']} found {row['pairs']} pairs, Spark {pairs}", 1)
    return rows


def _duckdb(events: "pa.Table", bounds: "pa.Table", condition: str, shared: Row) -> Row:
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

    return measured("duckdb", run, **shared)


def _polars(workload: "Workload", events: "pa.Table", bounds: "pa.Table", shared: Row) -> Row:
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

    return measured("polars", run, **shared)


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


_MEASURES: dict[str, Callable[[int, int, bool, Path], list[Row]]] = {
    "batch": _ceem,
    "mtep": _mtep,
    "stream": stream,
    "change": change,
    "executors": executors,
}
