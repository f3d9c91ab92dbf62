"""`tidings demo --embedded`: the mtep paper's stock example on the bus, a small market in which something must expire, and Spark.

The market uses the deadlines, prices and penalties of the paper's experiment, with time running SPEED times faster. The
seed fixes its quotes and its subscriptions, and so what matches; what arrives in time is decided by the real clock. A larger
market goes through the whole pipeline (`market.py`) if asked for: Spark starts while the small one runs.
"""

import asyncio
import random
import tempfile
import textwrap
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

import typer

from tidings.cli.output import BAD_INPUT, counted, fail, print_json, print_table

if TYPE_CHECKING:
    from tidings.broker.ledger import Tally
    from tidings.bus import Bus
    from tidings.language import Explanation
    from tidings.stream import Stream

HELP = """Show the whole thing at work.

The paper's stock example, why another quote does not match it, and a small market with a slow reader: what was delivered, what
expired, and the ledger in which every matched delivery has its account. Then a larger market through the event log and the
pipeline on Spark; without that it takes three seconds.
"""

# mtep, section 2: what its stock example subscribes to and publishes.
FILTER = "symbol = 'LEGEND' AND change > 1"
QUOTE = {"symbol": "LEGEND", "change": 1.5}
TIMEOUT_S = 60.0
OTHER_QUOTE = {"symbol": "LEGEND", "change": 0.4}


class Terms(NamedTuple):
    deadline_s: float
    price: float
    penalty: float


EXAMPLE = Terms(40, 1.5, 0.15)
# mtep, section 5: the tighter the deadline, the dearer.
TERMS = (Terms(20, 3, 0.3), Terms(24, 2.5, 0.25), Terms(30, 2, 0.2), EXAMPLE, Terms(60, 1, 0.1))

SPEED = 40
QUOTES = 300
FEED_S = 1.2
READERS = 40
SLOW_READER_S = 0.05  # per quote: a feed of 250 quotes a second is too much for it
PATIENCE_S = 30.0  # far beyond the last deadline: a bound, not a measure
SYMBOLS = "LEGEND HAIER BAOSTEEL VANKE MOUTAI TSINGTAO".split()

SLOW, LEAVING = "slow reader", "left early"


def demo(
    seed: int = typer.Option(1, help="Fixes the quotes and the subscriptions."),
    engine: str = typer.Option(None, metavar="NAME", help="The matching engine."),
    scheduler: str = typer.Option(None, metavar="NAME", help="The delivery scheduler."),
    spark: bool = typer.Option(True, help="Also run the pipeline on Spark."),
    keep: str = typer.Option("", metavar="DIR", help="Keep the pipeline's log, notifications and accounts here."),
    json: bool = typer.Option(False, "--json", help="Print one JSON object."),
) -> None:
    from tidings.cli import market
    from tidings.errors import InvalidInput

    why_not = market.missing() if spark else ""
    starting = market.start() if spark and not why_not else None
    try:
        shown = asyncio.run(_run(seed, engine, scheduler))
    except TimeoutError:
        fail(f"the market did not come to rest within {PATIENCE_S:g} s")
    if not json:
        _print(shown)
    shown["pipeline"] = None
    if starting is not None:
        try:
            with tempfile.TemporaryDirectory(prefix="tidings-demo-") as folder:
                shown["pipeline"] = market.run(starting, keep or folder, seed)
        except InvalidInput as error:
            if starting.exception() is None:  # it runs, so the fault is elsewhere
                raise
            why_not = str(error)
    if json:
        print_json(shown)
    elif shown["pipeline"] is not None:
        typer.echo()
        market.show(shown["pipeline"])
    elif why_not:
        typer.echo(f"\nThe pipeline on Spark is left out: {why_not}")
    if shown["pipeline"] and shown["pipeline"]["embedded"] != shown["pipeline"]["matched"]:
        raise typer.Exit(BAD_INPUT)


async def _run(seed: int, engine: str | None, scheduler: str | None) -> dict[str, Any]:
    from tidings.connection import connect

    async with connect(engine=engine, scheduler=scheduler) as bus:
        example = await _example(bus)
    async with connect(engine=engine, scheduler=scheduler) as bus:
        market = await _market(bus, random.Random(seed))
    return {"seed": seed, "example": example, "other": _other(), "market": market}


async def _example(bus: "Bus") -> dict[str, Any]:
    stream = await bus.subscribe(FILTER, **EXAMPLE._asdict())
    await bus.publish(QUOTE, type="quote", timeout_s=TIMEOUT_S)
    notification = await anext(stream)
    return {
        "filter": FILTER,
        **EXAMPLE._asdict(),
        "event": notification.event.attributes,
        "timeout_s": notification.event.timeout_s,
        "age_s": notification.age_s,
        "earning": bus.ledger().total.earning,
    }


def _other() -> "Explanation":
    """The quote that the example's subscriber does not get, and why."""
    from tidings.language import explain, parse

    return explain(parse(FILTER), OTHER_QUOTE)


