"""The contract of every overlay: how subscriptions and events travel between brokers, and what peer loss changes.

An overlay is pure: it is told what happened and answers with effects. It knows which subscriptions live elsewhere; the broker
matches them together with its own, and asks the overlay where each copy goes. Every copy names the subscriptions it is
for, so the broker's ledger can hand each matched pair over to exactly one neighbour.
"""

import abc
from collections.abc import Iterable, Mapping
from typing import ClassVar, NamedTuple, Protocol

from tidings.model.event import Event
from tidings.model.message import LinkState, Overlaid, Route
from tidings.model.step import Effect, OverlayRecord, Record
from tidings.model.subscription import Advertisement, Subscription
from tidings.scheduling.base import Target
from tidings.scheduling.prices import Prices

NO_PATH = "no path"
UNSUBSCRIBED = "unsubscribed"

# The timers of an overlay start with this, so that the broker can tell them from the alarms of its outboxes.
TIMER = "overlay:"


class Neighbour(Protocol):
    """What an overlay may ask the broker about the link to a neighbour."""

    def state(self, now: float) -> LinkState:
        """Its measured rate and price, and, if the overlay is `weighing`, its loads."""


class Relayed(NamedTuple):
    """Where the pairs of one event go from here; each pair appears once."""

    here: list[str]  # subscriptions of this broker's own clients
    onward: list[tuple[str, tuple[Target, ...]]]  # one copy for each neighbour
    lost: list[Target]  # no neighbour leads there


class Changed(NamedTuple):
    """A subscription that lives elsewhere is new or different, or (None) gone."""

    id: str
    subscription: Subscription | None


class Overlay(abc.ABC):
    """`join` comes first; `changes` is asked for after every call that may have changed the remote subscriptions."""

    name: ClassVar[str]
    weighing = False  # whether it wants to know how much of a link's time each source asks for

    def __init__(self) -> None:
        self.id = ""
        self.neighbours: Mapping[str, Neighbour] = {}
        self.prices = Prices()  # of links ahead, for the schedulers of this broker's links
        self.keeping = False  # whether its broker keeps what it learns
        self.learned: list[Record] = []  # that has to be kept
        self._changes: list[Changed] = []

    def join(self, id: str, neighbours: Mapping[str, Neighbour], incarnation: int) -> None:
        """This broker's id, its links (a live view), and how often it has started: later starts count from higher up."""
        self.id, self.neighbours = id, neighbours

    def changes(self) -> list[Changed]:
        """What became of remote subscriptions since the last call."""
        changes, self._changes = self._changes, []
        return changes

    def restore(self, records: Iterable[OverlayRecord]) -> None:  # noqa: B027
        """What was kept, after `join` and before anything else."""

    @abc.abstractmethod
    def connected(self, peer: str, now: float) -> list[Effect]:
        """A neighbouring broker is there, for the first time or again."""

    @abc.abstractmethod
    def disconnected(self, peer: str, now: float) -> list[Effect]:
        """A neighbouring broker cannot be reached any more."""

    @abc.abstractmethod
    def received(self, peer: str, message: Overlaid, now: float) -> list[Effect]:
        """A neighbour sent one of the overlay's own messages."""

    @abc.abstractmethod
    def woke(self, timer: str, now: float) -> list[Effect]:
        """A time that the overlay had asked for has come."""

    @abc.abstractmethod
    def subscribed(self, subscription: Subscription, now: float) -> list[Effect]:
        """A client of this broker subscribed."""

    @abc.abstractmethod
    def unsubscribed(self, id: str, now: float) -> list[Effect]:
        """A subscription of this broker's clients ended."""

    def advertised(self, advertisement: Advertisement, now: float) -> list[Effect]:
        """A client of this broker promised events; overlays that place by type use it."""
        return []

    def unadvertised(self, id: str, now: float) -> list[Effect]:
        return []

    @abc.abstractmethod
    def spread(self, event: Event, ids: list[str], now: float) -> Relayed:
        """An event of this broker's own clients matched these subscriptions: where does it go?"""

    @abc.abstractmethod
    def relay(self, event: Event, routes: tuple[Route, ...], via: tuple[str, ...], now: float) -> Relayed:
        """A copy came from the last broker of `via`: where do its subscriptions go from here, and never back?"""


def routes(targets: tuple[Target, ...], origin: str = "") -> tuple[Route, ...]:
    """What a copy must say about its targets; with `origin`, the paths start at this broker and not at the next one."""
    found: list[Route] = []
    path: tuple[str, ...] | None = None
    ids: list[str] = []
    for target in targets:
        if target.path is not path:
            if path is not None:
                found.append(Route((origin, *path) if origin else path, tuple(ids)))
            path, ids = target.path, []
        ids.append(target.subscription)
    if path is not None:
        found.append(Route((origin, *path) if origin else path, tuple(ids)))
    return tuple(found)
