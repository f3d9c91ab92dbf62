"""The accounts of a broker, or of a store without one, in the schema of model/status.py."""

import asyncio
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from tidings.model.status import AccountRow, AccountsReport
from tidings.store import Accounts

if TYPE_CHECKING:
    from tidings.net.runtime import Runtime

KINDS = ("total", "subscription", "type", "broker", "reason")


async def accounts_report(runtime: "Runtime", by: str, limit: int) -> AccountsReport:
    """Of all time where there is a store, else since the start."""
    if runtime.store is not None:
        accounts = await asyncio.get_running_loop().run_in_executor(None, runtime.store.ledger)
        return stored_accounts(runtime.config.id, accounts, by, limit)
    ledger = runtime.broker.ledger
    tallies: dict[str, Mapping[str, Any]] = {"total": {"": ledger.total}, "subscription": ledger.by_subscription}
    return _report(runtime.config.id, tallies, by, limit, ledger.total.balanced)


def stored_accounts(broker: str, accounts: Accounts, by: str = "", limit: int = 1_000) -> AccountsReport:
    """The same from a store, with or without a broker that runs on it."""
    tallies: dict[str, Mapping[str, Any]] = {
        "total": {"": accounts.total},
        **{kind: getattr(accounts, f"by_{kind}") for kind in KINDS[1:]},
    }
    return _report(broker, tallies, by, limit, accounts.total.pending >= 0)


def _report(broker: str, tallies: dict[str, Mapping[str, Any]], by: str, limit: int, balanced: bool) -> AccountsReport:
    rows: list[AccountRow] = []
    left_out = 0
    for kind, named in tallies.items():
        if by in ("", kind):
            order = sorted(named.items(), key=lambda item: (-item[1].matched, item[0]))
            rows += [_row(kind, name, tally) for name, tally in order[: max(0, limit)]]
            left_out += max(0, len(order) - max(0, limit))
    return AccountsReport(broker, tuple(rows), balanced, left_out)


def _row(kind: str, name: str, tally: Any) -> AccountRow:
    counts = (
        tally.matched,
        tally.on_time,
        tally.late,
        tally.expired,
        tally.undeliverable,
        tally.pending,
        tally.earning,
    )
    percentile = getattr(tally, "percentile_s", lambda share: None)
    return AccountRow(kind, name, *counts, tally.success_rate, percentile(0.5), percentile(0.9), percentile(0.99))
