"""Codes: 16-bit numbers in the place of bounds and values, so that 64 lanes fit into a few registers.

Each segment learns one monotone code per dimension from its own bounds, in one of two ways.

EXACT, up to 16,000 different bounds: every other code is a bound, those between are the gaps. An open bound takes the code of
the gap beside it, so comparing codes is comparing numbers, open and closed ends included (numbers are dense).
BINS, beyond that: 8,192 bins of equal depth. A value in the very bin of a bound is ambiguous, and the exact row decides. The
same holds in EXACT for a bound that was not among those learned from. So codes change speed, never results.

    code    -32768     -32767       -32766 ... 32765   32766        32767
    lower   any        unbounded    a bound
    upper                           a bound            unbounded    any

"any" is a dimension that a box does not mention: it passes even where the event has no value. "unbounded" demands a value.
An event meets a box iff in each dimension lower <= code of its upper end and code of its lower end <= upper.

Cost: about 10 ns per value: a uniform grid narrows the search to a few bounds.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from tidings.compiled import inner, kernel
from tidings.matching.boxtree.memory import (
    Bytes,
    Floats,
    Ints,
    Longs,
    Words,
    address,
    floats,
    ints,
    longs,
    octets,
    words,
)
from tidings.matching.boxtree.rows import HI_OPEN, LO_OPEN, NE, TAG_SHIFT
from tidings.matching.boxtree.vector import lowest

ANY_LOW, ANY_HIGH = -32768, 32767
NO_LOW, NO_HIGH = -32767, 32766
FIRST = -32766
ZERO = FIRST + 1  # the code of 0 in a flag dimension, whose bounds are 0 and 1

_MAX_EXACT = 16_000
_BINS = 8_192
_SAMPLE = 40_000  # rows per dimension that codes are learned from
_MAX_CELLS = 2_048
_BOUNDS_PER_CELL = 4

# The words of a table that describe codes to a kernel: sizes and addresses.
LOCAL_SIZE, LOCAL, BOUND_START, BOUNDS, EXACT, CELL_START, CELLS, GRID_LOW, GRID_SCALE = range(9)
CODE_WORDS = 9


class Codes(NamedTuple):
    """The codes of the dimensions that a segment uses; local numbers count them by how many rows use them."""

    local: Ints  # dimension -> local number, -1 if it is not used
    bound_start: Ints
    bounds: Floats
    exact: Bytes
    cell_start: Ints
    cells: Ints  # per cell of the grid: how many bounds lie in earlier cells
    grid_low: Floats
    grid_scale: Floats

    def words(self) -> list[int]:
        return [len(self.local), *(address(array) for array in self)]

    def counts(self) -> Floats:
        """How many codes there are, by local number."""
        bounds = np.diff(self.bound_start)
        return np.where(self.exact == 1, 2 * bounds + 1, bounds + 1).astype(np.float64)


@inner
def code_of(x: float, a: int, shift: int, table: Longs, base: int) -> Any:
    """The code of x in local dimension a, and whether it is exact; `shift` (-1, 0, 1) steps off a bound with an open end."""
    bound_start, bounds = ints(table[base + BOUND_START]), floats(table[base + BOUNDS])
    cell_start, cells = ints(table[base + CELL_START]), ints(table[base + CELLS])
    start, grid = np.int64(bound_start[a]), np.int64(cell_start[a])
    count, last = bound_start[a + 1] - start, cell_start[a + 1] - grid - 2
    low, high = np.int64(0), count
    if last > 0:
        t = (x - floats(table[base + GRID_LOW])[a]) * floats(table[base + GRID_SCALE])[a]
        cell = np.int64(0)
        if t >= last:
            cell = last
        elif t >= 0:
            cell = np.int64(t) + 1
        low, high = np.int64(cells[grid + cell]), np.int64(cells[grid + cell + 1])
    while low < high:  # how many bounds are below x
        middle = (low + high) >> 1
        if bounds[start + middle] < x:
            low = middle + 1
        else:
            high = middle
    hit = low < count and bounds[start + low] == x
    if octets(table[base + EXACT])[a]:
        return FIRST + 2 * low + (1 + shift if hit else 0), hit
    return FIRST + low + (1 if hit else 0), False


# A record is one row in codes: local dimension (24 bits), marks (8), lower code (16), upper code (16).
INEXACT, VERIFY, RELY = 1, 2, 4


@inner
def record(a: int, marks: int, low: int, high: int) -> Any:
    return (np.uint64((a << 8) | marks) << np.uint64(32)) | np.uint64(((low & 0xFFFF) << 16) | (high & 0xFFFF))


@inner
def dim_of(record: int) -> Any:
    return np.int64(record >> np.uint64(40))


@inner
def marks_of(record: int) -> Any:
    return np.int64(record >> np.uint64(32)) & 0xFF


@inner
def low_of(record: int) -> Any:
    return np.int64(np.int16(record >> np.uint64(16)))


@inner
def high_of(record: int) -> Any:
    return np.int64(np.int16(record))


class Source(NamedTuple):
    """Lanes to learn from or to build from: a bit per lane that lives, marks, and the slot and the rows of each lane."""

    alive: Words
    multi: Words  # a bit per lane whose slot has more than one lane
    doubt: Words  # a bit per lane that says less than its condition
    slots: Ints
    row_start: Ints
    rows: Floats

    def words(self) -> Longs:
        """What kernels read; they are passed addresses because arrays that are mapped from a file cannot be written to."""
        return np.array([len(self.alive), *(address(array) for array in self)], np.int64)


SOURCE_LANES, SOURCE_ALIVE, SOURCE_MULTI, SOURCE_DOUBT, SOURCE_SLOTS, SOURCE_ROW_START, SOURCE_ROWS = range(7)


@kernel("int64(int64[::1], int64[::1], int64, int64[::1], uint64[::1])", nogil=True)
def encode_lanes(table: Longs, source: Longs, used: int, starts: Longs, records: Words) -> Any:
    """The records of the living lanes of one source, behind the `used` lanes that are there; returns the new `used`."""
    table = longs(table.ctypes.data)
    local, alive, row_start = ints(table[LOCAL]), words(source[SOURCE_ALIVE]), ints(source[SOURCE_ROW_START])
    numbers, tags = floats(source[SOURCE_ROWS]), longs(source[SOURCE_ROWS])
    end = starts[used]
    for word in range(source[SOURCE_LANES]):
        mask = alive[word]
        while mask != 0:
            lane = 64 * word + lowest(mask)
            mask &= mask - np.uint64(1)
            for row in range(row_start[lane], row_start[lane + 1]):
                tag = tags[3 * row + 2]
                a = np.int64(local[tag >> TAG_SHIFT])
                low, high, marks = NO_LOW, NO_HIGH, 0
                if tag & NE:
                    marks = VERIFY
                    if end > starts[used] and dim_of(records[end - 1]) == a:  # the row before demands a value already
                        records[end - 1] |= np.uint64(VERIFY) << np.uint64(32)
                        continue
                else:
                    lower, upper = numbers[3 * row], numbers[3 * row + 1]
                    if lower != -np.inf or tag & LO_OPEN:
                        low, exact = code_of(lower, a, 1 if tag & LO_OPEN else 0, table, 0)
                        if not exact:
                            marks = INEXACT
                    if upper == lower and low != NO_LOW and not tag & (LO_OPEN | HI_OPEN):
                        high = low
                    elif upper != np.inf or tag & HI_OPEN:
                        high, exact = code_of(upper, a, -1 if tag & HI_OPEN else 0, table, 0)
                        if not exact:
                            marks = INEXACT
                records[end] = record(a, marks, low, high)
                end += 1
            used += 1
            starts[used] = end
    return used


@kernel("void(int64[::1], int64[::1])", nogil=True)
def count_rows(source: Longs, counts: Longs) -> None:
    """Add to `counts`, per dimension, how many rows the living lanes of one source have."""
    alive, row_start, tags = words(source[SOURCE_ALIVE]), ints(source[SOURCE_ROW_START]), longs(source[SOURCE_ROWS])
    for word in range(source[SOURCE_LANES]):
        mask = alive[word]
        while mask != 0:
            lane = 64 * word + lowest(mask)
            mask &= mask - np.uint64(1)
            for row in range(row_start[lane], row_start[lane + 1]):
                counts[tags[3 * row + 2] >> TAG_SHIFT] += 1


@kernel("void(int64[::1], int64[::1], int64[::1], int64[::1], float64[::1])", nogil=True)
def sample_bounds(source: Longs, stride: Longs, seen: Longs, ends: Longs, sample: Floats) -> None:
    """Every `stride`-th row of each dimension gives its bounds to the sample, at `ends` of the dimension."""
    alive, row_start = words(source[SOURCE_ALIVE]), ints(source[SOURCE_ROW_START])
    numbers, tags = floats(source[SOURCE_ROWS]), longs(source[SOURCE_ROWS])
    for word in range(source[SOURCE_LANES]):
        mask = alive[word]
        while mask != 0:
            lane = 64 * word + lowest(mask)
            mask &= mask - np.uint64(1)
            for row in range(row_start[lane], row_start[lane + 1]):
                dim = tags[3 * row + 2] >> TAG_SHIFT
                if tags[3 * row + 2] & NE:
                    continue
                if seen[dim] % stride[dim] == 0:
                    end = ends[dim]
                    sample[end], sample[end + 1] = numbers[3 * row], numbers[3 * row + 1]
                    ends[dim] = end + 2
                seen[dim] += 1


class Traits(NamedTuple):
    """What is known of each dimension before anything is learned."""

    flag: Bytes  # it is 0 or 1
    presence: Floats  # the share of events that have it, 0 if unknown


def learn(sources: Sequence[Longs], flags: Bytes) -> tuple[Codes, Ints, Longs]:
    """Codes for all dimensions that the sources use, these dimensions by local number, and how many rows use each.

    Sources are given as their words; `flags` marks the dimensions that are flags.
    """
    dims = len(flags)
    counts = np.zeros(dims, np.int64)
    for source in sources:
        count_rows(source, counts)
    used = np.flatnonzero(counts)
    used = used[np.argsort(-counts[used], kind="stable")]
    stride = np.maximum(1, counts // _SAMPLE)
    room = 2 * ((counts + stride - 1) // stride)
    begins = np.cumsum(room) - room
    ends, seen = begins.copy(), np.zeros(dims, np.int64)
    sample = np.empty(int(room.sum()))
    for source in sources:
        sample_bounds(source, stride, seen, ends, sample)
    learned = [_FLAG if flags[dim] else _learn_bounds(sample[begins[dim] : ends[dim]]) for dim in used.tolist()]
    grids = [_grid(bounds) for bounds, _ in learned]
    local = np.full(int(used.max(initial=-1)) + 1, -1, np.int32)
    local[used] = np.arange(len(used), dtype=np.int32)
    codes = Codes(
        local,
        _starts([len(bounds) for bounds, _ in learned]),
        np.concatenate([bounds for bounds, _ in learned] or [np.empty(0)]),
        np.array([exact for _, exact in learned], np.uint8),
        _starts([len(cells) for cells, _, _ in grids]),
        np.concatenate([cells for cells, _, _ in grids] or [np.empty(0, np.int32)]),
        np.array([low for _, low, _ in grids], np.float64),
        np.array([scale for _, _, scale in grids], np.float64),
    )
    return codes, used.astype(np.int32), counts[used]


_FLAG = (np.array([0.0, 1.0]), True)


def _learn_bounds(sample: Floats) -> tuple[Floats, bool]:
    sample = np.sort(sample[np.isfinite(sample)] + 0.0)  # + 0.0: the two zeros are one bound
    bounds = sample[np.append(True, sample[1:] != sample[:-1])[: len(sample)]]
    if len(bounds) <= _MAX_EXACT:
        return bounds, True
    return np.unique(sample[np.linspace(0, len(sample) - 1, _BINS).astype(np.int64)]), False


def _grid(bounds: Floats) -> tuple[Ints, float, float]:
    """Cells of equal width over the bounds; no cells where a search among all of them is as good."""
    cells = min(_MAX_CELLS, len(bounds) // _BOUNDS_PER_CELL)
    if cells < 2:
        return np.empty(0, np.int32), 0.0, 0.0
    with np.errstate(over="ignore", divide="ignore"):
        low, scale = bounds[0], cells / (bounds[-1] - bounds[0]) * (1 - 1e-12)
    if not 0 < scale < np.inf:
        return np.empty(0, np.int32), 0.0, 0.0
    # The same arithmetic as in code_of; it is monotone, so a value's cell never lies beyond that of a greater one.
    cell = np.minimum((bounds - low) * scale, cells - 1).astype(np.int64) + 1
    earlier = np.cumsum(np.bincount(cell, minlength=cells + 1))
    return np.concatenate([[0], earlier]).astype(np.int32), float(low), float(scale)


def _starts(lengths: Sequence[int]) -> Ints:
    return np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32)
