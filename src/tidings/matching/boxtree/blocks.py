"""Blocks: 64 boxes side by side, as a kernel compares them; how they are written.

A segment is a tree of blocks. The lanes of a leaf are boxes, those of a node the bounding boxes of 64 blocks below it; all
lie in one arena, in cache lines:

    header   lanes in use (a bit each) | number of columns | line of the tail | dimension << 3 | inexact << 2 | kind, per column
    columns  64 lower codes, or 64 upper codes, or both (see codes.py); the most selective dimension first
    tail     leaves only, if needed: lanes to verify | lanes with rare rows | where each lane's rare rows begin | rare rows

What is left out: a dimension that all lanes of a block share exactly, which the lane above already tests (it is marked to be
relied upon); in nodes, a dimension that would hardly exclude anything; in leaves, a dimension that fewer than 10 lanes mention,
whose records stand in the tail as rare rows. A lane with a NE row is verified on its exact rows.
"""

from typing import Any

import numpy as np

from tidings.compiled import inner, kernel
from tidings.matching.boxtree.codes import (
    ANY_HIGH,
    ANY_LOW,
    INEXACT,
    NO_HIGH,
    NO_LOW,
    RELY,
    VERIFY,
    record,
)
from tidings.matching.boxtree.cuts import BEGIN, DIMS, HIGH, LOW, MARKS, OWNER, Workbench, collect, share
from tidings.matching.boxtree.memory import Floats, Ints, Longs, Words, aligned, ints, longs, octets, shorts, words
from tidings.matching.boxtree.vector import LANES

# Kinds of columns: the two codes are equal in all lanes, only the lower ones matter, only the upper ones, both.
EQUAL, LOWER, UPPER, BOTH = range(4)
INEXACT_COLUMN = 4
_RARE = 8

COLUMNS_AT, TAIL_AT, FIRST_COLUMN_AT = 2, 3, 4  # in 4-byte words of the header
RARE_LINES = 3  # where each lane's rare rows begin: 65 numbers of 2 bytes
_MOST_RARE = 32_000  # beyond, lanes with rare rows are verified instead

MAX_ROOTS = 8  # a level with so few blocks needs none above it
_FEW_LANES = 10
_USEFUL = 0.99


@inner
def header_lines(columns: int) -> Any:
    return (columns + FIRST_COLUMN_AT + 15) >> 4


