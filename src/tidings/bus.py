"""The embedded bus: one broker inside the process, with the same calls that a connection to a network of brokers has.

    async with tidings.connect() as bus:
        quotes = await bus.subscribe("symbol = 'LEGEND' AND change > 1", deadline_s=40, price=1.5, penalty=0.15)
        await bus.publish({"symbol": "LEGEND", "change": 1.5}, type="quote", timeout_s=60)
        print(await anext(quotes))

This is a driver: it feeds the pure Broker with inputs and the event loop's time, and carries out its effects. A subscriber's
link is ready exactly while it waits for its next event, so whatever waits, waits in the outbox, where the scheduler decides
and what expired is accounted for. Taking an event acknowledges it.
"""

import asyncio
import itertools
import math
import secrets
import time
from collections import Counter, deque
from collections.abc import Iterable, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import msgspec

from tidings.broker import catalog
from tidings.broker.broker import Broker
from tidings.broker.calls import LedgerReport, as_filter, as_types, raise_failed
from tidings.broker.restore import restore
from tidings.errors import BusClosed, InvalidInput, TidingsError
from tidings.model import message as m
from tidings.model import step as s
from tidings.model.event import checked_event
from tidings.model.filter import Filter
from tidings.model.subscription import Advertisement, Subscription
from tidings.store import Store, open_store
from tidings.stream import Stream


