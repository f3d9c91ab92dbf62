"""The events of one subscription, as its reader sees them: the same for the embedded bus and for a client of the network.

Bounds: what has arrived and was not taken, by the owner's window; ids to recognise what is sent again, by `remembered`.
"""

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Protocol, Self

from tidings.broker.calls import Notification
from tidings.errors import InvalidInput, TidingsError
from tidings.model.event import Event
from tidings.model.subscription import Subscription

Handler = Callable[[Notification], object]

# What became of an event: it waits here, it was handed out, it was acknowledged.
_ARRIVED, _TAKEN, _ACKNOWLEDGED = range(3)


class Owner(Protocol):
    """The bus that a stream belongs to."""

    def wanted(self, stream: "Stream") -> None:
        """Its reader waits for an event, and none is there."""

    def acknowledge(self, stream: "Stream", event: str, *, confirm: bool) -> "asyncio.Future[None] | None":
        """Tell the broker; with `confirm` the future is done when the acknowledgement is stored."""


class Stream:
    """An async iterator that ends when the subscription does. Taking an event acknowledges it, unless that is done `by_hand`.

    With a handler there is nothing to iterate over: it is called with each event as it arrives.
    """

    def __init__(
        self,
        owner: Owner,
        subscription: Subscription,
        handler: Handler | None = None,
        *,
        by_hand: bool = False,
        remembered: int = 0,
    ) -> None:
        self.subscription = subscription
        self._owner = owner
        self._handler = handler
        self._by_hand = by_hand
        self._remembered = remembered
        self._arrived: deque[Notification] = deque()
        self._known: dict[str, int] = {}  # event id -> what became of it; the oldest are forgotten
        self._waiter: asyncio.Future[None] | None = None
        self._ended = False
        self._error: TidingsError | None = None

    @property
    def id(self) -> str:
        return self.subscription.id

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Notification:
        if self._waiter is not None:
            raise InvalidInput(f"subscription {self.id!r} is already being read by another task")
        while not self._arrived:
            if self._error is not None:
                raise self._error
            if self._ended:
                raise StopAsyncIteration
            self._owner.wanted(self)
            if not self._arrived and not self._ended:
                self._waiter = asyncio.get_running_loop().create_future()
                try:
                    await self._waiter
                finally:
                    self._waiter = None
        notification = self._arrived.popleft()
        self._taken(notification.event.id)
        return notification

    def acknowledge(self, notification: Notification) -> "asyncio.Future[None]":
        """For what is acknowledged by hand: the future is done when that is stored, and the event will never come again.

        Await it, or go on and `flush` later: acknowledgements of one turn of the loop travel together.
        """
        id = notification.event.id
        if self._remembered:
            self._known[id] = _ACKNOWLEDGED
        future = self._owner.acknowledge(self, id, confirm=True)
        assert future is not None
        return future

    def _taken(self, id: str) -> None:
        if self._remembered:
            self._known[id] = _TAKEN if self._by_hand else _ACKNOWLEDGED
        if not self._by_hand:
            self._owner.acknowledge(self, id, confirm=False)

    def arrive(self, event: Event, age_s: float, redelivered: bool) -> None:
        """An event is there, perhaps again."""
        id = event.id
        if self._remembered:
            known = self._known
            if redelivered and id in known:
                if known[id] == _ACKNOWLEDGED:  # and that was lost; what still waits here is acknowledged in its time
                    self._owner.acknowledge(self, id, confirm=False)
                return
            known[id] = _ARRIVED
            if len(known) > self._remembered:
                del known[next(iter(known))]
        notification = Notification(event, self.subscription.id, age_s, redelivered)
        if self._handler is None:
            self._arrived.append(notification)
            self._wake()
        else:
            self._handler(notification)
            self._taken(id)

    def end(self, error: TidingsError | None = None) -> None:
        self._ended, self._error = True, error
        self._wake()

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)
