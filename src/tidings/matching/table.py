"""The predicate table of `counting` and `ceem`: each family is one sorted run of keys with the rows they belong to.

A run has room to grow and moves to the end of the pool, twice as large, when it is full. Cost: at most four times the space
of its entries after many inserts, 1.1 times after a build.
"""

from typing import Any

import numpy as np

from tidings.compiled import inner
from tidings.matching.families import EQUAL, LOWER, Floats, Ints
from tidings.matching.rows import Longs

_LEAST_ROOM = 4


class PredicateTable:
    """`start`, `count`, `capacity` by family; `key`, `row` and what an engine keeps beside them (`extra`) by place."""

    def __init__(self, **extra: tuple[type, int]) -> None:
        self.start: Longs = np.zeros(0, np.int64)
        self.count: Longs = np.zeros(0, np.int64)
        self.capacity: Longs = np.zeros(0, np.int64)
        self.used = 0
        self.key: Floats = np.empty(0)
        self.row: Ints = np.empty(0, np.int32)
        self.extra: dict[str, Any] = {
            name: np.empty((0, width) if width > 1 else 0, dtype) for name, (dtype, width) in extra.items()
        }

    def nbytes(self) -> int:
        arrays = (self.start, self.count, self.capacity, self.key, self.row, *self.extra.values())
        return sum(array.nbytes for array in arrays)

    def make_room(self, families: Ints, total: int) -> None:
        """Room for one more predicate of each of these families (with repeats), of `total` that exist."""
        if total > len(self.start):
            more = np.zeros(max(total, 2 * len(self.start)) - len(self.start), np.int64)
            self.start, self.count, self.capacity = (
                np.append(array, more) for array in (self.start, self.count, self.capacity)
            )
        short = self.count[families] + len(families) > self.capacity[families]
        for family in np.unique(families[short]).tolist():
            self._move(
                family, max(_LEAST_ROOM, 2 * int(self.capacity[family]), int(self.count[family]) + len(families))
            )

    def build(self, families: Ints, keys: Floats, rows: Ints, total: int) -> Longs:
        """Replace everything by these predicates; returns the column of each in its run."""
        order = np.lexsort((keys, families))
        self.count = np.bincount(families, minlength=total).astype(np.int64)
        self.capacity = self.count + self.count // 8 + _LEAST_ROOM
        ends = np.cumsum(self.capacity)
        self.start, self.used = ends - self.capacity, int(self.capacity.sum())
        column = np.arange(len(order)) - np.repeat(np.cumsum(self.count) - self.count, self.count)
        places = self.start[families[order]] + column
        self.key, self.row = np.empty(self.used), np.empty(self.used, np.int32)
        self.key[places], self.row[places] = keys[order], rows[order]
        for name, array in self.extra.items():
            self.extra[name] = np.empty((self.used, *array.shape[1:]), array.dtype)
        columns = np.empty(len(order), np.int64)
        columns[order] = column
        return columns

    def _move(self, family: int, capacity: int) -> None:
        start, count = int(self.start[family]), int(self.count[family])
        if self.used + capacity > len(self.key):
            size = max(self.used + capacity, 2 * len(self.key))
            self.key, self.row = _longer(self.key, size), _longer(self.row, size)
            self.extra = {name: _longer(array, size) for name, array in self.extra.items()}
        for array in (self.key, self.row, *self.extra.values()):
            array[self.used : self.used + count] = array[start : start + count]
        self.start[family], self.capacity[family] = self.used, capacity
        self.used += capacity


def _longer(array: Any, size: int) -> Any:
    longer = np.empty((size, *array.shape[1:]), array.dtype)
    longer[: len(array)] = array
    return longer


@inner
def first_not_below(key: Floats, start: int, end: int, value: float) -> int:
    """The first place of a sorted run whose key is at least the value."""
    while start < end:
        middle = (start + end) >> 1
        if key[middle] < value:
            start = middle + 1
        else:
            end = middle
    return start


@inner
def first_above(key: Floats, start: int, end: int, value: float) -> int:
    """The first place of a sorted run whose key is greater than the value."""
    while start < end:
        middle = (start + end) >> 1
        if key[middle] <= value:
            start = middle + 1
        else:
            end = middle
    return start


@inner
def satisfied(key: Floats, start: int, end: int, direction: int, below: float, above: float) -> tuple[int, int]:
    """The part of a run that a probe satisfies (ceem, section 3.4: binary search splits a row in two)."""
    if direction == LOWER:
        return start, first_above(key, start, end, below)
    begin = first_not_below(key, start, end, above)
    if direction == EQUAL:
        return begin, max(begin, first_above(key, begin, end, below))
    return begin, end
