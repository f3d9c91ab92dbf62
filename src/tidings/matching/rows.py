"""Rows: conjunctions of placed predicates (see families.py), as growing arrays; each belongs to a slot.

Cost: 12 bytes per predicate and 20 per row. What a freed row held stays until the owner makes everything anew.
"""

from typing import Any

import numpy as np

from tidings.matching.families import EQUAL, Families, Floats, Ints, Place, closed
from tidings.model.filter import Predicate

Longs = np.ndarray[Any, np.dtype[np.int64]]

NONE = -1


class Rows:
    def __init__(self, families: Families) -> None:
        self.families = families
        self.size = 0  # rows in use or free
        self.slot: Ints = np.empty(0, np.int32)  # row -> slot, NONE if free
        self.next: Ints = np.empty(0, np.int32)  # row -> next row of the same slot
        self.start: Longs = np.empty(0, np.int64)  # row -> where its predicates begin
        self.count: Ints = np.empty(0, np.int32)  # row -> how many it has
        self.codes: Ints = np.empty(0, np.int32)
        self.thresholds: Floats = np.empty(0)
        self.used = self.dead = 0  # of codes and thresholds
        self.unused: list[int] = []  # free rows

    def nbytes(self) -> int:
        return sum(held.nbytes for held in vars(self).values() if isinstance(held, np.ndarray))

    def new(self, slot: int, following: int, places: list[Place]) -> int:
        """A row for these places, before another row of its slot."""
        if self.unused:
            row = self.unused.pop()
        else:
            row = self.size
            self._make_room(1, 0)
            self.size += 1
        self._make_room(0, len(places))
        direction = self.families.direction
        # Equalities first, then families in order of first use: the order in which `ceem` links.
        places.sort(key=lambda place: (direction[place[0] >> 1] != EQUAL, place[0] >> 1))
        for at, (code, threshold) in enumerate(places, self.used):
            self.codes[at], self.thresholds[at] = code, threshold
        self.slot[row], self.next[row] = slot, following
        self.start[row], self.count[row] = self.used, len(places)
        self.used += len(places)
        return row

    def extend(self, slots: Ints, counts: Ints, codes: Ints, thresholds: Floats) -> Ints:
        """Many rows, those of one slot side by side, their codes in order; returns their numbers."""
        self._make_room(len(slots), len(codes))
        rows = np.arange(self.size, self.size + len(slots), dtype=np.int32)
        own, held = slice(self.size, self.size + len(slots)), slice(self.used, self.used + len(codes))
        self.codes[held], self.thresholds[held] = codes, thresholds
        self.slot[own], self.count[own] = slots, counts
        self.start[own] = self.used + np.cumsum(counts, dtype=np.int64) - counts
        self.next[own] = NONE
        same = np.flatnonzero(slots[1:] == slots[:-1])
        self.next[rows[same]] = rows[same + 1]
        self.size, self.used = own.stop, held.stop
        return rows

    def free(self, row: int) -> None:
        self.dead += int(self.count[row])
        self.slot[row], self.count[row] = NONE, 0
        self.unused.append(row)

    def keys(self, row: int) -> tuple[Ints, Floats]:
        """The codes of a row and its thresholds as closed bounds."""
        own = slice(self.start[row], self.start[row] + self.count[row])
        codes = self.codes[own]
        return codes, closed(codes, self.thresholds[own], self.families.direction)

    def predicates(self, row: int) -> tuple[Predicate, ...]:
        own = slice(self.start[row], self.start[row] + self.count[row])
        return tuple(map(self.families.predicate, self.codes[own].tolist(), self.thresholds[own].tolist()))

    def live(self) -> tuple[Ints, Ints, Ints, Floats]:
        """All rows that have predicates: their numbers and counts, and their codes and keys one after the other."""
        rows = np.flatnonzero(self.count[: self.size] > 0).astype(np.int32)
        places = self.places(rows)
        codes = self.codes[places]
        return rows, self.count[rows], codes, closed(codes, self.thresholds[places], self.families.direction)

    def by_slot(self) -> Ints:
        """All rows in use, in the order of their slots."""
        rows = np.flatnonzero(self.slot[: self.size] != NONE).astype(np.int32)
        return rows[np.argsort(self.slot[rows], kind="stable")]

    def places(self, rows: Ints) -> Longs:
        """Where the predicates of rows stand, in the order of the rows."""
        counts = self.count[rows].astype(np.int64)
        offsets = np.cumsum(counts) - counts
        places: Longs = np.arange(int(counts.sum())) + np.repeat(self.start[rows] - offsets, counts)
        return places

    def _make_room(self, rows: int, predicates: int) -> None:
        self.slot, self.next, self.count, self.start = grown(
            self.size + rows, self.slot, self.next, self.count, self.start
        )
        self.codes, self.thresholds = grown(self.used + predicates, self.codes, self.thresholds)


def grown(size: int, *arrays: Any) -> tuple[Any, ...]:
    """The arrays, or longer copies: at least twice as long, so that growing one by one is cheap."""
    length = len(arrays[0])
    if size <= length:
        return arrays
    capacity = max(size, 2 * length, 64)
    return tuple(np.concatenate([array, np.zeros(capacity - length, array.dtype)]) for array in arrays)
