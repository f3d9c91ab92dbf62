"""Matching one event: down the trees of all segments and through all deltas.

Level by level, the blocks that an event may meet form a front; each block is compared as a whole, and its lanes that pass are
the blocks of the next front. What passes in a leaf has matched, unless a code was ambiguous or a row could not be put into
codes: then the exact rows decide. Blocks further down the front are prefetched while one is compared.

One event is one kernel call that holds the interpreter's lock, so it sees one set of subscriptions, whatever other threads
do.

Cost: one block is 5 to 30 ns. Nothing depends on how many dimensions are known.
"""

from typing import Any

import numpy as np
from numba import types

from tidings.compiled import inner, kernel
from tidings.matching.boxtree import delta as d
from tidings.matching.boxtree import segment as s
from tidings.matching.boxtree.blocks import (
    BOTH,
    COLUMNS_AT,
    FIRST_COLUMN_AT,
    INEXACT_COLUMN,
    LOWER,
    RARE_LINES,
    TAIL_AT,
    UPPER,
    header_lines,
)
from tidings.matching.boxtree.codes import INEXACT, dim_of, high_of, low_of, marks_of
from tidings.matching.boxtree.entries import (
    BACK,
    BITS,
    BOTTOM,
    DOUBT_COUNT,
    DOUBTS,
    FLAGS,
    FRONT,
    HIGH,
    KEY_HIGH,
    KEY_LOW,
    LOW,
    OUT,
    ROOM_DIMS,
    ROOM_ENTRIES,
    ROOM_LANES,
    ROOM_LEAVES,
    ROOM_SLOTS,
    ROOT,
    SUMMARY,
    TOP,
    WHERE,
    encode_entries,
    enter,
    leave,
)
from tidings.matching.boxtree.memory import (
    BYTES,
    DELTAS,
    HAS_MULTI,
    HEAD_WORDS,
    KNOWN_DIMS,
    KNOWN_LANES,
    KNOWN_SLOTS,
    MOST_LEAVES,
    SEGMENTS,
    Ints,
    Longs,
    Shorts,
    Words,
    floats,
    ints,
    longs,
    octets,
    prefetch,
    shorts,
    start_of,
    words,
)
from tidings.matching.boxtree.rows import FIRST_ENTRY, PAIR_BYTES, meets
from tidings.matching.boxtree.vector import LANES, at_least, at_most, copy_lanes, equal, lowest, ones, within

_AHEAD = 12  # how many blocks ahead are prefetched
_NODE_LINES = 3
_LEAF_LINES = 12


@inner
def passing(line: int, masks: Words, halves: Ints, codes: Shorts, where: Ints, bottom: Shorts, top: Shorts) -> Any:
    """The lanes of a block whose codes admit the event."""
    mask = masks[8 * line]
    columns = np.int64(halves[16 * line + COLUMNS_AT])
    p = 32 * (line + header_lines(columns))
    for c in range(columns):
        if mask == 0:
            break
        column = np.int64(halves[16 * line + FIRST_COLUMN_AT + c])
        entry = np.int64(where[column >> 3])
        kind = column & 3
        if kind == BOTH:
            mask &= within(codes, p, p + LANES, top[entry], bottom[entry])
            p += LANES
        elif kind == UPPER:
            mask &= at_least(codes, p, bottom[entry])
        elif kind == LOWER:
            mask &= at_most(codes, p, top[entry])
        else:
            mask &= within(codes, p, p, top[entry], bottom[entry])
        p += LANES
    return mask


@inner
def ambiguous(line: int, halves: Ints, codes: Shorts, where: Ints, bottom: Shorts, top: Shorts) -> Any:
    """The lanes of a block in which some code that is not exact equals that of an end of the event."""
    columns = np.int64(halves[16 * line + COLUMNS_AT])
    p = 32 * (line + header_lines(columns))
    mask = np.uint64(0)
    for c in range(columns):
        column = np.int64(halves[16 * line + FIRST_COLUMN_AT + c])
        kind = column & 3
        entry = np.int64(where[column >> 3])
        if column & INEXACT_COLUMN and entry >= FIRST_ENTRY:
            if kind != UPPER:
                mask |= equal(codes, p, top[entry])
            if kind != LOWER:
                mask |= equal(codes, p + LANES if kind == BOTH else p, bottom[entry])
        p += 2 * LANES if kind == BOTH else LANES
    return mask


