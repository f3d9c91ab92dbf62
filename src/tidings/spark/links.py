"""The links table: for every home broker the path's mu and sigma (seconds per KB) and its hops.

`account` writes it from measurements, the schedule step reads it. Every table that a batch used is kept under its digest, so that
a repeated batch computes the same figures.
"""

import hashlib
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tidings.errors import InvalidInput
from tidings.spark.place import Place
from tidings.spark.schedule import Links
from tidings.spark.subscriptions import read_file

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

SCHEMA = pa.schema([("home", pa.string()), ("mu", pa.float64()), ("sigma", pa.float64()), ("hops", pa.float64())])


def links_table(given: "str | pa.Table | DataFrame") -> pa.Table:
    """home, mu, sigma, hops; InvalidInput if a column is missing or a value makes no sense."""
    table = read_file(given) if isinstance(given, str) else given if isinstance(given, pa.Table) else given.toArrow()
    missing = [name for name in ("home", "mu", "sigma") if name not in table.column_names]
    if missing:
        raise InvalidInput(f"links: no column {', '.join(missing)}; they have {', '.join(table.column_names)}")
    if "hops" not in table.column_names:
        table = table.append_column("hops", pa.array(np.ones(len(table))))
    table = table.select(SCHEMA.names).cast(SCHEMA)
    for name in SCHEMA.names[1:]:
        column = table[name]
        if column.null_count or not pc.all(pc.and_(pc.is_finite(column), pc.greater_equal(column, 0.0))).as_py():
            raise InvalidInput(f"links: {name} must be a finite number that is not negative")
    return table.combine_chunks()


def by_home(table: pa.Table | None, homes: Sequence[str]) -> Links:
    """The table in the order of the homes; a home without a row is here."""
    known = {} if table is None else {row["home"]: row for row in table.to_pylist()}
    rows = [known.get(home, {"mu": 0.0, "sigma": 0.0, "hops": 0.0}) for home in homes]
    return Links(*(np.array([row[name] for row in rows], np.float64) for name in ("mu", "sigma", "hops")))


def keep(out: Place, table: pa.Table) -> str:
    """Store the table under its digest and return that."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as stream:
        stream.write_table(table)
    content = sink.getvalue().to_pybytes()
    name = hashlib.blake2b(content, digest_size=8).hexdigest()
    if not out.has(f"links/{name}.arrow"):
        out.write(f"links/{name}.arrow", content)
    return name


def kept(out: Place, name: str) -> pa.Table | None:
    content = out.read(f"links/{name}.arrow") if name else None
    return None if content is None else pa.ipc.open_stream(content).read_all()
