"""`tidings demo --embedded` tells the paper's example, and its market obeys the conservation law."""

import json
from collections.abc import Callable
from typing import Any

Run = Callable[..., Any]


def test_it_is_readable(command: Run) -> None:
    done = command("demo", "--embedded")
    assert (done.code, done.err) == (0, "")
    for part in (
        "subscribe  symbol = 'LEGEND' AND change > 1; within 40 s, worth 1.5, else -0.15",
        "publish    symbol = 'LEGEND', change = 1.5; valid for 60 s",
        "earned 1.5",
        "does not match",
        "slow reader",
        "matched = ",
    ):
        assert part in done.out


def test_every_matched_delivery_has_its_account(tidings: Run) -> None:
    runs = [json.loads(tidings("demo", "--embedded", "--json", "--seed", "7").out)["market"] for _ in range(2)]
    for market in runs:
        for tally in (market["ledger"], *market["groups"].values()):
            ends = [tally[account] for account in ("on_time", "late", "expired", "undeliverable", "pending")]
            assert tally["matched"] == sum(ends)
        assert market["ledger"]["balanced"]
        assert market["ledger"]["pending"] == 0
        assert market["groups"]["slow reader"]["expired"] > 0
        assert market["groups"]["left early"]["undeliverable"] > 0
        assert market["ledger"]["matched"] == sum(tally["matched"] for tally in market["groups"].values())
    # What matches is decided by the seed alone.
    first, second = ([tally["matched"] for tally in market["groups"].values()] for market in runs)
    assert first == second


def test_unknown_names(tidings: Run) -> None:
    done = tidings("demo", "--embedded", "--engine", "magic")
    assert (done.code, done.out) == (2, "")
    assert done.err.startswith("tidings: unknown matching engine 'magic'")
