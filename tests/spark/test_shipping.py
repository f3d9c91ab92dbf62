"""Executors that do not have the package: it comes with the job, as a wheel or in an archive.

Their Python is a virtual environment that sees what we depend on, where the tests have it, but not us.
"""

import os
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from spark_cluster import cluster

ROOT = Path(__file__).parents[2]
JOB = """
import os, sys
from tidings.spark.match import match
from tidings.spark.session import session, ship

def import_ours(_):
    import tidings
    return tidings.__file__

spark = session("shipping", sys.argv[1], {"spark.executor.memory": "512m"})
if wheel := os.environ.get("SHIP"):
    ship(spark, wheel)
print("HOME", spark.sparkContext.parallelize([0], 1).map(import_ours).first())
events = spark.createDataFrame([("e%d" % n, n) for n in range(100)], "id string, n long")
wanted = spark.createDataFrame([("low", "n < 10"), ("odd", "n IN (1, 3, 95)")], "id string, filter string")
print("FOUND", sorted(map(tuple, match(events, wanted).collect())))
spark.stop()
"""
EXPECTED = sorted([(f"e{n}", "low") for n in range(10)] + [(f"e{n}", "odd") for n in (1, 3, 95)])


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    pip = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation", "--wheel-dir"]
    subprocess.run([*pip, str(folder), str(ROOT)], check=True)
    (made,) = folder.glob("*.whl")
    return made


@pytest.fixture(scope="module")
def bare(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a Python that has everything but us."""
    folder = tmp_path_factory.mktemp("bare") / "env"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(folder)], check=True)
    there = sysconfig.get_path("purelib", vars={"base": str(folder), "platbase": str(folder)})
    Path(there, "others.pth").write_text(
        sysconfig.get_path("purelib") + "\n", "utf-8"
    )  # what stands in its .pth files is not seen
    python = folder / "bin" / "python"
    assert subprocess.run([python, "-c", "import numba, pyarrow, pyspark"]).returncode == 0
    assert subprocess.run([python, "-c", "import tidings"], stderr=subprocess.DEVNULL).returncode != 0
    return folder


@pytest.fixture
def strangers(tmp_path: Path) -> Iterator[str]:
    with cluster(tmp_path) as master:
        yield master


def run(folder: Path, master: str, **environment: str) -> str:
    job = folder / "job.py"
    job.write_text(JOB, "utf-8")
    done = subprocess.run(
        [sys.executable, str(job), master],
        env=os.environ | {"PYSPARK_DRIVER_PYTHON": sys.executable} | environment,
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout


def home(said: str) -> str:
    """Where an executor found us."""
    return said.split("HOME ")[1].splitlines()[0]


@pytest.mark.soak
def test_as_a_wheel(bare: Path, wheel: Path, strangers: str, tmp_path: Path) -> None:
    said = run(tmp_path, strangers, PYSPARK_PYTHON=str(bare / "bin" / "python"), SHIP=str(wheel))
    assert f"FOUND {EXPECTED}" in said
    assert ".zip" in home(said)


@pytest.mark.soak
def test_with_py_files(bare: Path, wheel: Path, strangers: str, tmp_path: Path) -> None:
    archive = shutil.copyfile(wheel, tmp_path / "tidings.zip")
    submit = f"--py-files {archive} pyspark-shell"
    said = run(tmp_path, strangers, PYSPARK_PYTHON=str(bare / "bin" / "python"), PYSPARK_SUBMIT_ARGS=submit)
    assert f"FOUND {EXPECTED}" in said
    assert "tidings.zip" in home(said)


@pytest.mark.soak
def test_with_archives(bare: Path, wheel: Path, strangers: str, tmp_path: Path) -> None:
    whole = shutil.copytree(bare, tmp_path / "whole", symlinks=True)
    with zipfile.ZipFile(wheel) as packed:
        packed.extractall(next((whole / "lib").glob("python*")) / "site-packages")
    with tarfile.open(tmp_path / "whole.tar.gz", "w:gz") as archive:
        archive.add(whole, ".")
    submit = f"--archives {tmp_path / 'whole.tar.gz'}#env pyspark-shell"
    said = run(tmp_path, strangers, PYSPARK_PYTHON="./env/bin/python", PYSPARK_SUBMIT_ARGS=submit)
    assert f"FOUND {EXPECTED}" in said
    assert "/env/lib/" in home(said)
