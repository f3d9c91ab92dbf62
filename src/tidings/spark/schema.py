"""Which column of a DataFrame is which attribute, and what the tables of the pipeline look like.

Attributes are columns: scalars, fields of structs by their dotted path, arrays as sets, timestamps as dates, and the keys of
map columns for attributes that nobody declared. A null is a missing attribute, a null or NaN inside of an array no element.
Decimals are compared as doubles (as bigint where they have no fraction and fit), so `price = 0.1` means what it says.
"""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from pyspark.sql import Column
from pyspark.sql import functions as F
from pyspark.sql import types as T

from tidings.errors import InvalidInput
from tidings.model.value import TYPE
from tidings.spark.layout import Layout

CORRUPT = "_corrupt_record"  # what Spark's readers put a line into that does not fit its schema
_BIGINT_DIGITS = 18
_SCALARS = (T.NumericType, T.StringType, T.BooleanType, T.TimestampType, T.TimestampNTZType, T.DateType, T.NullType)


class Roles(NamedTuple):
    """Which columns of the events are not attributes but say who, what, when and how long."""

    id: str | None = "id"
    type: str | None = None
    timestamp: str | None = None
    timeout_s: str | None = None

    def checked(self, schema: T.StructType) -> "Roles":
        """Only columns that exist, or InvalidInput."""
        for role, column in zip(self._fields, self, strict=True):
            if column is not None and column not in schema.names:
                raise InvalidInput(
                    f"the events have no column {column!r} ({role}): they have {', '.join(schema.names)}"
                )
        return self

    @classmethod
    def found(cls, schema: T.StructType) -> "Roles":
        """The columns that bear the customary names."""
        return cls(*(name if name in schema.names else None for name in ("id", "type", "timestamp", "timeout_s")))


class Resolved(NamedTuple):
    layout: Layout
    selected: list[Column]  # what the worker is sent, besides roles and kept columns
    absent: list[str]  # attributes that filters ask for and no column can hold


def resolve(
    schema: T.StructType, wanted: Sequence[str], roles: Roles, attributes: Sequence[str] | None, lenient: bool = False
) -> Resolved:
    """The columns that serve the wanted attributes; InvalidInput naming each that no filter can compare.

    `lenient` is for a stream that runs: there a later filter on such a column matches nothing, and the stream goes on.
    """
    taken = {role for role in roles if role is not None} if attributes is None else set()
    leaves: dict[str, tuple[Column, T.DataType]] = {}
    for path, column, kind in _leaves(schema, (), None):
        if path.split(".", 1)[0] in taken or path in taken or path == CORRUPT:
            continue
        if path in leaves:
            raise InvalidInput(f"the events have two columns that are called {path!r}")
        leaves[path] = column, kind
    if attributes is not None:
        unknown = [name for name in attributes if name not in leaves]
        if unknown:
            raise InvalidInput(f"the events have no column {', '.join(unknown)}: they have {', '.join(leaves)}")
        leaves = {name: leaves[name] for name in attributes}
    open_maps = {path: column for path, (column, kind) in leaves.items() if _is_open(kind)}

    columns: dict[str, str] = {}
    keys: list[str] = []
    selected: list[Column] = []
    problems: list[str] = []
    for name in sorted(set(wanted) - {TYPE}):
        if name not in leaves or name in open_maps:
            keys.append(name)
            continue
        column, kind = leaves[name]
        comparable = _comparable(column, kind)
        if comparable is None:
            problems.append(f"{name} ({kind.simpleString()})")
            continue
        columns[name] = f"a{len(columns)}"
        selected.append(comparable.alias(columns[name]))
    if problems and not lenient:
        raise InvalidInput(
            f"no filter can compare the column {', '.join(problems)}: "
            "expected a number, string, boolean, timestamp, date, or an array of strings or numbers"
        )
    maps: dict[str, tuple[str, ...]] = {}
    if keys:
        for path, column in open_maps.items():
            maps[f"m{len(maps)}"] = tuple(keys)
            selected.append(_comparable_values(column, leaves[path][1].valueType).alias(f"m{len(maps) - 1}"))
    return Resolved(Layout(columns, maps), selected, [] if open_maps else keys)


def incomparable(schema: T.StructType, roles: Roles) -> list[str]:
    """The columns that no filter can compare, with their types: for the report."""
    return [
        f"{path} ({kind.simpleString()})"
        for path, column, kind in _leaves(schema, (), None)
        if path not in roles and path != CORRUPT and not _is_open(kind) and _comparable(column, kind) is None
    ]


def quoted(name: str) -> str:
    """A column name as Spark takes it whatever is in it."""
    return f"`{name.replace('`', '``')}`"


def _leaves(
    schema: T.StructType, above: tuple[str, ...], parent: Column | None
) -> Iterator[tuple[str, Column, T.DataType]]:
    for field in schema.fields:
        column = F.col(quoted(field.name)) if parent is None else parent.getField(field.name)
        path = (*above, field.name)
        if isinstance(field.dataType, T.StructType):
            yield from _leaves(field.dataType, path, column)
        else:
            yield ".".join(path), column, field.dataType


def _is_open(kind: T.DataType) -> bool:
    return (
        isinstance(kind, T.MapType)
        and isinstance(kind.keyType, T.StringType)
        and (isinstance(kind.valueType, _SCALARS) or _is_set(kind.valueType))
        and not isinstance(kind.valueType, T.DecimalType)
    )


def _is_set(kind: T.DataType) -> bool:
    return isinstance(kind, T.ArrayType) and isinstance(kind.elementType, T.StringType | T.NumericType)


def _comparable_values(column: Column, kind: T.DataType) -> Column:
    """The values of a map column as the engine takes them."""
    if not isinstance(kind, T.ArrayType | T.DateType | T.NullType):
        return column
    return F.transform_values(column, lambda _, value: _comparable(value, kind))


def _comparable(column: Column, kind: T.DataType) -> Column | None:
    """The column as the engine takes it; None if it cannot."""
    match kind:
        case T.DecimalType():
            return column.cast("bigint" if kind.scale == 0 and kind.precision <= _BIGINT_DIGITS else "double")
        case T.DateType():
            return column.cast("timestamp_ntz")
        case T.NullType():
            return column.cast("string")
        case T.ArrayType() if _is_set(kind):
            if isinstance(kind.elementType, T.DecimalType):
                column = column.cast("array<double>")
            if isinstance(kind.elementType, T.FractionalType):
                return F.filter(column, lambda element: element.isNotNull() & ~F.isnan(element))
            return F.array_compact(column)
    return column if isinstance(kind, _SCALARS) else None


def kinds(schema: T.StructType) -> dict[str, str]:
    """The kind of value (`model/value.py`) of every column that has one."""
    found: dict[str, str] = {}
    for path, _, kind in _leaves(schema, (), None):
        match kind:
            case T.BooleanType():
                found[path] = "bool"
            case T.NumericType():
                found[path] = "number"
            case T.StringType():
                found[path] = "string"
            case T.TimestampType() | T.TimestampNTZType() | T.DateType():
                found[path] = "date"
            case T.ArrayType():
                found[path] = "set"
    return found
