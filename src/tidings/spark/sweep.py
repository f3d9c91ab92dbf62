"""A sweep: an experiment is a function of parameters and a seed; every cell of the grid times the seeds is one Spark task.

    rows = sweep(simulate, {"scheduler": ["mtep", "fcfs"], "rate": [1, 2]}, seeds=range(40), out="runs/fig08")

Each cell writes its result as one Parquet file when it is done, so a sweep that was stopped goes on where it was, and several
machines can share one. The function runs on the executors: it must be importable there, and return a dict of numbers and strings
or a list of them. `sweep_points` does the same for a function from one msgspec struct to another, at any points; what other code
computed is not taken for its result.
"""

import hashlib
import itertools
import json
import math
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, Any, get_type_hints

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq

from tidings.compiled import digest
from tidings.errors import InvalidInput
from tidings.spark.place import Place

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SEED = "seed"
Cell = dict[str, Any]
Result = Mapping[str, Any] | Sequence[Mapping[str, Any]]
_POLL_S = 0.5
_CODE = (
    "broker",
    "language",
    "matching",
    "membership",
    "model",
    "overlay",
    "scheduling",
    "sim",
)  # that results depend on


def cells(grid: Mapping[str, Sequence[Any]], seeds: Iterable[int]) -> list[Cell]:
    """Every combination of the parameters with every seed, in a fixed order."""
    if SEED in grid:
        raise InvalidInput("the grid may not have a parameter called seed: seeds are given apart")
    names = list(grid)
    combined = itertools.product(*grid.values(), seeds)
    return [dict(zip([*names, SEED], values, strict=True)) for values in combined]


def sweep(
    function: Callable[..., Result],
    grid: Mapping[str, Sequence[Any]],
    *,
    seeds: Iterable[int] = (1,),
    out: str,
    spark: "SparkSession | None" = None,
    progress: Callable[[int, int], None] | None = None,
) -> pa.Table:
    """Run what is not there yet and return all results, one row per dict, with the cell's parameters as columns.

    Without a session the cells run one by one in this process: the same results. `progress(done, total)` is called as cells end.
    """
    wanted = cells(grid, seeds)
    place = Place(out)
    there = set(place.names("cells"))
    missing = [cell for cell in wanted if file_of(cell) not in there]
    task = _Task(function, place)
    done = len(wanted) - len(missing)
    tell = progress or (lambda done, total: None)
    tell(done, len(wanted))
    if spark is None:
        for number, cell in enumerate(missing, done + 1):
            task.run(cell)
            tell(number, len(wanted))
    elif missing:
        _on_spark(spark, task, missing, place, lambda: tell(_count(place, wanted), len(wanted)))
    return results(out, wanted)


def sweep_points(
    function: Callable[[Any], Any],
    points: Sequence[Any],
    *,
    out: str,
    spark: "SparkSession | None" = None,
    progress: Callable[[int, int], None] | None = None,
) -> list[Any]:
    """The function at every point, in their order; points and results are structs, as the function's annotations say."""
    named = [f"{function.__module__}:{function.__qualname__}"]
    texts = [msgspec.msgpack.encode(point).hex() for point in points]
    grid = {"function": named, "code": [digest(_CODE)], "point": list(dict.fromkeys(texts))}
    table = sweep(_at_point, grid, out=out, spark=spark, progress=progress)
    kind = get_type_hints(function)["return"]
    found = dict(zip(table["point"].to_pylist(), table["result"].to_pylist(), strict=True))
    return [msgspec.msgpack.decode(bytes.fromhex(found[text]), type=kind) for text in texts]


def _at_point(function: str, code: str, point: str, seed: int) -> dict[str, Any]:
    module, _, name = function.partition(":")
    called = getattr(import_module(module), name)
    (kind,) = (hint for argument, hint in get_type_hints(called).items() if argument != "return")
    result = called(msgspec.msgpack.decode(bytes.fromhex(point), type=kind))
    plain = {name: value for name, value in msgspec.to_builtins(result).items() if isinstance(value, int | float | str)}
    return {**plain, "result": msgspec.msgpack.encode(result).hex()}


def results(out: str, wanted: Sequence[Cell] | None = None) -> pa.Table:
    """The results of the cells, or of all that are there."""
    place = Place(out)
    names = [file_of(cell) for cell in wanted] if wanted is not None else place.names("cells")
    tables = [pq.read_table(pa.BufferReader(place.read(f"cells/{name}"))) for name in names if not name.startswith(".")]
    return pa.concat_tables(tables, promote_options="permissive") if tables else pa.table({})


def file_of(cell: Cell) -> str:
    """The name of a cell's file: the same for the same parameters, in any order."""
    text = json.dumps(cell, sort_keys=True, default=str)
    return f"{hashlib.blake2b(text.encode(), digest_size=12).hexdigest()}.parquet"


def _on_spark(
    spark: "SparkSession", task: "_Task", missing: list[Cell], place: Place, tell: Callable[[], None]
) -> None:
    from pyspark.sql import functions as F

    texts = [(number, json.dumps(cell)) for number, cell in enumerate(missing)]
    if [json.loads(text) for _, text in texts] != missing:
        raise InvalidInput(
            "a grid holds numbers, strings, booleans and lists of them: others do not reach the executors as they are"
        )
    # One cell, one task: cells differ much in how long they take.
    frame = spark.createDataFrame(texts, "number int, cell string").repartitionById(len(texts), F.col("number"))
    stopped = threading.Event()

    def watch() -> None:
        while not stopped.wait(_POLL_S):
            tell()

    watcher = threading.Thread(target=watch, daemon=True)
    watcher.start()
    try:
        frame.mapInArrow(task, "done long").toArrow()
    finally:
        stopped.set()
        watcher.join()
        tell()


def _count(place: Place, wanted: Sequence[Cell]) -> int:
    there = set(place.names("cells"))
    return sum(file_of(cell) in there for cell in wanted)


@dataclass(frozen=True)
class _Task:
    """What `mapInArrow` runs: cells as JSON in, files out, numbers of cells back."""

    function: Callable[..., Result]
    out: Place

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        done = 0
        for batch in batches:
            for text in batch.column("cell").to_pylist():
                self.run(json.loads(text))
                done += 1
        yield pa.RecordBatch.from_arrays([pa.array([done], pa.int64())], names=["done"])

    def run(self, cell: Cell) -> None:
        begun = time.process_time()
        result = self.function(**cell)
        rows = [result] if isinstance(result, Mapping) else list(result)
        cpu_s = time.process_time() - begun
        table = pa.Table.from_pylist([{**cell, **row, "cpu_s": cpu_s} for row in rows])
        with self.out.writing(f"cells/{file_of(cell)}") as file:
            pq.write_table(table, file)


def mean_by(table: pa.Table, by: Sequence[str], value: str) -> list[dict[str, Any]]:
    """Mean, deviation and count of a result over the seeds, for every combination of parameters."""
    grouped = table.group_by(list(by), use_threads=False).aggregate(
        [(value, "mean"), (value, "stddev"), (value, "count")]
    )
    return [
        {**{name: row[name] for name in by}, "mean": row[f"{value}_mean"], "deviation": row[f"{value}_stddev"] or 0.0}
        | {"error": (row[f"{value}_stddev"] or 0.0) / math.sqrt(row[f"{value}_count"]), "count": row[f"{value}_count"]}
        for row in grouped.to_pylist()
    ]
