"""Cuts: how a set of boxes is best parted in two.

A cut sends the boxes whose lower code in one dimension, or whose negated upper code, is below a threshold to the left, and
with them those without a row in the dimension. The best one leaves the fewest boxes to an event that meets the whole set: a side
is looked at by the share of events that its bounding interval admits.

Inside of kernels, what looks like an array is a pointer (memory.py).
"""

from typing import Any

import numpy as np

from tidings.compiled import inner
from tidings.matching.boxtree.codes import ANY_LOW, FIRST, dim_of, high_of, low_of, marks_of
from tidings.matching.boxtree.memory import Array, Ints, Longs, Words, address, ints, longs, octets, shorts

BUCKETS = 33  # 0: boxes without a row in the dimension; 1 to 32: equal ranges of codes
SMALLEST_SIDE = 24  # a cut leaves at least a 24th on each side
_FAR = 40_000  # beyond all codes

# The words of a workbench: addresses.
LOW, HIGH, MARKS, OWNER, PLACE, DIMS, BEGIN, BOXES = range(8)


class Workbench:
    """Memory for what is known of some boxes: so many rows, of so many dimensions. `table` is what kernels read."""

    def __init__(self, rows: int, dims: int) -> None:
        self._arrays: tuple[Array, ...] = (
            np.empty(rows, np.int16),
            np.empty(rows, np.int16),
            np.empty(rows, np.uint8),
            np.empty(rows, np.int16),
            np.full(dims, -1, np.int32),
            np.empty(dims, np.int32),
            np.empty(dims + 2, np.int32),
            np.empty(4 * BUCKETS, np.int64),
        )
        self.table: Longs = np.array([address(array) for array in self._arrays], np.int64)


@inner
def share(low: int, high: int, codes: float, presence: float) -> float:
    """The share of events that an interval of codes admits; `presence` of them have a value at all."""
    width = min(float(high), FIRST + codes - 1) - max(low, FIRST) + 1
    return min(1.0, max(0.0, width / codes)) * presence


