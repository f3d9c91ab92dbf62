"""Places: in which lane of which holder (a segment or a delta) each slot has its first box.

Chunks of 65,536 slots, so that growing never copies. A merge moves many slots at once: their old places stay valid, through
the forward map of the holder that was merged away, until `settle` has written the new ones.
"""

import numpy as np

from tidings.compiled import kernel
from tidings.matching.boxtree.memory import Ints, Longs, address, ints, longs

_CHUNK_BITS = 16
_CHUNK = 1 << _CHUNK_BITS


class Places:
    def __init__(self) -> None:
        self._chunks: list[Longs] = []
        self._directory: Longs = np.zeros(64, np.int64)

    def __getitem__(self, slot: int) -> tuple[int, int]:
        place = int(self._chunks[slot >> _CHUNK_BITS][slot & (_CHUNK - 1)])
        return place >> 32, place & 0xFFFFFFFF

    def __setitem__(self, slot: int, place: tuple[int, int]) -> None:
        self.make_room(slot + 1)
        self._chunks[slot >> _CHUNK_BITS][slot & (_CHUNK - 1)] = place[0] << 32 | place[1]

    def make_room(self, slots: int) -> None:
        while len(self._chunks) * _CHUNK < slots:
            if len(self._chunks) == len(self._directory):
                self._directory = np.append(self._directory, np.zeros_like(self._directory))
            chunk = np.empty(_CHUNK, np.int64)
            self._directory[len(self._chunks)] = address(chunk)
            self._chunks.append(chunk)

    def settle(self, holder: int, slots: Ints) -> None:
        """Slot slots[lane] is in this lane of the holder, where it is not negative; runs beside other threads."""
        _settle(self._directory, holder, address(slots), len(slots))

    def nbytes(self) -> int:
        return self._directory.nbytes + sum(chunk.nbytes for chunk in self._chunks)


@kernel("void(int64[::1], int64, int64, int64)", nogil=True)
def _settle(directory: Longs, holder: int, slots_at: int, lanes: int) -> None:
    slots = ints(slots_at)
    for lane in range(lanes - 1, -1, -1):  # backwards: the first lane of a slot wins
        slot = np.int64(slots[lane])
        if slot >= 0:
            longs(directory[slot >> _CHUNK_BITS])[slot & (_CHUNK - 1)] = (holder << 32) | lane
