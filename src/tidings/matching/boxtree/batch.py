"""Matching many events: a batch runs without the interpreter's lock, on a copy of the bits that say which lanes live.

So it sees one set of subscriptions, that of its beginning, while others add and remove. Events that visit the same blocks are
matched one after the other, so that the blocks are still in the cache.

Cost: 10 to 50% less per event than one at a time, and 8 KB copied per 64,000 boxes.
"""

from typing import Any

import numpy as np

from tidings.compiled import kernel
from tidings.matching.boxtree import delta as d
from tidings.matching.boxtree import segment as s
from tidings.matching.boxtree.entries import BOTTOM, DOUBT_COUNT, OUT, TOP, WHERE, encode_entries, enter, leave
from tidings.matching.boxtree.memory import (
    DELTAS,
    HAS_MULTI,
    HEAD_WORDS,
    KNOWN_LANES,
    KNOWN_SLOTS,
    SEGMENTS,
    SERIAL,
    Bytes,
    Ints,
    Longs,
    Words,
    address,
    ints,
    longs,
    shorts,
    words,
)
from tidings.matching.boxtree.scratch import Scratch
from tidings.matching.boxtree.vector import LANES, lowest
from tidings.matching.boxtree.walk import append_doubts, match_entries, passing, sort_slots

_ROOM = 1 << 20  # slots that are collected before they are brought into order


@kernel("int64(int64[::1], int64[::1], uint64[::1])")
def capture(root: Longs, table: Longs, alive: Words) -> Any:
    """Copy the table, and all bits of lanes that live, so that a batch can match without the lock while lanes come and go.

    Returns the serial number of the table, or -1 if there is not enough room.
    """
    newest = longs(root[0])
    segments, deltas = newest[SEGMENTS], newest[DELTAS]
    size = HEAD_WORDS + segments * s.SEGMENT_WORDS + deltas * d.DELTA_WORDS
    if size > table.size:
        return -1
    for i in range(size):
        table[i] = newest[i]
    begin, used = alive.ctypes.data, 0
    for number in range(segments + deltas):
        if number < segments:
            base = HEAD_WORDS + number * s.SEGMENT_WORDS
            at_word, count = base + s.ALIVE, table[base + s.LEVEL]
        else:
            base = HEAD_WORDS + segments * s.SEGMENT_WORDS + (number - segments) * d.DELTA_WORDS
            at_word, count = base + d.ALIVE, (table[base + d.COUNT] + LANES - 1) // LANES
        if used + count > alive.size:
            return -1
        bits = words(table[at_word])
        for i in range(count):
            alive[used + i] = bits[i]
        table[at_word] = begin + 8 * used
        used += count
    return newest[SERIAL]


@kernel("void(int64[::1], int64, int64[::1], int64[::1], int64[::1])", nogil=True)
def locality(table: Longs, events: int, pointers: Longs, work: Longs, keys: Longs) -> None:
    """Per event a number; events with equal numbers visit the same three blocks first, in the largest segment.

    `events` is the address of all pairs.
    """
    base = HEAD_WORDS
    pairs, table, work = longs(events), longs(table.ctypes.data), longs(work.ctypes.data)
    if table[SEGMENTS] == 0:
        return
    masks, halves, codes = words(table[base + s.ARENA]), ints(table[base + s.ARENA]), shorts(table[base + s.ARENA])
    where, bottom, top = ints(work[WHERE]), shorts(work[BOTTOM]), shorts(work[TOP])
    level = table[base + s.LEVELS] - 1
    size, lines = table[base + s.LEVEL + 2 * level], ints(table[base + s.LEVEL + 2 * level + 1])
    for i in range(keys.size):
        entries = enter(pairs, pointers[i], pointers[i + 1], work)
        encode_entries(table, base, entries, work)
        key, visited, block = np.int64(0), 0, 0
        while block < size and visited < 3:
            mask = passing(np.int64(lines[block]), masks, halves, codes, where, bottom, top)
            while mask != 0 and visited < 3:
                key = (key << 20) | (LANES * block + lowest(mask))
                mask &= mask - np.uint64(1)
                visited += 1
            block += 1
        keys[i] = key << (20 * (3 - visited))
        leave(entries, work)


@kernel("int64(int64[::1], int64, int64[::1], int64[::1], int64, int64[::1], int64, int64[::1])", nogil=True)
def match_many(
    table: Longs, events: int, pointers: Longs, order: Longs, done: int, work: Longs, room: int, counts: Longs
) -> Any:
    """Events order[done], order[done + 1], ...: their slots, sorted, one after the other in `out`; counts by event.

    Slots that have to be verified stand behind the others of their event, as -1 - slot.

    Returns how many events are done, when all are or `out`, with room for so many slots, might not take one more.
    """
    pairs, table, work = longs(events), longs(table.ctypes.data), longs(work.ctypes.data)
    most = max(table[KNOWN_SLOTS], table[KNOWN_LANES])
    out = ints(work[OUT])
    found = 0
    while done < order.size and found + most + LANES <= room:
        i = order[done]
        begin = found
        entries = enter(pairs, pointers[i], pointers[i + 1], work)
        found = match_entries(table, entries, work, found)
        leave(entries, work)
        unsorted = table[HAS_MULTI]
        for k in range(begin + 1, found):
            unsorted |= out[k] < out[k - 1]
        if unsorted:
            found = sort_slots(begin, found, work)
        if work[DOUBT_COUNT] != 0:
            found = append_doubts(begin, found, -1, table[HAS_MULTI], work)
        counts[i] = found - begin
        done += 1
    return done


@kernel(
    "void(int32[::1], int64[::1], int64, int64, int64[::1], int64[::1], int64[::1], int32[::1])",
    nogil=True,
)
def distribute(
    out: Ints, order: Longs, first: int, last: int, counts: Longs, starts: Longs, event_of: Longs, slots: Ints
) -> None:
    """Bring the slots of the events order[first] to order[last - 1] from `out` to their places in the order of the events."""
    read = 0
    for number in range(first, last):
        i = order[number]
        to = starts[i]
        for k in range(counts[i]):
            event_of[to + k] = i
            slots[to + k] = out[read + k]
        read += counts[i]


def match_all(table: Longs, absent: Bytes, scratch: Scratch, events: Longs, pointers: Longs) -> tuple[Longs, Ints]:
    """Two arrays, event and slot, sorted by event, then slot; slots to be verified behind the others, as -1 - slot."""
    count = len(pointers) - 1
    room = int(max(table[KNOWN_SLOTS], table[KNOWN_LANES])) + LANES + _ROOM
    scratch.fit(table, absent, int(np.diff(pointers).max(initial=0)), room)
    counts, keys = np.zeros(count, np.int64), np.zeros(count, np.int64)
    locality(table, address(events), pointers, scratch.work, keys)
    order = np.argsort(keys, kind="stable")
    parts: list[tuple[int, int, Ints]] = []
    done = 0
    while done < count:
        first = done
        done = match_many(table, address(events), pointers, order, first, scratch.work, room, counts)
        found = scratch.out[: counts[order[first:done]].sum()]
        parts.append((first, done, found if done == count else found.copy()))
    starts = np.cumsum(counts) - counts
    event_of, slots = np.empty(int(counts.sum()), np.int64), np.empty(int(counts.sum()), np.int32)
    for first, last, found in parts:
        distribute(found, order, first, last, counts, starts, event_of, slots)
    return event_of, slots