@inner
def collect(starts: Longs, records: Words, lanes: Ints, first: int, last: int, step: int, bench: Longs) -> Any:
    """Sort the records of every `step`-th lane by dimension, on the bench; returns how many dimensions there are.

    Column c holds the lower and upper codes and the marks of the records of DIMS[c], from BEGIN[c] to BEGIN[c + 1]. OWNER
    says which lane, counted from the first, a record belongs to. PLACE is -1 everywhere before and after.
    """
    low, high, marks, owner = shorts(bench[LOW]), shorts(bench[HIGH]), octets(bench[MARKS]), shorts(bench[OWNER])
    place, dims, begin = ints(bench[PLACE]), ints(bench[DIMS]), ints(bench[BEGIN])
    columns = np.int64(0)
    for i in range(first, last, step):
        lane = np.int64(lanes[i])
        for k in range(starts[lane], starts[lane + 1]):
            a = dim_of(records[k])
            c = np.int64(place[a])
            if c < 0:
                c = columns
                place[a] = c
                dims[c] = a
                begin[c + 2] = 0
                columns += 1
            begin[c + 2] += 1
    begin[0] = begin[1] = 0
    for column in range(columns):
        begin[column + 2] += begin[column + 1]
    for number in range((last - first + step - 1) // step):
        lane = np.int64(lanes[first + number * step])
        for k in range(starts[lane], starts[lane + 1]):
            r = records[k]
            c = np.int64(place[dim_of(r)]) + 1
            p = np.int64(begin[c])
            begin[c] = p + 1
            low[p], high[p], marks[p], owner[p] = low_of(r), high_of(r), marks_of(r), number
    for column in range(columns):
        place[np.int64(dims[column])] = -1
    return columns


@inner
def best_cut(first: int, last: int, sign: int, absent: int, codes: float, presence: float, bench: Longs) -> Any:
    """The best threshold on the lower codes (sign 1) or on the negated upper codes (sign -1) of one dimension.

    Returns the expected share of boxes that are still to be looked at once the whole is, and the threshold; 2.0 if there is
    no cut. Negating swaps the ends, so that both cases are one. A bucket is four numbers: how many boxes, their least near
    end, their furthest far end, and the furthest in this bucket or a later one.
    """
    low, high, buckets = shorts(bench[LOW]), shorts(bench[HIGH]), longs(bench[BOXES])
    beyond = FIRST + np.int64(codes)  # where an unbounded upper end counts
    lowest, highest, reach = np.int64(_FAR), np.int64(-_FAR), np.int64(-_FAR)
    for p in range(first, last):
        near = np.int64(low[p]) if sign > 0 else -min(np.int64(high[p]), beyond)
        far = min(np.int64(high[p]), beyond) if sign > 0 else -np.int64(low[p])
        lowest, highest, reach = min(lowest, near), max(highest, near), max(reach, far)
    if lowest == highest and absent == 0:
        return 2.0, np.int64(0)
    whole = 1.0 if absent else admitted(lowest, reach, sign, codes, presence)
    if whole <= 0:
        return 2.0, np.int64(0)
    for b in range(0, 4 * BUCKETS, 4):
        buckets[b] = 0
        buckets[b + 1] = _FAR
        buckets[b + 2] = -_FAR
    buckets[0] = absent
    scale = 32.0 / (highest - lowest + 1)
    for p in range(first, last):
        near = np.int64(low[p]) if sign > 0 else -min(np.int64(high[p]), beyond)
        far = min(np.int64(high[p]), beyond) if sign > 0 else -np.int64(low[p])
        bucket = 4 + 4 * np.int64((near - lowest) * scale)
        buckets[bucket] += 1
        buckets[bucket + 1] = min(buckets[bucket + 1], near)
        buckets[bucket + 2] = max(buckets[bucket + 2], far)
    furthest = np.int64(-_FAR)
    for b in range(4 * BUCKETS - 4, -4, -4):
        furthest = max(furthest, buckets[b + 2])
        buckets[b + 3] = furthest
    total = absent + last - first
    best, threshold = 2.0, np.int64(0)
    left, left_least, left_most = np.int64(0), np.int64(_FAR), np.int64(-_FAR)
    for b in range(0, 4 * BUCKETS - 4, 4):
        left += buckets[b]
        left_least, left_most = min(left_least, buckets[b + 1]), max(left_most, buckets[b + 2])
        right = total - left
        if buckets[b] == 0 or left * SMALLEST_SIDE < total or right * SMALLEST_SIDE < total:
            continue
        following = b + 4
        while buckets[following] == 0:
            following += 4
        left_share = 1.0 if absent else admitted(left_least, left_most, sign, codes, presence)
        right_share = admitted(buckets[following + 1], buckets[following + 3], sign, codes, presence)
        cost = (left * left_share + right * right_share) / (total * whole)
        if cost < best:
            best, threshold = cost, buckets[following + 1]
    return best, threshold


@inner
def admitted(near: int, far: int, sign: int, codes: float, presence: float) -> Any:
    """The share of events that an interval admits whose ends may be negated."""
    return share(near, far, codes, presence) if sign > 0 else share(-far, -near, codes, presence)


@inner
def near_end(starts: Longs, records: Words, lane: int, dim: int, sign: int) -> Any:
    """What a cut compares with its threshold."""
    for k in range(starts[lane], starts[lane + 1]):
        if dim_of(records[k]) == dim:
            return low_of(records[k]) if sign > 0 else -high_of(records[k])
    return ANY_LOW


@inner
def select(keys: Ints, lanes: Ints, shift: int, first: int, last: int, rank: int) -> None:
    """Reorder lanes first to last, and their keys (which begin at `shift`), so that those before `rank` are not greater."""
    low, high = first, last - 1
    while low < high:
        pivot = keys[((low + high) >> 1) - shift]
        i, j = low, high
        while i <= j:
            while keys[i - shift] < pivot:
                i += 1
            while keys[j - shift] > pivot:
                j -= 1
            if i <= j:
                key, lane = keys[i - shift], lanes[i]
                keys[i - shift], lanes[i] = keys[j - shift], lanes[j]
                keys[j - shift], lanes[j] = key, lane
                i += 1
                j -= 1
        if rank <= j:
            high = j
        elif rank >= i:
            low = i
        else:
            return
