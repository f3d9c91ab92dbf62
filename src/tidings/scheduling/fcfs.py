"""fcfs: first come, first served (mtep's baseline). An event is dropped once every deadline downstream has passed.

Cost: O(1) per push and pop.
"""

from collections import deque
from collections.abc import Iterator

from tidings.scheduling.base import DEFAULT_CAPACITY, QUEUE_FULL, Dropped, Item, Scheduler, without
from tidings.scheduling.delay import Link


class Fcfs(Scheduler):
    """At capacity the newcomer is dropped: whoever came first keeps the place."""

    name = "fcfs"

    def __init__(self, link: Link | None = None, capacity: int = DEFAULT_CAPACITY) -> None:
        super().__init__(link, capacity)
        self._queue: deque[Item] = deque()

    def __len__(self) -> int:
        return len(self._queue)

    def __iter__(self) -> Iterator[Item]:
        return iter(self._queue)

    def push(self, item: Item, now: float) -> None:
        if len(self._queue) >= self.capacity:
            self._dropped.append(Dropped(item, QUEUE_FULL))
        else:
            self._queue.append(item)

    def pop(self, now: float) -> Item | None:
        while self._queue:
            item = self._queue.popleft()
            reason = item.why_worthless(now)
            if reason is None:
                return item
            self._dropped.append(Dropped(item, reason))
        return None

    def sweep(self, now: float) -> None:
        kept: deque[Item] = deque()
        for item in self._queue:
            reason = item.why_worthless(now)
            if reason is None:
                kept.append(item)
            else:
                self._dropped.append(Dropped(item, reason))
        self._queue = kept

    def withdraw(self, subscription: str) -> None:
        rest = (without(item, subscription) for item in self._queue)
        self._queue = deque(item for item in rest if item is not None)
