"""Copies on their way between brokers that keep what they must not lose: none is lost, and none is taken twice.

A receiver says Taken when its own store has the copy; until the sender hears that, the copy stands in the sender's store.
After a crash the sender sends again what it still has. Such a copy is doubtful: the receiver may have it already, and only the
receiver can tell; so it is never expired, rerouted or withdrawn on the way there. The receiver knows the pairs it took.

Bounds: on each link the pairs of the last REMEMBERED copies; after a crash those that the end of the journal tells of. A copy
that is still doubtful after more than that many others on its link would be taken twice. Cost: one look-up for each link.
"""

from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from typing import cast

import msgspec

from tidings.model import message as m
from tidings.model import step as s
from tidings.model.event import Event
from tidings.overlay.base import routes
from tidings.scheduling.base import Item, Target, without

REMEMBERED = 20_000

Copies = list[tuple[str, "Copy"]]  # each with the neighbour that it goes to


class Copy(Item, frozen=True):
    """An item for another broker; `number` is its name in the store, `received_s` how old it was when it came here."""

    number: int = 0
    received_s: float = 0.0
    hops: tuple[m.Hop, ...] = ()


class Arrival:
    """A copy that has come, and is not safe yet. Without a number it came over a connection that is gone."""

    __slots__ = ("number", "safe")

    def __init__(self, number: int) -> None:
        self.number, self.safe = number, False


class Arrivals:
    """What came over one link."""

    def __init__(self) -> None:
        self.taken = 0  # all up to this number are safe
        self._heard = 0  # the last number that came
        self._unsafe: deque[Arrival] = deque()
        self.pairs: dict[str, tuple[str, ...]] = {}  # event -> its subscriptions that came

    def connected(self) -> int:
        """The number to tell: what is beyond will be sent again, under new numbers."""
        self._heard = self.taken
        for arrival in self._unsafe:
            arrival.number = 0
        return self.taken

    def arrived(self, number: int) -> Arrival | None:
        """None if it came before."""
        if number <= self._heard:
            return None
        self._heard = number
        arrival = Arrival(number)
        self._unsafe.append(arrival)
        return arrival

    def stored(self, arrival: Arrival) -> int:
        """The number that can be told now: all up to it are safe, and so are those before. 0 if there is none."""
        arrival.safe = True
        told = 0
        while self._unsafe and self._unsafe[0].safe:
            told = max(told, self._unsafe.popleft().number)
        self.taken = max(self.taken, told)
        return told

    def remember(self, event: str, subscriptions: tuple[str, ...]) -> None:
        known = self.pairs.get(event)
        self.pairs[event] = subscriptions if known is None else (*known, *subscriptions)
        if len(self.pairs) > REMEMBERED:
            del self.pairs[next(iter(self.pairs))]


class Transit:
    def __init__(self, first_number: int, epoch_s: float) -> None:
        self._number = first_number
        self._epoch_s = epoch_s
        self._links: dict[str, Arrivals] = {}

    def link(self, peer: str) -> Arrivals:
        arrivals = self._links.get(peer)
        if arrivals is None:
            arrivals = self._links[peer] = Arrivals()
        return arrivals

    def news(self, event: str, routes: tuple[m.Route, ...]) -> tuple[m.Route, ...]:
        """The routes without the pairs that are here already."""
        known: set[str] = set()
        for arrivals in self._links.values():
            known.update(arrivals.pairs.get(event, ()))
        if not known:
            return routes
        rest = (m.Route(route.path, tuple(id for id in route.subscriptions if id not in known)) for route in routes)
        return tuple(route for route in rest if route.subscriptions)

    def copies(
        self,
        event: Event,
        born_s: float,
        onward: Iterable[tuple[str, tuple[Target, ...]]],
        via: tuple[str, ...],
        received_s: float = 0.0,
        hops: tuple[m.Hop, ...] = (),
    ) -> Copies:
        return [
            (peer, Copy(event, born_s, targets, False, via, self._next(), received_s, hops)) for peer, targets in onward
        ]

    def records(self, copies: Iterable[tuple[str, Copy]]) -> list[s.Record]:
        return [self.record(copy) for _, copy in copies]

    def record(self, copy: Copy) -> s.CopyRecord:
        born_s = self._epoch_s + copy.born_s
        return s.CopyRecord(copy.number, copy.event, copy.via, routes(copy.targets), born_s, copy.received_s, copy.hops)

    def parts(self, copy: Copy, onward: Sequence[tuple[str, tuple[Target, ...]]]) -> Copies:
        """How a copy goes on."""
        if len(onward) == 1 and len(onward[0][1]) == len(copy.targets) and onward[0][0] == copy.targets[0].path[0]:
            return [(onward[0][0], msgspec.structs.replace(copy, targets=onward[0][1]))]  # the way it was meant to go
        return [(peer, msgspec.structs.replace(copy, targets=targets, number=self._next())) for peer, targets in onward]

    def apart(self, copy: Copy, target: Target) -> tuple[Copy, tuple[s.Record, ...]]:
        """One pair of a copy as a copy of its own, and what to keep of the rest."""
        rest = cast("Copy | None", without(copy, target.subscription))
        alone = msgspec.structs.replace(copy, targets=(target,), number=self._next())
        return alone, (handed((copy,)) if rest is None else self.record(rest),)

    def restore(self, taken: Mapping[str, int], arrivals: Iterable[s.TakenRecord]) -> None:
        """What came before a crash."""
        for peer, number in taken.items():
            self.link(peer).taken = number
        for record in arrivals:
            self.link(record.peer).remember(record.event, record.subscriptions)

    def restored(self, record: s.CopyRecord) -> tuple[str, Copy]:
        """A copy that was carried before a crash, and the neighbour it was meant for."""
        targets = tuple(
            Target(id, record.event.timeout_s, 1.0, 0.0, hops=len(route.path), path=route.path)
            for route in record.routes
            for id in route.subscriptions
        )
        self._number = max(self._number, record.number)
        born_s = record.born_s - self._epoch_s
        copy = Copy(record.event, born_s, targets, True, record.via, record.number, record.received_s, record.hops)
        return record.routes[0].path[0], copy

    def _next(self) -> int:
        self._number += 1
        return self._number


def handed(copies: Iterable[Item]) -> s.HandedRecord:
    return s.HandedRecord(tuple(copy.number for copy in copies if isinstance(copy, Copy)))
