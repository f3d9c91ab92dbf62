"""The one place that makes a SparkSession, with settings that a laptop needs and that do not fight a cluster's own.

The same call serves `local[*]`, `local-cluster[...]`, `spark://`, YARN and Kubernetes: what is set here is a default that
`conf`, `spark-submit --conf` and spark-defaults.conf override, and only a driver on this machine gets its addresses and memory
set.
"""

import os
import shutil
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from tidings.errors import InvalidInput
from tidings.spark.java import find_java, started_quietly

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# Sensible anywhere; a value that the user or the cluster has set wins.
_DEFAULTS = {
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.execution.arrow.pyspark.enabled": "true",
    "spark.sql.execution.arrow.maxRecordsPerBatch": "65536",
    "spark.sql.streaming.metricsEnabled": "false",
    # The same for all workers, or Spark keeps a daemon for each combination.
    "spark.sql.execution.pyspark.udf.faulthandler.enabled": "true",
    "spark.python.worker.faulthandler.enabled": "true",
    "spark.sql.execution.pyspark.udf.simplifiedTraceback.enabled": "false",
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
    # Plain files: the default takes longer for each micro-batch's two records. Here, too, a record appears by a rename.
    "spark.sql.streaming.checkpointFileManagerClass": (
        "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"
    ),
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
    find_java()
    given = SparkConf()
    master = master or given.get("spark.master", None) or "local[*]"
    on_this_machine = is_local(master)
    if on_this_machine:
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
        # Else workers take whatever python3 comes first on PATH. On a cluster the executors' Python is not ours to name.
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    defaults = {**_DEFAULTS, **(_LOCAL_DEFAULTS if on_this_machine else {})}
    chosen = {name: value for name, value in defaults.items() if not given.contains(name)}
    for name, value in {**chosen, **(conf or {}), "spark.app.name": app, "spark.master": master}.items():
        given.set(name, value)
    with started_quietly(given):
        made = SparkSession.builder.config(conf=given).getOrCreate()
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
