"""One run of the demo: brokers, readers, feed and Spark, in an order that lets them start at the same time, and end for sure."""

import asyncio
import contextlib
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from tidings.cli.output import complain, on_terminal
from tidings.cli.system import books
from tidings.cli.system.market import Market
from tidings.cli.system.mesh import Mesh
from tidings.cli.system.pipeline import Second, engine_pairs
from tidings.cli.system.world import World

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_EVERY_S = 0.5
_STORED_S = 30.0
WITHOUT = "tidings: without Spark, the engine in this process checks the brokers: {}"


class Settings(NamedTuple):
    world: World
    seconds: float
    rate: float
    engine: str
    scheduler: str


class Kept(NamedTuple):
    """What was left running."""

    file: Path
    addresses: dict[str, str]


def run(
    settings: Settings, starting: "Future[SparkSession] | None", keep: bool = False
) -> tuple[dict[str, Any], Kept | None]:
    """The report. Whatever happens, nothing is left behind that was not asked for."""
    folder = Path(tempfile.mkdtemp(prefix="tidings-demo-"))
    mesh = Mesh(folder, settings.world, settings.engine, settings.scheduler)
    second = None if starting is None else Second(starting, mesh.stores, folder / "spark")
    kept = None
    with _interruptible():
        try:
            mesh.start(keep)
            report = asyncio.run(_run(settings, mesh, second))
            if keep:
                mesh.leave()
                kept = Kept(mesh.file, mesh.addresses)
            return report, kept
        finally:
            mesh.stop()
            if kept is None:
                mesh.remove()


async def _run(settings: Settings, mesh: Mesh, second: Second | None) -> dict[str, Any]:
    market = Market(settings.world, mesh.addresses)
    shown = _Progress()
    shown.say("Starting the brokers" + (" and Spark" if second else ""))
    async with market.open():
        shown.say("Subscribing")
        await market.subscribe()
        if second is not None:
            second.begin()
        with shown.following(lambda: _state(settings, market, second)):
            await market.feed(settings.rate)
            await market.rest()
            ledgers = await _stored(market, mesh)
        shown.say("Comparing")
        wishes = settings.world.wishes()
        if second is not None and (why_not := await second.why_not()):
            complain(WITHOUT.format(why_not))
            second = None
        if second is None:
            others, spark = engine_pairs(mesh.stores, wishes), None
        else:
            others, spark = await second.finish(market.published)
    shown.say("")
    return {
        "seed": settings.world.seed,
        "brokers": len(settings.world.brokers),
        "subscriptions": settings.world.subscriptions,
        "rate": settings.rate,
        "events": market.published,
        "feed_s": market.feed_s,
        "events_per_s": market.published / market.feed_s,
        "delivered_per_s": market.delivered / market.feed_s,
        **books.tally(ledgers, wishes, max(1, round(settings.seconds))),
        "spark": spark,
        "check": _check(ledgers, others, "engine" if spark is None else "spark"),
    }


async def _stored(market: Market, mesh: Mesh) -> books.Books:
    """The books, when the stores have written the last of them."""
    ended = sum(int(status.accounts[name]) for status in (await market.statuses()).values() for name in books.ACCOUNTS)
    limit_s = time.monotonic() + _STORED_S
    while True:
        found = await asyncio.to_thread(books.read, mesh.stores)
        if len(found.closed) >= ended or time.monotonic() > limit_s:
            return found
        await asyncio.sleep(0.1)


def _check(found: books.Books, others: books.Pairs, by: str) -> dict[str, Any]:
    return {
        "by": by,
        "brokers": len(found.pairs),
        "other": len(others),
        "only_brokers": len(found.pairs - others),
        "only_other": len(others - found.pairs),
        "same": found.pairs == others,
        "balanced": found.whole,
    }


def _state(settings: Settings, market: Market, second: Second | None) -> str:
    text = f"{market.published:,} of {settings.world.quotes:,} quotes confirmed, {market.delivered:,} deliveries"
    if second is None:
        return text
    return f"{text}; Spark: " + (
        f"{second.events:,} events, {second.matched:,} matches" if second.events else "starting"
    )


class _Progress:
    """One line on the terminal; silence in a pipe."""

    def __init__(self) -> None:
        self._shown = on_terminal(sys.stderr)

    def say(self, text: str) -> None:
        if self._shown:
            sys.stderr.write(f"\r\x1b[K{text}")
            sys.stderr.flush()

    @contextlib.contextmanager
    def following(self, text: Callable[[], str]) -> Iterator[None]:
        async def follow() -> None:
            while True:
                self.say(text())
                await asyncio.sleep(_EVERY_S)

        task = asyncio.get_running_loop().create_task(follow()) if self._shown else None
        try:
            yield
        finally:
            if task is not None:
                task.cancel()


@contextlib.contextmanager
def _interruptible() -> Iterator[None]:
    """Being told to end is like an interrupt: everything is put away first."""

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def started(wanted: bool) -> "Future[SparkSession] | None":
    """Spark on its way; None, and a word about it, if there can be none."""
    from tidings.cli import market

    if not wanted:
        return None
    if why_not := market.missing():
        complain(WITHOUT.format(why_not))
        return None
    return market.start()


def ended(starting: "Future[SparkSession] | None") -> None:
    """End Spark, if it runs; while it still starts, it ends with this process."""
    if starting is not None and starting.done() and starting.exception() is None:
        starting.result().stop()
