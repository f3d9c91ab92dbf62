"""`tidings ledger`: the accounts of a broker, from the broker itself or from its store."""

from typing import TYPE_CHECKING

import typer

from tidings.cli.output import counted, print_json, print_table

if TYPE_CHECKING:
    from tidings.model.status import AccountRow, AccountsReport

HELP = """Show the accounts: what was matched, what came in time, what did not and why, what it earned.

WHERE is a broker (tidings://host:port) or a store: a folder or postgresql://..., whether a broker runs on it or not.

\b
  tidings ledger tidings://localhost:7740
  tidings ledger data --by reason --json
"""


def ledger(
    where: str = typer.Argument(..., metavar="WHERE", help="A broker's address, or a store."),
    by: str = typer.Option("", help="total, subscription, type, broker or reason; without it: all of them."),
    limit: int = typer.Option(20, help="The most rows of each."),
    json: bool = typer.Option(False, "--json", help="Print one JSON object."),
    token: str = typer.Option("", envvar="TIDINGS_TOKEN", help="What the broker wants to hear."),
) -> None:
    report = _report(where, by, limit, token)
    if json:
        print_json(report)
        return
    print_table(
        "by name matched on_time late expired undeliverable pending earning success p50_ms p90_ms p99_ms".split(),
        [_cells(row) for row in report.rows],
    )
    if report.left_out:
        typer.echo(f"{counted(report.left_out, 'row')} more: --limit shows them")


def _report(where: str, by: str, limit: int, token: str) -> "AccountsReport":
    if not where.startswith(("tidings://", "tidings+tls://")):
        from tidings.net.report import stored_accounts
        from tidings.store import open_reader

        with open_reader(where) as store:
            return stored_accounts("", store.ledger(), by, limit)
    from tidings.net.client import Client
    from tidings.net.loop import run

    async def ask() -> "AccountsReport":
        async with Client(where, token=token, patience_s=5.0) as bus:
            return await bus.ledger(by, limit)

    return run(ask())


def _cells(row: "AccountRow") -> list[object]:
    counts = (row.matched, row.on_time, row.late, row.expired, row.undeliverable, row.pending)
    ages = ("" if age_s is None else round(age_s * 1000, 2) for age_s in (row.p50_s, row.p90_s, row.p99_s))
    return [row.by, row.name, *counts, round(row.earning, 2), f"{row.success_rate:.2%}", *ages]