@inner
def match_leaf(
    line: int, leaf: int, table: Longs, base: int, masks: Words, halves: Ints, codes: Shorts, work: Longs, found: int
) -> Any:
    """Append the slots of the lanes of one leaf that match; returns how many slots there are now."""
    where, bottom, top = ints(work[WHERE]), shorts(work[BOTTOM]), shorts(work[TOP])
    mask = passing(line, masks, halves, codes, where, bottom, top)
    if mask == 0:
        return found
    mask &= words(table[base + s.ALIVE])[leaf]
    doubtful = ambiguous(line, halves, codes, where, bottom, top)
    tail = np.int64(halves[16 * line + TAIL_AT])
    if tail != 0:
        tail += line
        doubtful |= masks[8 * tail]
        rare = masks[8 * tail + 1] & mask
        while rare != 0:
            j = lowest(rare)
            bit = rare & (~rare + np.uint64(1))
            rare ^= bit
            begin = np.int64(codes[32 * (tail + 1) + j])
            end = np.int64(codes[32 * (tail + 1) + j + 1])
            for i in range(begin, end):
                row = masks[8 * (tail + 1 + RARE_LINES) + i]
                entry = np.int64(where[dim_of(row)])
                low, high = low_of(row), high_of(row)
                if low > top[entry] or bottom[entry] > high:
                    mask ^= bit
                    break
                if marks_of(row) & INEXACT and (low == top[entry] or bottom[entry] == high):
                    doubtful |= bit
    doubtful &= mask
    if doubtful != 0:
        row_start = ints(table[base + s.ROW_START])
        numbers, tags = floats(table[base + s.ROWS]), longs(table[base + s.ROWS])
        low, high, flags = floats(work[LOW]), floats(work[HIGH]), octets(work[FLAGS])
        while doubtful != 0:
            lane = LANES * leaf + lowest(doubtful)
            bit = doubtful & (~doubtful + np.uint64(1))
            doubtful ^= bit
            begin, end = np.int64(row_start[lane]), np.int64(row_start[lane + 1])
            if not meets(numbers, tags, begin, end, where, low, high, flags):
                mask ^= bit
    slots = ints(table[base + s.SLOTS])
    if table[base + s.DOUBT] != 0:
        mask = set_aside(mask, words(table[base + s.DOUBT])[leaf], LANES * leaf, slots, work)
    if table[base + s.LEAF_SLOTS] != 0:
        return report_counted(mask, ints(table[base + s.LEAF_SLOTS])[leaf], ints(work[OUT]), found)
    return report(mask, LANES * leaf, slots, ints(work[OUT]), found)


@inner
def report_counted(mask: Any, first: int, out: Ints, found: Any) -> Any:
    """Append `first` + the number of each lane in the mask; as in `report`."""
    count = ones(mask)
    if count == LANES:
        for j in range(LANES):
            out[found + j] = first + j
        return found + LANES
    if count > LANES // 2:
        for j in range(LANES):
            out[found] = first + j
            found += np.int64((mask >> np.uint64(j)) & np.uint64(1))
        return found
    i = found
    while mask != 0:
        for k in range(8):
            out[i + k] = first + lowest(mask)
            mask &= mask - np.uint64(1)
        i += 8
    return found + count


@inner
def set_aside(mask: Any, doubt: Any, first: int, slots: Ints, work: Longs) -> Any:
    """Note the slots of lanes that have to be verified; returns the other lanes."""
    doubtful = mask & doubt
    doubts, count = ints(work[DOUBTS]), work[DOUBT_COUNT]
    while doubtful != 0:
        doubts[count] = slots[first + lowest(doubtful)]
        doubtful &= doubtful - np.uint64(1)
        count += 1
    work[DOUBT_COUNT] = count
    return mask & ~doubt


@inner
def report(mask: Any, first: int, slots: Ints, out: Ints, found: Any) -> Any:
    """Append the slots of the lanes in the mask, counted from lane `first`; `out` has room for 64 more than there can be."""
    count = ones(mask)
    if count == LANES:
        copy_lanes(slots, first, out, found)
        return found + LANES
    if count > LANES // 2:  # one lane after the other, without a branch that could be mispredicted
        for j in range(LANES):
            out[found] = slots[first + j]
            found += np.int64((mask >> np.uint64(j)) & np.uint64(1))
        return found
    i = found
    while mask != 0:  # in groups of 8, so that the end of the loop is mispredicted once
        for k in range(8):
            out[i + k] = slots[first + (lowest(mask) & 63)]
            mask &= mask - np.uint64(1)
        i += 8
    return found + count


