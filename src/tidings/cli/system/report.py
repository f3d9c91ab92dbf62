"""The demo's report: as text, as JSON, and as a picture of every second."""

import contextlib
import io
from pathlib import Path
from typing import Any

import typer

from tidings.cli import figure
from tidings.cli.output import counted, print_table
from tidings.cli.system.books import ACCOUNTS
from tidings.cli.system.world import SPEED

NAME = "demo"
_COLOURS = {"on_time": "#2a9d5c", "late": "#e9b44c", "expired": "#c8553d", "undeliverable": "#6d6875"}


def save(report: dict[str, Any], out: Path) -> None:
    """`demo.json`, `demo.txt`, and each second in `demo.csv` and `demo.png`."""
    rows = [{"second": number, **row} for number, row in enumerate(report["seconds"])]
    figure.save(out, NAME, report, rows, lambda painted: _draw(painted, report))
    text = io.StringIO()
    with contextlib.redirect_stdout(text):
        show(report)
    (out / f"{NAME}.txt").write_text(text.getvalue(), "utf-8")


def show(report: dict[str, Any]) -> None:
    echo = typer.echo
    accounts, spark = report["accounts"], report["spark"]
    brokers = f"{counted(report['brokers'], 'broker')}, {counted(report['subscriptions'], 'subscription')}"
    echo(f"A live market: {brokers}, time {SPEED} times faster than in the paper")
    echo(
        f"  {counted(report['events'], 'quote')} in {report['feed_s']:.0f} s, confirmed {report['events_per_s']:,.0f} a second, "
        f"delivered {report['delivered_per_s']:,.0f} a second"
    )
    columns = ("matched", *(name for name in ACCOUNTS if accounts[name]), "earning", "ideal")
    rows = {f"{row['deadline_s']:g} s at {row['price']:g}": row for row in report["terms"]} | {"in all": accounts}
    print_table(
        ["deadline, price", *(name.replace("_", " ") for name in columns)],
        [[name, *(round(row[column]) for column in columns)] for name, row in rows.items()],
    )
    for row in report["reasons"]:
        echo(f"  {row['account']}: {row['count']:,} {row['reason']}")
    share = accounts["earning"] / accounts["ideal"] if accounts["ideal"] else 1.0
    earned = f"earned {accounts['earning']:,.2f} of {accounts['ideal']:,.2f} ({share:.1%})"
    echo(f"  {earned}; {report['success_rate']:.1%} in time")
    ages = ", ".join(
        f"{name} {age_s * 1000:,.0f} ms" for name, age_s in report["latency_s"].items() if age_s is not None
    )
    echo(f"  age on arrival: {ages}")
    if spark is not None:
        batches = "one micro-batch" if spark["batches"] == 1 else f"{spark['batches']} micro-batches"
        echo(
            f"  Spark read the brokers' stores: {counted(spark['events'], 'event')} in {batches}, "
            f"{spark['events_per_s']:,.0f} a second while it was at work"
        )
    echo(f"  {_verdict(report['check'])}")


def _verdict(check: dict[str, Any]) -> str:
    other = "Spark" if check["by"] == "spark" else "the engine in this process"
    if not check["same"]:
        only = f"{check['only_brokers']:,} only by the brokers, {check['only_other']:,} only by {other}"
        return f"NOT THE SAME MATCHES: {check['brokers']:,} by the brokers and {check['other']:,} by {other}; {only}"
    if not check["balanced"]:
        return "THE LEDGERS DO NOT BALANCE: not every matched pair has exactly one account"
    return f"brokers and {other} found the same {check['brokers']:,} matches"


def _draw(painted: Any, report: dict[str, Any]) -> None:
    left, right = painted.subplots(1, 2)
    seconds = report["seconds"]
    at = range(len(seconds))
    bottom = [0] * len(seconds)
    for account in ACCOUNTS:
        heights = [row[account] for row in seconds]
        left.bar(at, heights, 1.0, bottom, label=account.replace("_", " "), color=_COLOURS[account])
        bottom = [low + high for low, high in zip(bottom, heights, strict=True)]
    left.set_xlabel("second of publication")
    left.set_ylabel("matched pairs")
    left.set_ylim(0, 1.2 * max(1, *bottom))
    left.legend(frameon=False, ncols=2, loc="upper left")
    rows = report["terms"]
    names = [f"{row['deadline_s']:g} s\nat {row['price']:g}" for row in rows]
    right.bar(names, [row["ideal"] for row in rows], color="#d9dde2", label="all in time")
    right.bar(names, [row["earning"] for row in rows], 0.6, color="#22577a", label="earned")
    right.set_xlabel("deadline and price")
    right.legend(frameon=False)
