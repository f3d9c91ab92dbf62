"""What executors and driver agree on: where attributes are in a batch, and what the tables of the pipeline look like.

Without Spark in it, so that a worker imports little.
"""

from typing import NamedTuple

import pyarrow as pa

NOTIFICATIONS_VERSION = 1  # of the notifications schema; it is a column and in the metadata of every file

ACCOUNTS = pa.schema(
    [
        ("event", pa.string()),
        ("subscription", pa.string()),
        ("account", pa.string()),
        ("reason", pa.string()),
        ("broker", pa.string()),
        ("age_s", pa.float64()),
        ("earning", pa.float64()),
        ("type", pa.string()),
        ("at", pa.timestamp("us", "UTC")),
    ]
)
QUARANTINE = pa.schema(
    [("reason", pa.string()), ("event", pa.string()), ("original", pa.string()), ("at", pa.timestamp("us", "UTC"))]
)


class Layout(NamedTuple):
    """Where a worker finds the attributes: in a column, or by key in map columns."""

    columns: dict[str, str]  # attribute -> column of the batch
    maps: dict[str, tuple[str, ...]]  # map column of the batch -> the keys that filters ask for
