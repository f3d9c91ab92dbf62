"""Kill anything: the output is that of an undisturbed run, nothing twice, nothing missing."""

import os
import random
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import spark_driver as driver
from tidings.spark.faults import POINTS
from tidings.spark.stream import committed

SOAK = bool(os.environ.get("TIDINGS_SOAK"))
PATIENCE_S = 300
# One pipeline dies at each of these in turn: after the output and before the commit, and while the subscriptions change. In full,
# at every point there is.
CHAIN = ["published:1", "changed:1"]


def rows(spark: Any, folder: Path) -> list[tuple[Any, ...]]:
    """Every notification with all that must be the same whatever happened."""
    found = committed(spark, str(folder / "out"))
    columns = ["event", "subscription", "home", "dl", "success", "priority", "version", "batch"]
    return sorted(tuple(row.values()) for row in found.select(*columns).toArrow().to_pylist())


def run(folder: Path, master: str = "local[2]", **environment: str) -> int:
    done = subprocess.run(
        [sys.executable, driver.__file__, str(folder), master],
        env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)} | environment,
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
    )
    assert done.returncode in (0, -signal.SIGKILL), done.stderr[-3000:]
    return done.returncode


@pytest.fixture(scope="module")
def undisturbed(spark: Any, tmp_path_factory: pytest.TempPathFactory) -> list[tuple[Any, ...]]:
    folder = tmp_path_factory.mktemp("undisturbed")
    driver.prepare(folder)
    commits = driver.pipeline(spark, folder).run_once()
    assert [commit.version for commit in commits] == [1, 1, 2, 2, 2, 2]
    expected = rows(spark, folder)
    assert len(expected) > 2_000
    assert len({row[:2] for row in expected}) == len(expected)
    return expected


def test_killed_at_every_point_in_turn(spark: Any, undisturbed: Any, tmp_path: Path) -> None:
    driver.prepare(tmp_path)
    for point in [f"{point}:1" for point in POINTS] if SOAK else CHAIN:
        assert run(tmp_path, TIDINGS_FAIL_AT=point) == -signal.SIGKILL, point
    driver.pipeline(spark, tmp_path).run_once()
    assert rows(spark, tmp_path) == undisturbed


@pytest.mark.soak
def test_killed_at_random_moments(spark: Any, undisturbed: Any, tmp_path: Path) -> None:
    driver.prepare(tmp_path)
    chance = random.Random()
    for _ in range(8):
        process = subprocess.Popen(
            [sys.executable, driver.__file__, str(tmp_path), "local[2]"],
            env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)},
            stderr=subprocess.DEVNULL,
        )
        try:
            process.wait(chance.uniform(5, 25))
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
    driver.pipeline(spark, tmp_path).run_once()
    assert rows(spark, tmp_path) == undisturbed


@pytest.mark.soak
def test_executor_and_driver_killed_on_a_local_cluster(spark: Any, undisturbed: Any, tmp_path: Path) -> None:
    driver.prepare(tmp_path)
    run(tmp_path, "local-cluster[2,1,512]", TIDINGS_KILL_EXECUTOR=f"local-{os.getpid()}", TIDINGS_FAIL_AT="written:4")
    assert (tmp_path / "killed").exists()
    driver.pipeline(spark, tmp_path).run_once()
    assert rows(spark, tmp_path) == undisturbed


@pytest.mark.soak
def test_executor_and_driver_killed_on_a_standalone_master(
    spark: Any, undisturbed: Any, tmp_path: Path, standalone: str
) -> None:
    driver.prepare(tmp_path)
    mark = f"standalone-{os.getpid()}"
    run(tmp_path, standalone, TIDINGS_KILL_EXECUTOR=mark, TIDINGS_FAIL_AT="published:3", PYSPARK_PYTHON=sys.executable)
    assert (tmp_path / "killed").exists()
    driver.pipeline(spark, tmp_path).run_once()
    assert rows(spark, tmp_path) == undisturbed
