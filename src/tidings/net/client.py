"""The client: the calls of the embedded bus, over the network.

    async with tidings.connect("tidings://localhost:7740", token="...") as bus:
        quotes = await bus.subscribe("symbol = 'LEGEND' AND change > 1", deadline_s=40, price=1.5)
        await bus.publish({"symbol": "LEGEND", "change": 1.5}, type="quote", timeout_s=60)
        print(await anext(quotes))

A publication is confirmed when it is safe. After a loss the client connects again by itself, subscribes again and repeats what
was not answered: the broker recognises an event by its id. Taking an event acknowledges it; what a broker sends again is
recognised here and handed out once. Bounds: `in_flight` requests without an answer, then callers wait; unacknowledged events
by the broker's window; remembered ids by `REMEMBERED`; without any connection for `patience_s` the client gives up.
"""

import asyncio
import contextlib
import itertools
import math
import secrets
from collections import deque
from collections.abc import Iterable, Mapping
from types import TracebackType
from typing import Any, Self

from tidings.broker.calls import as_filter, as_types, raise_failed
from tidings.errors import BusClosed, InvalidInput, NetworkError, Refused, TidingsError
from tidings.model import message as m
from tidings.model.event import checked_event
from tidings.model.filter import Filter
from tidings.model.status import AccountsReport, StatusReport
from tidings.model.subscription import Advertisement, Subscription
from tidings.net.address import Tls, client_context, parse_address
from tidings.net.dialer import Dialer
from tidings.net.transport import Connection, Limits
from tidings.stream import Handler, Stream

REMEMBERED = 10_000
CONFIRM_EVERY = 1_000  # acknowledgements: then they are confirmed, whether anybody waits for that or not
LEAVING_S = 2.0  # the longest that closing waits for the last acknowledgements


class _Asked:
    """A request that waits for its answer, and when it was made: a repeated publication says how old it is."""

    __slots__ = ("answer", "begun_s", "message")

    def __init__(self, message: m.Asking | m.Acknowledgements, answer: asyncio.Future[Any], begun_s: float) -> None:
        self.message, self.answer, self.begun_s = message, answer, begun_s


