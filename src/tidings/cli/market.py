"""A seeded market, end to end: through the embedded bus into the event log, matched, scheduled and accounted for on Spark.

Subscriptions have the deadlines, prices and penalties of the mtep paper and live at four brokers, the farthest of which is too
far for the tightest deadline: what cannot arrive in time is not sent. The way of every copy that is sent is drawn from its
broker's link, so some come late. The matches are compared with those of the engine in this process.
"""

import asyncio
import random
import sys
import threading
import time
from collections.abc import Iterable, Iterator
from concurrent.futures import Future
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from tidings.cli.demo import SYMBOLS, TERMS, TIMEOUT_S
from tidings.cli.output import complain, counted, on_terminal, print_table

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession

    from tidings.model.event import Event

START_S = 1_767_605_400.0  # a Monday, 9:30 in UTC
QUOTE_EVERY_S = 0.1
SIZE_KB = 50.0  # mtep, section 5
# mu and sigma in seconds per KB and brokers on the way: one to five links of about 60 to 100 ms/KB.
HOMES = {"near": (0.06, 0.02, 1), "city": (0.15, 0.03, 2), "coast": (0.28, 0.04, 4), "far": (0.5, 0.045, 5)}
QUOTES, SUBSCRIPTIONS, BATCHES = 3_000, 5_000, 3
# Nothing runs long enough here for Java's second compiler to pay.
_SHORT_LIVED = {"spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"}


def missing() -> str:
    """Why there can be no Spark here; empty if there can."""
    absent = [name for name in ("pyspark", "pyarrow") if find_spec(name) is None]
    return f"{' and '.join(absent)} not installed: pip install 'tidings[spark]'" if absent else ""


def start() -> "Future[SparkSession]":
    """Spark, started while the caller does something else."""
    starting: Future[SparkSession] = Future()

    def begin() -> None:
        from tidings.spark.session import session

        try:
            spark = session("tidings demo", conf=_SHORT_LIVED)
            spark.range(1).mapInArrow(_same, "id long").collect()  # workers start now, not when the first batch waits
            starting.set_result(spark)
        except BaseException as error:
            starting.set_exception(error)

    threading.Thread(target=begin, daemon=True).start()
    return starting


def _same(batches: Iterable["pa.RecordBatch"]) -> Iterator["pa.RecordBatch"]:
    yield from batches


