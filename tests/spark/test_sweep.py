"""A sweep runs every cell once, goes on after a stop, and gives the same on Spark and without."""

from pathlib import Path
from typing import Any

import msgspec
import pytest

from tidings.errors import InvalidInput
from tidings.spark.sweep import cells, mean_by, results, sweep, sweep_points

GRID = {"rate": [1, 2], "scheduler": ["fcfs", "mtep"]}


def experiment(rate: int, scheduler: str, seed: int, note: str | None = None) -> dict[str, Any]:
    if note is not None:
        with open(note, "a") as file:
            file.write(f"{rate} {scheduler} {seed}\n")
    return {"earning": rate * 10 + seed + (5 if scheduler == "mtep" else 0)}


def test_cells_are_the_grid_times_the_seeds() -> None:
    assert len(cells(GRID, range(3))) == 12
    assert cells(GRID, [7])[0] == {"rate": 1, "scheduler": "fcfs", "seed": 7}
    with pytest.raises(InvalidInput, match="seeds are given apart"):
        cells({"seed": [1]}, [1])


def test_spark_and_plain_give_the_same_and_a_stopped_sweep_goes_on(spark: Any, tmp_path: Path) -> None:
    note = str(tmp_path / "note")
    grid = {**GRID, "note": [note]}
    told: list[tuple[int, int]] = []
    sweep(experiment, grid, seeds=[1], out=str(tmp_path / "a"))
    found = sweep(
        experiment, grid, seeds=[1, 2], out=str(tmp_path / "a"), spark=spark, progress=lambda *at: told.append(at)
    )
    assert len(Path(note).read_text().splitlines()) == 8, "what was there was not run again"
    assert (told[0], told[-1]) == ((4, 8), (8, 8))
    plain = sweep(experiment, grid, seeds=[1, 2], out=str(tmp_path / "b"))
    columns = ["rate", "scheduler", "seed", "earning"]
    assert found.select(columns).equals(plain.select(columns))
    means = {(row["rate"], row["scheduler"]): row["mean"] for row in mean_by(found, ["rate", "scheduler"], "earning")}
    assert means == {(1, "fcfs"): 11.5, (1, "mtep"): 16.5, (2, "fcfs"): 21.5, (2, "mtep"): 26.5}


def test_what_does_not_survive_the_way_is_refused(spark: Any, tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match="numbers, strings, booleans and lists"):
        sweep(experiment, {"rate": [(1, 2)]}, out=str(tmp_path / "a"), spark=spark)


class Point(msgspec.Struct, frozen=True):
    rate: float
    note: str


class Found(msgspec.Struct, frozen=True):
    earning: float
    reasons: dict[str, int]


def at(point: Point) -> Found:
    with open(point.note, "a") as file:
        file.write(f"{point.rate}\n")
    return Found(point.rate * 10, {"late": 3})


def test_points_are_structs_and_go_on_after_a_stop(spark: Any, tmp_path: Path) -> None:
    note, out = str(tmp_path / "note"), str(tmp_path / "runs")
    points = [Point(rate, note) for rate in (2.0, float("inf"), 0.1)]
    assert sweep_points(at, points[:1], out=out) == [Found(20.0, {"late": 3})]
    found = sweep_points(at, [*points, points[0]], out=out, spark=spark)
    assert found == [Found(point.rate * 10, {"late": 3}) for point in [*points, points[0]]]
    assert sorted(Path(note).read_text().split()) == ["0.1", "2.0", "inf"]
    assert sorted(results(out)["earning"].to_pylist()) == [1.0, 20.0, float("inf")]
