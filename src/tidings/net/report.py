"""What a running broker shows of itself: its status and its accounts, in the schema of model/status.py."""

import asyncio
import math
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from tidings.model.message import BROKER
from tidings.model.status import AccountRow, AccountsReport, EdgeReport, LinkReport, StatusReport, TraceRecord
from tidings.store import Accounts

if TYPE_CHECKING:
    from tidings.net.runtime import Runtime

VERSION = "0.1.0"
MAX_CLIENTS = 50  # links to clients that are shown: those with the most to do
KINDS = ("total", "subscription", "type", "broker", "reason")


def status_report(runtime: "Runtime") -> StatusReport:
    broker, config = runtime.broker, runtime.config
    store, total = runtime.store, broker.ledger.total
    now, wall_s = asyncio.get_running_loop().time(), time.time()
    links = sorted(
        _links(runtime), key=lambda link: (link.role != BROKER, -link.queued - link.unacknowledged, link.peer)
    )
    brokers = sum(link.role == BROKER for link in links)
    return StatusReport(
        config.id,
        VERSION,
        runtime.started_at_s,
        wall_s - runtime.started_at_s,
        config.engine,
        config.scheduler,
        config.overlay,
        len(broker.subscriptions),
        len(broker.subscriptions) + len(getattr(broker.overlay, "homes", ())),
        len(broker.advertisements),
        sum(peer.role != BROKER for peer in runtime.peers.values()),
        len(runtime.peers),
        runtime.published,
        runtime.delivered,
        store.healthy if store is not None else True,
        store.reason if store is not None else "",
        broker.waiting,
        {name: getattr(total, name) for name in total.__struct_fields__},
        dict(broker.ledger.reasons),
        tuple(links[: brokers + MAX_CLIENTS]),
        tuple(_edges(broker.overlay)),
        tuple(runtime.faults),
        tuple(
            TraceRecord(wall_s - (now - at_s), event.id, event.type, step, peer, age_s, subscriptions)
            for at_s, event, step, peer, age_s, subscriptions in runtime.trace
        ),
    )


def _links(runtime: "Runtime") -> list[LinkReport]:
    found = []
    for name, outbox in runtime.broker.outboxes.items():
        peer = runtime.peers.get(name)
        link = getattr(outbox.scheduler, "link", None)
        found.append(
            LinkReport(
                name,
                outbox.role,
                peer is not None,
                queued=len(outbox),
                mu=link.mu if link is not None else 0.0,
                sigma=math.sqrt(link.variance) if link is not None else 0.0,
                **({} if peer is None else _line(peer)),
            )
        )
    return found


def _line(peer: Any) -> dict[str, Any]:
    return {
        "address": peer.connection.address,
        "unacknowledged": len(peer),
        "unacknowledged_kb": peer.unacknowledged_kb,
        "backlog_kb": peer.connection.backlog_kb,
        "sent": peer.sent,
        "received": peer.received,
        "rtt_s": peer.connection.rtt_s,
        "hop_s": peer.hop_s,
    }


def _edges(overlay: Any) -> list[EdgeReport]:
    """The links of the whole network, where the overlay knows them."""
    atlas = getattr(overlay, "atlas", None)
    if atlas is None:
        return []
    return [
        EdgeReport(sender, link.peer, link.mu, math.sqrt(link.variance), link.price)
        for sender, links in sorted(atlas.links.items())
        for link in links.values()
    ]


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
