"""An outbox: what waits for one link, in the order its scheduler decides, and whether the link takes an event now.

On a link to another broker it also keeps what was sent and not yet taken (as much as the link's window lets through), what is
doubtful (transit.py), and measures: how long the link takes per KB, and how much of its time each source asks for.
"""

import math

import msgspec

from tidings.model.message import BROKER, CLIENT, LinkState
from tidings.scheduling.base import Dropped, Item, Scheduler, Target, without

LOAD_MEMORY_S = 120.0  # loads are means over about this time
LEAST_SEEN_S = 30.0  # a source's first events are no load yet
ALARM_GRAIN_S = 0.001
PROBE_KB, FIRST_PROBES, PROBE_S = 8.0, 4, 60.0  # an idle link is measured a few times at first, then now and then
MAX_SOURCES = 100  # sources whose loads are told apart; the load of all others is told under the empty name


class _Load:
    """How much a source has sent lately: a sum that fades, seen since some time."""

    __slots__ = ("at_s", "kb", "since_s")

    def __init__(self, now: float) -> None:
        self.kb, self.at_s, self.since_s = 0.0, now, now

    def add(self, size_kb: float, now: float) -> None:
        self.kb = self.kb * math.exp((self.at_s - now) / LOAD_MEMORY_S) + size_kb
        self.at_s = now

    def kb_per_s(self, now: float) -> float:
        seen_s = LOAD_MEMORY_S * -math.expm1((self.since_s - now) / LOAD_MEMORY_S)
        return self.kb * math.exp((self.at_s - now) / LOAD_MEMORY_S) / max(seen_s, LEAST_SEEN_S)


