"""Ids: slot -> id. An array of objects, because a match looks many of them up at once: 35 ns each, a list's loop takes 80."""

from collections.abc import Iterable, Iterator, Sequence

import numpy as np
import numpy.typing as npt

_FEW = 10  # are faster one by one


class Ids:
    """One thread may change it while others look up: a slot that they know of has its id already."""

    def __init__(self, ids: Sequence[str | None] = ()) -> None:
        self._held: npt.NDArray[np.object_] = np.empty(max(16, len(ids)), object)
        self._used = 0
        self.extend(ids)

    def __len__(self) -> int:
        return self._used

    def __iter__(self) -> Iterator[str | None]:
        return iter(self._held[: self._used].tolist())

    def __getitem__(self, slot: int) -> str | None:
        found: str | None = self._held[slot]
        return found

    def __setitem__(self, slot: int, id: str | None) -> None:
        """None for a slot that is free."""
        self._held[slot] = id

    def append(self, id: str | None) -> None:
        if self._used == len(self._held):
            self._grow(1)
        self._held[self._used] = id
        self._used += 1

    def extend(self, ids: Sequence[str | None]) -> None:
        if self._used + len(ids) > len(self._held):
            self._grow(len(ids))
        self._held[self._used : self._used + len(ids)] = ids
        self._used += len(ids)

    def pad(self, slots: int) -> None:
        """Make it so many slots; new ones are free."""
        self.extend([None] * (slots - self._used))

    def put(self, slots: Iterable[int], ids: Sequence[str]) -> None:
        self._held[np.fromiter(slots, np.int64, len(ids))] = ids

    def names(self, slots: npt.NDArray[np.int32]) -> list[str]:
        held = self._held
        if len(slots) < _FEW:
            return [held[slot] for slot in slots.tolist()]
        found: list[str] = held.take(slots).tolist()
        return found

    def _grow(self, by: int) -> None:
        held: npt.NDArray[np.object_] = np.empty(max(self._used + by, self._used * 5 // 4), object)
        held[: self._used] = self._held[: self._used]
        self._held = held
