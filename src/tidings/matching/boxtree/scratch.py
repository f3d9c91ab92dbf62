"""Scratch: what one match writes while it runs. Whoever matches takes one from a pool and puts it back."""

import numpy as np

from tidings.matching.boxtree import entries as e
from tidings.matching.boxtree.codes import ANY_HIGH, ANY_LOW, ZERO
from tidings.matching.boxtree.delta import ANY_HIGH as ANY_KEY_HIGH
from tidings.matching.boxtree.delta import ANY_LOW as ANY_KEY_LOW
from tidings.matching.boxtree.memory import (
    KNOWN_LANES,
    KNOWN_SLOTS,
    MOST_LEAVES,
    Array,
    Bytes,
    Ints,
    Longs,
    address,
)
from tidings.matching.boxtree.rows import FAILS, FIRST_ENTRY, IS_ZERO, NEVER, PASSES
from tidings.matching.boxtree.vector import LANES


class Scratch:
    """`work` is what kernels read; `out` holds the slots that were found. root[0] is the address of the newest table."""

    def __init__(self, root: Longs) -> None:
        self.work: Longs = np.zeros(e.SCRATCH_WORDS, np.int64)
        self.work[e.ROOT] = address(root)
        self.out: Ints = np.empty(0, np.int32)
        self._arrays: dict[int, Array] = {}

    def fit(self, table: Longs, absent: Bytes, pairs: int, room: int = 0) -> None:
        """Make room for an index, for an event of so many pairs, and for `room` slots in `out`.

        `absent` says per dimension which entry an event that does not have it takes: FAILS, PASSES or IS_ZERO.
        """
        dims, needed = len(absent), pairs + FIRST_ENTRY
        slots, lanes, leaves = (int(table[word]) for word in (KNOWN_SLOTS, KNOWN_LANES, MOST_LEAVES))
        work = self.work
        if work[e.ROOM_DIMS] != dims:
            self._keep(e.WHERE, absent.astype(np.int32))
            work[e.ROOM_DIMS] = dims
        if work[e.ROOM_ENTRIES] < needed:
            self._entries(2 * needed)
        if work[e.ROOM_SLOTS] < slots:
            slots = _roomy(slots)
            self._keep(e.BITS, np.zeros((slots >> 6) + 1, np.uint64))
            self._keep(e.SUMMARY, np.zeros((slots >> 12) + 1, np.uint64))
            work[e.ROOM_SLOTS] = slots
        room = max(room, slots, lanes)
        if work[e.ROOM_LANES] < room:
            room = _roomy(room)
            self.out = np.empty(room + LANES, np.int32)
            self._keep(e.OUT, self.out)
            self._keep(e.DOUBTS, np.empty(room + LANES, np.int32))
            work[e.ROOM_LANES] = room
        if work[e.ROOM_LEAVES] < leaves:
            leaves = _roomy(leaves)
            self._keep(e.FRONT, np.empty(leaves + LANES, np.int32))
            self._keep(e.BACK, np.empty(leaves + LANES, np.int32))
            work[e.ROOM_LEAVES] = leaves

    def _keep(self, word: int, array: Array) -> None:
        self._arrays[word] = array
        self.work[word] = address(array)

    def _entries(self, room: int) -> None:
        low, high = np.full(room, np.nan), np.full(room, np.nan)
        low[PASSES], high[PASSES] = -np.inf, np.inf
        low[IS_ZERO] = high[IS_ZERO] = 0.0
        self._keep(e.LOW, low)
        self._keep(e.HIGH, high)
        self._keep(e.FLAGS, np.zeros(room, np.uint8))
        self._keep(e.DIM, np.zeros(room, np.int32))
        self._keep(e.HOME, np.zeros(room, np.int32))
        for bottom, top, dtype, least, most, zero in (
            (e.BOTTOM, e.TOP, np.int16, ANY_LOW, ANY_HIGH, ZERO),
            (e.KEY_LOW, e.KEY_HIGH, np.int32, ANY_KEY_LOW, ANY_KEY_HIGH, 0),
        ):
            lower, upper = np.zeros(room, dtype), np.zeros(room, dtype)
            lower[[FAILS, NEVER]], upper[[FAILS, NEVER]] = most, least
            lower[PASSES], upper[PASSES] = least, most
            lower[IS_ZERO] = upper[IS_ZERO] = zero
            self._keep(bottom, lower)
            self._keep(top, upper)
        self.work[e.ROOM_ENTRIES] = room


def _roomy(count: int) -> int:
    return max(64, count + count // 4)
