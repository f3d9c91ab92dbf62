"""Subscriptions as a table: id, types, filter, deadline_s, price, penalty, subscriber, home; and from there to what engines take.

Only `id` and `filter` must be there. The id may be a string or an integer and comes out as it went in. A row that cannot be
used is reported by its id with the reason, and the others run; an id that is there twice stops everything, because nobody can say
which of the two was meant.
"""

import math
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from tidings.errors import InvalidInput, TidingsError
from tidings.language import parse
from tidings.model.subscription import Subscription

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

TERMS = {"deadline_s": math.inf, "price": 1.0, "penalty": 0.0}
COLUMNS = ("id", "types", "filter", *TERMS, "subscriber", "home")
MAX_REPORTED = 20


class Problem(NamedTuple):
    """A row of the subscriptions table that was left out, and why."""

    id: str
    reason: str

    def __str__(self) -> str:
        return f"subscription {self.id}: {self.reason}"


def table_of(subscriptions: "DataFrame | pa.Table") -> pa.Table:
    """The normal form of a subscriptions table; InvalidInput if a column is missing, misplaced, or an id is there twice."""
    table = subscriptions if isinstance(subscriptions, pa.Table) else subscriptions.toArrow()
    missing = [name for name in ("id", "filter") if name not in table.column_names]
    if missing:
        raise InvalidInput(
            f"the subscriptions have no column {' and '.join(missing)}: they have {', '.join(table.column_names)}"
        )
    ids = table["id"]
    ids = ids.cast(pa.int64() if pa.types.is_integer(ids.type) else pa.string())
    columns: dict[str, Any] = {
        "id": ids,
        "types": _column(table, "types", pa.list_(pa.string()), None),
        "filter": _column(table, "filter", pa.string(), None),
        **{name: _column(table, name, pa.float64(), default) for name, default in TERMS.items()},
        "subscriber": pc.coalesce(_column(table, "subscriber", pa.string(), None), ids.cast(pa.string())),
        "home": _column(table, "home", pa.string(), ""),
    }
    found = pa.table({name: column.combine_chunks() for name, column in columns.items()})
    _refuse_repeats(found["id"])
    return found


def _column(table: pa.Table, name: str, kind: pa.DataType, default: Any) -> pa.ChunkedArray:
    if name not in table.column_names:
        return pa.chunked_array([pa.repeat(pa.scalar(default, kind), len(table))])
    column = table[name]
    if pa.types.is_list(kind) and pa.types.is_string(column.type):
        column = pa.chunked_array(
            [[text.replace(",", " ").split() if text else [] for text in column.to_pylist()]], type=kind
        )
    try:
        column = column.cast(kind)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        raise InvalidInput(
            f"subscriptions, column {name!r}: expected {kind}, found {table[name].type} ({error})"
        ) from None
    return column if default is None else pc.fill_null(column, default)


def _refuse_repeats(ids: pa.ChunkedArray) -> None:
    if ids.null_count:
        raise InvalidInput(f"subscriptions: {ids.null_count} of {len(ids)} rows have no id")
    counts = pc.value_counts(ids)
    repeated = counts.filter(pc.greater(counts.field("counts"), 1)).field("values").to_pylist()
    if repeated:
        shown = ", ".join(map(str, repeated[:5])) + (", ..." if len(repeated) > 5 else "")
        raise InvalidInput(f"subscriptions: {len(repeated)} ids are there more than once: {shown}")


def parsed(table: pa.Table, problems: list[Problem]) -> Iterator[tuple[int, Subscription]]:
    """(row, subscription) of every row of the normal form that can be used; the others are added to `problems`."""
    columns = (table[name].to_pylist() for name in ("id", "subscriber", "filter", "types", *TERMS))
    for row, (id, subscriber, text, types, *terms) in enumerate(zip(*columns, strict=True)):
        try:
            if text is None:
                raise InvalidInput("no filter")
            yield row, Subscription(str(id), subscriber, parse(text), tuple(types or ()), *terms)
        except (TidingsError, TypeError) as error:
            problems.append(Problem(str(id), str(error)))


def refuse(problems: list[Problem]) -> None:
    """InvalidInput naming the problems, if there are any: what `strict` asks for."""
    if problems:
        more = f"\n... and {len(problems) - MAX_REPORTED} more" if len(problems) > MAX_REPORTED else ""
        raise InvalidInput("\n".join(map(str, problems[:MAX_REPORTED])) + more)


def read_file(path: str) -> pa.Table:
    """A file of subscriptions on the driver: JSON lines, CSV or Parquet by its name."""
    import pyarrow.csv
    import pyarrow.json
    import pyarrow.parquet

    try:
        match Path(path).suffix.lower():
            case ".jsonl" | ".ndjson" | ".json":
                return pyarrow.json.read_json(path)
            case ".csv":
                return pyarrow.csv.read_csv(path)
            case ".parquet":
                return pyarrow.parquet.read_table(path)
    except FileNotFoundError:
        raise InvalidInput(f"no subscriptions at {path}") from None
    except (pa.ArrowInvalid, OSError) as error:
        raise InvalidInput(f"{path}: no subscriptions: {error}") from None
    raise InvalidInput(f"{path}: expected a .jsonl, .csv or .parquet file of subscriptions, or a versioned table")
