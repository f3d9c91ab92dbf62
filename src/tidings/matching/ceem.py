"""ceem: one table of linked predicates, walked row by row; a subscription falls out at its first unsatisfied predicate.

Chen, Ju, Pan, Zou, Gong: "Content-based effective event matching algorithm" (2011), section 3. The predicate table has one
row per family, sorted by threshold. The predicates of a subscription are linked from top to bottom. The subscription list
holds the first predicate of each, the interface list the subscriptions of each connection. A match fills the buckets of
all first predicates, then goes through the rows: binary search splits a row into satisfied and not, and each satisfied
predicate in the row's bucket passes its successor into the bucket of a later row, or reports its subscription.

We differ: a) bounds may be closed, and equalities meet ranges in a region (families.py): Theorem 1 as printed compares them
never; b) rows, disjunctions and residuals (conjunctive.py); c) all rows stand ascending, so the satisfied part of a row of
upper bounds is its end; d) rows of equalities stand on top, where they discard most, whatever order families appeared in;
e) a predicate on a missing attribute fails unless `missing` says "satisfies", the paper's rule.

Cost: a match touches every subscription once and every satisfied prefix of one; an insert shifts half a row per predicate
and repairs two links for each predicate shifted. 32 bytes per predicate and 8 per subscription beside the rows themselves.
"""

import numpy as np

from tidings.compiled import inner, kernel
from tidings.matching.conjunctive import ConjunctiveMatcher
from tidings.matching.families import ABOVE, BELOW, EQUAL, Floats, Ints
from tidings.matching.rows import Longs
from tidings.matching.table import PredicateTable, first_above, satisfied
from tidings.model.event import Event

NEXT_ROW, NEXT_COLUMN, PREVIOUS_ROW, PREVIOUS_COLUMN = range(4)  # of a link
_NONE = -1


class Ceem(ConjunctiveMatcher):
    name = "ceem"

    def _clear(self) -> None:
        super()._clear()
        self._table = PredicateTable(link=(np.int32, 4), bucket=(np.int32, 1))
        self._head: Ints = np.empty((0, 2), np.int32)  # the subscription list: row and column of the first predicate
        self._found: Ints = np.empty(0, np.int32)
        self._walk: Ints = np.empty(0, np.int32)  # families from top to bottom

    def nbytes(self) -> int:
        return super().nbytes() + self._table.nbytes()

    def interfaces(self, event: Event) -> list[str]:
        """The connections (subscribers) that an event goes to, each once, ordered by name: the end of a match (step 3)."""
        return sorted({self.owners[slot] for slot in self.find(self.encode(event.matchable())).tolist()})

    def _insert(self, row: int, codes: Ints, keys: Floats) -> None:
        table, families = self._table, codes >> 1
        table.make_room(families, len(self.families))
        self._make_rows()
        _insert(table.start, table.count, table.key, table.row, table.extra["link"], self._head, families, keys, row)

    def _delete(self, row: int, codes: Ints, keys: Floats) -> None:
        table = self._table
        _delete(table.start, table.count, table.key, table.row, table.extra["link"], self._head, row)

    def _rebuild(self) -> None:
        rows, counts, codes, keys = self.rows.live()
        families = codes >> 1
        columns = self._table.build(families, keys, np.repeat(rows, counts), len(self.families))
        places = self._table.start[families] + columns
        ends = np.cumsum(counts)
        link = self._table.extra["link"]
        link[places, :] = _NONE
        inner = np.ones(len(codes), bool)  # predicates that have a successor
        inner[ends - 1] = False
        upper, lower = np.flatnonzero(inner), np.flatnonzero(inner) + 1
        link[places[upper], NEXT_ROW], link[places[upper], NEXT_COLUMN] = families[lower], columns[lower]
        link[places[lower], PREVIOUS_ROW], link[places[lower], PREVIOUS_COLUMN] = families[upper], columns[upper]
        self._make_rows()
        self._head[:] = _NONE
        self._head[rows, 0], self._head[rows, 1] = families[ends - counts], columns[ends - counts]

    def _candidates(self, probe: Floats) -> Ints:
        table, families = self._table, self.families
        if len(self._walk) != len(families):
            self._walk = np.argsort(families.direction != EQUAL, kind="stable").astype(np.int32)
        found = _match(
            families.dimension,
            families.direction,
            self._walk,
            table.start,
            table.count,
            table.key,
            table.row,
            table.extra["link"],
            self._head[: self.rows.size],
            table.extra["bucket"],
            probe,
            self._found,
        )
        return self._found[:found]

    def _make_rows(self) -> None:
        more = len(self.rows.slot) - len(self._head)
        if more > 0:
            self._head = np.concatenate([self._head, np.full((more, 2), _NONE, np.int32)])
            self._found = np.empty(len(self.rows.slot), np.int32)


