"""BoxIndex: which boxes does a point, or another box, meet? The numeric heart of boxtree.

A slot (a subscription) has one or more boxes; it is found once, however many of them are met. New boxes go into a delta, full
deltas are merged into immutable segments whose sizes grow by a factor of 4 (a log-structured merge tree of packed 64-ary
R-trees), removal clears a bit.

Threads: one thread changes things: it adds, removes, names dimensions and asks for `maintenance`. The job that it returns may
run on another thread, and any threads match. Nobody waits for anybody: a job works on what does not change and leaves its
result, which the changing thread takes over at its next call. A match sees one set of slots: one event is one step under
the interpreter's lock, a batch works on a copy of the bits that say which lanes live. The slots of removed boxes are given out
again when a merge has dropped their lanes and nobody holds a view from before it any more.

If nobody runs the jobs, full deltas pile up: a match takes 1 to 3 us more per 1,024 boxes, and nothing is lost.
"""

import functools
import struct
import weakref
from collections import deque
from collections.abc import Callable, Sequence
from itertools import chain
from typing import Any

import numpy as np

from tidings.compiled import direct
from tidings.matching.boxtree.batch import capture, match_all
from tidings.matching.boxtree.codes import Source, Traits
from tidings.matching.boxtree.delta import Delta, add_lanes, kill_lanes
from tidings.matching.boxtree.memory import (
    KNOWN_DIMS,
    KNOWN_LANES,
    KNOWN_SLOTS,
    Array,
    Bytes,
    Floats,
    Ints,
    Longs,
    Words,
    address,
)
from tidings.matching.boxtree.merge import Holder, Merge, chosen, living
from tidings.matching.boxtree.places import Places
from tidings.matching.boxtree.rows import FAILS, IS_ZERO, NEVER, PAIR_BYTES, PASSES, ROW_WORDS
from tidings.matching.boxtree.scratch import Scratch
from tidings.matching.boxtree.segment import Segment, build, numbered
from tidings.matching.boxtree.vector import LANES
from tidings.matching.boxtree.view import View
from tidings.matching.boxtree.walk import match_one

Row = tuple[float, float, int]  # lower bound, upper bound, dimension << 8 | flags (see rows.py)
Box = tuple[Sequence[Row], bool]  # and whether it says too little, so that who meets it has to be verified
Judge = Callable[[Ints, Any], Ints]
Job = Callable[[], None]

_NO_ROOM = -1  # said by kernels
_REMOVALS = 1_024  # after so many, it is looked whether a segment is half dead