@inner
def match_segment(table: Longs, base: int, entries: int, work: Longs, found: Any) -> Any:
    encode_entries(table, base, entries, work)
    masks, halves, codes = words(table[base + s.ARENA]), ints(table[base + s.ARENA]), shorts(table[base + s.ARENA])
    where, bottom, top = ints(work[WHERE]), shorts(work[BOTTOM]), shorts(work[TOP])
    front, back, slots = ints(work[FRONT]), ints(work[BACK]), ints(table[base + s.SLOTS])
    level = table[base + s.LEVELS] - 1
    size = table[base + s.LEVEL + 2 * level]
    lines = ints(table[base + s.LEVEL + 2 * level + 1])
    for i in range(size):
        front[i] = i
    while level > 0:
        lines_below = ints(table[base + s.LEVEL + 2 * level - 1])
        following = 0
        for i in range(size):
            if i + _AHEAD < size:
                ahead = 8 * np.int64(lines[np.int64(front[i + _AHEAD])])
                for k in range(_NODE_LINES):
                    prefetch(masks, ahead + 8 * k)
            block = np.int64(front[i])
            mask = passing(np.int64(lines[block]), masks, halves, codes, where, bottom, top)
            while mask != 0:
                child = LANES * block + lowest(mask)
                mask &= mask - np.uint64(1)
                back[following] = np.int32(child)
                if following < _AHEAD:
                    ahead = 8 * np.int64(lines_below[child])
                    for k in range(_NODE_LINES):
                        prefetch(masks, ahead + 8 * k)
                following += 1
        front, back = back, front
        size, lines = following, lines_below
        level -= 1
    for i in range(size):
        if i + _AHEAD < size:
            ahead = 8 * np.int64(lines[np.int64(front[i + _AHEAD])])
            for k in range(_LEAF_LINES):
                prefetch(masks, ahead + 8 * k)
            if table[base + s.LEAF_SLOTS] == 0:
                ahead = LANES * np.int64(front[i + _AHEAD])
                for k in range(4):
                    prefetch(slots, ahead + 16 * k)
        leaf = np.int64(front[i])
        found = match_leaf(np.int64(lines[leaf]), leaf, table, base, masks, halves, codes, work, found)
    return found


