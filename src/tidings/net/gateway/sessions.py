"""Sessions: one for each HTTP subscription, with the line that serves it while somebody takes its events.

A subscription is a durable one of its own subscriber (`http:ID`), so it goes on while nobody reads: its events then wait in the
broker's outbox. One consumer at a time: a new one takes over from the one before, which was probably lost on the way.

Bounds: `MAX_SUBSCRIPTIONS`; what a consumer has not acknowledged by the broker's `window_kb`; what is kept of events that were
sent without a receipt (`Last-Event-ID`) by `REMEMBERED` events and `REMEMBERED_KB`, for `RESUME_S` after the stream has ended.
"""

import asyncio
import contextlib
import logging
import secrets
from collections import deque
from collections.abc import Callable
from typing import Any

import msgspec

from tidings.errors import InvalidSubscription, LimitExceeded, UnknownName
from tidings.model import message as m
from tidings.model.event import Event
from tidings.net.gateway.line import Line
from tidings.net.gateway.problems import Problem
from tidings.net.gateway.resources import LINE, Resource, resource_of, subscription_of
from tidings.net.gateway.webhook import Tally, Webhook
from tidings.net.runtime import Runtime

log = logging.getLogger(__name__)

MAX_SUBSCRIPTIONS = 10_000
REMEMBERED, REMEMBERED_KB, RESUME_S = 256, 256, 300.0
TAKEN_OVER = "another consumer has taken over"


def gone(id: str) -> Problem:
    return Problem(404, f"subscription {id!r:.80} is not there", "id", "the id of an HTTP subscription")


class Sent:
    """The events that a stream has sent last, for a reader that comes back and did not get all of them."""

    def __init__(self) -> None:
        self._events: deque[tuple[Event, int]] = deque()
        self._bytes = 0
        self._forget: asyncio.TimerHandle | None = None

    def add(self, event: Event, size: int) -> None:
        self._events.append((event, size))
        self._bytes += size
        while len(self._events) > REMEMBERED or self._bytes > REMEMBERED_KB * 1024:
            self._bytes -= self._events.popleft()[1]

    def after(self, id: str) -> list[Event]:
        """What was sent after the event with this id; nothing if it is not remembered."""
        places = [place for place, (event, _) in enumerate(self._events) if event.id == id]
        return [event for event, _ in list(self._events)[places[-1] + 1 :]] if places else []

    def opened(self) -> None:
        if self._forget is not None:
            self._forget.cancel()

    def closed(self) -> None:
        self.opened()
        self._forget = asyncio.get_running_loop().call_later(RESUME_S, self.clear)

    def clear(self) -> None:
        self.opened()
        self._events.clear()
        self._bytes = 0


class Session:
    def __init__(self, runtime: Runtime, resource: Resource, tally: Tally) -> None:
        self.resource = resource
        self.subscription = subscription_of(resource)
        self.sent = Sent()
        self.line: Line | None = None
        self.webhook: Webhook | None = None
        self.ended = False  # it is being deleted
        self.turn = asyncio.Lock()  # of those who change it, one after the other
        self._runtime, self._tally = runtime, tally
        self._unseen: set[str] = set()
        self._changing = asyncio.Lock()

    @property
    def id(self) -> str:
        return self.subscription.id

    async def attach(self) -> Line:
        """A line that brings the events from now on; whoever had one before loses it."""
        async with self._changing:
            if self.ended:
                raise gone(self.id)
            self.detach(TAKEN_OVER)
            line = Line(self._runtime, LINE + self.id, self._unseen)
            try:
                await line.ask(lambda number: m.Subscribe(number, self.subscription))
            except BaseException:
                line.close("the subscription was refused")
                raise
            self.line = line
            return line

    def detach(self, reason: str, line: Line | None = None) -> None:
        """What its consumer has not acknowledged goes back to the broker."""
        if self.line is not None and line in (None, self.line):
            self.line.close(reason)
            self.line = None
        elif line is not None:
            line.close(reason)

    async def ask(self, request: Callable[[int], m.Asking]) -> Any:
        """On the line that is there, or on one for just this."""
        async with self._changing:
            if self.line is not None and not self.line.closed:
                return await self.line.ask(request)
            line = Line(self._runtime, LINE + self.id, taking=False)
            try:
                return await line.ask(request)
            finally:
                line.close("asked and answered")

    async def serve(self) -> None:
        """Begin to post to the sink, if there is one; stop what was posting before."""
        await self.rest()
        if isinstance(self.resource.sink, str):
            self.webhook = Webhook(self, self.resource, self._tally)
            self.webhook.start()

    async def rest(self) -> None:
        if self.webhook is not None:
            await self.webhook.stop()
            self.webhook = None

    async def end(self, reason: str) -> None:
        await self.rest()
        self.detach(reason)
        self.sent.clear()


