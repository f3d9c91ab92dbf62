"""tree: a matching tree; each level tests one attribute, and an event follows every edge that it satisfies.

Aguilera, Strom, Sturman, Astley, Chandra: "Matching events in a content-based subscription system" (1999), the tree that ceem
compares itself with (section 4.2). A test node looks at one attribute; it has value edges (found by hashing), and a don't-care
edge to the next test. Subscriptions hang where their path ends.

We differ: a) ranges: the paper's tests are equalities; here a test node also has range edges, one for each different range
of its attribute, tried one after the other; b) one tree holds all subscriptions (ceem's authors built one for each, to tell
them apart, hence the memory they report); c) a test that only the don't-care edge would leave is left out, as the paper
proposes; d) rows, disjunctions and residuals (conjunctive.py); e) removal prunes what has become empty.

Cost: an insert follows one path; a match visits the satisfied part of the tree, which is little where the upper levels are
equalities and many subscriptions share them, and everything where there are only ranges. About 60 bytes per edge that is
not shared.
"""

from typing import Any

import numpy as np

from tidings.compiled import inner, kernel
from tidings.matching.conjunctive import ConjunctiveMatcher
from tidings.matching.families import ABOVE, BELOW, Floats, Ints, ranges
from tidings.matching.rows import Longs

# An edge, and what it leads to: TEST it leaves; NEXT, PREVIOUS edge of the same test; FIRST test below; ROWS that end here;
# CHAIN to the next edge with the same hash. Edge 0 leads to the root.
TEST, NEXT, PREVIOUS, FIRST, ROWS, CHAIN = range(6)
# A test node: the edge it is reached BY; its DIMENSION; the next test along the don't-care edge (STAR); its first
# VALUE edge and its first RANGE edge.
BY, DIMENSION, STAR, VALUE, RANGE = range(5)
# A row in the list of an edge.
EDGE, AFTER, BEFORE = range(3)
# Counters: edges and tests in use or free, and the first free one of each (linked by NEXT and STAR).
EDGES, TESTS, FREE_EDGE, FREE_TEST = range(4)
_NONE = -1


class Tree(ConjunctiveMatcher):
    name = "tree"

    def _clear(self) -> None:
        super()._clear()
        self._plant()

    def _plant(self) -> None:
        self._edge: Ints = np.full((1, 6), _NONE, np.int32)
        self._bound: Floats = np.empty((1, 2))  # of edges: low and high
        self._test: Ints = np.empty((0, 5), np.int32)
        self._heads: Ints = np.full(16, _NONE, np.int32)  # hash -> edge
        self._place: Ints = np.empty((0, 3), np.int32)  # row -> where it hangs
        self._counters: Longs = np.array([1, 0, _NONE, _NONE])
        self._found: Ints = np.empty(0, np.int32)
        self._stack: Ints = np.empty(0, np.int32)

    def _insert(self, row: int, codes: Ints, keys: Floats) -> None:
        self._hang(np.array([row], np.int32), np.array([len(codes)], np.int32), codes, keys)

    def _rebuild(self) -> None:
        self._plant()
        self._hang(*self.rows.live())

    def _hang(self, rows: Ints, counts: Ints, codes: Ints, keys: Floats) -> None:
        boxes = ranges(counts, codes, keys, self.families)
        self._make_room(len(boxes.dimension))
        _insert(
            self._edge,
            self._bound,
            self._test,
            self._heads,
            self._place,
            self._counters,
            rows,
            boxes.counts,
            boxes.dimension,
            boxes.low,
            boxes.high,
            boxes.low.view(np.int64),
            boxes.high.view(np.int64),
        )

    def _delete(self, row: int, codes: Ints, keys: Floats) -> None:
        _delete(
            self._edge,
            self._bound,
            self._test,
            self._heads,
            self._place,
            self._counters,
            self._bound.view(np.int64),
            row,
        )

    def _candidates(self, probe: Floats) -> Ints:
        probe = probe + 0.0  # -0.0 hashes like 0.0
        found = _match(
            self._edge,
            self._bound,
            self._test,
            self._heads,
            self._place,
            probe,
            probe.view(np.int64),
            self._stack,
            self._found,
        )
        return self._found[:found]

    def _make_room(self, more: int) -> None:
        """Room for so many more edges and tests, and for every row."""
        edges, tests = int(self._counters[EDGES]) + more, int(self._counters[TESTS]) + more
        if edges > len(self._edge):
            size = max(edges, 2 * len(self._edge))
            self._edge, self._bound = _longer(self._edge, size), _longer(self._bound, size)
            self._stack = np.empty(size, np.int32)
        if tests > len(self._test):
            self._test = _longer(self._test, max(tests, 2 * len(self._test)))
        if len(self.rows.slot) > len(self._place):
            self._place = _longer(self._place, len(self.rows.slot))
            self._found = np.empty(len(self.rows.slot), np.int32)
        if edges > len(self._heads):
            self._heads = np.full(1 << (edges - 1).bit_length(), _NONE, np.int32)
            _hash_again(self._edge, self._heads, self._counters, self._bound.view(np.int64))