@inner
def _shift(
    start: Longs, key: Floats, row: Ints, link: Ints, head: Ints, family: int, first: int, end: int, step: int
) -> None:
    """Move the predicates of a row from `first` up to `end`, both columns, by one step, and repair what points at them."""
    own = start[family]
    for i in range(end - first):
        source = end - 1 - i if step > 0 else first + i
        target = source + step
        a, b = own + source, own + target
        key[b] = key[a]
        row[b] = row[a]
        following, column = link[a, NEXT_ROW], link[a, NEXT_COLUMN]
        previous, previous_column = link[a, PREVIOUS_ROW], link[a, PREVIOUS_COLUMN]
        link[b, NEXT_ROW], link[b, NEXT_COLUMN] = following, column
        link[b, PREVIOUS_ROW], link[b, PREVIOUS_COLUMN] = previous, previous_column
        if previous >= 0:
            link[start[previous] + previous_column, NEXT_COLUMN] = target
        else:
            head[row[b], 1] = target
        if following >= 0:
            link[start[following] + column, PREVIOUS_COLUMN] = target


@kernel(
    "void(int64[::1], int64[::1], float64[::1], int32[::1], int32[:, ::1], int32[:, ::1], int32[::1], float64[::1], int64)"
)
def _insert(
    start: Longs, count: Longs, key: Floats, row: Ints, link: Ints, head: Ints, families: Ints, keys: Floats, new: int
) -> None:
    """Section 3.3: from top to bottom, find the place in each row by binary search, insert, link."""
    previous, column = _NONE, _NONE
    for i in range(families.size):
        family = families[i]
        own, size = start[family], count[family]
        target = first_above(key, own, own + size, keys[i]) - own
        _shift(start, key, row, link, head, family, target, size, 1)
        if previous == family and column >= target:
            column += 1
        place = own + target
        key[place] = keys[i]
        row[place] = new
        link[place, NEXT_ROW] = link[place, NEXT_COLUMN] = _NONE
        link[place, PREVIOUS_ROW] = previous
        link[place, PREVIOUS_COLUMN] = column
        if previous >= 0:
            link[start[previous] + column, NEXT_ROW] = family
            link[start[previous] + column, NEXT_COLUMN] = target
        else:
            head[new, 0] = family
            head[new, 1] = target
        count[family] = size + 1
        previous, column = family, target


@kernel("void(int64[::1], int64[::1], float64[::1], int32[::1], int32[:, ::1], int32[:, ::1], int64)")
def _delete(start: Longs, count: Longs, key: Floats, row: Ints, link: Ints, head: Ints, old: int) -> None:
    """From the last predicate to the first, so that what is left of the subscription stays linked."""
    family, column = head[old, 0], head[old, 1]
    while link[start[family] + column, NEXT_ROW] >= 0:
        place = start[family] + column
        family, column = link[place, NEXT_ROW], link[place, NEXT_COLUMN]
    while family >= 0:
        place = start[family] + column
        above, above_column = link[place, PREVIOUS_ROW], link[place, PREVIOUS_COLUMN]
        if above >= 0:
            link[start[above] + above_column, NEXT_ROW] = _NONE
        _shift(start, key, row, link, head, family, column + 1, count[family], -1)
        count[family] -= 1
        if above == family and above_column > column:
            above_column -= 1
        family, column = above, above_column
    head[old, 0] = _NONE


@kernel(
    "int64(int32[::1], int32[::1], int32[::1], int64[::1], int64[::1], float64[::1], int32[::1], int32[:, ::1],"
    "int32[:, ::1], int32[::1], float64[:, ::1], int32[::1])"
)
def _match(
    dimension: Ints,
    direction: Ints,
    walk: Ints,
    start: Longs,
    count: Longs,
    key: Floats,
    row: Ints,
    link: Ints,
    head: Ints,
    bucket: Ints,
    probe: Floats,
    found: Ints,
) -> int:
    """Section 3.4. The bucket of a row lies beside the row: it never holds more than the row does."""
    ends = start.copy()  # of the buckets
    for s in range(head.shape[0]):  # step 1
        family = head[s, 0]
        if family >= 0:
            end = ends[family]
            bucket[end] = head[s, 1]
            ends[family] = end + 1
    matched = 0
    for family in walk:  # step 2
        own, at = start[family], dimension[family]
        first, last = satisfied(key, own, own + count[family], direction[family], probe[BELOW, at], probe[ABOVE, at])
        first -= own
        width = np.uint64(last - own - first)
        k, size = own, ends[family]
        while k < size:
            while k < size:
                column = bucket[k]
                k += 1
                if np.uint64(column - first) < width:  # first <= column < last, as one comparison
                    place = own + column
                    following = link[place, NEXT_ROW]
                    if following < 0:
                        found[matched] = row[place]
                        matched += 1
                    else:
                        end = ends[following]
                        bucket[end] = link[place, NEXT_COLUMN]
                        ends[following] = end + 1
            size = ends[family]  # the bucket has grown if a subscription has two predicates in this row
    return matched
