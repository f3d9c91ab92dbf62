"""Spark's Python daemon with everything a worker needs already imported: every worker it forks finds it there.

Only for executors on the driver's machine (`session.py`): elsewhere the package may come with the job. Spark puts its own
archives before the installed PySpark. Every process compiles anew what it imports from there, and lists them again at each of
its tasks, so they leave the path.

Cost: 2 s once, instead of 2 s for each worker.
"""

import contextlib
import gc
import sys
from importlib import import_module
from importlib.machinery import PathFinder
from pathlib import PurePath

_ARCHIVES = ("pyspark", "py4j", "spark-core")

if __name__ == "__main__":
    rest = [
        entry
        for entry in sys.path
        if not (entry.endswith((".zip", ".jar")) and PurePath(entry).name.startswith(_ARCHIVES))
    ]
    if PathFinder.find_spec("pyspark", rest) and PathFinder.find_spec("py4j", rest):
        sys.path[:] = rest
        sys.path_importer_cache.clear()

with contextlib.suppress(Exception):  # a daemon without it still works: the first task imports what is missing
    from tidings.compiled import compile_all

    for name in (
        "concurrent.futures.thread",
        "pandas",
        "pyarrow.compute",
        "pyarrow.pandas_compat",
        "pyspark.sql.worker.plan_data_source_read",
        "pyspark.worker",
        "tidings.broker.catalog",
        "tidings.spark.source",
        "tidings.spark.stage",
    ):
        import_module(name)
    for _ in compile_all():  # or load from the cache
        pass

if __name__ == "__main__":
    from pyspark.daemon import manager

    gc.freeze()  # workers collect garbage after every task: 0.1 s, unless they need not look at all this
    manager()
