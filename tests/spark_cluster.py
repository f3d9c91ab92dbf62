"""A standalone master and two workers, as processes of their own."""

import contextlib
import os
import signal
import socket
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path

PATIENCE_S = 300


@contextlib.contextmanager
def cluster(folder: Path, **environment: str) -> Iterator[str]:
    """The address of its master; the environment is the executors'."""
    import pyspark

    home = Path(pyspark.__file__).parent
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    master = f"spark://127.0.0.1:{port}"
    environment = (
        os.environ
        | environment
        | {
            "SPARK_HOME": str(home),
            "SPARK_WORKER_DIR": str(folder / "work"),
            "SPARK_LOCAL_DIRS": str(folder / "local"),
            "SPARK_DAEMON_MEMORY": "256m",
            "SPARK_NO_DAEMONIZE": "1",
        }
    )
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
