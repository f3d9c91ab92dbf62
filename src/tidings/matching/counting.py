"""counting: count the satisfied predicates of each subscription; those that reach their number match.

Yan and Garcia-Molina's counting algorithm as ceem compares itself with it (section 4.2): the same sorted predicate families,
so that binary search finds the satisfied predicates, and then one counter per subscription.

We differ: a) bounds may be closed and a probe may be a region (families.py), b) rows, disjunctions and residuals
(conjunctive.py), c) one byte per counter; what a conjunction has beyond 255 predicates is verified.

Cost: a match touches every satisfied predicate and clears every counter; an insert shifts half a run per predicate. 12 bytes
per predicate and 2 per row beside the rows themselves.
"""

import numpy as np

from tidings.compiled import kernel
from tidings.matching.conjunctive import ConjunctiveMatcher
from tidings.matching.families import ABOVE, BELOW, Floats, Ints
from tidings.matching.rows import Longs
from tidings.matching.table import PredicateTable, first_above, first_not_below, satisfied

Bytes = np.ndarray[tuple[int], np.dtype[np.uint8]]


class Counting(ConjunctiveMatcher):
    name = "counting"
    most_predicates = 255

    def _clear(self) -> None:
        super()._clear()
        self._table = PredicateTable()
        self._needed: Bytes = np.zeros(0, np.uint8)  # row -> number of its predicates
        self._counter: Bytes = np.zeros(0, np.uint8)
        self._found: Ints = np.empty(0, np.int32)

    def nbytes(self) -> int:
        return super().nbytes() + self._table.nbytes()

    def _insert(self, row: int, codes: Ints, keys: Floats) -> None:
        table, families = self._table, codes >> 1
        table.make_room(families, len(self.families))
        self._make_rows()
        self._needed[row] = len(codes)
        _insert(table.start, table.count, table.key, table.row, families, keys, row)

    def _delete(self, row: int, codes: Ints, keys: Floats) -> None:
        table = self._table
        self._needed[row] = 0
        _delete(table.start, table.count, table.key, table.row, codes >> 1, keys, row)

    def _rebuild(self) -> None:
        rows, counts, codes, keys = self.rows.live()
        self._table.build(codes >> 1, keys, np.repeat(rows, counts), len(self.families))
        self._make_rows()
        self._needed[:] = 0
        self._needed[rows] = counts

    def _candidates(self, probe: Floats) -> Ints:
        table, families = self._table, self.families
        found = _match(
            families.dimension,
            families.direction,
            table.start,
            table.count,
            table.key,
            table.row,
            self._needed,
            self._counter[: self.rows.size],
            probe,
            self._found,
        )
        return self._found[:found]

    def _make_rows(self) -> None:
        if len(self.rows.slot) > len(self._needed):
            more = len(self.rows.slot) - len(self._needed)
            self._needed = np.append(self._needed, np.zeros(more, np.uint8))
            self._counter = np.zeros(len(self.rows.slot), np.uint8)
            self._found = np.empty(len(self.rows.slot), np.int32)


@kernel("void(int64[::1], int64[::1], float64[::1], int32[::1], int32[::1], float64[::1], int64)")
def _insert(start: Longs, count: Longs, key: Floats, row: Ints, families: Ints, keys: Floats, new: int) -> None:
    for i in range(families.size):
        family = families[i]
        end = start[family] + count[family]
        place = first_above(key, start[family], end, keys[i])
        for k in range(end, place, -1):
            key[k] = key[k - 1]
            row[k] = row[k - 1]
        key[place] = keys[i]
        row[place] = new
        count[family] += 1


@kernel("void(int64[::1], int64[::1], float64[::1], int32[::1], int32[::1], float64[::1], int64)")
def _delete(start: Longs, count: Longs, key: Floats, row: Ints, families: Ints, keys: Floats, old: int) -> None:
    for i in range(families.size):
        family = families[i]
        end = start[family] + count[family]
        place = first_not_below(key, start[family], end, keys[i])
        while row[place] != old:
            place += 1
        for k in range(place, end - 1):
            key[k] = key[k + 1]
            row[k] = row[k + 1]
        count[family] -= 1


@kernel(
    "int64(int32[::1], int32[::1], int64[::1], int64[::1], float64[::1], int32[::1], uint8[::1], uint8[::1],"
    "float64[:, ::1], int32[::1])"
)
def _match(
    dimension: Ints,
    direction: Ints,
    start: Longs,
    count: Longs,
    key: Floats,
    row: Ints,
    needed: Bytes,
    counter: Bytes,
    probe: Floats,
    found: Ints,
) -> int:
    counter[:] = 0
    matched = 0
    for family in range(dimension.size):
        at = dimension[family]
        begin, end = satisfied(
            key,
            start[family],
            start[family] + count[family],
            direction[family],
            probe[BELOW, at],
            probe[ABOVE, at],
        )
        for k in range(begin, end):
            r = row[k]
            c = counter[r] + np.uint8(1)
            counter[r] = c
            if c == needed[r]:
                found[matched] = r
                matched += 1
    return matched
