"""Schedulers whose items keep their rank while they wait: one sorted list.

An item is dropped once every deadline downstream has passed, when it comes to its turn or by `sweep`.

Cost: O(log n) comparisons and one move of memory per push, O(1) per pop. A sorted list instead of a heap, because the bound of
the queue needs the other end as well.
"""

import abc
from bisect import insort
from collections.abc import Iterator

from tidings.scheduling.base import DEFAULT_CAPACITY, QUEUE_FULL, Dropped, Item, Scheduler, without
from tidings.scheduling.delay import Link


class Ordered(Scheduler):
    """The greatest rank goes first. At capacity the last in order is dropped, be it the newcomer."""

    def __init__(self, link: Link | None = None, capacity: int = DEFAULT_CAPACITY) -> None:
        super().__init__(link, capacity)
        self._queue: list[tuple[float, int, Item]] = []  # rank, minus arrival, item: the next one at the end
        self._arrivals = 0

    @abc.abstractmethod
    def rank(self, item: Item) -> float: ...

    def __len__(self) -> int:
        return len(self._queue)

    def __iter__(self) -> Iterator[Item]:
        return (item for _, _, item in reversed(self._queue))

    def push(self, item: Item, now: float) -> None:
        self._arrivals += 1
        insort(self._queue, (self.rank(item), -self._arrivals, item))
        if len(self._queue) > self.capacity:
            _, _, last = self._queue.pop(0)
            self._dropped.append(Dropped(last, QUEUE_FULL))

    def pop(self, now: float) -> Item | None:
        while self._queue:
            _, _, item = self._queue.pop()
            reason = item.why_worthless(now)
            if reason is None:
                return item
            self._dropped.append(Dropped(item, reason))
        return None

    def sweep(self, now: float) -> None:
        kept = []
        for entry in self._queue:
            reason = entry[2].why_worthless(now)
            if reason is None:
                kept.append(entry)
            else:
                self._dropped.append(Dropped(entry[2], reason))
        self._queue = kept

    def withdraw(self, subscription: str) -> None:
        rest = ((arrival, without(item, subscription)) for _, arrival, item in self._queue)
        self._queue = sorted((self.rank(item), arrival, item) for arrival, item in rest if item is not None)
