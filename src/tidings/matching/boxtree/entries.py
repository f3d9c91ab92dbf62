"""Entries: an event inside of a kernel, per dimension an interval in numbers, in codes and in keys.

What a match writes is a scratch, which kernels find by its addresses. `where` says for each dimension which entry it has: one of
the first ones, if the event does not have the dimension (rows.py). An event changes `where` only for its own dimensions, and
changes it back: so cost follows the event, not what the index knows.
"""

from typing import Any

import numpy as np

from tidings.compiled import inner
from tidings.matching.boxtree.codes import LOCAL, LOCAL_SIZE, code_of
from tidings.matching.boxtree.delta import key_of
from tidings.matching.boxtree.memory import Longs, floats, ints, octets, shorts
from tidings.matching.boxtree.rows import FAILS, FIRST_ENTRY, HI_OPEN, LO_OPEN, NOTHING, TAG_SHIFT, UPPER_FOLLOWS

# The words of a scratch: what it has room for, then addresses.
(
    ROOM_DIMS,
    ROOM_ENTRIES,
    ROOM_SLOTS,
    ROOM_LANES,
    ROOM_LEAVES,
    WHERE,
    HOME,
    DIM,
    LOW,
    HIGH,
    FLAGS,
    KEY_LOW,
    KEY_HIGH,
    BOTTOM,
    TOP,
    FRONT,
    BACK,
    BITS,
    SUMMARY,
    OUT,
    DOUBTS,
    DOUBT_COUNT,
    ROOT,
) = range(23)
SCRATCH_WORDS = 23


@inner
def enter(event: Longs, first: int, last: int, work: Longs) -> Any:
    """Make the pairs first to last of an event its entries; returns how many entries there are."""
    where, home, dims = ints(work[WHERE]), ints(work[HOME]), ints(work[DIM])
    low, high, flags = floats(work[LOW]), floats(work[HIGH]), octets(work[FLAGS])
    key_low, key_high = ints(work[KEY_LOW]), ints(work[KEY_HIGH])
    known = work[ROOM_DIMS]
    entry = FIRST_ENTRY
    i = first
    while i < last:
        tag = event[2 * i]
        lower = np.int64(event[2 * i + 1]).view(np.float64)
        upper = lower
        if tag & UPPER_FOLLOWS:
            i += 1
            upper = np.int64(event[2 * i + 1]).view(np.float64)
        i += 1
        dim = tag >> TAG_SHIFT
        if dim >= known:
            continue
        low[entry] = lower
        high[entry] = upper
        flags[entry] = np.uint8(tag & (LO_OPEN | HI_OPEN))
        key_low[entry] = key_of(lower)
        key_high[entry] = key_of(upper)
        dims[entry] = np.int32(dim)
        home[entry] = where[dim]
        where[dim] = FAILS if tag & NOTHING else entry
        entry += 1
    return entry


@inner
def leave(entries: int, work: Longs) -> None:
    """Undo `enter`."""
    where, home, dims = ints(work[WHERE]), ints(work[HOME]), ints(work[DIM])
    for entry in range(entries - 1, FIRST_ENTRY - 1, -1):
        where[np.int64(dims[entry])] = home[entry]


@inner
def encode_entries(table: Longs, base: int, entries: int, work: Longs) -> None:
    """The codes of all entries in one segment: of the lower end (bottom) and of the upper end (top)."""
    dims, low, high, flags = ints(work[DIM]), floats(work[LOW]), floats(work[HIGH]), octets(work[FLAGS])
    bottom, top = shorts(work[BOTTOM]), shorts(work[TOP])
    local, known = ints(table[base + LOCAL]), table[base + LOCAL_SIZE]
    for entry in range(FIRST_ENTRY, entries):
        dim = np.int64(dims[entry])
        if dim >= known:
            continue
        a = np.int64(local[dim])
        if a < 0:
            continue
        lower, upper, open_ends = low[entry], high[entry], flags[entry]
        code, _ = code_of(lower, a, 1 if open_ends & LO_OPEN else 0, table, base)
        bottom[entry] = np.int16(code)
        if upper != lower or open_ends != 0:
            code, _ = code_of(upper, a, -1 if open_ends & HI_OPEN else 0, table, base)
        top[entry] = np.int16(code)
