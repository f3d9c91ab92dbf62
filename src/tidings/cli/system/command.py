"""`tidings demo`: what it takes, and what it prints."""

from pathlib import Path
from typing import TYPE_CHECKING

import typer

from tidings.cli.output import BAD_INPUT, print_json

if TYPE_CHECKING:
    from tidings.cli.system.run import Kept

HELP = """Show the whole system at work.

Starts a mesh of live broker processes whose links take their time, thousands of subscriptions with the paper's deadlines and
prices, a market feed, and Spark, which reads the brokers' stores and matches everything again. After about a minute it reports
what came in time, what did not and why, what that earned, and whether brokers and Spark found the same matches; then it ends all
that it started. The report is also written to a folder: demo.txt, demo.json, demo.csv and a picture, demo.png.

--embedded is a short tour in this process instead.
"""


def demo(
    seconds: float = typer.Option(30.0, min=1.0, max=3600.0, help="How long quotes are published."),
    brokers: int = typer.Option(3, min=2, max=20, help="Broker processes."),
    rate: float = typer.Option(250.0, min=1.0, max=10_000.0, help="Quotes a second in all."),
    subscriptions: int = typer.Option(3_000, min=1, max=1_000_000, help="Subscriptions in all."),
    spark: bool = typer.Option(None, help="Let Spark match everything again, which it does unless --embedded."),
    seed: int = typer.Option(1, help="Fixes quotes, subscriptions and links."),
    engine: str = typer.Option(None, metavar="NAME", help="The matching engine."),
    scheduler: str = typer.Option(None, metavar="NAME", help="The delivery scheduler."),
    out: Path = typer.Option(Path("out"), metavar="DIR", help="Where the report and the picture go."),
    keep: bool = typer.Option(False, "--keep", help="Leave the brokers running, and say how to reach and end them."),
    embedded: bool = typer.Option(False, "--embedded", help="A short tour on the embedded bus instead."),
    json: bool = typer.Option(False, "--json", help="Print one JSON object."),
) -> None:
    if embedded:
        from tidings.cli.demo import demo as tour

        tour(seed=seed, engine=engine, scheduler=scheduler, spark=bool(spark), keep="", json=json)
        return
    from tidings.broker import catalog
    from tidings.cli.system import report as reports
    from tidings.cli.system.run import Settings, ended, run, started
    from tidings.cli.system.world import World

    engine, scheduler = engine or catalog.DEFAULT_MATCHER, scheduler or catalog.DEFAULT_SCHEDULER
    catalog.matcher(engine)
    catalog.scheduler(scheduler)
    names = tuple(f"b{number}" for number in range(1, brokers + 1))
    world = World(seed, names, subscriptions, max(1, round(rate * seconds)))
    starting = started(spark is not False)
    try:
        found, kept = run(Settings(world, seconds, rate, engine, scheduler), starting, keep)
    finally:
        ended(starting)
    reports.save(found, out)
    if json:
        print_json(found)
    else:
        reports.show(found)
        typer.echo(f"  report and picture: {out / 'demo.txt'}, {out / 'demo.json'}, {out / 'demo.png'}")
    if kept is not None:
        _say_how(kept)
    if not (found["check"]["same"] and found["check"]["balanced"]):
        raise typer.Exit(BAD_INPUT)


def _say_how(kept: "Kept") -> None:
    where = "\n".join(f"  {name}: {address}" for name, address in kept.addresses.items())
    first = next(iter(kept.addresses.values()))
    typer.echo(
        f"\nThe brokers go on:\n{where}\n"
        f"  tidings sub {first} \"symbol = 'LEGEND'\"\n"
        f'  tidings pub {first} \'{{"symbol": "LEGEND", "change": 1.5}}\' --type quote\n'
        f"  tidings network status {kept.file}\n"
        f"  tidings network down {kept.file} && rm -r {kept.file.parent}",
        err=True,
    )
