"""Notifications that were matched elsewhere, handed to the brokers where their subscribers are: as a broker of its own would.

Each copy is a Forward that names its subscriptions, and is in the home's hands when the home says Taken, after its sync. What
was not taken when a connection is lost goes again under new numbers; the home recognises the pairs it has (`broker/transit.py`),
also when all of it is handed over again after a crash of this side.

Bounds: WINDOW copies on each link without Taken. A home that is away is waited for.
How old an event is, is told by the wall clock of the broker that published it: machines need clocks that agree.
"""

import asyncio
import logging
import threading
import time
from collections import deque
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from tidings.errors import Refused, TidingsError
from tidings.model import message as m
from tidings.model.event import Event
from tidings.net.address import client_context
from tidings.net.config import BrokerConfig
from tidings.net.dialer import Dialer
from tidings.net.transport import Connection

log = logging.getLogger(__name__)

WINDOW = 500


class Copy(NamedTuple):
    event: Event
    subscriptions: tuple[str, ...]


class Handover:
    """Runs on a loop in a thread of its own, so that any thread may call it."""

    def __init__(self, name: str, homes: Mapping[str, BrokerConfig]) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="tidings-handover", daemon=True)
        self._thread.start()
        self._links = {home: _Link(name, config) for home, config in homes.items()}
        for link in self._links.values():
            asyncio.run_coroutine_threadsafe(link.run(), self._loop)

    def deliver(self, copies: Mapping[str, Sequence[Copy]]) -> None:
        """Home -> what is for it. Returns when all of it is safe there; the first refusal is raised."""

        async def everywhere() -> None:
            await asyncio.gather(*(self._links[home].deliver(copies[home]) for home in copies))

        asyncio.run_coroutine_threadsafe(everywhere(), self._loop).result()

    def close(self) -> None:
        async def end() -> None:
            tasks = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

        asyncio.run_coroutine_threadsafe(end(), self._loop).result()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()


class _Link:
    """The way to one home."""

    def __init__(self, name: str, config: BrokerConfig) -> None:
        self._config = config
        self._hello = m.Hello(name, m.BROKER, token=config.broker_token)
        self._name = name
        self._waiting: deque[Copy] = deque()
        self._under_way: deque[tuple[int, Copy]] = deque()
        self._number = 0  # the last one that was used; counting begins when the home has told what it has
        self._connection: Connection | None = None
        self._resumed = False
        self._done: asyncio.Future[None] | None = None

    async def run(self) -> None:
        config = self._config
        tls = client_context(config.tls) if config.tls is not None else None
        await Dialer(self, config.listen, config.limits, self._hello, tls, self._not_reached).run()

    async def deliver(self, copies: Sequence[Copy]) -> None:
        if copies:
            self._waiting.extend(copies)
            self._done = asyncio.get_running_loop().create_future()
            self._pump()
            await self._done

    def _pump(self) -> None:
        connection = self._connection
        while connection is not None and self._resumed and self._waiting and len(self._under_way) < WINDOW:
            copy = self._waiting.popleft()
            self._number += 1
            self._under_way.append((self._number, copy))
            age_s = max(0.0, time.time() - copy.event.timestamp_s)
            route = m.Route((self._config.id,), copy.subscriptions)
            connection.send(m.Forward(copy.event, (self._name,), (route,), age_s, self._number))
        if not self._waiting and not self._under_way and self._done is not None and not self._done.done():
            self._done.set_result(None)

    def _not_reached(self, error: TidingsError) -> bool:
        if isinstance(error, Refused) and self._done is not None and not self._done.done():
            self._done.set_exception(error)
        log.info("%s: %s", self._config.id, error)
        return True

    # What a connection tells its owner.

    def made(self, connection: Connection) -> None:
        pass

    def greeted(self, connection: Connection, hello: m.Hello) -> m.Hello | None:
        if hello.role != m.BROKER or hello.peer != self._config.id:
            raise Refused(f"{self._config.listen}: expected broker {self._config.id!r}, found {hello.peer!r}")
        return None

    def opened(self, connection: Connection) -> None:
        self._connection, self._resumed = connection, False
        connection.send(m.Taken(0, resumed=True))

    def received(self, connection: Connection, message: m.Message) -> None:
        if not isinstance(message, m.Taken) or connection is not self._connection:
            return
        while self._under_way and self._under_way[0][0] <= message.number:
            self._under_way.popleft()
        if message.resumed:
            self._waiting.extendleft(copy for _, copy in reversed(self._under_way))
            self._under_way.clear()
            self._number, self._resumed = message.number, True
        self._pump()

    def drained(self, connection: Connection) -> None:
        pass

    def closed(self, connection: Connection, reason: str) -> None:
        if connection is self._connection:
            self._connection = None