class Outbox:
    def __init__(
        self,
        peer: str,
        scheduler: Scheduler,
        role: str = CLIENT,
        number: int = 0,
        *,
        probing: bool = False,
        weighing: bool = False,
    ) -> None:
        self.peer = peer
        self.scheduler = scheduler
        self.role = role
        self.credit = 0  # so many events the link takes now
        self.number = number  # of the copy sent last
        self.taken = 0  # number of the copy taken last from the peer
        self.unacknowledged: dict[int, Item] = {}
        self.doubtful: list[Item] = []  # that the peer may have, sent before a crash
        self.subscriptions: set[str] = set()  # of a client
        self.durable: set[str] = set()  # those that outlive its connection
        self._given: dict[str, Item] = {}  # event -> what the client has of it and not acknowledged, if it is durable
        self.up = role == CLIENT  # of a broker: it has told what it took before the link came up
        self._sending: tuple[float, float, bool] | None = (
            None  # size and start of what is on the link, if it is a probe
        )
        self._probing = probing and role == BROKER
        self._probes = 0
        self._probe_at_s = -math.inf  # if nothing has been measured by then
        self._weighing = weighing and role == BROKER  # whether anybody asks for loads
        self._loads: dict[str, _Load] = {}  # by source
        self._soonest_s = math.inf  # no item became worthless, or will, before this time
        self._alarm_s = math.inf  # when the broker will look at this outbox, traffic or not

    def __len__(self) -> int:
        return len(self.scheduler)

    def push(self, item: Item, now: float) -> None:
        last_s = item.last_deadline_s
        if last_s < self._soonest_s:
            self._soonest_s = last_s
        if self._weighing:
            self._offered(item, now)
        self.scheduler.push(item, now)

    def next(self, now: float) -> Item | None:
        """The item to send if the link is ready, which it then is for one event less."""
        if not (self.credit and self.up):
            return None
        item = self.scheduler.pop(now)
        if item is not None:
            self.credit -= 1
        return item

    def passed(self, item: Item, now: float) -> bool:
        """Whether the item goes at once, without waiting for any other; the link is then ready for one event less."""
        if not (self.credit and self.up) or len(self.scheduler):
            return False
        if self.role == BROKER:
            if not self.scheduler.passes(item, now):
                return False
            if self._weighing:
                self._offered(item, now)
        self.credit -= 1
        return True

    def withdraw(self, subscription: str) -> list[tuple[Item, Target]]:
        """A subscription is gone: what waited for it."""
        gone = [
            (item, target) for item in self.scheduler for target in item.targets if target.subscription == subscription
        ]
        if gone:
            self.scheduler.withdraw(subscription)
        return gone

    # What a client has and has not acknowledged: after a loss it goes again, if it is durable.

    def delivered(self, item: Item, ids: tuple[str, ...]) -> None:
        targets = tuple(t for t in item.targets if t.subscription in self.durable and t.subscription in ids)
        if targets:
            known = self._given.get(item.event.id)
            self._given[item.event.id] = msgspec.structs.replace(
                item, targets=(*known.targets, *targets) if known else targets
            )

    def received(self, event: str, subscription: str) -> None:
        item = self._given.pop(event, None)
        if item is not None and (rest := without(item, subscription)) is not None:
            self._given[event] = rest

    def taken_back(self) -> list[Item]:
        """The client left: all that it has not acknowledged, marked as delivered before."""
        items = [msgspec.structs.replace(item, redelivered=True) for item in self._given.values()]
        self._given.clear()
        return items

    def forget(self, subscription: str) -> None:
        """A client's subscription is gone."""
        self.subscriptions.discard(subscription)
        if subscription in self.durable:
            self.durable.discard(subscription)
            self._given = {
                event: rest for event, item in self._given.items() if (rest := without(item, subscription)) is not None
            }
        self.scheduler.withdraw(subscription)

    # What was sent and what was taken.

    def sent(self, item: Item, now: float) -> int:
        """The number under which the copy travels; it stays ours until the peer has taken it."""
        self.number += 1
        self.unacknowledged[self.number] = item
        self._sending = (item.event.size_kb, now, False)
        return self.number

    def acknowledged(self, number: int) -> list[Item]:
        """All copies up to this number are in the peer's hands."""
        items = []
        while self.unacknowledged:
            first = next(iter(self.unacknowledged))
            if first > number:
                break
            items.append(self.unacknowledged.pop(first))
        return items

    def resumed(self, number: int) -> list[Item]:
        """The link is up and the peer has told what it took: the rest goes again, under numbers that it has not seen."""
        self.up = True
        self.number = max(self.number, number)
        items = [*self.doubtful, *self.unacknowledged.values()]
        self.doubtful.clear()
        self.unacknowledged.clear()
        return items

    def emptied(self) -> list[Item]:
        """All that waits, to be sent another way."""
        items = list(self.scheduler)
        for id in dict.fromkeys(target.subscription for item in items for target in item.targets):
            self.scheduler.withdraw(id)
        return items

    # What the link can do and what is asked of it.

    def link_ready(self, now: float, took: tuple[tuple[float, float], ...] | None = None, events: int = 1) -> None:
        self.credit = events
        if self._sending is not None:
            size_kb, since_s, probe = self._sending
            self._sending = None
            self._probe_at_s = now + PROBE_S
            if took is None:
                link = self.scheduler.link
                (link.rate if probe else link).observe(size_kb, now - since_s)  # a probe tells nothing of event sizes
        for size_kb, seconds in took or ():
            self.scheduler.link.observe(size_kb, seconds)

    def link_lost(self) -> None:
        self.credit = 0
        self.up = self.role == CLIENT
        self._sending = None

    def probe(self, now: float) -> float:
        """How many KB to send for nothing but to measure an idle link; 0 if there is no need. The link is then not ready."""
        if not self._probing or not (self.credit and self.up):
            return 0.0
        if self._probes >= FIRST_PROBES and now < self._probe_at_s:
            return 0.0
        self._probes += 1
        self.credit = 0
        self._sending = (PROBE_KB, now, True)
        return PROBE_KB

    def _offered(self, item: Item, now: float) -> None:
        source = item.via[0] if item.via else ""
        load = self._loads.get(source)
        if load is None:
            if len(self._loads) >= MAX_SOURCES:
                source = ""
            load = self._loads.setdefault(source, _Load(now))
        load.add(item.event.size_kb, now)

    def state(self, now: float) -> LinkState:
        """What the others may know of this link."""
        link, price = self.scheduler.link, self.scheduler.price(now)
        if not self._loads:
            return LinkState(self.peer, link.mu, link.variance, price)
        by_source = ((source, link.mu * load.kb_per_s(now)) for source, load in self._loads.items())
        return LinkState(self.peer, link.mu, link.variance, price, tuple(by_source))

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
