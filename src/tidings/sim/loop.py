"""Simulated time: a heap of (time, priority, counter), so that what happens at the same time happens in a stated order."""

from collections.abc import Callable
from heapq import heappop, heappush
from typing import Any

Call = Callable[..., None]


class Loop:
    def __init__(self) -> None:
        self.now = 0.0
        self.steps = 0
        self._heap: list[tuple[float, int, int, Call, tuple[Any, ...]]] = []
        self._counter = 0

    def __len__(self) -> int:
        return len(self._heap)

    def at(self, time_s: float, call: Call, *args: Any, priority: int = 0) -> None:
        """Call it then; at one time the smaller priority comes first, then whatever was asked for first."""
        self._counter += 1
        heappush(self._heap, (time_s, priority, self._counter, call, args))

    def run(self, until_s: float) -> None:
        """All that happens up to this time; then it is this time."""
        heap = self._heap
        while heap and heap[0][0] <= until_s:
            self.now, _, _, call, args = heappop(heap)
            self.steps += 1
            call(*args)
        self.now = max(self.now, until_s)
