"""Merge: one segment out of several segments and deltas, made beside everything else that goes on.

Which ones, is chosen so that sizes stay geometric: all full deltas, then every segment that is at most four times as large
as what is already chosen, and any segment of which more than half is dead. A box is so rewritten a few times per factor of 4.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from tidings.compiled import kernel
from tidings.matching.boxtree.codes import SOURCE_ALIVE, SOURCE_SLOTS, Traits
from tidings.matching.boxtree.delta import Delta
from tidings.matching.boxtree.memory import Ints, Longs, ints, words
from tidings.matching.boxtree.segment import Segment, build

_FACTOR = 4

Holder = Segment | Delta


class Merge:
    """`run` may be called on any thread; the rest is looked at when it is done."""

    def __init__(self, holders: Sequence[tuple[int, Holder]], traits: Traits) -> None:
        self.holders, self._traits = dict(holders), traits
        self.segment: Segment | None = None  # None if nothing lives
        self.forwards: dict[int, Ints] = {}  # per holder, where each lane went: -1 if it was dead
        self.dropped: list[int] = []  # the slots of lanes that were dead
        self.removed: list[int] = []  # slots that were removed since, in order; kept by the index

    def run(self) -> None:
        # Bits that are cleared from now on belong to slots in `removed`; so it does not matter which of them this copy sees.
        sources = [holder.source._replace(alive=holder.alive.copy()) for holder in self.holders.values()]
        dead = [np.empty(len(source.slots), np.int32) for source in sources]
        counts = [collect_dead(source.words(), found) for source, found in zip(sources, dead, strict=True)]
        self.dropped = np.unique(
            np.concatenate([found[:count] for found, count in zip(dead, counts, strict=True)])
        ).tolist()
        if any(source.alive.any() for source in sources):
            self.segment, forwards = build(sources, self._traits)
        else:
            forwards = [np.full(len(source.slots), -1, np.int32) for source in sources]
        self.forwards = dict(zip(self.holders, forwards, strict=True))


@kernel("int64(int64[::1], int32[::1])", nogil=True)
def collect_dead(source: Longs, found: Ints) -> Any:
    """The slots of lanes that were used and are dead; returns how many."""
    alive, slots = words(source[SOURCE_ALIVE]), ints(source[SOURCE_SLOTS])
    count = 0
    for lane in range(found.size):
        if slots[lane] >= 0 and not (alive[lane >> 6] >> np.uint64(lane & 63)) & np.uint64(1):
            found[count] = slots[lane]
            count += 1
    return count


def living(holder: Holder) -> int:
    return int(np.bitwise_count(holder.alive).sum())


def chosen(
    segments: Sequence[tuple[int, Segment]], full_deltas: Sequence[tuple[int, Delta]], born: Mapping[int, int]
) -> list[tuple[int, Holder]]:
    """What should be merged now; nothing if all is well. `born` says how many lanes lived when a segment was made."""
    sizes = {number: living(segment) for number, segment in segments}
    picked: dict[int, Holder] = dict(full_deltas)
    picked |= {
        number: segment for number, segment in segments if 2 * sizes[number] < int(np.count_nonzero(segment.slots >= 0))
    }
    if not picked:
        return []
    size = sum(living(holder) for holder in picked.values())
    for number, segment in sorted(segments, key=lambda numbered: sizes[numbered[0]]):
        if number not in picked and sizes[number] <= _FACTOR * size:
            picked[number] = segment
            size += sizes[number]
    return list(picked.items())
