"""The people of the demo: readers that subscribe at every broker, and publishers that quote at a steady rate.

A reader's line takes its time: what it acknowledges, it has only then. So an event that left its broker just in time comes late.
"""

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping
from typing import Any

from tidings.broker.calls import Notification
from tidings.cli.demo import Terms
from tidings.cli.system.world import QUOTE_TIMEOUT_S, READERS, SIZE_KB, World
from tidings.errors import NetworkError, TidingsError
from tidings.model.status import StatusReport
from tidings.net.client import Client
from tidings.stream import Handler, Stream

PATIENCE_S = 60.0  # a bound, not a measure
_LOOK_S = 0.1
_AT_ONCE = 200  # subscriptions of one reader that wait for their confirmation


class Market:
    """What happens is counted here, for whoever shows it."""

    def __init__(self, world: World, addresses: Mapping[str, str]) -> None:
        self.world, self.addresses = world, addresses
        self.published = self.delivered = 0
        self.feed_s = 0.0
        self._publishers: dict[str, Client] = {}
        self._readers: dict[tuple[str, int], Client] = {}
        self._streams: dict[str, Stream] = {}

    @contextlib.asynccontextmanager
    async def open(self) -> AsyncIterator["Market"]:
        """Everybody is connected. The brokers may still be starting."""
        async with contextlib.AsyncExitStack() as stack:
            for name, address in self.addresses.items():
                self._publishers[name] = Client(address, name=f"publisher-{name}", patience_s=PATIENCE_S)
                for number in range(READERS):
                    self._readers[name, number] = Client(address, name=f"reader-{name}-{number}", patience_s=PATIENCE_S)
            clients = (*self._publishers.values(), *self._readers.values())
            await asyncio.gather(*map(stack.enter_async_context, clients))
            yield self

    async def subscribe(self) -> None:
        """All subscriptions, and then until every broker knows of all of them and of the way there."""
        turns = asyncio.Semaphore(_AT_ONCE)
        lines_s = self.world.lines_s()

        async def one(client: Client, line_s: float, id: str, filter: str, terms: Terms) -> None:
            async with turns:
                handler = self._reader(client, line_s)
                self._streams[id] = await client.subscribe(
                    filter,
                    "quote",
                    deadline_s=terms.deadline_s,
                    price=terms.price,
                    penalty=terms.penalty,
                    id=id,
                    by_hand=True,
                    handler=handler,
                )

        async with asyncio.TaskGroup() as tasks:
            for wish in self.world.wishes():
                client, line_s = self._readers[wish.home, wish.reader], lines_s[wish.reader]
                tasks.create_task(one(client, line_s, wish.id, wish.filter, wish.terms))
        await self._until(self._everybody_knows, "the subscriptions did not reach all brokers")

    async def feed(self, rate: float) -> None:
        """Publish evenly, and catch up after a delay; returns when everything is confirmed."""
        begun_s = time.monotonic()
        for number, quote in enumerate(self.world.feed()):
            wait_s = begun_s + number / rate - time.monotonic()
            if wait_s > 0:
                await asyncio.sleep(wait_s)
            done = await self._publishers[quote.broker].post(
                quote.attributes, "quote", id=quote.id, timeout_s=QUOTE_TIMEOUT_S, size_kb=SIZE_KB
            )
            done.add_done_callback(self._confirmed)
        for publisher in self._publishers.values():
            await publisher.flush()
        self.feed_s = time.monotonic() - begun_s

    async def rest(self) -> None:
        """Until every matched pair has ended in an account."""
        await self._until(self._all_ended, "some deliveries never ended")

    async def statuses(self) -> dict[str, StatusReport]:
        found = await asyncio.gather(*(publisher.status() for publisher in self._publishers.values()))
        return dict(zip(self._publishers, found, strict=True))

    def _confirmed(self, done: asyncio.Future[str]) -> None:
        if not done.cancelled() and done.exception() is None:
            self.published += 1

    def _reader(self, client: Client, line_s: float) -> Handler:
        loop = asyncio.get_running_loop()

        def has(notification: Notification) -> None:
            self.delivered += 1
            with contextlib.suppress(TidingsError):  # the broker is gone, or the demo ends
                client.acknowledge(self._streams[notification.subscription], notification.event.id, confirm=False)

        return (lambda notification: loop.call_later(line_s, has, notification)) if line_s else has

    async def _everybody_knows(self) -> bool:
        statuses = (await self.statuses()).values()
        links = len(self.world.links()) * 2
        return all(
            status.matched_here == self.world.subscriptions and len(status.topology) == links for status in statuses
        )

    async def _all_ended(self) -> bool:
        return all(not status.accounts["pending"] and not status.waiting for status in (await self.statuses()).values())

    async def _until(self, condition: Callable[[], Coroutine[Any, Any, bool]], otherwise: str) -> None:
        limit_s = time.monotonic() + PATIENCE_S
        while not await condition():
            if time.monotonic() > limit_s:
                raise NetworkError(f"{otherwise} within {PATIENCE_S:g} s")
            await asyncio.sleep(_LOOK_S)