def _longer(array: Any, size: int) -> Any:
    longer = np.full((size, array.shape[1]), _NONE, array.dtype)
    longer[: len(array)] = array
    return longer


@inner
def _hash(heads: Ints, test: int, low: int, high: int) -> int:
    """Where the chain of an edge begins; `low` and `high` are the bits of its bounds."""
    mixed = (test * 0x9E3779B97F4A7C1 + low) * 0x5851F42D4C957F2D + high * 0x2545F4914F6CDD1D
    mixed ^= (mixed >> 32) & 0xFFFFFFFF
    mixed = mixed * 0x5851F42D4C957F2D
    return (mixed >> 31) & (heads.size - 1)


@kernel("void(int32[:, ::1], int32[::1], int64[::1], int64[:, ::1])")
def _hash_again(edge: Ints, heads: Ints, counters: Longs, bits: Longs) -> None:
    for e in range(1, counters[EDGES]):
        if edge[e, TEST] >= 0:
            h = _hash(heads, edge[e, TEST], bits[e, 0], bits[e, 1])
            edge[e, CHAIN] = heads[h]
            heads[h] = e


@kernel(
    "void(int32[:, ::1], float64[:, ::1], int32[:, ::1], int32[::1], int32[:, ::1], int64[::1], int32[::1], int32[::1],"
    "int32[::1], float64[::1], float64[::1], int64[::1], int64[::1])"
)
def _insert(
    edge: Ints,
    bound: Floats,
    test: Ints,
    heads: Ints,
    place: Ints,
    counters: Longs,
    rows: Ints,
    counts: Ints,
    dimension: Ints,
    low: Floats,
    high: Floats,
    low_bits: Longs,
    high_bits: Longs,
) -> None:
    end = 0
    for r in range(rows.size):
        begin, end = end, end + counts[r]
        at = 0
        for i in range(begin, end):
            before, t = _NONE, edge[at, FIRST]
            while t >= 0 and test[t, DIMENSION] < dimension[i]:
                before, t = t, test[t, STAR]
            if t < 0 or test[t, DIMENSION] != dimension[i]:
                new = counters[FREE_TEST]
                if new >= 0:
                    counters[FREE_TEST] = test[new, STAR]
                else:
                    new = counters[TESTS]
                    counters[TESTS] += 1
                test[new, BY], test[new, DIMENSION], test[new, STAR] = at, dimension[i], t
                test[new, VALUE] = test[new, RANGE] = _NONE
                if before >= 0:
                    test[before, STAR] = new
                else:
                    edge[at, FIRST] = new
                t = new
            h = _hash(heads, t, low_bits[i], high_bits[i])
            e = heads[h]
            while e >= 0 and (edge[e, TEST] != t or bound[e, 0] != low[i] or bound[e, 1] != high[i]):
                e = edge[e, CHAIN]
            if e < 0:
                e = counters[FREE_EDGE]
                if e >= 0:
                    counters[FREE_EDGE] = edge[e, NEXT]
                else:
                    e = counters[EDGES]
                    counters[EDGES] += 1
                side = VALUE if low[i] == high[i] else RANGE
                after = test[t, side]
                edge[e, TEST], edge[e, NEXT], edge[e, PREVIOUS] = t, after, _NONE
                edge[e, FIRST] = edge[e, ROWS] = _NONE
                edge[e, CHAIN] = heads[h]
                heads[h] = e
                bound[e, 0], bound[e, 1] = low[i], high[i]
                if after >= 0:
                    edge[after, PREVIOUS] = e
                test[t, side] = e
            at = e
        row, after = rows[r], edge[at, ROWS]
        place[row, EDGE], place[row, AFTER], place[row, BEFORE] = at, after, _NONE
        if after >= 0:
            place[after, BEFORE] = row
        edge[at, ROWS] = row


