"""The synchronous face of the bus, for scripts: every call runs the asynchronous one on a loop in a thread of its own.

with tidings.connect_sync() as bus:
    quotes = bus.subscribe("symbol = 'LEGEND'")
    bus.publish({"symbol": "LEGEND"})
    print(next(quotes))
"""

import asyncio
import threading
from collections.abc import Coroutine, Iterator
from types import TracebackType
from typing import Any, Self, TypeVar

from tidings.broker.calls import LedgerReport, Notification
from tidings.bus import Bus
from tidings.connection import connect
from tidings.errors import BusClosed, InvalidInput
from tidings.model.status import AccountsReport, StatusReport
from tidings.net.client import Client
from tidings.stream import Stream

Result = TypeVar("Result")


class SyncStream:
    """The events of one subscription: an iterator that blocks until the next one is there."""

    def __init__(self, bus: "SyncBus", stream: Stream) -> None:
        self._bus, self._stream = bus, stream

    @property
    def id(self) -> str:
        return self._stream.id

    def __iter__(self) -> Iterator[Notification]:
        return self

    def __next__(self) -> Notification:
        notification = self.take()
        if notification is None:
            raise StopIteration
        return notification

    def take(self, timeout_s: float | None = None) -> Notification | None:
        """The next event; None if the subscription has ended. TimeoutError if none is there within `timeout_s`."""
        return self._bus._run(self._take(timeout_s))

    def acknowledge(self, notification: Notification) -> None:
        """For what is acknowledged by hand: returns when that is stored, and the event will never come again."""

        async def acknowledged() -> None:
            await self._stream.acknowledge(notification)

        self._bus._run(acknowledged())

    async def _take(self, timeout_s: float | None) -> Notification | None:
        try:
            return await asyncio.wait_for(anext(self._stream), timeout_s)
        except StopAsyncIteration:
            return None


class SyncBus:
    """The calls of Bus, or of Client, without `await`; see there."""

    def __init__(self, bus: Bus | Client) -> None:
        self._bus = bus
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="tidings-bus", daemon=True)
        self._thread.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def publish(self, *args: Any, **options: Any) -> str:
        return self._run(self._bus.publish(*args, **options))

    def subscribe(self, *args: Any, **options: Any) -> SyncStream:
        return SyncStream(self, self._run(self._bus.subscribe(*args, **options)))

    def unsubscribe(self, stream: SyncStream) -> None:
        self._run(self._bus.unsubscribe(stream._stream))

    def advertise(self, *args: Any, **options: Any) -> str:
        return self._run(self._bus.advertise(*args, **options))

    def unadvertise(self, id: str) -> None:
        self._run(self._bus.unadvertise(id))

    def flush(self) -> None:
        self._run(self._bus.flush())

    def ledger(self, *args: Any, **options: Any) -> LedgerReport | AccountsReport:
        """What the bus has: the report of an embedded one, or the accounts that a broker tells."""

        async def read() -> LedgerReport | AccountsReport:
            report = self._bus.ledger(*args, **options)
            return await report if isinstance(report, Coroutine) else report

        return self._run(read())

    def status(self) -> StatusReport:
        """Of a broker over the network."""
        if isinstance(self._bus, Bus):
            raise InvalidInput("an embedded bus has no status: only a broker over the network tells one")
        return self._run(self._bus.status())

    def close(self) -> None:
        if not self._loop.is_closed():
            self._run(self._bus.close())
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join()
            self._loop.close()

    def _run(self, work: Coroutine[Any, Any, Result]) -> Result:
        if self._loop.is_closed():
            work.close()
            raise BusClosed("the bus is closed")
        future = asyncio.run_coroutine_threadsafe(work, self._loop)
        try:
            return future.result()
        except BaseException:
            future.cancel()
            raise


def connect_sync(address: str | None = None, **options: Any) -> SyncBus:
    """`connect` for code without an event loop; use it as `with tidings.connect_sync() as bus`."""
    return SyncBus(connect(**options) if address is None else connect(address, **options))
