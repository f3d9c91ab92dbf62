"""An outbox: what waits for one link, in the order its scheduler decides, and whether the link takes an event now."""

import math

from tidings.scheduling.base import Dropped, Item, Scheduler


class Outbox:
    def __init__(self, peer: str, scheduler: Scheduler) -> None:
        self.peer = peer
        self.scheduler = scheduler
        self.ready = False
        self._soonest_s = math.inf  # no item became worthless, or will, before this time
        self._alarm_s = math.inf  # when the broker will look at this outbox, traffic or not

    def __len__(self) -> int:
        return len(self.scheduler)

    def push(self, item: Item, now: float) -> None:
        self._soonest_s = min(self._soonest_s, item.last_deadline_s)
        self.scheduler.push(item, now)

    def next(self, now: float) -> Item | None:
        """The item to send if the link is ready, which it then no longer is."""
        if not self.ready:
            return None
        item = self.scheduler.pop(now)
        self.ready = item is None
        return item

    def dropped(self) -> list[Dropped]:
        return self.scheduler.dropped()

    def alarm(self) -> float | None:
        """A time to set the alarm to, if something waits that none is set for: it must be accounted for when it expires."""
        if not len(self.scheduler) or self._soonest_s >= self._alarm_s:
            return None
        self._alarm_s = self._soonest_s
        return self._alarm_s

    def alarmed(self, now: float) -> list[Dropped]:
        """The alarm went off: what has expired."""
        dropped = self.scheduler.expired(now)
        self._alarm_s = math.inf
        self._soonest_s = min((item.last_deadline_s for item in self.scheduler), default=math.inf)
        return dropped
