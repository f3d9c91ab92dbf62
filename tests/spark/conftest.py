"""One Spark session for the whole run: starting one takes longer than most of these tests."""

import os
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from spark_cluster import cluster


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    from tidings.spark.session import session

    os.environ.setdefault("SPARK_LOCAL_DIRS", str(tmp_path_factory.mktemp("spark")))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        made = session(
            "tests",
            "local[2]",
            {
                "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1",
                "spark.driver.memory": "1g",
                "spark.sql.warehouse.dir": str(tmp_path_factory.mktemp("warehouse")),
            },
        )
    yield made
    made.stop()


@pytest.fixture
def folder(tmp_path: Path) -> str:
    return str(tmp_path)


@pytest.fixture
def standalone(tmp_path: Path) -> Iterator[str]:
    """A master and two workers whose executors see what the tests see."""
    with cluster(tmp_path, PYSPARK_PYTHON=sys.executable, PYTHONPATH=os.pathsep.join(sys.path)) as master:
        yield master