@inner
def match_delta(table: Longs, base: int, work: Longs, found: Any) -> Any:
    alive, doubt = words(table[base + d.ALIVE]), words(table[base + d.DOUBT])
    slots, out = ints(table[base + d.SLOTS]), ints(work[OUT])
    row_start, numbers, tags = (
        ints(table[base + d.ROW_START]),
        floats(table[base + d.ROWS]),
        longs(table[base + d.ROWS]),
    )
    dims, used, keys = ints(table[base + d.DIMS]), ints(table[base + d.USED_COLUMNS]), ints(table[base + d.KEYS])
    where, low, high, flags = ints(work[WHERE]), floats(work[LOW]), floats(work[HIGH]), octets(work[FLAGS])
    key_low, key_high = ints(work[KEY_LOW]), ints(work[KEY_HIGH])
    for block in range((table[base + d.COUNT] + LANES - 1) // LANES):
        mask = alive[block]
        for column in range(block * d.COLUMNS, block * d.COLUMNS + used[block]):
            if mask == 0:
                break
            dim = np.int64(dims[column])
            if dim >= work[ROOM_DIMS]:  # came after this batch began, so it is a column of later lanes
                break
            entry, p = np.int64(where[dim]), column * 2 * LANES
            mask &= within(keys, p, p + LANES, key_high[entry], key_low[entry])
        passed = mask
        while passed != 0:
            lane = LANES * block + lowest(passed)
            bit = passed & (~passed + np.uint64(1))
            passed ^= bit
            begin, end = np.int64(row_start[lane]), np.int64(row_start[lane + 1])
            if not meets(numbers, tags, begin, end, where, low, high, flags):
                mask ^= bit
        if mask & doubt[block]:
            mask = set_aside(mask, doubt[block], LANES * block, slots, work)
        found = report(mask, LANES * block, slots, out, found)
    return found


@inner
def sort_slots(first: int, last: int, work: Longs) -> Any:
    """Sort the slots in `out` from first to last and keep each once; returns the new end.

    A bit per slot, and a bit per word of those, both zero before and after: linear, whatever the slots are.
    """
    out, bits, summary = ints(work[OUT]), words(work[BITS]), words(work[SUMMARY])
    one = np.uint64(1)
    lowest_word, highest_word = np.int64(1) << 40, np.int64(-1)
    for i in range(first, last):
        slot = np.int64(out[i])
        word = slot >> 6
        bits[word] = bits[word] | (one << np.uint64(slot & 63))
        summary[word >> 6] = summary[word >> 6] | (one << np.uint64(word & 63))
        lowest_word, highest_word = min(lowest_word, word >> 6), max(highest_word, word >> 6)
    end = first
    for top_word in range(lowest_word, highest_word + 1):
        summarised = summary[top_word]
        summary[top_word] = np.uint64(0)
        while summarised != 0:
            word = LANES * top_word + lowest(summarised)
            summarised &= summarised - one
            mask = bits[word]
            bits[word] = np.uint64(0)
            while mask != 0:
                out[end] = np.int32(LANES * word + lowest(mask))
                mask &= mask - one
                end += 1
    return end


@inner
def append_doubts(first: int, last: int, flip: int, many: int, work: Longs) -> Any:
    """Put the slots that have to be verified behind those from first to last, as slot ^ flip; returns the new end.

    Where slots may have `many` lanes, each is put there once, and not at all if it was found without doubt.
    """
    out, doubts, bits = ints(work[OUT]), ints(work[DOUBTS]), words(work[BITS])
    one = np.uint64(1)
    if many:
        for i in range(first, last):
            slot = np.int64(out[i])
            bits[slot >> 6] |= one << np.uint64(slot & 63)
    end = last
    for i in range(work[DOUBT_COUNT]):
        slot = np.int64(doubts[i])
        bit = one << np.uint64(slot & 63)
        if many and bits[slot >> 6] & bit:
            continue
        bits[slot >> 6] |= bit
        out[end] = slot ^ flip
        end += 1
    for i in range(first, end):
        bits[np.int64(out[i] if i < last else out[i] ^ flip) >> 6] = 0
    work[DOUBT_COUNT] = 0
    return end


@inner
def match_entries(table: Longs, entries: int, work: Longs, found: Any) -> Any:
    base = HEAD_WORDS
    for _ in range(table[SEGMENTS]):
        found = match_segment(table, base, entries, work, found)
        base += s.SEGMENT_WORDS
    for _ in range(table[DELTAS]):
        found = match_delta(table, base, work, found)
        base += d.DELTA_WORDS
    return found


@inner
def fits(table: Longs, pairs: int, work: Longs) -> Any:
    """Whether a scratch has room for all that this index and an event of so many pairs may need."""
    return (
        work[ROOM_DIMS] >= table[KNOWN_DIMS]
        and work[ROOM_ENTRIES] >= pairs + FIRST_ENTRY
        and work[ROOM_SLOTS] >= table[KNOWN_SLOTS]
        and work[ROOM_LANES] >= table[KNOWN_LANES]
        and work[ROOM_LEAVES] >= table[MOST_LEAVES]
    )


@kernel(types.int64(BYTES, types.int64[::1]))
def match_one(event: bytes, work: Longs) -> Any:
    """The slots that an event matches, in `out` of the scratch, and behind them those that have to be verified.

    Returns how many there are; -1 if the scratch is too small; -1 - (2^32 * how many there are + how many are sure) if some
    have to be verified.

    The scratch knows where the address of the newest table stands: whatever thread calls, that is what is read.
    """
    work, pairs = longs(work.ctypes.data), len(event) // PAIR_BYTES
    table = longs(longs(work[ROOT])[0])
    if not fits(table, pairs, work):
        return -1
    entries = enter(longs(start_of(event)), 0, pairs, work)
    found = match_entries(table, entries, work, 0)
    leave(entries, work)
    if table[HAS_MULTI]:
        found = sort_slots(0, found, work)
    if work[DOUBT_COUNT] != 0:
        total = append_doubts(0, found, 0, table[HAS_MULTI], work)
        return ~((total << 32) | found)
    return found
