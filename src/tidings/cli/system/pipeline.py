"""Spark in the demo: it starts beside the brokers, reads their stores while they write, and matches everything again."""

import asyncio
import threading
import time
from collections.abc import Mapping
from concurrent.futures import Future
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tidings.cli.system.books import Pairs
from tidings.errors import TidingsError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming import StreamingQuery

    from tidings.spark.journal import Commit

PATIENCE_S = 180.0  # a bound, not a measure
_INTERVAL_S = 1.0
_LOOK_S = 0.05


class Second:
    """The second opinion: `begin` when the subscriptions stand, `finish` when no event is to come."""

    def __init__(self, starting: "Future[SparkSession]", stores: Mapping[str, str], folder: Path) -> None:
        self._starting, self._stores, self._folder = starting, stores, folder
        self._query: Future[StreamingQuery] = Future()
        self._commits: list[Commit] = []

    @property
    def events(self) -> int:
        return sum(commit.events for commit in self._commits)

    @property
    def matched(self) -> int:
        return sum(commit.matched for commit in self._commits)

    def begin(self) -> None:
        """Returns at once: the pipeline runs as soon as Spark does."""
        threading.Thread(target=self._begin, daemon=True).start()

    def _begin(self) -> None:
        try:
            spark = self._starting.result()
            from tidings.spark.journal import Identity
            from tidings.spark.network import NetworkSource, network_source, subscriptions
            from tidings.spark.stream import EVENT, Options, Pipeline

            spark.dataSource.register(NetworkSource)
            identity = Identity(
                network_source(self._stores),
                str(self._folder / "subscriptions"),
                "id",
                "type",
                "timestamp",
                "timeout_s",
            )
            pipeline = Pipeline(
                spark,
                identity,
                str(self._folder / "out"),
                Options(clock=EVENT),
                on_commit=self._commits.append,
                rows=subscriptions(self._stores),
            )
            self._query.set_result(pipeline.start(once=False, interval_s=_INTERVAL_S))
        except BaseException as error:
            self._query.set_exception(error)

    async def why_not(self) -> str:
        """Why Spark cannot start here; empty if it can."""
        while not self._starting.done():
            await asyncio.sleep(_LOOK_S)
        error = self._starting.exception()
        return "" if error is None else str(error)

    async def finish(self, events: int) -> tuple[Pairs, dict[str, Any]]:
        """Wait until it has seen so many events; the pairs it found, and how fast."""
        limit_s = time.monotonic() + PATIENCE_S
        while self.events < events:
            broken = self._query.done() and not self._query.result().isActive
            if broken or time.monotonic() > limit_s:
                told = self._query.result().exception() if broken else "it takes too long"
                raise TidingsError(f"Spark saw {self.events:,} of {events:,} events: {told}")
            await asyncio.sleep(_LOOK_S)
        self._query.result().stop()
        busy_s = sum(commit.seconds for commit in self._commits)
        found = {
            "events": self.events,
            "matched": self.matched,
            "quarantined": sum(commit.quarantined for commit in self._commits),
            "batches": len(self._commits),
            "busy_s": busy_s,
            "events_per_s": self.events / busy_s,
        }
        return self._pairs(), found

    def _pairs(self) -> Pairs:
        import pyarrow.dataset as ds

        pairs: Pairs = set()
        for table in ("notifications", "accounts"):
            folder = self._folder / "out" / table
            if folder.is_dir():
                rows = ds.dataset(folder, format="parquet").to_table(["event", "subscription"])
                pairs.update(zip(rows["event"].to_pylist(), rows["subscription"].to_pylist(), strict=True))
        return pairs


def engine_pairs(stores: Mapping[str, str], wishes: Any) -> Pairs:
    """Without Spark: what the engine in this process finds."""
    from tidings.broker import catalog
    from tidings.cli.system.books import events
    from tidings.language import parse
    from tidings.model.subscription import Subscription

    engine = catalog.matcher(catalog.DEFAULT_MATCHER)()
    for wish in wishes:
        engine.add(Subscription(wish.id, wish.home, parse(wish.filter), ("quote",)))
    return {(event.id, id) for event in events(stores) for id in engine.match(event)}
