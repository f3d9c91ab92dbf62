"""`tidings pipeline edge`: matching for brokers that leave it to Spark (`matching = "spark"` in their network file).

The brokers' stores are the event log, their journals tell the subscriptions, and the notifications go back to the brokers where
their subscribers are. Spark's checkpoint gives a repeated micro-batch the same events, its plan the same version of the
subscriptions, and a home recognises the pairs that it has: so whatever is killed whenever, nothing is lost or repeated.
"""

import time
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from tidings.cli.output import complain
from tidings.errors import ConfigError, StoreError

if TYPE_CHECKING:
    from tidings.model.event import Event
    from tidings.net.config import NetworkConfig
    from tidings.net.handover import Handover
    from tidings.spark.sink import Delivery
    from tidings.spark.stream import Pipeline

HELP = """Match what the brokers of a network file take in, where it says matching = "spark"; `network up` starts this, too.

Goes on until it is stopped. What it must not forget is in --out: to run it again goes on where it was, whatever happened to it.
"""
PER_BATCH = 2_000  # events of each store: fewer than the copies that a home recognises (`broker/transit.py`)
_PATIENCE_S = 60.0
_PAGE = 1_000


def edge(
    file: Path = typer.Argument(..., metavar="FILE", help="The network file (TOML)."),
    out: str = typer.Option("", metavar="DIR", help="The pipeline's folder; FILE.spark if not given."),
    interval: float = typer.Option(0.0, metavar="SECONDS", help="Time between micro-batches."),
    master: str = typer.Option(None, metavar="URL", help="Spark's master; local[*] if nobody says."),
) -> None:
    from tidings.net.config import SPARK, read_network
    from tidings.net.handover import Handover
    from tidings.spark.session import session
    from tidings.spark.stream import wait

    network = read_network(file)
    if network.matching != SPARK:
        raise ConfigError(f"{file}: matching: expected {SPARK!r}, found {network.matching!r}")
    spark = session("tidings edge", master)
    _await_stores(network)
    handover = Handover(SPARK, network.brokers)
    pipeline = _pipeline(spark, network, out or f"{file}.spark", handover)
    typer.echo(f"matching for {', '.join(network.brokers)}")
    query = pipeline.start(once=False, interval_s=interval)
    try:
        wait(query)
    except KeyboardInterrupt:
        query.stop()
    finally:
        handover.close()


def _await_stores(network: "NetworkConfig") -> None:
    """Brokers make their stores when they start."""
    from tidings.store import open_reader

    limit_s = time.monotonic() + _PATIENCE_S
    for broker in network.brokers.values():
        while True:
            try:
                open_reader(broker.store).close()
                break
            except StoreError:
                if time.monotonic() > limit_s:
                    raise
                time.sleep(0.2)


def _pipeline(spark: Any, network: "NetworkConfig", out: str, handover: "Handover") -> "Pipeline":
    from tidings.spark.journal import Identity, Plan
    from tidings.spark.network import BROKER, OFFSET, Followed, NetworkSource, network_source
    from tidings.spark.stream import EVENT, Options, Pipeline

    stores = {name: broker.store for name, broker in network.brokers.items()}
    followed = Followed(stores)

    class Edge(Pipeline):
        """Its subscriptions follow the brokers': a new plan names all that were confirmed before it."""

        def _plan(self, number: int) -> Plan:
            if self.journal.plan(number) is None:
                put, removed = followed.news()
                if len(put) or removed:
                    self.table.change(put, removed)
            return super()._plan(number)

    spark.dataSource.register(NetworkSource)
    source = network_source(stores, PER_BATCH)
    table = str(Path(out, "subscriptions"))
    identity = Identity(source, table, "id", "type", "timestamp", "timeout_s", (BROKER, OFFSET))
    homes = Homes(handover, stores)
    # Judged at its own time, nothing expires here: that is for the home to decide, and to account for.
    pipeline = Edge(spark, identity, out, Options(clock=EVENT), homes, rows=followed.rows)
    for problem in pipeline.problems:
        complain(problem)
    return pipeline


class Homes:
    """A sink: each notification goes to the broker where its subscriber is."""

    def __init__(self, handover: "Handover", stores: Mapping[str, str]) -> None:
        self._handover, self._stores = handover, stores

    def deliver(self, delivery: "Delivery") -> None:
        from tidings.net.handover import Copy
        from tidings.spark.network import BROKER, OFFSET

        rows = delivery.notifications.select("home", f"`{BROKER}`", f"`{OFFSET}`", "subscription").toArrow()
        columns = (rows[name].to_pylist() for name in ("home", BROKER, OFFSET, "subscription"))
        found: dict[str, dict[tuple[str, int], list[str]]] = {}
        for home, broker, offset, id in zip(*columns, strict=True):
            found.setdefault(home, {}).setdefault((broker, offset), []).append(id)
        events = self._events({place for places in found.values() for place in places})
        self._handover.deliver(
            {
                home: [Copy(events[place], tuple(ids)) for place, ids in places.items() if place in events]
                for home, places in found.items()
            }
        )

    def _events(self, places: set[tuple[str, int]]) -> dict[tuple[str, int], "Event"]:
        """With all that they carry, from the stores. What is past its retention is gone."""
        from tidings.store import open_reader

        found: dict[tuple[str, int], Event] = {}
        for broker, where in self._stores.items():
            offsets = sorted(offset for name, offset in places if name == broker)
            with open_reader(where) as store:
                at = 0
                while at < len(offsets):
                    page = store.read(offsets[at], _PAGE)
                    found.update(((broker, entry.offset), entry.event) for entry in page)
                    last = page[-1].offset if page else offsets[-1]
                    while at < len(offsets) and offsets[at] <= last:
                        at += 1
        return found
