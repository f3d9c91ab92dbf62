"""A line: what a connection is to a socket client, inside this process. The broker's runtime sees no difference.

Everything goes through the runtime's own door (`opened`, `received`, `closed`), with its window: what a consumer has not
acknowledged is bounded by `window_kb`, the rest waits in the broker's outbox, where the scheduler decides. A line's name has a
colon, which no socket client's name may have, so nobody can take it over.
"""

import asyncio
import itertools
from collections import deque
from collections.abc import Callable
from typing import Any, NamedTuple

import msgspec

from tidings.broker.calls import raise_failed
from tidings.errors import NetworkError, TidingsError
from tidings.model import message as m
from tidings.model.event import Event
from tidings.net.peers import RawNotify
from tidings.net.runtime import Runtime
from tidings.net.transport import Connection

MAX_UNSEEN = 10_000  # most of them have expired by then; the rest are called redelivered, which is no lie
_event = msgspec.msgpack.Decoder(Event)


class Arrived(NamedTuple):
    """An event on its way to a consumer; `number` counts what this line has brought."""

    number: int
    event: Event
    redelivered: bool
    size: int


class Line(Connection):
    """It is up when it is made; one that is not `taking` asks, and brings no events.

    `unseen` are events that a line before this one has brought, and nobody took: to the broker they are delivered, to their
    consumer they are new.
    """

    def __init__(self, runtime: Runtime, name: str, unseen: set[str] | None = None, *, taking: bool = True) -> None:
        super().__init__(runtime, runtime.config.limits)
        self.peer, self.role, self.address = name, m.CLIENT, "http"
        self.open = self.was_open = True
        self.writable = taking
        self.paused = False  # the broker wants no more requests now
        self._runtime = runtime
        self._requests, self._numbers = itertools.count(1), itertools.count(1)
        self._answers: dict[int, asyncio.Future[Any]] = {}
        self._arrived: deque[Arrived] = deque()
        self._unseen = set() if unseen is None else unseen
        self._waiter: asyncio.Future[None] | None = None
        try:
            runtime.made(self)
        except TidingsError:
            runtime.closed(self, "refused")
            raise
        runtime.opened(self)

    async def ask(self, request: Callable[[int], m.Asking | m.Acknowledgements]) -> Any:
        """The answer to a request, which is given its number: a Done or a report; what the broker refuses is raised."""
        number = next(self._requests)
        answer = self._answers[number] = asyncio.get_running_loop().create_future()
        if self._closing:
            answer.set_exception(NetworkError(f"the line to the broker is closed: {self._reason}"))
        else:
            self._runtime.received(self, request(number))
        try:
            return await answer
        finally:
            self._answers.pop(number, None)

    async def next(self, patience_s: float | None = None) -> Arrived | None:
        """The next event; None after a while without one, or when the line is closed."""
        if not self._arrived and not self._closing:
            self._waiter = self._loop.create_future()
            try:
                async with asyncio.timeout(patience_s):
                    await self._waiter
            except TimeoutError:
                return None
            finally:
                self._waiter = None
        if self._closing:
            return None
        arrived = self._arrived.popleft()
        self._unseen.discard(arrived.event.id)
        return arrived

    def acknowledge(self, *events: str) -> None:
        """The consumer has them."""
        if not self._closing:
            self._runtime.received(self, self._receipt(events))

    async def confirm(self, *events: str) -> None:
        """The same; returns when that is stored, so that a crash cannot bring them back."""
        await self.ask(lambda number: self._receipt(events, number))

    def _receipt(self, events: tuple[str, ...], number: int = 0) -> m.Acknowledgements:
        id = self.peer.partition(":")[2]
        return m.Acknowledgements(tuple((event, id) for event in events), number)

    @property
    def closed(self) -> str:
        """Why it is closed; empty while it is not."""
        return self._reason if self._closing else ""

    # What the runtime does with a connection.

    def send(self, message: m.Message | msgspec.Struct) -> int:
        if isinstance(message, RawNotify):
            size = len(memoryview(message.event))
            event = _event.decode(message.event)
            redelivered = message.redelivered and event.id not in self._unseen
            self._arrived.append(Arrived(next(self._numbers), event, redelivered, size))
            self._wake()
            return size
        if isinstance(message, m.Done | m.Failed | m.Status | m.Accounts):
            answer = self._answers.get(message.request)
            if answer is not None and not answer.done():
                self._answer(answer, message)
        return 0

    def _answer(self, answer: asyncio.Future[Any], message: m.Done | m.Failed | m.Status | m.Accounts) -> None:
        if not isinstance(message, m.Failed):
            answer.set_result(message if isinstance(message, m.Done) else message.report)
            return
        try:
            raise_failed(message)
        except TidingsError as error:
            answer.set_exception(error)

    @property
    def backlog_kb(self) -> float:
        return sum(arrived.size for arrived in self._arrived) / 1024

    def pause_reading(self) -> None:
        self.paused = True

    def resume_reading(self) -> None:
        self.paused = False

    def close(self, reason: str, error: TidingsError | None = None) -> None:
        if self._closing:
            return
        self._closing, self._reason, self.open = True, reason, False
        if len(self._unseen) > MAX_UNSEEN:
            self._unseen.clear()
        self._unseen.update(arrived.event.id for arrived in self._arrived)
        for answer in self._answers.values():
            if not answer.done():
                answer.set_exception(NetworkError(f"the line to the broker is closed: {reason}"))
        self._wake()
        self._loop.call_soon(self._left)  # the runtime may be in the middle of a step

    def abort(self, reason: str) -> None:
        self.close(reason)

    def _left(self) -> None:
        self._runtime.closed(self, self._reason)
        if not self.gone.done():
            self.gone.set_result(self._reason)

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)