class Client:
    """Use it from one event loop, as `async with`. `name` makes it the same subscriber again after a restart: durable
    subscriptions belong to a name."""

    def __init__(
        self,
        address: str,
        *,
        token: str = "",
        name: str = "",
        tls: Tls | None = None,
        in_flight: int = 1_000,
        patience_s: float = 60.0,
        limits: Limits | None = None,
    ) -> None:
        self.address = parse_address(address)
        self._prefix = secrets.token_hex(4)
        self.name = name or f"client-{self._prefix}"
        self.broker = ""
        self._hello = m.Hello(self.name, m.CLIENT, token=token)
        self._tls = client_context(tls or Tls()) if self.address.tls or tls else None
        self._in_flight, self._patience_s, self._limits = in_flight, patience_s, limits or Limits()
        self._numbers = itertools.count(1)
        self._asked: dict[int, _Asked] = {}
        self._room: deque[asyncio.Future[None]] = deque()
        self._streams: dict[str, Stream] = {}
        self._taken: list[tuple[str, str]] = []  # events and subscriptions, acknowledged in this turn of the loop
        self._told: list[tuple[str, str]] = []  # that the broker was told, and has not been asked to confirm
        self._confirming: asyncio.Future[None] | None = None  # of this turn
        self._connection: Connection | None = None
        self._task: asyncio.Task[None] | None = None
        self._greeting: asyncio.Future[None] | None = None
        self._lost_s = 0.0
        self._end: TidingsError | None = None

    async def __aenter__(self) -> Self:
        await self._running()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    # Publishing.

    async def publish(self, attributes: Mapping[str, Any], type: str = "", **options: Any) -> str:
        """Publish an event, valid for `timeout_s`; returns its id once it is safe. The same id twice delivers once."""
        return await (await self.post(attributes, type, **options))

    async def post(
        self,
        attributes: Mapping[str, Any],
        type: str = "",
        *,
        timeout_s: float = math.inf,
        id: str | None = None,
        data: bytes = b"",
        content_type: str = "",
        size_kb: float | None = None,
    ) -> asyncio.Future[str]:
        """Publish without waiting for the confirmation, which is the future's result; waits only while `in_flight` others do."""
        event = checked_event(
            self._new_id("e") if id is None else id,
            attributes,
            type,
            timeout_s=timeout_s,
            data=data,
            content_type=content_type,
            size_kb=size_kb,
        )
        return await self._ask(m.Publish(next(self._numbers), event))

    async def flush(self) -> None:
        """Wait until everything posted so far is answered, and everything acknowledged so far is stored."""
        acknowledged = self._confirm() if self._taken or self._told else None
        waiting = [asked.answer for asked in self._asked.values()]
        if waiting:
            await asyncio.wait(waiting)
        if acknowledged is not None:
            await acknowledged

    # Subscribing.

    async def subscribe(
        self,
        filter: str | Mapping[str, Any] | Filter = "",
        types: str | Iterable[str] = (),
        *,
        deadline_s: float = math.inf,
        price: float = 1.0,
        penalty: float = 0.0,
        id: str | None = None,
        durable: bool = False,
        by_hand: bool = False,
        handler: Handler | None = None,
    ) -> Stream:
        """Ask for events that match, each worth `price` within `deadline_s`.

        A durable subscription (with an `id`, of a client with a `name`) goes on while the client is away, and resumes after the
        last acknowledged event: that is when it was taken, when a handler has returned, or `by_hand` with `stream.acknowledge`.
        """
        if durable and (id is None or self.name == f"client-{self._prefix}"):
            raise InvalidInput("a durable subscription needs an id, and a client with a name")
        subscription = Subscription(
            self._new_id("s") if id is None else id,
            self.name,
            as_filter(filter),
            as_types(types),
            deadline_s,
            price,
            penalty,
            durable,
        )
        if subscription.id in self._streams:
            raise InvalidInput(f"subscription {subscription.id!r}: this client has it already")
        stream = self._streams[subscription.id] = Stream(
            self, subscription, handler, by_hand=by_hand, remembered=REMEMBERED
        )
        try:
            await (await self._ask(m.Subscribe(next(self._numbers), subscription)))
        except BaseException:
            self._streams.pop(subscription.id, None)
            raise
        return stream

    async def unsubscribe(self, stream: Stream) -> None:
        """End a subscription; what waits for it becomes undeliverable, and its iterator ends."""
        await (await self._ask(m.Unsubscribe(next(self._numbers), stream.id)))
        self._streams.pop(stream.id, None)
        stream.end()

    async def advertise(
        self, types: str | Iterable[str] = (), filter: str | Mapping[str, Any] | Filter = "", *, id: str | None = None
    ) -> str:
        """Announce what will be published."""
        advertisement = Advertisement(
            self._new_id("a") if id is None else id, self.name, as_types(types), as_filter(filter)
        )
        done: str = await (await self._ask(m.Advertise(next(self._numbers), advertisement)))
        return done

    async def unadvertise(self, id: str) -> None:
        await (await self._ask(m.Unadvertise(next(self._numbers), id)))

    # Looking.

    async def ledger(self, by: str = "", limit: int = 1_000) -> AccountsReport:
        """The broker's accounts now: of all time where it has a store, else since its start."""
        return await self._look(m.AskAccounts(next(self._numbers), by, limit))  # type: ignore[no-any-return]

    async def status(self) -> StatusReport:
        """The broker's links, queues, faults and latest events."""
        return await self._look(m.AskStatus(next(self._numbers)))  # type: ignore[no-any-return]

    async def _look(self, question: m.AskStatus | m.AskAccounts) -> Any:
        return await (await self._ask(question))

    async def close(self) -> None:
        """Leave: subscriptions that are not durable end. Further calls raise BusClosed."""
        if self._connection is not None and (self._taken or self._told):
            with contextlib.suppress(TidingsError, TimeoutError):
                await asyncio.wait_for(self._confirm(), LEAVING_S)
        self._stop(BusClosed("the bus is closed"))
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    def _stop(self, why: TidingsError) -> None:
        if self._end is None:
            self._end = why
        for asked in self._asked.values():
            if not asked.answer.done():
                asked.answer.set_exception(self._end)
                asked.answer.exception()  # whoever posted and looked away needs no complaint
        self._asked.clear()
        for stream in self._streams.values():
            stream.end(None if isinstance(self._end, BusClosed) else self._end)
        self._streams.clear()
        self._make_room()

    # Requests and their answers.

    async def _ask(self, message: m.Asking) -> asyncio.Future[Any]:
        connection = self._connection
        if connection is None:
            await self._running()
        while len(self._asked) >= self._in_flight or (self._connection is not None and not self._connection.writable):
            waiter = asyncio.get_running_loop().create_future()
            self._room.append(waiter)
            await waiter
        if self._end is not None:
            raise self._end
        loop = asyncio.get_running_loop()
        asked = self._asked[message.request] = _Asked(message, loop.create_future(), loop.time())
        if self._connection is not None:
            self._connection.send(message)
        return asked.answer

    def _answered(self, message: m.Done | m.Failed | m.Status | m.Accounts) -> None:
        asked = self._asked.pop(message.request, None)
        if asked is None:
            return
        self._make_room(1)
        if asked.answer.done():
            return
        if isinstance(message, m.Done):
            asked.answer.set_result(None if isinstance(asked.message, m.Acknowledgements) else message.id)
        elif isinstance(message, m.Failed):
            try:
                raise_failed(message)
            except TidingsError as error:
                asked.answer.set_exception(error)
        else:
            asked.answer.set_result(message.report)

    def _make_room(self, most: int | None = None) -> None:
        """Wake those who wait to ask, the first ones first."""
        while self._room and most != 0:
            waiter = self._room.popleft()
            if not waiter.done():
                waiter.set_result(None)
                most = None if most is None else most - 1

    # Acknowledgements: all of one turn of the loop go together. Until they are confirmed they are remembered, and told again
    # after a loss; whatever the broker has sent again meanwhile is recognised by the stream.

    def wanted(self, stream: Stream) -> None:
        """The broker sends as its window lets it."""

    def acknowledge(self, stream: Stream, event: str, *, confirm: bool) -> asyncio.Future[None] | None:
        if self._end is not None:
            if confirm:
                raise self._end
            return None
        if not self._taken:
            asyncio.get_running_loop().call_soon(self._send_acknowledgements)
        self._taken.append((event, stream.id))
        return self._confirmation() if confirm else None

    def _confirmation(self) -> asyncio.Future[None]:
        if self._confirming is None:
            self._confirming = asyncio.get_running_loop().create_future()
            self._confirming.add_done_callback(_looked_at)
        return self._confirming

    def _confirm(self) -> asyncio.Future[None]:
        """Ask now for a confirmation of everything so far."""
        confirmation = self._confirmation()
        self._send_acknowledgements()
        return confirmation

    def _send_acknowledgements(self) -> None:
        taken, self._taken = self._taken, []
        confirmation, self._confirming = self._confirming, None
        if self._end is not None or not (taken or confirmation):
            return
        self._told += taken
        number = 0
        if confirmation is not None or len(self._told) >= CONFIRM_EVERY:
            number = next(self._numbers)
            answer = confirmation or asyncio.get_running_loop().create_future()
            answer.add_done_callback(_looked_at)
            self._asked[number] = _Asked(m.Acknowledgements(tuple(self._told), number), answer, 0.0)
            self._told = []
        if self._connection is not None:
            self._connection.send(m.Acknowledgements(tuple(taken), number))

    def _new_id(self, letter: str) -> str:
        return f"{letter}-{self._prefix}-{next(self._numbers)}"

    # The connection comes and goes.

    async def _running(self) -> None:
        """Returns when there was a connection for the first time."""
        if self._end is not None:
            raise self._end
        if self._task is None:
            loop = asyncio.get_running_loop()
            self._greeting = loop.create_future()
            self._lost_s = loop.time()
            dialer = Dialer(self, self.address, self._limits, self._hello, self._tls, self._not_reached)
            self._task = loop.create_task(dialer.run())
        assert self._greeting is not None
        await asyncio.shield(self._greeting)

    def _not_reached(self, error: TidingsError) -> bool:
        """Whether to go on trying."""
        waited_s = asyncio.get_running_loop().time() - self._lost_s
        if not isinstance(error, Refused) and waited_s < self._patience_s:
            return True
        if not isinstance(error, Refused):
            error = NetworkError(f"{error}; gave up after {waited_s:.0f} s")
        self._stop(error)
        if self._greeting is not None and not self._greeting.done():
            self._greeting.set_exception(error)
            self._greeting.exception()
        return False

    def made(self, connection: Connection) -> None:
        pass

    def greeted(self, connection: Connection, hello: m.Hello) -> None:
        if hello.role != m.BROKER:
            raise Refused(f"{self.address}: {hello.peer!r} is no broker")
        self.broker = hello.peer

    def opened(self, connection: Connection) -> None:
        """Who we are, what we want, and what was not answered before the connection was lost."""
        self._connection = connection
        asked_for = {a.message.subscription.id for a in self._asked.values() if isinstance(a.message, m.Subscribe)}
        for stream in self._streams.values():
            if stream.id not in asked_for:
                self._ask_again(stream)
        now = asyncio.get_running_loop().time()
        for asked in sorted(self._asked.values(), key=lambda asked: not isinstance(asked.message, m.Subscribe)):
            message = asked.message
            if isinstance(message, m.Publish):
                message = m.Publish(message.request, message.event, now - asked.begun_s)
            connection.send(message)
        if self._told:
            connection.send(m.Acknowledgements(tuple(self._told)))
        self._make_room()
        if self._greeting is not None and not self._greeting.done():
            self._greeting.set_result(None)

    def _ask_again(self, stream: Stream) -> None:
        """The stream ends if it is refused."""

        def told(done: asyncio.Future[str]) -> None:
            if not done.cancelled() and (error := done.exception()) is not None and self._end is None:
                self._streams.pop(stream.id, None)
                stream.end(error if isinstance(error, TidingsError) else None)

        number = next(self._numbers)
        answer: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        answer.add_done_callback(told)
        self._asked[number] = _Asked(m.Subscribe(number, stream.subscription), answer, 0.0)

    def received(self, connection: Connection, message: m.Message) -> None:
        match message:
            case m.Notify(_, subscriptions):
                for id in subscriptions:
                    stream = self._streams.get(id)
                    if stream is not None:
                        stream.arrive(message.event, message.age_s, message.redelivered)
            case m.Done() | m.Failed() | m.Status() | m.Accounts():
                self._answered(message)

    def drained(self, connection: Connection) -> None:
        self._make_room()

    def closed(self, connection: Connection, reason: str) -> None:
        if self._connection is connection:
            self._connection = None
            self._lost_s = asyncio.get_running_loop().time()


def _looked_at(done: asyncio.Future[None]) -> None:
    """Whoever acknowledged and looked away needs no complaint."""
    if not done.cancelled():
        done.exception()
