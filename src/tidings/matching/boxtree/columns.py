"""Columns of events as pairs for the index: numbers, bools and dates at once, everything else value by value.

Cost: about 10 ns per number, as much per string or set as in an event of its own.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np

from tidings.matching.boxtree.fields import BOOL, DATE, EXACT, NUMBER, PRESENT, Field, Fields, Pairs
from tidings.matching.boxtree.memory import Array, Floats, Longs
from tidings.matching.boxtree.rows import NOTHING
from tidings.matching.columns import length, plain
from tidings.model.value import TYPE, Value, checked, checked_name

Part = tuple[Longs, Longs, Floats]  # row, tag, number


def column_pairs(fields: Fields, columns: Mapping[str, Any]) -> tuple[Longs, Longs]:
    """The pairs of all events, and where those of each event begin (and the last one's end)."""
    count = length(columns)
    parts: list[Part] = []
    for name, column in columns.items():
        field = fields.by_name.get(name if name == TYPE else checked_name(name))
        numbers = _numbers(column)
        if field is None:
            if numbers is None:
                _checked(name, column)
        elif numbers is None:
            parts.append(_by_value(field, _checked(name, column)))
        else:
            parts += _at_once(field, fields.lenient, *numbers)
    rows, tags, values = (np.concatenate([np.empty(0, np.int64), *(part[i] for part in parts)]) for i in range(3))
    order = np.argsort(rows, kind="stable")  # the two pairs of an interval stay together
    pairs = np.empty((len(order), 2), np.float64)
    pairs[:, 1] = values[order]
    words: Longs = pairs.view(np.int64)
    words[:, 0] = tags[order]
    return words.ravel(), np.searchsorted(rows[order], np.arange(count + 1)).astype(np.int64)


class Rows:
    """Single events of a batch, for those that have to be verified."""

    def __init__(self, columns: Mapping[str, Any]) -> None:
        self._values = {name: plain(column) for name, column in columns.items()}
        self._known: dict[int, dict[str, Value]] = {}

    def __getitem__(self, row: int) -> dict[str, Value]:
        found = self._known.get(row)
        if found is None:
            found = self._known[row] = {}
            for name, values in self._values.items():
                value = values[row]
                if value is not None and value == value:
                    found[name] = checked(value, f"row {row}, column {name!r}")
        return found


def _numbers(column: Any) -> tuple[str, Floats, Array] | None:
    """The aspect, all numbers, and which of them are there; None for a column of another kind, or not exact as floats."""
    array = _as_numpy(column)
    if array is None or array.dtype.kind not in "fiubM":
        return None
    if array.dtype.kind == "f":
        numbers = array.astype(np.float64)
        return NUMBER, numbers, ~np.isnan(numbers)
    there = np.ones(len(array), bool)
    aspect = BOOL if array.dtype.kind == "b" else NUMBER
    if array.dtype.kind == "M":
        there = ~np.isnat(array)
        array, aspect = np.where(there, array, np.datetime64(0, "us")).astype("datetime64[us]").astype(np.int64), DATE
    if aspect != BOOL and len(array) and not -EXACT <= int(array.min()) <= int(array.max()) <= EXACT:
        return None
    return aspect, array.astype(np.float64), there


def _as_numpy(column: Any) -> Array | None:
    if not hasattr(column, "to_pylist"):
        return np.asarray(column)
    if getattr(column, "null_count", 1) != 0 or not hasattr(column, "to_numpy"):
        return None
    kind = str(column.type)
    if kind in ("double", "float", "bool") or kind.startswith(("int", "uint", "timestamp[us")):
        return np.asarray(column.to_numpy(zero_copy_only=False))
    return None


def _at_once(field: Field, lenient: bool, aspect: str, numbers: Floats, there: Array) -> list[Part]:
    rows = np.flatnonzero(there)

    def part(tag: int, values: Floats) -> Part:
        return rows, np.full(len(rows), tag, np.int64), values

    found = []
    for known, tag in field.tags.items():
        if known == aspect:
            found.append(part(tag, numbers[rows]))
        elif known == PRESENT:
            found.append(part(tag, np.ones(len(rows))))
        elif lenient:
            found.append(part(tag | NOTHING, np.zeros(len(rows))))
    return found


def _checked(name: str, column: Any) -> list[Any]:
    """Values that the model carries, None where there are none."""
    values = plain(column)
    for row, value in enumerate(values):
        if value is None or (type(value) is str and value.isascii()):
            continue
        values[row] = None if value != value else checked(value, f"row {row}, column {name!r}")
    return values


def _by_value(field: Field, values: list[Any]) -> Part:
    pairs: Pairs = []
    rows: list[int] = []
    for row, value in enumerate(values):
        if value is not None:
            before = len(pairs)
            field.encode(value, pairs)
            rows += [row] * ((len(pairs) - before) // 2)
    return (
        np.array(rows, np.int64),
        np.array(pairs[::2], np.int64),
        np.array(pairs[1::2], np.float64),
    )