@kernel(
    "int64(int64[::1], uint64[::1], int32[::1], int64[::1], int64, boolean, boolean, int32[::1], float64[::1], float64[::1],"
    "int64[::1], uint64[::1], int64[::1], int32[::1], int64[::1], uint64[::1])",
    nogil=True,
)
def write_blocks(
    starts: Longs,
    records: Words,
    lanes: Ints,
    cuts: Longs,
    block: int,
    leaf: bool,
    root: bool,
    dims: Ints,
    codes: Floats,
    presence: Floats,
    workbench: Longs,
    arena: Words,
    used: Longs,
    lines: Ints,
    bounding_starts: Longs,
    bounding: Words,
) -> Any:
    """Write the blocks of one level from `block` on, each of the lanes between two cuts, and their bounding boxes.

    used[0] lines of the arena are taken. Returns the first block that was not written: all of them, or the arena is full.
    """
    known, room = codes.size, arena.size
    bench, starts, records = longs(workbench.ctypes.data), longs(starts.ctypes.data), words(records.ctypes.data)
    lanes, masks, halves = ints(lanes.ctypes.data), words(arena.ctypes.data), ints(arena.ctypes.data)
    written = shorts(arena.ctypes.data)
    low, high, marks, owner = shorts(bench[LOW]), shorts(bench[HIGH]), octets(bench[MARKS]), shorts(bench[OWNER])
    column_dims, begin = ints(bench[DIMS]), ints(bench[BEGIN])
    kind, passing, chosen = np.empty(known, np.int64), np.empty(known), np.empty(known, np.int64)
    rare_count = np.zeros(LANES + 1, np.int64)
    while block < cuts.size - 1:
        first, last = cuts[block], cuts[block + 1]
        count = last - first
        found = collect(starts, records, lanes, first, last, 1, bench)
        columns, column_lines, rare, verify = 0, 0, np.int64(0), np.uint64(0)
        end = bounding_starts[block]
        for c in range(found):
            a, present = np.int64(column_dims[c]), np.int64(begin[c + 1] - begin[c])
            common = present == count
            least_low = most_low = np.int64(low[begin[c]])
            least_high = most_high = np.int64(high[begin[c]])
            every_equal, inexact, needed = common, False, False
            admitted = float(count - present)
            for p in range(begin[c], begin[c + 1]):
                lower, upper = np.int64(low[p]), np.int64(high[p])
                least_low, most_low = min(least_low, lower), max(most_low, lower)
                least_high, most_high = min(least_high, upper), max(most_high, upper)
                every_equal &= lower == upper
                inexact |= marks[p] & INEXACT != 0
                needed |= marks[p] & RELY != 0
                if leaf and marks[p] & VERIFY:
                    verify |= np.uint64(1) << np.uint64(owner[p])
                admitted += share(lower, upper, codes[a], presence[a])
            constant = common and least_low == most_low and least_high == most_high
            relied = constant and not root and not (leaf and inexact)
            if common:
                bounding[end] = record(a, RELY if relied else 0, least_low, most_high)
                end += 1
            kind[c] = -1
            if relied:
                continue
            whole = share(least_low, most_high, codes[a], presence[a]) if common else 1.0
            passing[c] = admitted / (count * max(whole, 1e-9))
            if not leaf and not needed and passing[c] > _USEFUL:
                continue
            if leaf and present < _FEW_LANES and present < count:
                kind[c] = _RARE
                rare += present
                continue
            kind[c] = BOTH
            if every_equal:
                kind[c] = EQUAL
            elif most_low <= NO_LOW:
                kind[c] = UPPER
            elif least_high >= NO_HIGH:
                kind[c] = LOWER
            column_lines += 4 if kind[c] == BOTH else 2
            if inexact:
                kind[c] |= INEXACT_COLUMN
            i = columns
            while i > 0 and passing[chosen[i - 1]] > passing[c]:
                chosen[i] = chosen[i - 1]
                i -= 1
            chosen[i] = c
            columns += 1
        if rare > _MOST_RARE:
            for c in range(found):
                if kind[c] == _RARE:
                    for q in range(begin[c], begin[c + 1]):
                        verify |= np.uint64(1) << np.uint64(owner[q])
                    kind[c] = -1
            rare = np.int64(0)
        tail_lines = np.int64(0)
        if rare > 0:
            tail_lines = 1 + RARE_LINES + (rare + 7) // 8
        elif verify != 0:
            tail_lines = np.int64(1)
        body = used[0] + header_lines(columns)
        tail = body + column_lines
        if 8 * (tail + tail_lines) > room:
            return block
        bounding_starts[block + 1] = end
        lines[block] = used[0]
        header = 16 * used[0]
        masks[8 * used[0]] = ~np.uint64(0) >> np.uint64(LANES - count)
        halves[header + COLUMNS_AT], halves[header + TAIL_AT] = columns, tail - used[0] if tail_lines else 0
        p = 32 * body
        for i in range(columns):
            c = chosen[i]
            halves[header + FIRST_COLUMN_AT + i] = (dims[np.int64(column_dims[c])] << 3) | kind[c]
            if kind[c] & 3 != UPPER:
                for j in range(LANES):
                    written[p + j] = ANY_LOW
                for q in range(begin[c], begin[c + 1]):
                    written[p + np.int64(owner[q])] = low[q]
                p += LANES
            if kind[c] & 3 >= UPPER:
                for j in range(LANES):
                    written[p + j] = ANY_HIGH
                for q in range(begin[c], begin[c + 1]):
                    written[p + np.int64(owner[q])] = high[q]
                p += LANES
        if tail_lines:
            masks[8 * tail], masks[8 * tail + 1] = verify, 0
        if rare > 0:
            rare_count[:] = 0
            for c in range(found):
                if kind[c] == _RARE:
                    for q in range(begin[c], begin[c + 1]):
                        rare_count[np.int64(owner[q])] += 1
                        masks[8 * tail + 1] |= np.uint64(1) << np.uint64(owner[q])
            total = 0
            for j in range(LANES + 1):
                written[32 * (tail + 1) + j] = total
                total += rare_count[j]
                rare_count[j] = total - rare_count[j]
            for c in range(found):
                if kind[c] == _RARE:
                    for q in range(begin[c], begin[c + 1]):
                        i = rare_count[np.int64(owner[q])]
                        rare_count[np.int64(owner[q])] += 1
                        masks[8 * (tail + 1 + RARE_LINES) + i] = record(
                            dims[np.int64(column_dims[c])], marks[q], np.int64(low[q]), np.int64(high[q])
                        )
        used[0] = tail + tail_lines
        block += 1
    return block


@kernel("UniTuple(int64, 2)(int64[::1], int32[::1], int64[::1])", nogil=True)
def count_block_rows(starts: Longs, lanes: Ints, cuts: Longs) -> Any:
    """The most rows that a block has, and how many rows the bounding boxes of all blocks may have together.

    A bounding box has rows only where all lanes have one, so not more than the first lane.
    """
    most = common = 0
    for block in range(cuts.size - 1):
        rows = 0
        for i in range(cuts[block], cuts[block + 1]):
            rows += starts[lanes[i] + 1] - starts[lanes[i]]
        most = max(most, rows)
        common += starts[lanes[cuts[block]] + 1] - starts[lanes[cuts[block]]]
    return most, common


def write_tree(
    starts: Longs, records: Words, lanes: Ints, cuts: Longs, dims: Ints, codes: Floats, presence: Floats
) -> tuple[Words, list[Ints]]:
    """The arena of a segment, and per level, leaves first, the line at which each block begins."""
    used = np.zeros(1, np.int64)
    arena: Words = aligned(8 * (64 + 12 * len(cuts)), np.uint64)
    levels: list[Ints] = []
    leaf = True
    while True:
        blocks = len(cuts) - 1
        root = blocks <= MAX_ROOTS
        room, common = count_block_rows(starts, lanes, cuts)
        bench = Workbench(room + 1, len(codes))
        lines: Ints = np.empty(blocks, np.int32)
        bounding_starts = np.zeros(blocks + 1, np.int64)
        bounding = np.empty(common + 1, np.uint64)
        block = 0
        while block < blocks:
            block = write_blocks(
                starts, records, lanes, cuts, block, leaf, root, dims, codes, presence, bench.table, arena, used, lines,
                bounding_starts, bounding,
            )  # fmt: skip
            if block < blocks:
                arena = _copied(arena, 2 * len(arena))
        levels.append(lines)
        if root:
            return _copied(arena, 8 * int(used[0])), levels
        starts, records, leaf = bounding_starts, bounding, False
        lanes = np.arange(blocks, dtype=np.int32)
        cuts = np.append(np.arange(0, blocks, LANES), blocks)


def _copied(arena: Words, size: int) -> Words:
    copy = aligned(size, np.uint64)
    copy[: len(arena)] = arena[:size]
    return copy
