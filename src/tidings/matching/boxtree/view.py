"""View: the segments and deltas that a match reads, and the table that describes them to kernels.

A view is replaced, never changed, when a merge is done; only deltas are appended to it. Who holds a view keeps everything
alive that the kernels find through its table.
"""

from collections.abc import Sequence
from itertools import chain

import numpy as np

from tidings.matching.boxtree.delta import COUNT, DELTA_WORDS, Delta
from tidings.matching.boxtree.memory import (
    DELTAS,
    HAS_MULTI,
    HEAD_WORDS,
    KNOWN_LANES,
    MOST_LEAVES,
    SEGMENTS,
    SERIAL,
    Longs,
)
from tidings.matching.boxtree.segment import SEGMENT_WORDS, Segment

_SPARE_DELTAS = 8

Numbered = tuple[int, Segment]


class View:
    def __init__(self, serial: int, segments: Sequence[Numbered]) -> None:
        """`segments` with their numbers, the largest first."""
        self.serial = serial
        self.segments = tuple(segments)
        self.deltas: list[tuple[int, Delta]] = []
        rows = chain.from_iterable(segment.words() for _, segment in segments)
        self.table: Longs = np.array([*[0] * HEAD_WORDS, *rows, *[0] * (_SPARE_DELTAS * DELTA_WORDS)], np.int64)
        self.table[SERIAL], self.table[SEGMENTS] = serial, len(segments)
        self.table[KNOWN_LANES] = sum(len(segment.slots) for _, segment in segments)
        self.table[MOST_LEAVES] = max((len(segment.levels[0]) for _, segment in segments), default=0)
        self.table[HAS_MULTI] = any(len(segment.multi_slots) for _, segment in segments)

    def successor(self, segments: Sequence[Numbered], merged: Sequence[int] = ()) -> "View":
        """A view with these segments, and with the deltas of this one that were not merged."""
        following = View(self.serial + 1, segments)
        for place, (number, delta) in enumerate(self.deltas):
            if number not in merged:
                following.append(number, delta, int(self.table[self._base(place) + COUNT]))
                following.table[HAS_MULTI] |= delta.multi.any()
        return following

    def append(self, number: int, delta: Delta, count: int = 0) -> None:
        """One more delta, of which `count` lanes are in use; the table may be another one afterwards."""
        base = self._base(len(self.deltas))
        self.deltas.append((number, delta))
        table = self.table
        if base + DELTA_WORDS > len(table):
            table = np.append(table, np.zeros(len(self.deltas) * DELTA_WORDS, np.int64))
        table[base : base + DELTA_WORDS] = delta.words(count)
        table[KNOWN_LANES] += count
        table[DELTAS] = len(self.deltas)
        self.table = table

    @property
    def newest(self) -> int:
        """Where in the table the delta begins that boxes are added to."""
        return self._base(len(self.deltas) - 1)

    def _base(self, place: int) -> int:
        return HEAD_WORDS + len(self.segments) * SEGMENT_WORDS + place * DELTA_WORDS
