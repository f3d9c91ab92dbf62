"""`tidings bench bus`: one live broker, against NATS where every subscriber filters for itself."""

import signal
import sys
from typing import Any

import typer

from tidings.cli.output import fail, on_terminal, print_json, print_table

HELP = """Measure one live broker: events per second, stored, confirmed, matched and delivered, and latencies.

Subscriptions are those of ceem's first experiment plus `symbol =` one of 40, shared out over the connections; --plain leaves the
symbol out. Beside it NATS, where every connection receives everything and filters for itself.

\b
  tidings bench bus
  tidings bench bus --subscriptions 20000 --events 5000 --no-nats --json
"""
_COLUMNS = "system events/s p50_ms p99_ms at_rate deliveries/event server_us/event".split()


def bus(
    subscriptions: int = typer.Option(200_000, help="How many, in all."),
    connections: int = typer.Option(200, help="Subscribers, each with its share of the subscriptions."),
    events: int = typer.Option(50_000, help="Events of the run at full speed."),
    nats_events: int = typer.Option(2_000, help="The same for NATS, which takes longer for each."),
    rate: float = typer.Option(5_000.0, help="Events per second of the run that measures latencies."),
    nats_rate: float = typer.Option(100.0, help="The same for NATS: about half of what it does."),
    seconds: float = typer.Option(5.0, help="How long that run takes."),
    plain: bool = typer.Option(False, "--plain", help="Without the symbol: about 128 connections want each event."),
    nats: bool = typer.Option(True, "--nats/--no-nats", help="Measure NATS, too."),
    engine: str = typer.Option(None, metavar="NAME", help="The matching engine."),
    seed: int = typer.Option(1, help="The same seed makes the same subscriptions and events."),
    json: bool = typer.Option(False, "--json", help="Print one JSON object."),
) -> None:
    from tidings.cli.bus_speed import SIDES, Plan, measure

    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # so that the processes of the benchmark end with it
    if subscriptions < connections or connections < 1:
        fail("--subscriptions: expected at least one for each connection")
    options: dict[str, Any] = {"engine": engine} if engine else {}
    shape: dict[str, Any] = {
        "subscriptions": subscriptions,
        "connections": connections,
        "symbols": 0 if plain else 40,
        "seed": seed,
    }
    plan = Plan(**shape, events=events, rate=rate, rate_s=seconds, **options)
    ours = measure(SIDES["tidings"], plan, _progress)
    theirs = None
    if nats:
        other = Plan(**shape, events=nats_events, rate=nats_rate, rate_s=seconds, **options)
        theirs = measure(SIDES["nats"], other, _progress)
    _progress("")
    if json:
        fields = {name: getattr(ours, name) for name in ours.__struct_fields__}
        print_json({**fields, "nats": theirs, "ratio": _ratio(ours, theirs)})
        return
    print_table(_COLUMNS, [_cells(name, speed) for name, speed in (("tidings", ours), ("nats", theirs)) if speed])
    if theirs is not None:
        typer.echo(
            f"{_ratio(ours, theirs):.1f} times as many events per second as NATS with filters in the subscribers"
        )


def _ratio(ours: Any, theirs: Any) -> float | None:
    return None if theirs is None else round(float(ours.events_per_s / theirs.events_per_s), 2)


def _cells(name: str, speed: Any) -> list[Any]:
    return [
        name,
        speed.events_per_s,
        speed.p50_ms,
        speed.p99_ms,
        speed.rate,
        speed.deliveries_per_event,
        speed.cpu_us,
    ]


def _progress(text: str) -> None:
    if on_terminal(sys.stderr):
        sys.stderr.write(f"\r\x1b[K{text}")
        sys.stderr.flush()
