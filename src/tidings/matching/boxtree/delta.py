"""Delta: the boxes that were added last, in the order of their arrival, until a merge makes a segment of them.

Blocks of 64 lanes like those of a segment, but nothing has to be learned: the code of a number is the upper half of its
bits, made monotone, and whatever passes is tested on its exact rows. A block has columns for the first 16 dimensions that
its lanes mention; rows in further ones are only tested exactly. The lanes of one slot follow each other.

A delta has room for 1,024 lanes and 8,192 rows (or for one slot that needs more). A full one is left to the next merge and a
new one is begun, so nothing ever waits; as long as nobody merges, a match costs 1 to 3 us more per full delta.

Lanes are written before they are made alive, and what is alive is never rewritten: a reader that copied the bits of the
lanes that live may go on reading while the delta grows.

Cost: 0.2 us to add a box, 180 bytes per lane and 24 per row.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np

from tidings.compiled import inner, kernel
from tidings.matching.boxtree.codes import Source
from tidings.matching.boxtree.memory import (
    HAS_MULTI,
    KNOWN_LANES,
    KNOWN_SLOTS,
    Floats,
    Ints,
    Longs,
    Words,
    address,
    aligned,
    floats,
    ints,
    longs,
    words,
)
from tidings.matching.boxtree.rows import NE, ROW_WORDS, TAG_SHIFT
from tidings.matching.boxtree.vector import LANES

LANES_PER_DELTA = 1_024
_ROWS_PER_DELTA = 8_192
COLUMNS = 16
ANY_LOW, ANY_HIGH = -(2**31), 2**31 - 1

# The words that describe a delta to a kernel.
COUNT, CAPACITY, ROW_CAPACITY, ALIVE, MULTI, DOUBT, SLOTS, ROW_START, ROWS, DIMS, USED_COLUMNS, KEYS = range(12)
DELTA_WORDS = 12


@inner
def key_of(x: float) -> Any:
    """The upper half of a monotone 64-bit code of x; x <= y implies key_of(x) <= key_of(y)."""
    bits = np.float64(x + 0.0).view(np.int64)  # + 0.0: the two zeros are one number
    return np.int32((bits ^ ((bits >> 63) & 0x7FFFFFFFFFFFFFFF)) >> 32)


class Delta:
    def __init__(self, lanes: int = 0, rows: int = 0) -> None:
        """Room for one slot with so many lanes and rows, and for as much as a delta usually takes."""
        blocks = (max(lanes, LANES_PER_DELTA) + LANES - 1) // LANES
        self.capacity = blocks * LANES
        self.row_capacity = max(rows, _ROWS_PER_DELTA)
        self.alive: Words = np.zeros(blocks, np.uint64)
        self.multi: Words = np.zeros(blocks, np.uint64)
        self.doubt: Words = np.zeros(blocks, np.uint64)
        self.slots: Ints = np.full(self.capacity, -1, np.int32)
        self.row_start: Ints = np.zeros(self.capacity + 1, np.int32)
        self.rows: Floats = aligned(ROW_WORDS * self.row_capacity, np.float64)
        self._dims: Ints = np.zeros(blocks * COLUMNS, np.int32)
        self._used_columns: Ints = np.zeros(blocks, np.int32)
        self._keys: Ints = aligned(blocks * COLUMNS * 2 * LANES, np.int32)
        pairs = self._keys.reshape(-1, 2, LANES)
        pairs[:, 0], pairs[:, 1] = ANY_LOW, ANY_HIGH

    @property
    def source(self) -> Source:
        return Source(self.alive, self.multi, self.doubt, self.slots, self.row_start, self.rows)

    def words(self, count: int) -> list[int]:
        arrays = (self.alive, self.multi, self.doubt, self.slots, self.row_start, self.rows)
        columns = (self._dims, self._used_columns, self._keys)
        return [count, self.capacity, self.row_capacity, *(address(array) for array in arrays + columns)]

    def lanes_of(self, slot: int, lane: int) -> Sequence[int]:
        """All lanes of a slot, the first of which is known."""
        last = lane + 1
        if int(self.multi[lane >> 6]) >> (lane & 63) & 1:
            while last < self.capacity and self.slots[last] == slot and int(self.multi[last >> 6]) >> (last & 63) & 1:
                last += 1
        return range(lane, last)

    def nbytes(self) -> Any:
        return sum(array.nbytes for array in vars(self).values() if isinstance(array, np.ndarray))


@kernel("int64(int64[::1], int64, int64[::1], int64, int32, uint64[::1], int64[::1])")
def add_lanes(
    table: Longs, base: int, staged: Longs, boxes: int, slot: int, other_alive: Words, other_lanes: Longs
) -> Any:
    """Append the boxes of a slot to the delta at `base` of the table; returns the first lane, or -1 if there is no room.

    `staged` holds twice the number of rows of each box, plus 1 if it is in doubt, then all rows. In the same step the lanes
    of another slot, which this one replaces, die.
    """
    count = table[base + COUNT]
    alive, multi, doubt = words(table[base + ALIVE]), words(table[base + MULTI]), words(table[base + DOUBT])
    slots = ints(table[base + SLOTS])
    row_start, numbers, tags = ints(table[base + ROW_START]), floats(table[base + ROWS]), longs(table[base + ROWS])
    dims, used, keys = ints(table[base + DIMS]), ints(table[base + USED_COLUMNS]), ints(table[base + KEYS])
    total = 0
    for box in range(boxes):
        total += staged[box] >> 1
    row = np.int64(row_start[count])
    if count + boxes > table[base + CAPACITY] or row + total > table[base + ROW_CAPACITY]:
        return -1
    read = boxes
    for lane in range(count, count + boxes):
        block, j = lane >> 6, lane & 63
        for _ in range(staged[lane - count] >> 1):
            for i in range(ROW_WORDS):
                tags[ROW_WORDS * row + i] = staged[read + i]
            tag, lower, upper = staged[read + 2], numbers[ROW_WORDS * row], numbers[ROW_WORDS * row + 1]
            read += ROW_WORDS
            row += 1
            if tag & NE:
                lower, upper = -np.inf, np.inf
            dim, column = tag >> TAG_SHIFT, 0
            while column < used[block] and dims[block * COLUMNS + column] != dim:
                column += 1
            if column == COLUMNS:
                continue
            if column == used[block]:
                dims[block * COLUMNS + column] = dim
                used[block] += 1
            at = (block * COLUMNS + column) * 2 * LANES + j
            keys[at] = max(keys[at], key_of(lower))
            keys[at + LANES] = min(keys[at + LANES], key_of(upper))
        slots[lane] = slot
        row_start[lane + 1] = row
        if boxes > 1:
            multi[block] |= np.uint64(1) << np.uint64(j)
        if staged[lane - count] & 1:
            doubt[block] |= np.uint64(1) << np.uint64(j)
    for lane in range(count, count + boxes):
        alive[lane >> 6] |= np.uint64(1) << np.uint64(lane & 63)
    clear_lanes(other_alive, other_lanes)
    table[base + COUNT] = count + boxes
    table[KNOWN_LANES] += boxes
    table[KNOWN_SLOTS] = max(table[KNOWN_SLOTS], slot + 1)
    if boxes > 1:
        table[HAS_MULTI] = 1
    return count


@inner
def clear_lanes(alive: Words, lanes: Longs) -> None:
    for lane in lanes:
        alive[lane >> 6] &= ~(np.uint64(1) << np.uint64(lane & 63))


@kernel("void(uint64[::1], int64[::1])")
def kill_lanes(alive: Words, lanes: Longs) -> None:
    """These lanes are dead; one step for whoever matches."""
    clear_lanes(alive, lanes)
