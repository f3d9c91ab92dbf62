"""Batches of events as columns: a mapping of attribute names to NumPy arrays or Arrow arrays of one length.

A null, a NaN, None or NaT is a missing attribute. The column `$type` holds the event types. Arrow is recognised by its
methods, so that the core needs no Arrow to be installed.
"""

import datetime
import math
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from tidings.errors import InvalidEvent
from tidings.model.value import TYPE, Value, checked, checked_name


def length(columns: Mapping[str, Any]) -> int:
    """The common length of the columns; InvalidEvent if they differ."""
    lengths = {name: len(column) for name, column in columns.items()}
    if len(set(lengths.values())) > 1:
        raise InvalidEvent(f"columns of different lengths: {lengths}")
    return next(iter(lengths.values()), 0)


def attributes_of_rows(columns: Mapping[str, Any]) -> Iterator[dict[str, Value]]:
    """The events of a batch one by one, as what `Matcher.encode` takes."""
    count = length(columns)
    lists = {name if name == TYPE else checked_name(name): plain(column) for name, column in columns.items()}
    for row in range(count):
        attributes: dict[str, Value] = {}
        for name, values in lists.items():
            value = values[row]
            if value is not None and not (isinstance(value, float) and math.isnan(value)):
                attributes[name] = checked(value, f"row {row}, column {name!r}")
        yield attributes


def plain(column: Any) -> list[Any]:
    """A column as Python values, None for missing; dates become aware."""
    values = column.to_pylist() if hasattr(column, "to_pylist") else _from_numpy(np.asarray(column))
    return [
        value.replace(tzinfo=datetime.UTC) if isinstance(value, datetime.datetime) and value.tzinfo is None else value
        for value in values
    ]


def _from_numpy(column: np.ndarray) -> list[Any]:
    if column.dtype.kind == "M":
        column = column.astype("datetime64[us]")
    return column.tolist()  # type: ignore[no-any-return]
