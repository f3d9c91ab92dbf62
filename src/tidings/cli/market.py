"""`tidings pipeline demo`: a seeded market through the embedded bus into the event log, and Spark matching it, end to end.

Subscriptions have the deadlines, prices and penalties of the mtep paper and live at four brokers, the farthest of which is too
far for the tightest deadlines: what cannot arrive in time is not sent, and accounted for. The matches are compared with those of
the engine in this process.
"""

import asyncio
import random
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from tidings.cli.demo import SYMBOLS, TERMS, TIMEOUT_S
from tidings.cli.output import counted, print_json, print_table

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

    from tidings.model.event import Event

START_S = 1_767_605_400.0  # a Monday, 9:30 in UTC
QUOTE_EVERY_S = 0.1
SIZE_KB = 50.0  # mtep, section 5
# mu and sigma in seconds per KB and brokers on the way: one to five links of 40 to 80 ms/KB.
HOMES = {"near": (0.06, 0.02, 1), "city": (0.15, 0.03, 2), "coast": (0.28, 0.04, 4), "far": (0.42, 0.045, 5)}


def run(spark: "SparkSession", folder: str, seed: int, quotes: int, subscriptions: int) -> dict[str, Any]:
    """The whole way; what there is to report."""
    from tidings.spark.account import fold, of_pipeline, reasons
    from tidings.spark.journal import Identity
    from tidings.spark.log import EventLog
    from tidings.spark.sources import source
    from tidings.spark.stream import Options, Pipeline

    chance = random.Random(seed)
    begun = time.perf_counter()
    events = asyncio.run(_feed(random.Random(seed), quotes))
    fed_s = time.perf_counter() - begun
    log = EventLog.create(Path(folder, "log"))
    for start in range(0, len(events), 1_000):
        log.append_events(events[start : start + 1_000])
    rows = _subscriptions(chance, subscriptions)
    links = Path(folder, "links.csv")
    lines = [f"{home},{mu},{sigma},{hops}" for home, (mu, sigma, hops) in HOMES.items()]
    links.write_text("\n".join(["home,mu,sigma,hops", *lines]) + "\n")

    out = str(Path(folder, "out"))
    given = source(spark, str(log.path), options={"maxEventsPerTrigger": str(max(1, quotes // 3))})
    identity = Identity(given, str(Path(folder, "subscriptions")), "id", "type", "timestamp", "timeout_s")
    options = Options(clock="event", links=str(links), size_kb=SIZE_KB)
    pipeline = Pipeline(spark, identity, out, options, rows=rows)
    commits = pipeline.run_once()
    accounts = of_pipeline(spark, out).cache()
    (total,) = fold(accounts).toArrow().to_pylist()
    names = ("events", "matched", "sent", "expired", "quarantined")
    return {
        "seed": seed,
        "out": out,
        "subscriptions": subscriptions,
        **{name: sum(getattr(commit, name) for commit in commits) for name in names},
        "batches": [{"batch": commit.batch, "events": commit.events, "seconds": commit.seconds} for commit in commits],
        "bus_events_per_s": quotes / fed_s,
        "spark_events_per_s": _rate(commits),
        "earning": total["earning"],
        "ideal": _ideal(rows, accounts),
        "success_rate": total["success_rate"],
        "brokers": fold(accounts, ["broker"]).orderBy("broker").toArrow().to_pylist(),
        "reasons": reasons(accounts).toArrow().to_pylist(),
        "embedded": _embedded(rows, events),
    }


def _rate(commits: list[Any]) -> float:
    """Without the first batch, which starts workers."""
    warm = commits[1:] or commits
    return float(sum(commit.events for commit in warm) / max(1e-9, sum(commit.seconds for commit in warm)))


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


def _ideal(rows: "pa.Table", accounts: "DataFrame") -> float:
    """What all matched pairs in time would have earned."""
    prices = dict(zip(rows["id"].to_pylist(), rows["price"].to_pylist(), strict=True))
    counts = accounts.groupBy("subscription").count().toArrow().to_pylist()
    return float(sum(prices[row["subscription"]] * row["count"] for row in counts))


def _embedded(rows: "pa.Table", events: list["Event"]) -> int:
    """How many pairs the engine in this process finds."""
    from tidings.broker import catalog
    from tidings.spark.subscriptions import parsed, table_of

    engine = catalog.matcher(catalog.DEFAULT_MATCHER)()
    engine.add_all(subscription for _, subscription in parsed(table_of(rows), []))
    return sum(len(engine.match(event)) for event in events)


def show(shown: dict[str, Any], json: bool) -> None:
    if json:
        print_json(shown)
        return
    echo = typer.echo
    matched, sent, expired = shown["matched"], shown["sent"], shown["expired"]
    rate = f"{shown['bus_events_per_s']:,.0f} a second"
    echo(f"A market on the embedded bus: {counted(shown['events'], 'quote')} into the event log ({rate})")
    rate = f"{shown['spark_events_per_s']:,.0f} events a second"
    wanted = f"{shown['subscriptions']:,} subscriptions in {len(shown['batches'])} micro-batches"
    echo(f"Spark matched them against {wanted} ({rate})")
    agree = "the same" if shown["embedded"] == matched else "NOT the same"
    echo(f"  {matched:,} matches; the engine in this process finds {shown['embedded']:,}: {agree}")
    echo(f"  {matched:,} matched = {sent:,} sent + {expired:,} expired; {shown['quarantined']:,} records set aside")
    columns = ("broker", "matched", "on_time", "late", "expired", "earning", "success_rate")
    rows = [
        [round(row[name], 3) if isinstance(row[name], float) else row[name] for name in columns]
        for row in shown["brokers"]
    ]
    print_table([name.replace("_", " ") for name in columns], rows)
    for row in shown["reasons"]:
        echo(f"  {row['count']:,} {row['reason']}")
    share = shown["earning"] / shown["ideal"] if shown["ideal"] else 1.0
    echo(f"Earned {shown['earning']:,.2f} of {shown['ideal']:,.2f} ({share:.1%}); {shown['success_rate']:.1%} in time")
