"""One Spark session for the whole run: starting one takes longer than most of these tests."""

import os
import signal
import socket
import subprocess
import sys
import threading
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

PATIENCE_S = 300


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
    """A master and two workers, as processes of their own."""
    import pyspark

    home = Path(pyspark.__file__).parent
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    master = f"spark://127.0.0.1:{port}"
    environment = os.environ | {
        "SPARK_HOME": str(home),
        "SPARK_WORKER_DIR": str(tmp_path / "work"),
        "SPARK_LOCAL_DIRS": str(tmp_path / "local"),
        "SPARK_DAEMON_MEMORY": "256m",
        "PYSPARK_PYTHON": sys.executable,
        "PYTHONPATH": os.pathsep.join(sys.path),
        "SPARK_NO_DAEMONIZE": "1",
    }
    deploy = "org.apache.spark.deploy"
    commands = [[f"{deploy}.master.Master", "-h", "127.0.0.1", "-p", str(port), "--webui-port", "0"]]
    commands += [
        [f"{deploy}.worker.Worker", "-h", "127.0.0.1", "-c", "1", "-m", "600m", "--webui-port", "0", master]
    ] * 2
    processes = []
    try:
        for command in commands:
            processes.append(
                subprocess.Popen(
                    [str(home / "bin" / "spark-class"), *command],
                    env=environment,
                    stdout=subprocess.DEVNULL,
                    stderr=subprocess.DEVNULL,
                    start_new_session=True,
                )
            )
            if len(processes) == 1:
                _listening(port)
        yield master
    finally:
        for process in reversed(processes):
            os.killpg(process.pid, signal.SIGTERM)
        for process in processes:
            process.wait(60)


def _listening(port: int) -> None:
    pause = threading.Event()
    for _ in range(PATIENCE_S * 10):
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return
        pause.wait(0.1)
    raise TimeoutError(f"no master on port {port}")