class BoxIndex:
    def __init__(self, judge: Judge) -> None:
        """`judge` says which slots an event really matches, of those that meet only boxes that say too little."""
        self._judge = judge
        self._absent = bytearray()  # per dimension: FAILS, PASSES, IS_ZERO or NEVER
        self._presence: list[float] = []  # per dimension
        self._slots = 0  # ever given out
        self._free: list[int] = []
        self._resting: deque[tuple[weakref.ref[View], list[int]]] = deque()  # the last view with some slots, and these
        self._places = Places()
        self._number = 0  # of the newest holder
        self._holders: dict[int, Holder] = {}
        self._born: dict[int, int] = {}  # segment -> how many lanes lived when it was made
        self._moved: dict[int, tuple[Ints, int]] = {}  # merged holder -> where its lanes went, and into which holder
        self._retired: dict[int, Holder] = {}  # merged holders that are not yet freed
        self._merge: Merge | None = None
        self._unplaced: list[tuple[int, Segment]] = []  # segments whose slots have no places yet
        self._busy = False  # a job is out
        self._done: Job | None = None  # what is left to this thread after a job
        self._removals = 0
        self._staged: Longs = np.empty(64, np.int64)
        self._scratches: list[Scratch] = []
        self._match_one = direct(match_one)
        self._root: Longs = np.zeros(1, np.int64)
        self.view = View(0, ())
        self._append_delta()

    # Changing: one thread.

    def dimension(self, absent: int = FAILS, presence: float = 0.0) -> int:
        """A new dimension; `absent` says what an event without it has: nothing (FAILS), anything (PASSES), 0 (IS_ZERO).

        `presence` is the share of events that have it, if that is known; it only matters to speed.
        """
        self._presence.append(presence)
        self._absent.append(absent)
        self.view.table[KNOWN_DIMS] = len(self._absent)
        return len(self._absent) - 1

    def claim(self) -> int:
        """The number of a slot that nobody sees yet."""
        if not self._free:
            while self._resting and self._resting[0][0]() is None:
                self._free += reversed(self._resting.popleft()[1])
        if self._free:
            return self._free.pop()
        self._slots += 1
        return self._slots - 1

    def add(self, slot: int, boxes: Sequence[Box], replaced: int | None = None) -> None:
        """Give boxes, at least one, to a slot that was claimed; in the same step the slot that it replaces is removed."""
        if self._done is not None:
            self._done()
        words = [*chain.from_iterable(row for box, _ in boxes for row in box)]
        if len(boxes) + len(words) > len(self._staged):
            self._staged = np.empty(2 * (len(boxes) + len(words)), np.int64)
        rows = len(words) // ROW_WORDS
        _packer(len(boxes), rows).pack_into(
            self._staged.data, 0, *[2 * len(box) + doubtful for box, doubtful in boxes], *words
        )
        dying = _NOBODY if replaced is None else self._lanes(replaced)
        view = self.view
        lane = add_lanes(view.table, view.newest, self._staged, len(boxes), slot, *dying)
        if lane < 0:
            self._append_delta(len(boxes), rows)
            lane = add_lanes(view.table, view.newest, self._staged, len(boxes), slot, *dying)
        self._places[slot] = view.deltas[-1][0], lane
        if replaced is not None:
            self._removed(replaced)

    def extend(
        self,
        pointers: Longs,
        rows: Floats,
        owners: Ints | None = None,
        doubtful: Array | None = None,
        before: Callable[[Ints], None] = lambda slots: None,
    ) -> Ints:
        """Many boxes at once, as a new segment: box i has rows pointers[i] to pointers[i + 1] and belongs to owners[i].

        `rows` are words as in rows.py; owners count from 0 without gaps, by default one per box; `doubtful` says which
        boxes say too little, by default none. Returns the slot of each owner; `before` is told them before anybody can
        find them. Slots are given in the order of the lanes, so that what such a segment finds is found in order.
        """
        if self._done is not None:
            self._done()
        count = len(pointers) - 1
        if count == 0:
            return np.empty(0, np.int32)
        every = np.ones(count, bool)
        if owners is None:
            owners, several = np.arange(count, dtype=np.int32), ~every
        else:
            several = (np.bincount(owners) > 1)[owners]
        alive, multi, doubt = map(_bits, (every, several, ~every if doubtful is None else doubtful))
        source = Source(alive, multi, doubt, owners, pointers.astype(np.int32), rows)
        segment, slots = numbered(build([source], self._traits())[0], self._slots)
        self._slots += len(slots)
        before(slots)
        self._adopt(segment)
        return slots

    def remove(self, slot: int) -> None:
        """Forget a slot that is in use."""
        if self._done is not None:
            self._done()
        kill_lanes(*self._lanes(slot))
        self._removed(slot)

    def _lanes(self, slot: int) -> tuple[Words, Longs]:
        """Where a slot lives: the bits of a holder, and lanes."""
        holder, lanes = self._home(slot)
        return holder.alive, np.array(lanes, np.int64)

    def _place_all(self) -> None:
        """Where nothing is removed from what was restored, nobody needs to know where it is."""
        for number, segment in self._unplaced:
            self._places.settle(number, segment.slots)
        self._unplaced = []

    def _home(self, slot: int) -> tuple[Holder, Sequence[int]]:
        """Where a slot lives."""
        self._place_all()
        number, lane = self._places[slot]
        if number in self._moved:
            forward, number = self._moved[number]
            lane = int(forward[lane])
        holder = self._holders[number]
        return holder, holder.lanes_of(slot, lane)

    def _removed(self, slot: int) -> None:
        if self._merge is not None:
            self._merge.removed.append(slot)
        self._removals += 1

    def maintenance(self) -> Job | None:
        """A job that makes matching faster or gives memory back, to be run once, on any thread; None if there is none."""
        if self._done is not None:
            self._done()
        if self._busy:
            return None
        if self._moved:
            return self._settle()
        full = self.view.deltas[:-1]
        if not full and self._removals < _REMOVALS:
            return None
        self._removals = 0
        holders = chosen(self.view.segments, full, self._born)
        if not holders:
            return None
        self._place_all()
        self._merge = Merge(holders, self._traits())
        return self._job(self._merge.run, self._take_over)

    def _job(self, work: Job, then: Job) -> Job:
        """Work for another thread, and what is left to this one when it is done."""
        self._busy = True

        def run() -> None:
            done = self._give_up
            try:
                work()
                done = then
            finally:
                self._done = done

        return run

    def _take_over(self) -> None:
        """Show the segment that a merge has built, in the place of what it was built from."""
        merge = self._merge
        assert merge is not None
        segments = [numbered for numbered in self.view.segments if numbered[0] not in merge.forwards]
        target = 0  # nowhere, if all were dead
        if merge.segment is not None:
            for slot in merge.removed:  # since the merge began
                number, lane = self._places[slot]
                if number in merge.forwards and merge.forwards[number][lane] >= 0:
                    lanes = merge.segment.lanes_of(slot, int(merge.forwards[number][lane]))
                    kill_lanes(merge.segment.alive, np.array(lanes, np.int64))
            target = self._new_holder(merge.segment)
            segments.append((target, merge.segment))
        self._moved = {number: (forward, target) for number, forward in merge.forwards.items()}
        for number in merge.forwards:
            del self._holders[number]
            self._born.pop(number, None)
        self._resting.append((weakref.ref(self.view), merge.dropped))
        self._show(self.view.successor(sorted(segments, key=_size), list(merge.forwards)))
        self._give_up()
        self._retired = merge.holders  # freed by the thread that settles

    def _settle(self) -> Job:
        """After a merge: write the new places of what has moved, and give the old memory back."""
        retired, self._retired = self._retired, {}
        number = next(iter(self._moved.values()))[1]
        segment = self._holders.get(number)

        def work() -> None:
            if segment is not None:
                self._places.settle(number, segment.slots)
            retired.clear()

        return self._job(work, self._settled)

    def _settled(self) -> None:
        self._moved = {}
        self._give_up()

    def _give_up(self) -> None:
        self._merge, self._done, self._busy = None, None, False

    def _append_delta(self, lanes: int = 0, rows: int = 0) -> None:
        delta = Delta(lanes, rows)
        before = self.view.table  # must live until no kernel can find it any more
        self.view.append(self._new_holder(delta), delta)
        self._root[0] = address(self.view.table)
        del before

    def _adopt(self, segment: Segment) -> None:
        """A segment of new slots."""
        number = self._new_holder(segment)
        self._places.make_room(self._slots)
        self._places.settle(number, segment.slots)
        self._show(self.view.successor(sorted([*self.view.segments, (number, segment)], key=_size)))

    def _new_holder(self, holder: Holder) -> int:
        self._number += 1
        self._holders[self._number] = holder
        if isinstance(holder, Segment):
            self._born[self._number] = living(holder)
        return self._number

    def _show(self, view: View) -> None:
        view.table[KNOWN_DIMS], view.table[KNOWN_SLOTS] = len(self._absent), self._slots
        self._root[0] = address(view.table)
        self.view = view

    def _traits(self) -> Traits:
        flag = self._absent_entries() == IS_ZERO
        return Traits(flag.astype(np.uint8), np.where(flag, 1.0, np.array(self._presence)))

    def _absent_entries(self) -> Bytes:
        return np.frombuffer(bytes(self._absent), np.uint8)

    def boxes(self, slot: int) -> list[list[Row]]:
        """The boxes of a slot that is in use; for any thread, as long as it holds a view."""
        while True:
            try:
                holder, lanes = self._home(slot)
                break
            except KeyError:  # just then it has moved into another holder
                continue
        source, found = holder.source, []
        for lane in lanes:
            rows = source.rows[ROW_WORDS * source.row_start[lane] : ROW_WORDS * source.row_start[lane + 1]]
            words = rows.reshape(-1, ROW_WORDS)
            found.append(
                list(zip(words[:, 0].tolist(), words[:, 1].tolist(), words.view(np.int64)[:, 2].tolist(), strict=True))
            )
        return found

    # Saving.

    def saved(self) -> tuple[bytes, list[float], int, list[Segment]]:
        """What `BoxIndex.restored` takes: the dimensions, the number of slots, and segments of all that lives."""
        deltas = [delta.source._replace(alive=delta.alive.copy()) for _, delta in self.view.deltas]
        segments = [segment for _, segment in self.view.segments]
        if any(delta.alive.any() for delta in deltas):
            segments.append(build(deltas, self._traits())[0])
        return bytes(self._absent), self._presence, self._slots, segments

    @classmethod
    def restored(
        cls, judge: Judge, absent: bytes, presence: Sequence[float], slots: int, segments: Sequence[Segment]
    ) -> "BoxIndex":
        index = cls(judge)
        for dimension in zip(absent, presence, strict=True):
            index.dimension(*dimension)
        index._slots = slots
        index._places.make_room(slots)
        used = np.zeros(slots, bool)
        for segment in segments:
            index._unplaced.append((index._new_holder(segment), segment))
            used[segment.slots[segment.slots >= 0]] = True
        index._free = np.flatnonzero(~used)[::-1].tolist()
        index._show(index.view.successor(sorted(index._unplaced, key=_size)))
        return index

    # Matching: any thread.

    def find(self, event: tuple[bytes, Any]) -> Ints:
        """The slots that an event, as pairs (rows.py) and as what the judge wants to see, meets, each once, in any order."""
        try:
            scratch = self._scratches.pop()
        except IndexError:
            scratch = Scratch(self._root)
        found = self._match_one(event[0], scratch.work)
        if found < 0:
            slots, sure = self._search(event[0], scratch, found)
            if sure < len(slots):
                slots = np.append(slots[:sure], self._judge(slots[sure:], event[1]))
        else:
            slots = scratch.out[:found].copy()
        self._scratches.append(scratch)
        return slots

    def find_region(self, region: bytes) -> Ints:
        """The slots that a region meets, sure or not. A region has any number in the dimensions that it does not mention."""
        return self._search(region, Scratch(self._root), _NO_ROOM, region=True)[0]

    def _search(self, event: bytes, scratch: Scratch, found: int, region: bool = False) -> tuple[Ints, int]:
        """The slots that are sure, those that are not, and how many are sure; `found` is what the kernel has said last."""
        while found == _NO_ROOM:
            absent = self._absent_entries()
            if region:
                absent = np.where(absent == NEVER, absent, np.uint8(PASSES))
            scratch.fit(self.view.table, absent, len(event) // PAIR_BYTES)
            found = self._match_one(event, scratch.work)
        total, sure = divmod(~found, 1 << 32) if found < 0 else (found, found)
        return scratch.out[:total].copy(), sure

    def find_many(self, events: Longs, pointers: Longs) -> tuple[Longs, Ints]:
        """Many events, of which event i has pairs pointers[i] to pointers[i + 1]: two arrays, event and slot, sorted by both.

        Slots that have to be verified stand behind the others of their event, as -1 - slot.
        """
        view, table, _alive = self._captured()
        try:
            scratch = self._scratches.pop()
        except IndexError:
            scratch = Scratch(self._root)
        found = match_all(table, self._absent_entries(), scratch, events, pointers)
        self._scratches.append(scratch)
        del view
        return found

    def _captured(self) -> tuple[View, Longs, Words]:
        """A copy of the newest table and of the bits of the lanes that live, and the view that keeps the rest alive."""
        while True:
            view = self.view
            holders = len(view.segments) + len(view.deltas)
            table = np.empty_like(view.table)
            alive: Words = np.empty(int(view.table[KNOWN_LANES]) // LANES + 2 * holders + 64, np.uint64)
            if capture(self._root, table, alive) == view.serial:
                return view, table, alive

    def nbytes(self) -> int:
        """Bytes in arrays, without those that matches write to."""
        return (
            self._places.nbytes() + self.view.table.nbytes + sum(holder.nbytes() for holder in self._holders.values())
        )


_NOBODY: tuple[Words, Longs] = np.zeros(1, np.uint64), np.empty(0, np.int64)


def _bits(lanes: Array) -> Words:
    """A bit per lane, in whole words."""
    packed = np.packbits(lanes, bitorder="little")
    return np.append(packed, np.zeros(-len(packed) % 8, np.uint8)).view(np.uint64)


def _size(numbered: tuple[int, Segment]) -> int:
    return -len(numbered[1].slots)


@functools.lru_cache(1024)
def _packer(boxes: int, rows: int) -> struct.Struct:
    return struct.Struct("=" + boxes * "q" + rows * "ddq")
