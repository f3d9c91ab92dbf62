"""Rows: what a box demands of one dimension, exactly; and the test of a box against an event.

A row is three 8-byte words: lower bound, upper bound, and `dimension << 8 | flags`. An infinite closed bound is no bound. A
row with NE demands a value other than its bounds (both are that value); it stands behind the row of the same dimension, if
there is one. A box has at most one row per dimension that is not NE, and no dimension that it does not mention matters to it.

An event has entries: per dimension an interval, which is a point for a plain value. It meets a box iff in each dimension of the
box the two intervals share a number, open and closed ends respected, other than the values that the box excludes. The first
entries stand for the dimensions that an event does not have; which of them, is said per dimension (`where`):

    FAILS    no value: the box does not match
    PASSES   any value: an attribute that the event, or the region, does not constrain
    IS_ZERO  the value 0: flags, 1 where something is present
    NEVER    FAILS, also for a region, which otherwise has anything where it mentions nothing

On its way into a kernel an event is a sequence of pairs (tag, number) with tags like those of rows; the pair after one with
UPPER_FOLLOWS holds the upper end of an interval; NOTHING says that there is no value, whatever holds by default.
"""

from typing import Any

from tidings.compiled import inner
from tidings.matching.boxtree.memory import Bytes, Floats, Ints, Longs

LO_OPEN, HI_OPEN, NE, UPPER_FOLLOWS, NOTHING = 1, 2, 4, 8, 16
TAG_SHIFT = 8
ROW_WORDS = 3
PAIR_BYTES = 16

FAILS, PASSES, IS_ZERO, NEVER = 0, 1, 2, 3
FIRST_ENTRY = 4


@inner
def meets(
    numbers: Floats, tags: Longs, first: int, last: int, where: Ints, low: Floats, high: Floats, flags: Bytes
) -> Any:
    """Whether an event meets the rows first to last; `numbers` and `tags` are two views of the same rows."""
    shared_dim = -1
    shared_low = shared_high = 0.0
    for row in range(first, last):
        tag = tags[3 * row + 2]
        dim = tag >> TAG_SHIFT
        entry = where[dim]
        event_low, event_high, event_flags = low[entry], high[entry], flags[entry]
        lower, upper = numbers[3 * row], numbers[3 * row + 1]
        if tag & NE:
            if dim != shared_dim:
                shared_low, shared_high = event_low, event_high
            if not shared_low <= shared_high or (shared_low == lower and shared_high == lower):
                return False
            continue
        if not (lower <= event_high and event_low <= upper):  # a missing value is NaN
            return False
        if lower == event_high and ((tag & LO_OPEN) or (event_flags & HI_OPEN)):
            return False
        if event_low == upper and ((tag & HI_OPEN) or (event_flags & LO_OPEN)):
            return False
        shared_dim, shared_low, shared_high = dim, max(lower, event_low), min(upper, event_high)
    return True