async def _market(bus: "Bus", chance: random.Random) -> dict[str, Any]:
    groups: dict[str, list[Stream]] = {}
    for number in range(READERS):
        terms = TERMS[number % len(TERMS)]
        name = f"{terms.deadline_s:g} s at {terms.price:g}"
        groups.setdefault(name, []).append(await _subscribed(bus, _wish(chance), terms))
    groups[SLOW] = [await _subscribed(bus, "TRUE", TERMS[0])]
    leaving = await _subscribed(bus, "change > 0", TERMS[-1])

    async with asyncio.timeout(PATIENCE_S), asyncio.TaskGroup() as tasks:
        for name, streams in groups.items():
            for stream in streams:
                tasks.create_task(_read(stream, SLOW_READER_S if name == SLOW else 0.0))
        await _feed(bus, chance, leaving)
        while bus.ledger().total.pending:
            await asyncio.sleep(0.02)
        ledger = bus.ledger()
        for streams in groups.values():
            for stream in streams:
                await bus.unsubscribe(stream)  # the readers end with their streams

    tallies = {
        name: _sum(ledger.by_subscription.get(stream.id) for stream in streams) for name, streams in groups.items()
    }
    total = _sum([ledger.total])
    # The ledger forgets the tally of a subscription that is gone; the total does not.
    tallies[LEAVING] = {
        account: amount - sum(tally[account] for tally in tallies.values()) for account, amount in total.items()
    }
    return {
        "quotes": QUOTES,
        "subscriptions": READERS + 2,
        "speed": SPEED,
        "groups": tallies,
        "ledger": {**total, "success_rate": ledger.total.success_rate, "balanced": ledger.total.balanced},
        "reasons": ledger.reasons,
    }


async def _subscribed(bus: "Bus", filter: str, terms: Terms) -> "Stream":
    return await bus.subscribe(
        filter, "quote", deadline_s=terms.deadline_s / SPEED, price=terms.price, penalty=terms.penalty
    )


async def _read(stream: "Stream", pause_s: float) -> None:
    async for _ in stream:
        if pause_s:
            await asyncio.sleep(pause_s)


async def _feed(bus: "Bus", chance: random.Random, leaving: "Stream") -> None:
    """Publishes evenly over FEED_S, and catches up after a delay. Half way one subscriber leaves what waits for it."""
    clock = asyncio.get_running_loop()
    begun_s = clock.time()
    for number, quote in enumerate(_quotes(chance)):
        await asyncio.sleep(max(0.0, begun_s + number * FEED_S / QUOTES - clock.time()))
        await bus.publish(quote, type="quote", timeout_s=TIMEOUT_S / SPEED)
        if number == QUOTES // 2:
            await bus.unsubscribe(leaving)


def _quotes(chance: random.Random) -> Iterator[dict[str, Any]]:
    """Every stock walks at random; `change` is in percent."""
    prices = dict.fromkeys(SYMBOLS, 100.0)
    for _ in range(QUOTES):
        symbol = chance.choice(SYMBOLS)
        change = round(chance.gauss(0, 1.2), 2)
        prices[symbol] = round(prices[symbol] * (1 + change / 100), 2)
        yield {"symbol": symbol, "change": change, "price": prices[symbol], "volume": chance.randrange(1, 1_000) * 100}


def _wish(chance: random.Random) -> str:
    """What one subscriber wants."""
    symbol, other = chance.sample(SYMBOLS, 2)
    return chance.choice(
        [
            f"symbol = '{symbol}' AND change > {chance.randrange(3)}",
            f"symbol IN ('{symbol}', '{other}') AND volume >= {chance.randrange(100, 900) * 100}",
            f"symbol STARTS WITH '{symbol[:2]}' AND change BETWEEN -0.5 AND 0.5",
            f"price < {chance.randrange(90, 100)} OR change < -2",
            f"NOT (symbol = '{symbol}') AND price * volume > 5000000",
        ]
    )


ACCOUNTS = ("matched", "on_time", "late", "expired", "undeliverable", "pending", "earning")


def _sum(tallies: Iterable["Tally | None"]) -> dict[str, Any]:
    found = [tally for tally in tallies if tally is not None]
    return {account: round(sum(getattr(tally, account) for tally in found), 2) for account in ACCOUNTS}


def _print(shown: dict[str, Any]) -> None:
    example, market = shown["example"], shown["market"]
    quote = ", ".join(f"{name} = {value!r}" for name, value in example["event"].items())
    echo = typer.echo
    echo("The example of the paper")
    echo(f"  subscribe  {FILTER}; within {EXAMPLE.deadline_s:g} s, worth {EXAMPLE.price}, else -{EXAMPLE.penalty}")
    echo(f"  publish    {quote}; valid for {example['timeout_s']:g} s")
    echo(f"  notify     after {example['age_s'] * 1000:.1f} ms, earned {example['earning']:g}")
    echo("\nWhy another quote is not delivered")
    echo(textwrap.indent(str(shown["other"]), "  "))
    size = f"{counted(market['quotes'], 'quote')}, {counted(market['subscriptions'], 'subscription')}"
    echo(f"\nA market: {size}, time {SPEED} times faster than in the paper")
    ledger, reasons = market["ledger"], market["reasons"]
    rows = {**market["groups"], "in all": ledger}
    columns = [account for account in ACCOUNTS if account != "pending"]
    print_table(
        ["deadline, price", *map(_words, columns)],
        [(name, *(tally[account] for account in columns)) for name, tally in rows.items()],
    )
    law = " + ".join(f"{ledger[account]:,} {_words(account)}" for account in ACCOUNTS[1:-1])
    echo(f"\nThe ledger: {ledger['matched']:,} matched = {law}")
    echo(f"  earned {ledger['earning']:,.2f}; {ledger['success_rate']:.1%} of what ended was in time")
    if reasons:
        echo("  not delivered: " + ", ".join(f"{count:,} {reason}" for reason, count in reasons.items()))


def _words(account: str) -> str:
    return account.replace("_", " ")
