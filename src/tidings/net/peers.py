"""A peer of a running broker: its connection, what it has not acknowledged yet, and whether its link takes one more event.

A link is ready while fewer than `window_kb` are unacknowledged and the socket takes what it is given. Without the window the
socket's own buffers would swallow everything, outboxes would stay empty and every scheduler would look alike.
"""

import math
from collections import deque
from collections.abc import Callable

import msgspec

from tidings.model import message as m
from tidings.model import step as s
from tidings.net.shape import Shape, ShapedLine
from tidings.net.transport import Connection

_AT_ONCE = 8  # events that a client's link takes without the broker asking again: so many may exceed the window


class RawNotify(msgspec.Struct, frozen=True, tag_field="op", tag="notify", omit_defaults=True):
    """A Notify whose event is encoded already: many peers get the same one."""

    event: msgspec.Raw
    subscriptions: tuple[str, ...]
    age_s: float
    redelivered: bool = False


class RawForward(msgspec.Struct, frozen=True, tag_field="op", tag="forward", omit_defaults=True):
    event: msgspec.Raw
    via: tuple[str, ...]
    routes: tuple[m.Route, ...]
    age_s: float
    number: int = 0
    hops: tuple[m.Hop, ...] = ()


class Peer:
    """What clients and brokers have in common."""

    def __init__(self, connection: Connection, window_kb: float) -> None:
        self.name, self.role = connection.peer, connection.role
        self.connection = connection
        self.granted = 0  # events that the broker was told the link takes, and has not sent
        self.requests = 0  # that wait for their answer
        self.paused = False
        self.sent = self.received = 0
        self.hop_s = 0.0
        self._ready = s.LinkReady(self.name)
        self._window = window_kb * 1024
        self._unacknowledged = 0

    @property
    def ready(self) -> bool:
        return not self.granted and self._unacknowledged < self._window and self.connection.writable

    @property
    def transit_s(self) -> float:
        """How long a message is under way: half of the round trip, as far as anyone can know."""
        return self.connection.rtt_s / 2

    @property
    def unacknowledged_kb(self) -> float:
        return self._unacknowledged / 1024

    def __len__(self) -> int:
        """Events that were sent and not acknowledged."""
        raise AssertionError

    def grant(self) -> s.LinkReady:
        """What tells the broker that this link takes one more event."""
        self.granted = 1
        return self._ready

    def send(self, message: m.Message) -> None:
        self.connection.send(message)

    def lost(self) -> None:
        """The connection is gone."""

    def _hopped(self, seconds: float) -> None:
        self.hop_s += (seconds - self.hop_s) / 16 if self.hop_s else seconds


class ClientPeer(Peer):
    """Its acknowledgements name event and subscription, in any order."""

    def __init__(self, connection: Connection, window_kb: float) -> None:
        super().__init__(connection, window_kb)
        self._ready_for_some = s.LinkReady(self.name, None, _AT_ONCE)
        self._waiting: dict[str, list[int]] = {}  # event -> size, subscriptions that have not acknowledged

    def __len__(self) -> int:
        return len(self._waiting)

    def grant(self) -> s.LinkReady:
        """While the window is half empty, for some events at once."""
        if self._unacknowledged * 2 > self._window:
            return super().grant()
        self.granted = _AT_ONCE
        return self._ready_for_some

    def deliver(self, effect: s.Deliver, event: msgspec.Raw) -> None:
        self.granted -= 1
        self.sent += 1
        size = self.connection.send(RawNotify(event, effect.subscriptions, effect.age_s, effect.redelivered))
        waiting = self._waiting.get(effect.event.id)
        if waiting is None:
            self._waiting[effect.event.id] = [size, len(effect.subscriptions)]
        else:
            waiting[0] += size
            waiting[1] += len(effect.subscriptions)
        self._unacknowledged += size

    def acknowledged(self, pairs: tuple[tuple[str, str], ...]) -> None:
        for event, _ in pairs:
            waiting = self._waiting.get(event)
            if waiting is not None:
                waiting[1] -= 1
                if waiting[1] <= 0:
                    self._unacknowledged -= waiting[0]
                    del self._waiting[event]


class BrokerPeer(Peer):
    """Its acknowledgements are cumulative, and tell how long the link took for what it carried."""

    def __init__(self, connection: Connection, window_kb: float, shape: Shape, clock: Callable[[], float]) -> None:
        super().__init__(connection, window_kb)
        self._line = ShapedLine(shape, f"{connection.peer}") if shape else None
        self._clock = clock
        self._took: list[tuple[float, float]] = []
        self._under_way: deque[tuple[int, float, float]] = deque()  # number, KB, sent when
        self._taken_s = -math.inf

    def __len__(self) -> int:
        return len(self._under_way)

    def forward(self, forward: m.Forward, event: msgspec.Raw) -> None:
        """A copy counts with the size of its event, whatever its frame needs: that is what the link is charged for."""
        self.granted = 0
        self.sent += 1
        size_kb = forward.event.size_kb
        self._under_way.append((forward.number, size_kb, self._clock()))
        self._unacknowledged += int(size_kb * 1024) + 1
        if self._line is None:
            self._put(forward, event, 0.0)
        else:
            self._line.occupy(size_kb, lambda held_s: self._put(forward, event, held_s))

    def _put(self, forward: m.Forward, event: msgspec.Raw, held_s: float) -> None:
        age_s = forward.age_s + held_s
        self.connection.send(RawForward(event, forward.via, forward.routes, age_s, forward.number, forward.hops))

    def send(self, message: m.Message) -> None:
        if self._line is None:
            self.connection.send(message)
        else:
            self._line.delay(lambda: super(BrokerPeer, self).send(message))

    def taken(self, number: int) -> None:
        """All copies up to this number have arrived. The link worked on them since the one before arrived, or since they were
        sent, whichever is later."""
        now, size_kb, begun_s = self._clock(), 0.0, math.inf
        while self._under_way and self._under_way[0][0] <= number:
            _, copy_kb, sent_s = self._under_way.popleft()
            size_kb += copy_kb
            begun_s = min(begun_s, sent_s)
            self._unacknowledged -= int(copy_kb * 1024) + 1
            self._hopped(now - sent_s)
        if begun_s < math.inf:
            self._took.append((size_kb, now - max(begun_s, self._taken_s)))
            self._taken_s = now

    def grant(self) -> s.LinkReady:
        self.granted = 1
        took, self._took = tuple(self._took), []
        return s.LinkReady(self.name, took)

    def lost(self) -> None:
        if self._line is not None:
            self._line.cut()
