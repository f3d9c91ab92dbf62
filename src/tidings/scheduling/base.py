"""The contract of every scheduler, and what waits in its queue.

One scheduler orders one queue: the outbox of one link to a neighbour or to a local client. It decides what goes next when
the link is free, and drops what is worth nothing any more. A queue is bounded: at its capacity the item that a scheduler
values least, the one that it would send last, is dropped with the reason QUEUE_FULL.
"""

import abc
import math
from collections.abc import Iterator
from operator import attrgetter
from typing import ClassVar, NamedTuple

import msgspec

from tidings.errors import InvalidInput
from tidings.model.event import Event
from tidings.scheduling.delay import Link, unhindered

DEADLINE_PASSED = "deadline passed"
TIMED_OUT = "timed out"
HOPELESS = "hopeless"  # it cannot be expected to reach any subscription in time (eq. 14)
WORTH_LESS = "worth less than its share"  # of a crowded link's time (priced)
QUEUE_FULL = "queue full"

DEFAULT_CAPACITY = 100_000


class Target(msgspec.Struct, frozen=True, gc=False):
    """One downstream subscription of a queued event: what it is worth, by when, and how far away it is."""

    subscription: str
    deadline_s: float  # since publication: dl = min(timeout, deadline), eq. 5
    price: float
    penalty: float
    hops: int = 0  # brokers still ahead: nodenum
    mu: float = 0.0  # seconds per KB on the path ahead, this link included: mean
    variance: float = 0.0  # and variance
    path: tuple[str, ...] = ()  # the brokers ahead, from the neighbour that the link leads to, to the subscriber's own


_DEADLINE = attrgetter("deadline_s")


class Item(msgspec.Struct, frozen=True, gc=False):
    """A copy of an event that waits for one link."""

    event: Event
    born_s: float  # when it was published, on this broker's clock
    targets: tuple[Target, ...]
    redelivered: bool = False
    via: tuple[str, ...] = ()  # the brokers that it has passed, from its source to this one

    @property
    def last_deadline_s(self) -> float:
        """When the last of its subscriptions stops wanting it, on this broker's clock."""
        return self.born_s + max(map(_DEADLINE, self.targets), default=-math.inf)

    def why_worthless(self, now: float) -> str | None:
        """Why no subscription can be served any more; None if one still can."""
        if now <= self.last_deadline_s:
            return None
        return TIMED_OUT if now - self.born_s > self.event.timeout_s else DEADLINE_PASSED


class Dropped(NamedTuple):
    item: Item
    reason: str


class Scheduler(abc.ABC):
    """`push` when an event arrives, `pop` when the link is free, `expired` to learn what was dropped and why.

    `link` is what it knows of its link; without one it takes no time. Items of equal rank go in the order of their arrival.
    """

    name: ClassVar[str]

    def __init__(self, link: Link | None = None, capacity: int = DEFAULT_CAPACITY) -> None:
        if capacity < 1:
            raise InvalidInput(f"capacity {capacity!r}: expected at least 1")
        self.link = unhindered() if link is None else link
        self.capacity = capacity
        self._dropped: list[Dropped] = []

    @abc.abstractmethod
    def __len__(self) -> int: ...

    @abc.abstractmethod
    def __iter__(self) -> Iterator[Item]:
        """What waits, in any order."""

    @abc.abstractmethod
    def push(self, item: Item, now: float) -> None: ...

    @abc.abstractmethod
    def pop(self, now: float) -> Item | None:
        """The item to send now; those found worthless on the way are dropped."""

    @abc.abstractmethod
    def sweep(self, now: float) -> None:
        """Drop all that is worthless now."""

    @abc.abstractmethod
    def withdraw(self, subscription: str) -> None:
        """Forget a subscription that is gone: its targets leave the items, items without any leave the queue."""

    def passes(self, item: Item, now: float) -> bool:
        """Whether it is sure that an item that comes to an empty queue, and is pushed and popped now, is sent: then it need not
        be pushed. A scheduler that cannot tell this fast, or learns from each push, says no.
        """
        return False

    def price(self, now: float) -> float:
        """What the time of one transmission is worth on this link; only `priced` asks for more than nothing."""
        return 0.0

    def expired(self, now: float) -> list[Dropped]:
        """What was dropped since the last call, each item once."""
        self.sweep(now)
        return self.dropped()

    def dropped(self) -> list[Dropped]:
        dropped, self._dropped = self._dropped, []
        return dropped


def without(item: Item, subscription: str) -> Item | None:
    """The item without the targets of a subscription; None if none is left."""
    targets = tuple(target for target in item.targets if target.subscription != subscription)
    if len(targets) == len(item.targets):
        return item
    return msgspec.structs.replace(item, targets=targets) if targets else None