def run(
    starting: "Future[SparkSession]", folder: str, seed: int, quotes: int = QUOTES, subscriptions: int = SUBSCRIPTIONS
) -> dict[str, Any]:
    """The whole way; what there is to report."""
    chance = random.Random(seed)
    begun = time.perf_counter()
    events = asyncio.run(_feed(random.Random(seed), quotes))
    fed_s = time.perf_counter() - begun
    rows = _subscriptions(chance, subscriptions)
    embedded, ideal = _embedded(rows, events)

    from tidings.spark.account import fold, reasons, records
    from tidings.spark.journal import Identity
    from tidings.spark.log import EventLog
    from tidings.spark.sources import source
    from tidings.spark.stream import Options, Pipeline, committed

    per_batch = -(-quotes // BATCHES)
    log = EventLog.create(Path(folder, "log"))
    for start in range(0, quotes, per_batch):
        log.append_events(events[start : start + per_batch])
    links = Path(folder, "links.csv")
    lines = [f"{home},{mu},{sigma},{hops}" for home, (mu, sigma, hops) in HOMES.items()]
    links.write_text("\n".join(["home,mu,sigma,hops", *lines]) + "\n")
    _say("Waiting for Spark")
    spark = starting.result()
    out = str(Path(folder, "out"))
    given = source(spark, str(log.path), options={"maxEventsPerTrigger": str(per_batch)})
    identity = Identity(given, str(Path(folder, "subscriptions")), "id", "type", "timestamp", "timeout_s")
    options = Options(clock="event", links=str(links), size_kb=SIZE_KB)
    pipeline = Pipeline(spark, identity, out, options, rows=rows)
    pipeline.on_commit = lambda commit: _say(f"batch {commit.batch}: {commit.events:,} events, {commit.seconds:.1f} s")
    commits = pipeline.run_once()
    _say("Accounting")
    deliveries = _delivered(chance, folder)
    log_of_all = records(spark.read.parquet(deliveries))
    expired = committed(spark, out, "accounts")
    if expired is not None:
        log_of_all = log_of_all.unionByName(records(expired))
    brokers = fold(log_of_all, ["broker"]).orderBy("broker").toArrow().to_pylist()
    names = ("events", "matched", "sent", "expired", "quarantined")
    return {
        "seed": seed,
        "subscriptions": subscriptions,
        **{name: sum(getattr(commit, name) for commit in commits) for name in names},
        "batches": [{"batch": commit.batch, "events": commit.events, "seconds": commit.seconds} for commit in commits],
        "bus_events_per_s": quotes / fed_s,
        "earning": sum(row["earning"] for row in brokers),
        "ideal": ideal,
        "success_rate": sum(row["on_time"] for row in brokers) / max(1, sum(row["matched"] for row in brokers)),
        "brokers": brokers,
        "reasons": reasons(log_of_all).toArrow().to_pylist(),
        "embedded": embedded,
    }


def _say(text: str) -> None:
    if on_terminal(sys.stderr):
        complain(text)


async def _feed(chance: random.Random, quotes: int) -> list["Event"]:
    """Publish the market on the bus; a subscriber to everything records it."""
    import msgspec

    from tidings.connection import connect

    recorded: list[Event] = []
    prices = dict.fromkeys(SYMBOLS, 100.0)
    async with connect() as bus:
        stream = await bus.subscribe("TRUE", "quote")
        for number in range(quotes):
            symbol, change = chance.choice(SYMBOLS), round(chance.gauss(0, 1.2), 2)
            prices[symbol] = round(prices[symbol] * (1 + change / 100), 2)
            quote = {
                "symbol": symbol,
                "change": change,
                "price": prices[symbol],
                "volume": chance.randrange(1, 1_000) * 100,
            }
            await bus.publish(quote, "quote", timeout_s=TIMEOUT_S, id=f"q{number:06d}")
            event = (await anext(stream)).event
            recorded.append(
                msgspec.structs.replace(event, timestamp_s=START_S + number * QUOTE_EVERY_S, size_kb=SIZE_KB)
            )
    return recorded


def _subscriptions(chance: random.Random, count: int) -> "pa.Table":
    import pyarrow as pa

    rows = []
    for number in range(count):
        terms = TERMS[number % len(TERMS)]
        row = {"id": f"s{number:05d}", "types": ["quote"], "filter": _wanted(chance)}
        rows.append({**row, **terms._asdict(), "subscriber": f"client{number}", "home": chance.choice(list(HOMES))})
    return pa.Table.from_pylist(rows)


def _wanted(chance: random.Random) -> str:
    """One symbol or two and narrow ranges; one in twenty needs arithmetic, which is verified on the candidates."""
    symbol, other = chance.sample(SYMBOLS, 2)
    volume, price, change = chance.randrange(950) * 100, chance.randrange(40, 200), round(chance.gauss(0, 1.5), 1)
    if chance.random() < 0.05:
        return f"symbol = '{symbol}' AND change > 3 AND price * volume > {chance.randrange(4, 9) * 1_000_000}"
    return chance.choice(
        [
            f"symbol = '{symbol}' AND change > {abs(change) + 1:.1f}",
            f"symbol IN ('{symbol}', '{other}') AND volume BETWEEN {volume} AND {volume + 4_000}",
            f"symbol STARTS WITH '{symbol[:2]}' AND change BETWEEN {change - 0.1:.1f} AND {change + 0.1:.1f}",
            f"symbol <> '{symbol}' AND price BETWEEN {price} AND {price + 1} AND volume > {volume}",
        ]
    )


def _embedded(rows: "pa.Table", events: list["Event"]) -> tuple[int, float]:
    """How many pairs the engine in this process finds, and what all of them in time would earn."""
    from tidings.broker import catalog
    from tidings.spark.subscriptions import parsed, table_of

    engine = catalog.matcher(catalog.DEFAULT_MATCHER)()
    prices = {}
    for _, subscription in parsed(table_of(rows), []):
        engine.add(subscription)
        prices[subscription.id] = subscription.price
    found = [id for event in events for id in engine.match(event)]
    return len(found), sum(map(prices.__getitem__, found))


def _delivered(chance: random.Random, folder: str) -> str:
    """The delivery log of what was sent: a copy, one event on its way to one broker, takes as long as its link makes it."""
    import numpy as np
    import pyarrow as pa
    import pyarrow.dataset as ds
    import pyarrow.parquet as pq

    wanted = ["event", "type", "timestamp", "subscription", "home", "dl", "price", "penalty"]
    sent = ds.dataset(Path(folder, "out", "notifications"), format="parquet").to_table(wanted)
    sent = sent.set_column(4, "home", sent["home"].cast(pa.string()))
    sent = sent.sort_by([(name, "ascending") for name in ("event", "home", "subscription")])
    homes, events = (np.asarray(sent[name].to_pylist()) for name in ("home", "event"))
    first = np.append(True, (homes[1:] != homes[:-1]) | (events[1:] != events[:-1]))
    ways = [max(0.0, chance.gauss(*HOMES[home][:2])) * SIZE_KB for home in homes[first].tolist()]
    age_s = np.array(ways)[np.cumsum(first) - 1]
    due, born = (sent[name].cast(pa.int64()).to_numpy() for name in ("dl", "timestamp"))
    in_time = age_s <= (due - born) / 1e6
    log = {
        "event": sent["event"],
        "subscription": sent["subscription"],
        "account": pa.array(np.where(in_time, "on_time", "late")),
        "broker": pa.array(homes),
        "age_s": pa.array(age_s),
        "earning": pa.array(np.where(in_time, sent["price"].to_numpy(), -sent["penalty"].to_numpy())),
        "type": sent["type"],
        "at": sent["timestamp"],
    }
    path = str(Path(folder, "deliveries.parquet"))
    pq.write_table(pa.table(log), path)
    return path


def show(shown: dict[str, Any]) -> None:
    echo = typer.echo
    matched, sent, expired = shown["matched"], shown["sent"], shown["expired"]
    rate = f"{shown['bus_events_per_s']:,.0f} a second"
    echo(f"A larger market through the bus into the event log: {counted(shown['events'], 'quote')} ({rate})")
    wanted = f"{shown['subscriptions']:,} subscriptions in {len(shown['batches'])} micro-batches"
    agree = "as many as" if shown["embedded"] == matched else f"NOT the {shown['embedded']:,} of"
    echo(f"  Spark matched them against {wanted}: {matched:,} pairs, {agree} the engine in this process")
    echo(f"  {matched:,} matched = {sent:,} sent + {expired:,} expired; {shown['quarantined']:,} records set aside")
    columns = ("broker", "matched", "on_time", "late", "expired", "p50_s", "earning", "success_rate")
    rows = [
        [round(row[name], 3) if isinstance(row[name], float) else row[name] for name in columns]
        for row in shown["brokers"]
    ]
    print_table([name.replace("_", " ") for name in columns], rows)
    for row in shown["reasons"]:
        echo(f"  not sent: {row['count']:,} {row['reason']}")
    share = shown["earning"] / shown["ideal"] if shown["ideal"] else 1.0
    echo(
        f"  earned {shown['earning']:,.2f} of {shown['ideal']:,.2f} ({share:.1%}); {shown['success_rate']:.1%} in time"
    )