class Bus:
    """Publish and subscribe inside one process. Use it from one event loop."""

    def __init__(self, engine: str | None = None, scheduler: str | None = None, path: str | Path | None = None) -> None:
        self._engine = catalog.matcher(engine or catalog.DEFAULT_MATCHER)
        self._scheduler = catalog.scheduler(scheduler or catalog.DEFAULT_SCHEDULER)
        self._broker: Broker | None = None
        self._closed = False
        self._prefix = secrets.token_hex(4)
        self._numbers = itertools.count(1)
        self._client = f"client-{self._prefix}"
        self._path = path
        self._store: Store | None = None
        self._answers: dict[int, asyncio.Future[m.Done | m.Failed]] = {}
        self._streams: dict[str, Stream] = {}  # by subscriber: each stream is a client of its own
        self._timers: dict[str, asyncio.TimerHandle] = {}
        self._inputs: deque[s.Input] = deque()
        self._maintaining: asyncio.Future[None] | None = None

    async def __aenter__(self) -> Self:
        self._running()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def publish(
        self,
        attributes: Mapping[str, Any],
        type: str = "",
        *,
        timeout_s: float = math.inf,
        id: str | None = None,
        data: bytes = b"",
        content_type: str = "",
    ) -> str:
        """Publish an event, valid for `timeout_s`; returns its id once it is accepted. The same id twice delivers once."""
        event = checked_event(
            self._new_id("e") if id is None else id,
            attributes,
            type,
            timeout_s=timeout_s,
            data=data,
            content_type=content_type,
        )
        return await self._ask(self._client, m.Publish(next(self._numbers), event))

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
    ) -> Stream:
        """Ask for events that match: filter text, a JSON pattern or a Filter; each is worth `price` within `deadline_s`.

        A durable subscription (with an `id`, on a bus with a `path`) goes on while nobody reads it, and resumes after the last
        event that was acknowledged: when it was taken, or `by_hand` with `stream.acknowledge`.
        """
        if durable and (id is None or self._path is None):
            raise InvalidInput("a durable subscription needs an id, and a bus with a path")
        subscriber = f"durable {id}" if durable else self._new_id("s")
        if subscriber in self._streams:
            raise InvalidInput(f"subscription {id!r} is open already")
        subscription = Subscription(
            subscriber if id is None else id,
            subscriber,
            as_filter(filter),
            as_types(types),
            deadline_s,
            price,
            penalty,
            durable,
        )
        stream = self._streams[subscriber] = Stream(self, subscription, by_hand=by_hand)
        self._feed(s.Connected(subscriber))
        try:
            await self._ask(subscriber, m.Subscribe(next(self._numbers), subscription))
        except TidingsError:
            self._drop(stream)
            raise
        return stream

    async def unsubscribe(self, stream: Stream) -> None:
        """End a subscription; what waits for it becomes undeliverable, and its iterator ends."""
        await self._ask(stream.subscription.subscriber, m.Unsubscribe(next(self._numbers), stream.id))
        self._drop(stream)

    async def advertise(
        self, types: str | Iterable[str] = (), filter: str | Mapping[str, Any] | Filter = "", *, id: str | None = None
    ) -> str:
        """Announce what will be published."""
        names = as_types(types)
        advertisement = Advertisement(self._new_id("a") if id is None else id, self._client, names, as_filter(filter))
        return await self._ask(self._client, m.Advertise(next(self._numbers), advertisement))

    async def unadvertise(self, id: str) -> None:
        await self._ask(self._client, m.Unadvertise(next(self._numbers), id))

    async def flush(self) -> None:
        """Wait until all that was taken or acknowledged so far is stored as such."""
        await self._confirmed(self._client, ())

    def wanted(self, stream: Stream) -> None:
        self._feed(s.LinkReady(stream.subscription.subscriber))

    def acknowledge(self, stream: Stream, event: str, *, confirm: bool) -> asyncio.Future[None] | None:
        peer = stream.subscription.subscriber
        if not confirm:
            self._feed(s.Received(peer, m.Acknowledge(event, stream.id)))
            return None
        return asyncio.ensure_future(self._confirmed(peer, ((event, stream.id),)))

    async def _confirmed(self, peer: str, pairs: tuple[tuple[str, str], ...]) -> None:
        await self._ask(peer, m.Acknowledgements(pairs, next(self._numbers)))

    def ledger(self) -> LedgerReport:
        """The accounts now: matched = on_time + late + expired + undeliverable + pending."""
        ledger = self._running().ledger
        copies = {id: msgspec.structs.replace(tally) for id, tally in ledger.by_subscription.items()}
        return LedgerReport(msgspec.structs.replace(ledger.total), copies, dict(Counter(ledger.reasons)))

    async def close(self) -> None:
        """End all subscriptions. Further calls raise BusClosed."""
        for stream in list(self._streams.values()):
            self._drop(stream)
        self._closed = True
        for timer in self._timers.values():
            timer.cancel()
        for answer in self._answers.values():
            if not answer.done():
                answer.set_exception(BusClosed("the bus is closed"))
        if self._maintaining is not None:
            await asyncio.wait([self._maintaining])
        if self._store is not None:
            store, self._store = self._store, None
            await self._loop.run_in_executor(None, store.close)

    def _running(self) -> Broker:
        if self._closed:
            raise BusClosed("the bus is closed")
        if self._broker is None:
            self._loop = asyncio.get_running_loop()
            epoch_s = time.time() - self._loop.time()
            durable = self._path is not None
            self._broker = Broker("embedded", self._engine(), self._scheduler, epoch_s=epoch_s, durable=durable)
            if self._path is not None:
                self._restore(self._broker, self._path)
            self._feed(s.Connected(self._client))
        return self._broker

    def _restore(self, broker: Broker, path: str | Path) -> None:
        """What the store kept comes before anything else. This takes as long as it takes to read it."""
        soon = self._loop.call_soon_threadsafe
        store = self._store = open_store(
            path,
            lambda tickets: soon(self._stored, tickets),
            lambda tickets, reason: soon(self._store_failed, tickets, reason),
        )
        unmatched = [entry.event for entry in store.unmatched()]
        for effect in restore(broker, store.restore(), unmatched, self._loop.time()):
            self._carry_out(effect)

    def _stored(self, tickets: list[int]) -> None:
        for ticket in tickets:
            self._feed(s.Stored(ticket))

    def _store_failed(self, tickets: list[int], reason: str) -> None:
        for ticket in tickets:
            self._feed(s.StoreFailed(ticket, reason))

    async def _ask(self, peer: str, request: m.Request | m.Acknowledgements) -> str:
        """Without a store the answer is there when the effects are carried out."""
        self._running()
        future: asyncio.Future[m.Done | m.Failed] = self._loop.create_future()
        self._answers[request.request] = future
        self._feed(s.Received(peer, request))
        try:
            answer = await future
        finally:
            self._answers.pop(request.request, None)
        if isinstance(answer, m.Failed):
            raise_failed(answer)
        self._maintain()
        return answer.id

    def _feed(self, input: s.Input) -> None:
        """Run the machine until it is at rest: effects may cause inputs."""
        broker = self._running()
        self._inputs.append(input)
        if len(self._inputs) > 1:
            return  # called from an effect: the loop below goes on
        while self._inputs:
            for effect in broker.handle(self._inputs[0], self._loop.time()):
                self._carry_out(effect)
            self._inputs.popleft()

    def _carry_out(self, effect: s.Effect) -> None:
        match effect:
            case s.Store(ticket, records) if self._store is not None:
                try:
                    self._store.append(ticket, records)
                except TidingsError as error:
                    self._inputs.append(s.StoreFailed(ticket, str(error)))
            case s.Store(ticket, _) if ticket:
                self._inputs.append(s.Stored(ticket))  # without a store this bus promises memory, not a disk
            case s.Deliver(client, event, subscriptions, age_s, redelivered):
                for _ in subscriptions:
                    self._streams[client].arrive(event, age_s, redelivered)
            case s.Send(_, m.Done() | m.Failed() as answer):
                future = self._answers.get(answer.request)
                if future is not None and not future.done():
                    future.set_result(answer)
            case s.Wake(timer, at_s):
                if timer in self._timers:
                    self._timers[timer].cancel()
                self._timers[timer] = self._loop.call_at(at_s, self._wake, timer)

    def _wake(self, timer: str) -> None:
        del self._timers[timer]
        self._feed(s.Woke(timer))

    def _drop(self, stream: Stream) -> None:
        subscriber = stream.subscription.subscriber
        if self._streams.pop(subscriber, None) is not None:
            self._feed(s.Disconnected(subscriber))
            stream.end()

    def _maintain(self) -> None:
        """Let the engine tidy up on a thread, one job at a time."""
        if self._maintaining is None and (job := self._running().matcher.maintenance()) is not None:
            self._maintaining = self._loop.run_in_executor(None, job)
            self._maintaining.add_done_callback(self._maintained)

    def _maintained(self, done: asyncio.Future[None]) -> None:
        self._maintaining = None
        done.result()
        if not self._closed:
            self._maintain()

    def _new_id(self, letter: str) -> str:
        return f"{letter}-{self._prefix}-{next(self._numbers)}"
