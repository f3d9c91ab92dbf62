"""ceem, Fig. 3 and 4: the time to insert 5,000 subscriptions and to match 200 events, every 5,000 subscriptions.

As in the paper: both settings of Table 1, inserted one by one into an engine that is never rebuilt. We measure CPU time of the
thread, and add our own engine. The paper's machine (a Pentium 4) and its curves are lost; its claims are in words.

    tidings reproduce ceem.fig03 [--quick] [--json]
"""

import time
from pathlib import Path
from typing import Any

import numpy as np

from tidings.cli.bench_match import ENGINES
from tidings.cli.figure import save, telling
from tidings.matching.base import Matcher
from tidings.matching.workloads import Workload
from tidings.model.event import Event
from tidings.model.subscription import Subscription

NAME = "ceem_fig03_04"
SETTINGS = {"ceem1": "Fig. 3 (5 attributes, 8 families)", "ceem2": "Fig. 4 (7 attributes, 11 families)"}
COMPARED = ["counting", "tree", "ceem", "boxtree"]
STEP, LAST, EVENTS = 5_000, 50_000, 200
QUICK_STEP, QUICK_LAST, QUICK_EVENTS = 500, 2_000, 50
REPEATS = 3  # of matching; the least counts, since other work on the machine only adds
SEED = 1

Row = dict[str, Any]


def run(out_dir: Path, quick: bool = False) -> dict[str, Any]:
    """Measure, and write data and picture into a folder; returns the rows and what they say about the claims."""
    step, last, events = (QUICK_STEP, QUICK_LAST, QUICK_EVENTS) if quick else (STEP, LAST, EVENTS)
    rows: list[Row] = []
    progress = telling(NAME)
    for setting in SETTINGS:
        workload = Workload(setting, last, SEED)
        subscriptions, published = list(workload.subscriptions()), workload.events(events)
        for name in COMPARED:
            _grow(ENGINES[name](), subscriptions[: step // 10], published, step // 10)  # compiles the kernels
            grown = _grow(ENGINES[name](), subscriptions, published, step)
            rows += [{"setting": setting, "engine": name, **row} for row in grown]
            progress(len(rows), len(SETTINGS) * len(COMPARED) * (last // step))
    result = {"rows": rows, "claims": _claims(rows)}
    save(out_dir, NAME, result, rows, lambda figure: _draw(figure, rows))
    return result


def _grow(engine: Matcher, subscriptions: list[Subscription], events: list[Event], step: int) -> list[Row]:
    rows = []
    for start in range(0, len(subscriptions), step):
        insert_s = 0.0
        for subscription in subscriptions[start : start + step]:
            began = time.thread_time()
            engine.add(subscription)
            insert_s += time.thread_time() - began
            if (job := engine.maintenance()) is not None:
                job()  # belongs to another thread, so it does not count
        match_s, found = min(_matched(engine, events) for _ in range(REPEATS))
        rows.append(
            {
                "subscriptions": len(engine),
                "insert_s": round(insert_s, 6),
                "match_s": round(match_s, 6),
                "found": found,
            }
        )
    return rows


def _matched(engine: Matcher, events: list[Event]) -> tuple[float, int]:
    began = time.thread_time()
    found = sum(len(engine.match(event)) for event in events)
    return time.thread_time() - began, found


def _claims(rows: list[Row]) -> dict[str, Any]:
    """Numbers behind the paper's sentences: how linear the curves are, their slopes, and what is last."""
    claims: dict[str, Any] = {}
    for setting in SETTINGS:
        for name in dict.fromkeys(row["engine"] for row in rows):
            own = [row for row in rows if (row["setting"], row["engine"]) == (setting, name)]
            x = np.array([row["subscriptions"] for row in own], float)
            for what in ("match_s", "insert_s"):
                y = np.array([row[what] for row in own])
                slope, _ = np.polyfit(x, y, 1)
                claims[f"{setting} {name} {what}"] = {
                    "us_per_thousand_subscriptions": round(float(slope) * 1e9, 3),
                    "r_squared": round(float(np.corrcoef(x, y)[0, 1] ** 2), 4),
                    "at_last": own[-1][what],
                }
    return claims


def tables(result: dict[str, Any]) -> list[tuple[str, list[str], list[list[object]]]]:
    rows, claims = result["rows"], result["claims"]
    return [
        ("CPU seconds", list(rows[0]), [list(row.values()) for row in rows]),
        (
            "The curves",
            ["curve", "us per 1,000 subscriptions", "R squared", "at the last"],
            [[curve, *numbers.values()] for curve, numbers in claims.items()],
        ),
    ]


def _draw(figure: Any, rows: list[Row]) -> None:
    figure.set_size_inches(10, 7)
    panels = figure.subplots(2, 2)
    for line, (setting, title) in zip(panels, SETTINGS.items(), strict=True):
        for panel, what, label in zip(line, ("insert_s", "match_s"), ("insertion", "matching"), strict=True):
            for name in dict.fromkeys(row["engine"] for row in rows):
                own = [row for row in rows if (row["setting"], row["engine"]) == (setting, name)]
                panel.plot([row["subscriptions"] for row in own], [row[what] for row in own], marker="o", label=name)
            panel.set(title=f"{title}: {label}", xlabel="subscriptions", ylabel="CPU seconds", yscale="log")
            panel.grid(alpha=0.3)
    panels[0][0].legend()
