"""Segment: many boxes as an immutable tree of blocks, with their exact rows in the order of the lanes.

Leaf i holds lanes 64 i to 64 i + 63; arrays by lane have room for the lanes that a leaf does not fill. Only the bits of the
lanes that live change after a segment is built. It carries its own codes, so it means the same beside any others and in any
process that maps it.

Cost, 1,000,000 boxes of five rows: 1.5 us per box to build; 155 bytes per box, of which 120 are the exact rows.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from tidings.compiled import kernel
from tidings.matching.boxtree.blocks import write_tree
from tidings.matching.boxtree.codes import (
    CODE_WORDS,
    SOURCE_ALIVE,
    SOURCE_DOUBT,
    SOURCE_LANES,
    SOURCE_MULTI,
    SOURCE_ROW_START,
    SOURCE_ROWS,
    SOURCE_SLOTS,
    Codes,
    Source,
    Traits,
    encode_lanes,
    learn,
)
from tidings.matching.boxtree.memory import Array, Floats, Ints, Longs, Words, address, aligned, ints, longs, words
from tidings.matching.boxtree.order import ordered
from tidings.matching.boxtree.rows import ROW_WORDS
from tidings.matching.boxtree.vector import LANES, lowest

_COMMON = 0.9  # a dimension that so many boxes mention is assumed to be in every event, any other in half of them
_MOST_LEVELS = 6
ARRAYS = 18  # beside one per level

# The words that describe a segment to a kernel, behind those of its codes.
ARENA, ALIVE, DOUBT, SLOTS, LEAF_SLOTS, ROW_START, ROWS, LEVELS, LEVEL = range(CODE_WORDS, CODE_WORDS + 9)
SEGMENT_WORDS = LEVEL + 2 * _MOST_LEVELS  # per level, leaves first: number of blocks, address of their lines


class Segment(NamedTuple):
    codes: Codes
    arena: Words
    levels: tuple[Ints, ...]
    alive: Words  # changes: a bit is cleared when its lane's slot is removed
    multi: Words  # a bit per lane whose slot has other lanes too
    doubt: Words  # a bit per lane whose matches have to be verified
    slots: Ints
    leaf_slots: Ints  # of the first lane of each leaf, where the others count up from it; else empty
    row_start: Ints
    rows: Floats
    multi_slots: Ints  # the slots of those lanes, sorted, and the lanes
    multi_lanes: Ints

    @property
    def source(self) -> Source:
        return Source(self.alive, self.multi, self.doubt, self.slots, self.row_start, self.rows)

    def words(self) -> list[int]:
        doubt = address(self.doubt) if self.doubt.any() else 0
        found = [*self.codes.words(), address(self.arena), address(self.alive), doubt]
        found += [address(self.slots), address(self.leaf_slots) if len(self.leaf_slots) else 0]
        found += [address(self.row_start), address(self.rows), len(self.levels)]
        for lines in self.levels:
            found += [len(lines), address(lines)]
        return found + [0] * (SEGMENT_WORDS - len(found))

    def arrays(self) -> list[Array]:
        """All arrays, for a snapshot."""
        own = (self.arena, self.alive, self.multi, self.doubt, self.slots, self.leaf_slots, self.row_start, self.rows)
        return [*self.codes, *own, self.multi_slots, self.multi_lanes, *self.levels]

    @classmethod
    def of(cls, arrays: Sequence[Array]) -> "Segment":
        """The segment whose arrays these are; only the bits of the lanes that live are copied."""
        codes, (arena, alive, *others), levels = arrays[:8], arrays[8:ARRAYS], arrays[ARRAYS:]
        return cls(Codes(*codes), arena, tuple(levels), alive.copy(), *others)

    def lanes_of(self, slot: int, lane: int) -> Sequence[int]:
        """All lanes of a slot, one of which is known."""
        if not int(self.multi[lane >> 6]) >> (lane & 63) & 1:
            return (lane,)
        first, last = np.searchsorted(self.multi_slots, [slot, slot + 1]).tolist()
        return self.multi_lanes[first:last].tolist()  # type: ignore[no-any-return]

    def nbytes(self) -> int:
        return sum(array.nbytes for array in self.arrays())


@kernel(
    "int64(int64[::1], int64, int32[::1], int32[::1], uint64[::1], uint64[::1], int32[::1], int32[::1])",
    nogil=True,
)
def place_lanes(
    source: Longs,
    used: int,
    target: Ints,
    new_slots: Ints,
    new_multi: Words,
    new_doubt: Words,
    new_rows: Ints,
    forward: Ints,
) -> Any:
    """Move the living lanes of one source to their targets: slot, marks, number of rows. `forward` says where each went."""
    alive, multi, doubt = words(source[SOURCE_ALIVE]), words(source[SOURCE_MULTI]), words(source[SOURCE_DOUBT])
    slots, row_start = ints(source[SOURCE_SLOTS]), ints(source[SOURCE_ROW_START])
    for word in range(source[SOURCE_LANES]):
        mask = alive[word]
        while mask != 0:
            lane = LANES * word + lowest(mask)
            bit = mask & (~mask + np.uint64(1))
            mask ^= bit
            to = target[used]
            new_slots[to] = slots[lane]
            new_rows[to + 1] = row_start[lane + 1] - row_start[lane]
            if multi[word] & bit:
                new_multi[to >> 6] |= np.uint64(1) << np.uint64(to & 63)
            if doubt[word] & bit:
                new_doubt[to >> 6] |= np.uint64(1) << np.uint64(to & 63)
            forward[lane] = to
            used += 1
    return used


@kernel("void(int64[::1], int32[::1], int32[::1], int64[::1])", nogil=True)
def copy_rows(source: Longs, forward: Ints, new_row_start: Ints, new_rows: Longs) -> None:
    """Move the rows of one source behind its lanes."""
    row_start, rows = ints(source[SOURCE_ROW_START]), longs(source[SOURCE_ROWS])
    for lane in range(forward.size):
        if forward[lane] >= 0:
            begin, to = ROW_WORDS * np.int64(row_start[lane]), ROW_WORDS * np.int64(new_row_start[forward[lane]])
            for i in range(ROW_WORDS * (row_start[lane + 1] - row_start[lane])):
                new_rows[to + i] = rows[begin + i]


@kernel("void(int32[::1], int64[::1], int32[::1])", nogil=True)
def choose_lanes(order: Ints, cuts: Longs, target: Ints) -> None:
    """Where each lane goes: those between two cuts fill a leaf."""
    for leaf in range(cuts.size - 1):
        for i in range(cuts[leaf], cuts[leaf + 1]):
            target[order[i]] = LANES * leaf + i - cuts[leaf]


def build(sources: Sequence[Source], traits: Traits) -> tuple[Segment, list[Ints]]:
    """A segment of all living lanes of the sources, and per source where each lane went, -1 if it was dead.

    The bits of the lanes that live must not change meanwhile: pass copies.
    """
    tables = [source.words() for source in sources]
    codes, dims, uses = learn(tables, traits.flag)
    count = sum(int(np.bitwise_count(source.alive).sum()) for source in sources)
    starts, records = np.zeros(count + 1, np.int64), np.empty(int(uses.sum()), np.uint64)
    code_table = np.array(codes.words(), np.int64)
    used = 0
    for table in tables:
        used = encode_lanes(code_table, table, used, starts, records)
    presence = np.where(uses > _COMMON * count, 1.0, 0.5)
    presence = np.where(traits.presence[dims] > 0, traits.presence[dims], presence)
    lanes, cuts = ordered(starts, records, codes, presence)
    arena, levels = write_tree(starts, records, lanes, cuts, dims, codes.counts(), presence)
    del records
    target, leaf_sizes = np.empty(count, np.int32), np.diff(cuts)
    choose_lanes(lanes, cuts, target)
    leaves = len(leaf_sizes)
    slots = np.full(leaves * LANES, -1, np.int32)
    multi, doubt = np.zeros(leaves, np.uint64), np.zeros(leaves, np.uint64)
    row_start = np.zeros(leaves * LANES + 1, np.int32)
    forwards = []
    used = 0
    for source, table in zip(sources, tables, strict=True):
        forward: Ints = np.full(len(source.slots), -1, np.int32)
        used = place_lanes(table, used, target, slots, multi, doubt, row_start, forward)
        forwards.append(forward)
    np.cumsum(row_start, out=row_start)
    rows = aligned(ROW_WORDS * int(row_start[-1]), np.float64)
    for table, forward in zip(tables, forwards, strict=True):
        copy_rows(table, forward, row_start, rows.view(np.int64))
    alive = ~np.uint64(0) >> (np.uint64(LANES) - leaf_sizes.astype(np.uint64))
    marks, lanes_by_slot = (alive, multi, doubt), by_slot(slots, multi)
    uneven = np.empty(0, np.int32)
    return Segment(codes, arena, tuple(levels), *marks, slots, uneven, row_start, rows, *lanes_by_slot), forwards


def numbered(segment: Segment, first: int) -> tuple[Segment, Ints]:
    """The segment with its slots numbered anew, from `first` on in the order of the lanes; and the new number of each.

    Where every slot has one lane, those of a leaf then follow from its first one and need not be read to be reported.
    """
    lanes = np.flatnonzero(segment.slots >= 0)
    old = by_lane = segment.slots[lanes]
    alone = not segment.multi.any()
    if not alone:
        by_lane = old[np.sort(np.unique(old, return_index=True)[1])]
    new = np.empty(len(by_lane), np.int32)
    new[by_lane] = np.arange(first, first + len(by_lane))
    slots = segment.slots
    slots[lanes] = new[old]
    multi_slots, multi_lanes = by_slot(slots, segment.multi)
    leaf_slots = slots[::LANES].copy() if alone else segment.leaf_slots
    return segment._replace(leaf_slots=leaf_slots, multi_slots=multi_slots, multi_lanes=multi_lanes), new


def by_slot(slots: Ints, multi: Words) -> tuple[Ints, Ints]:
    """The slots of the marked lanes, sorted, and these lanes."""
    if not multi.any():
        return np.empty(0, np.int32), np.empty(0, np.int32)
    lanes = np.flatnonzero(np.unpackbits(multi.view(np.uint8), bitorder="little")).astype(np.int32)
    lanes = lanes[np.argsort(slots[lanes], kind="stable")]
    return slots[lanes], lanes
