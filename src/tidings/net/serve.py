"""One broker process: start, say where it listens, run until told to end."""

import asyncio
import gc
import logging
import signal
from collections.abc import Callable
from typing import TYPE_CHECKING

from tidings.errors import ConfigError, NetworkError
from tidings.net.config import BrokerConfig
from tidings.net.loop import run
from tidings.net.runtime import Runtime

if TYPE_CHECKING:
    from tidings.net.gateway.server import Gateway

_SWEEP_S = 60.0


def serve(config: BrokerConfig, ready: Callable[[Runtime], None], log_level: str = "WARNING") -> None:
    """Returns after SIGTERM or SIGINT, when everything is written."""
    # Nearly all of our objects end with their last reference: among many that live long, cycles are looked for seldom.
    gc.set_threshold(100_000, 50, 1_000)
    logging.basicConfig(level=log_level, format="%(asctime)s %(levelname)s %(name)s %(message)s")
    run(_serve(config, ready))


async def _serve(config: BrokerConfig, ready: Callable[[Runtime], None]) -> None:
    loop = asyncio.get_running_loop()
    ended = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, ended.set)
    runtime = Runtime(config)
    gateway: Gateway | None = None
    try:
        await runtime.start()
        gateway = await _gateway(runtime)
    except OSError as error:
        await runtime.stop()
        raise NetworkError(f"{config.listen}: cannot listen there: {error.strerror}") from None
    except BaseException:
        await runtime.stop()
        raise
    ready(runtime)
    sweeping = loop.create_task(_sweep(runtime))
    await ended.wait()
    sweeping.cancel()
    await asyncio.gather(sweeping, return_exceptions=True)
    if gateway is not None:
        await gateway.stop()
    await runtime.stop()


async def _gateway(runtime: Runtime) -> "Gateway | None":
    """HTTP is a client like any other, in this process: it starts after the broker and ends before it."""
    listen = runtime.config.http
    if listen is None:
        return None
    try:
        from tidings.net.gateway.server import Gateway
    except ImportError as error:
        raise ConfigError(
            f"http: the gateway needs a package more: pip install 'tidings[http]' ({error.name})"
        ) from None
    gateway = Gateway(runtime, listen)
    await gateway.start()
    runtime.http = gateway.address
    return gateway


async def _sweep(runtime: Runtime) -> None:
    """What is past its retention leaves the store, a bounded number at a time."""
    store = runtime.store
    while store is not None:
        await asyncio.sleep(_SWEEP_S)
        await asyncio.get_running_loop().run_in_executor(None, runtime.sweep)
