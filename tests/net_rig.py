"""Live brokers for tests: inside this process or as processes of their own, on free ports, always ended."""

import asyncio
import contextlib
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from pathlib import Path
from typing import Any

from tidings.net.address import Address
from tidings.net.config import BrokerConfig
from tidings.net.runtime import Runtime

ANYWHERE = Address("127.0.0.1", 0)
PATIENCE_S = float(os.environ.get("TIDINGS_PATIENCE_S", "60"))  # far beyond what anything takes: a bound, not a measure


def run(scenario: Callable[[], Coroutine[Any, Any, Any]], patience_s: float = 2 * PATIENCE_S) -> Any:
    """Bounded: a scenario that hangs fails."""
    return asyncio.run(asyncio.wait_for(scenario(), patience_s))


async def eventually(condition: Callable[[], Any], what: str = "", patience_s: float = PATIENCE_S) -> Any:
    """Waits for a condition, bounded."""
    limit_s = time.monotonic() + patience_s
    while not (found := condition()):
        assert time.monotonic() < limit_s, f"this never came true: {what or condition}"
        await asyncio.sleep(0.005)
    return found


async def eventually_async(condition: Callable[[], Coroutine[Any, Any, Any]], what: str = "") -> None:
    limit_s = time.monotonic() + PATIENCE_S
    while not await condition():
        assert time.monotonic() < limit_s, f"this never came true: {what or condition}"
        await asyncio.sleep(0.02)


@contextlib.asynccontextmanager
async def broker(**settings: Any) -> AsyncIterator[Runtime]:
    runtime = Runtime(BrokerConfig(**{"id": "b", "listen": ANYWHERE, "engine": "naive"} | settings))
    try:
        await runtime.start()
        yield runtime
    finally:
        await runtime.stop()


class Process:
    """`tidings serve` with these arguments."""

    def __init__(self, *arguments: str | Path) -> None:
        self.arguments = [str(argument) for argument in arguments]
        self._process: subprocess.Popen[str] | None = None
        self.address = ""

    def start(self) -> str:
        self.begin()
        return self.await_ready()

    def begin(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tidings", "serve", *self.arguments],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=os.environ | {"PYTHONUNBUFFERED": "1"},
        )

    def await_ready(self) -> str:
        """Its address."""
        assert self._process is not None
        assert self._process.stdout is not None
        readable, _, _ = select.select([self._process.stdout], [], [], PATIENCE_S)
        line = self._process.stdout.readline() if readable else ""
        if not line:
            self._process.kill()
            raise AssertionError(f"the broker did not start: {self._process.communicate()[1]}")
        self.address = line.split()[-1]
        return self.address

    def kill(self) -> None:
        """kill -9."""
        self._end(signal.SIGKILL)

    def stop(self) -> str:
        """What it complained about."""
        return self._end(signal.SIGTERM)

    def _end(self, number: int) -> str:
        if self._process is None:
            return ""
        self._process.send_signal(number)
        try:
            _, complaints = self._process.communicate(timeout=PATIENCE_S)
        finally:
            self._process.kill()
        self._process = None
        return complaints


@contextlib.contextmanager
def process(*arguments: str | Path) -> Iterator[Process]:
    served = Process(*arguments)
    try:
        served.start()
        yield served
    finally:
        served.stop()


def free_port() -> int:
    import socket

    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return int(sock.getsockname()[1])
