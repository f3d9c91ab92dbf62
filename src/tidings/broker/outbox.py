"""An outbox: what waits for one link, in the order its scheduler decides, and whether the link takes an event now.

On a link to another broker it also keeps what was sent and not yet taken (as much as the link's window lets through), and
measures: how long the link takes per KB, and how much of its time each source asks for.
"""

import math

from tidings.model.message import BROKER, CLIENT, LinkState
from tidings.scheduling.base import Dropped, Item, Scheduler, Target

LOAD_MEMORY_S = 120.0  # loads are means over about this time
ALARM_GRAIN_S = 0.001
MAX_SOURCES = 100  # sources whose loads are told apart; the load of all others is told under the empty name


class Outbox:
    def __init__(self, peer: str, scheduler: Scheduler, role: str = CLIENT, number: int = 0) -> None:
        self.peer = peer
        self.scheduler = scheduler
        self.role = role
        self.ready = False
        self.number = number  # of the copy sent last
        self.taken = 0  # number of the copy taken last from the peer
        self.unacknowledged: dict[int, Item] = {}
        self._resumed = role == CLIENT  # whether the peer has told what it took before the link came up
        self._sending: tuple[float, float] | None = None  # size and start of what is on the link
        self._loads: dict[str, float] = {}  # source -> KB, fading
        self._loads_since_s = -math.inf
        self._loads_at_s = -math.inf
        self._soonest_s = math.inf  # no item became worthless, or will, before this time
        self._alarm_s = math.inf  # when the broker will look at this outbox, traffic or not

    def __len__(self) -> int:
        return len(self.scheduler)

    def push(self, item: Item, now: float) -> None:
        last_s = item.last_deadline_s
        if last_s < self._soonest_s:
            self._soonest_s = last_s
        if self.role == BROKER:
            self._offered(item, now)
        self.scheduler.push(item, now)

    def next(self, now: float) -> Item | None:
        """The item to send if the link is ready, which it then no longer is."""
        if not (self.ready and self._resumed):
            return None
        item = self.scheduler.pop(now)
        self.ready = item is None
        return item

    def idle(self) -> bool:
        """Whether an item can go at once, without waiting for any other."""
        return self.ready and not len(self.scheduler)

    def dropped(self) -> list[Dropped]:
        return self.scheduler.dropped()

    def withdraw(self, subscription: str) -> list[tuple[Item, Target]]:
        """A subscription is gone: what waited for it."""
        gone = [
            (item, target) for item in self.scheduler for target in item.targets if target.subscription == subscription
        ]
        if gone:
            self.scheduler.withdraw(subscription)
        return gone

    # What was sent and what was taken.

    def sent(self, item: Item, now: float) -> int:
        """The number under which the copy travels; it stays ours until the peer has taken it."""
        self.number += 1
        self.unacknowledged[self.number] = item
        self._sending = (item.event.size_kb, now)
        return self.number

    def acknowledged(self, number: int) -> int:
        """All copies up to this number are in the peer's hands: how many pairs were they?"""
        count = 0
        while self.unacknowledged:
            first = next(iter(self.unacknowledged))
            if first > number:
                break
            count += len(self.unacknowledged.pop(first).targets)
        return count

    def resumed(self) -> list[Item]:
        """The link is up and the peer has told what it took: the rest did not arrive, and goes again."""
        self._resumed = True
        items = list(self.unacknowledged.values())
        self.unacknowledged.clear()
        return items

    def emptied(self) -> list[Item]:
        """All that waits, to be sent another way."""
        items = list(self.scheduler)
        for id in dict.fromkeys(target.subscription for item in items for target in item.targets):
            self.scheduler.withdraw(id)
        return items

    # What the link can do and what is asked of it.

    def link_ready(self, now: float) -> None:
        self.ready = True
        if self._sending is not None:
            size_kb, since_s = self._sending
            self._sending = None
            self.scheduler.link.observe(size_kb, now - since_s)

    def link_lost(self) -> None:
        self.ready = self._resumed = False
        self._sending = None

    def _offered(self, item: Item, now: float) -> None:
        source = item.via[0] if item.via else ""
        self._fade(now)
        if source not in self._loads and len(self._loads) >= MAX_SOURCES:
            source = ""
        self._loads[source] = self._loads.get(source, 0.0) + item.event.size_kb

    def _fade(self, now: float) -> None:
        if self._loads:
            left = math.exp((self._loads_at_s - now) / LOAD_MEMORY_S)
            for source in self._loads:
                self._loads[source] *= left
        else:
            self._loads_since_s = now
        self._loads_at_s = now

    def state(self, now: float) -> LinkState:
        link = self.scheduler.link
        if not self._loads:
            return LinkState(self.peer, link.mu, link.variance, self.scheduler.price)
        self._fade(now)
        seen_s = LOAD_MEMORY_S * -math.expm1((self._loads_since_s - now) / LOAD_MEMORY_S)
        per_kb = link.mu / max(seen_s, 1.0)
        loads = tuple((source, kb * per_kb) for source, kb in self._loads.items())
        return LinkState(self.peer, link.mu, link.variance, self.scheduler.price, loads)

    # The alarm: without traffic on its link, a waiting item must still be accounted for when its time is over.

    def alarm(self) -> float | None:
        """A time to set the alarm to, if something waits that none is set for."""
        if self._soonest_s >= self._alarm_s or not len(self.scheduler):
            return None
        self._alarm_s = self._soonest_s
        return self._alarm_s

    def alarmed(self, now: float) -> list[Dropped]:
        """The alarm went off: what has expired."""
        dropped = self.scheduler.expired(now)
        self._alarm_s = math.inf
        soonest_s = min((item.last_deadline_s for item in self.scheduler), default=math.inf)
        # At its very deadline an item still counts as in time: look again a little later, not at once and forever.
        self._soonest_s = max(soonest_s, now + ALARM_GRAIN_S)
        return dropped