class Sessions:
    """All subscriptions of a gateway, by id."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self.tally = Tally()
        self._sessions: dict[str, Session] = {}

    def __len__(self) -> int:
        return len(self._sessions)

    def __contains__(self, id: str) -> bool:
        return id in self._sessions

    def __getitem__(self, id: str) -> Session:
        session = self._sessions.get(id)
        if session is None or session.ended:
            raise gone(id)
        return session

    @property
    def readers(self) -> int:
        """Event streams and WebSockets that are there now."""
        return sum(session.line is not None and session.webhook is None for session in self._sessions.values())

    async def start(self) -> None:
        """Those that the broker has kept go on."""
        subscriptions = self._runtime.broker.subscriptions.values()
        for subscription in [each for each in subscriptions if each.subscriber == LINE + each.id]:
            try:
                session = Session(self._runtime, resource_of(subscription), self.tally)
            except (Problem, msgspec.DecodeError) as problem:
                log.error("subscription %s cannot be served over HTTP: %s", subscription.id, problem)
                continue
            self._sessions[session.id] = session
            await session.serve()

    async def stop(self) -> None:
        for session in list(self._sessions.values()):
            await session.end("the broker is shutting down")

    def page(self, after: str, limit: int) -> list[Resource]:
        ids = sorted(id for id in self._sessions if id > after)
        return [self._sessions[id].resource for id in ids[:limit]]

    async def create(self, resource: Resource) -> Session:
        if not isinstance(resource.id, str):
            resource = msgspec.structs.replace(resource, id=secrets.token_hex(8))
        if resource.id in self._sessions:
            raise Problem(409, f"subscription {resource.id!r:.80} is there already", "id", "another id, or PUT")
        if len(self._sessions) >= MAX_SUBSCRIPTIONS:
            raise LimitExceeded(f"{MAX_SUBSCRIPTIONS} HTTP subscriptions are there already")
        session = Session(self._runtime, resource, self.tally)
        self._sessions[session.id] = session  # nobody else may take the id meanwhile
        async with session.turn:
            try:
                await self._settle(session)
            except BaseException:
                del self._sessions[session.id]
                session.ended = True
                raise
        return session

    async def replace(self, resource: Resource) -> Session:
        """What waits goes on waiting unless the broker's part of it has changed."""
        session, subscription = self[str(resource.id)], subscription_of(resource)
        async with session.turn:
            if session.ended:
                raise gone(session.id)
            before = session.resource, session.subscription
            session.resource, session.subscription = resource, subscription
            try:
                await self._settle(session)
            except BaseException:
                session.resource, session.subscription = before
                raise
        return session

    async def _settle(self, session: Session) -> None:
        try:
            await session.ask(lambda number: m.Subscribe(number, session.subscription))
        except InvalidSubscription as error:
            raise Problem(409, str(error), "id", "an id that no other subscriber has", kind="taken") from None
        await session.serve()

    async def delete(self, id: str) -> None:
        """While that is under way nobody may take its events: that would subscribe again."""
        session = self[id]
        async with session.turn:
            if session.ended:
                raise gone(id)
            session.ended = True
            try:
                await session.rest()
                with contextlib.suppress(UnknownName):  # the broker has forgotten it by itself
                    await session.ask(lambda number: m.Unsubscribe(number, id))
            except BaseException:
                session.ended = False
                await session.serve()
                raise
            await session.end("the subscription was deleted")
            del self._sessions[id]