@kernel(
    "void(int32[:, ::1], float64[:, ::1], int32[:, ::1], int32[::1], int32[:, ::1], int64[::1], int64[:, ::1], int64)"
)
def _delete(
    edge: Ints, bound: Floats, test: Ints, heads: Ints, place: Ints, counters: Longs, bits: Longs, row: int
) -> None:
    """Take the row from its edge; then, upwards, every edge and test that nothing hangs on any more."""
    e, after, before = place[row, EDGE], place[row, AFTER], place[row, BEFORE]
    if after >= 0:
        place[after, BEFORE] = before
    if before >= 0:
        place[before, AFTER] = after
    else:
        edge[e, ROWS] = after
    while e > 0 and edge[e, ROWS] < 0 and edge[e, FIRST] < 0:
        t, after, before = edge[e, TEST], edge[e, NEXT], edge[e, PREVIOUS]
        if after >= 0:
            edge[after, PREVIOUS] = before
        if before >= 0:
            edge[before, NEXT] = after
        elif bound[e, 0] == bound[e, 1]:
            test[t, VALUE] = after
        else:
            test[t, RANGE] = after
        h = _hash(heads, t, bits[e, 0], bits[e, 1])
        if heads[h] == e:
            heads[h] = edge[e, CHAIN]
        else:
            c = heads[h]
            while edge[c, CHAIN] != e:
                c = edge[c, CHAIN]
            edge[c, CHAIN] = edge[e, CHAIN]
        edge[e, TEST] = _NONE
        edge[e, NEXT] = counters[FREE_EDGE]
        counters[FREE_EDGE] = e
        e = test[t, BY]
        if test[t, VALUE] < 0 and test[t, RANGE] < 0:
            if edge[e, FIRST] == t:
                edge[e, FIRST] = test[t, STAR]
            else:
                c = edge[e, FIRST]
                while test[c, STAR] != t:
                    c = test[c, STAR]
                test[c, STAR] = test[t, STAR]
            test[t, STAR] = counters[FREE_TEST]
            counters[FREE_TEST] = t


@kernel(
    "int64(int32[:, ::1], float64[:, ::1], int32[:, ::1], int32[::1], int32[:, ::1], float64[:, ::1], int64[:, ::1],"
    "int32[::1], int32[::1])"
)
def _match(
    edge: Ints,
    bound: Floats,
    test: Ints,
    heads: Ints,
    place: Ints,
    probe: Floats,
    bits: Longs,
    stack: Ints,
    found: Ints,
) -> int:
    matched = 0
    depth = 0
    e = 0
    while True:
        row = edge[e, ROWS]
        while row >= 0:
            found[matched] = row
            matched += 1
            row = place[row, AFTER]
        t = edge[e, FIRST]
        while t >= 0:
            at = test[t, DIMENSION]
            below, above = probe[BELOW, at], probe[ABOVE, at]
            if below == above:
                c = heads[_hash(heads, t, bits[BELOW, at], bits[BELOW, at])]
                while c >= 0 and (edge[c, TEST] != t or bound[c, 0] != below or bound[c, 1] != below):
                    c = edge[c, CHAIN]
                if c >= 0:
                    stack[depth] = c
                    depth += 1
            elif above < below:  # a region, or a missing attribute that satisfies
                c = test[t, VALUE]
                while c >= 0:
                    if above <= bound[c, 0] <= below:
                        stack[depth] = c
                        depth += 1
                    c = edge[c, NEXT]
            if below > -np.inf or above < np.inf:
                c = test[t, RANGE]
                while c >= 0:
                    if bound[c, 0] <= below and bound[c, 1] >= above:
                        stack[depth] = c
                        depth += 1
                    c = edge[c, NEXT]
            t = test[t, STAR]
        if depth == 0:
            return matched
        depth -= 1
        e = stack[depth]
