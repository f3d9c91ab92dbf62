"""Spark's Python daemon with the matching code already imported: every worker it forks finds it there.

Only for executors on the driver's machine (`session.py`): elsewhere the package may come with the job.
"""

import contextlib

with contextlib.suppress(Exception):  # a daemon without it still works: the first task imports what is missing
    import numpy  # noqa: F401
    import pyarrow.compute
    import pyarrow.parquet  # noqa: F401

    from tidings.broker import catalog
    from tidings.spark import worker

    worker.warm(catalog.DEFAULT_MATCHER)

if __name__ == "__main__":
    from pyspark.daemon import manager

    manager()
