"""Adapting: brokers that measure their links against brokers that know them, before and after a fifth of them slows down.

In the middle of the run a fifth of all links takes three times as long. `known` brokers know the true rates at all times,
`measured` ones learn them from their own transmissions, `assumed` ones believe what was true at the start. In the slowed
world only what is earned after the slowdown counts.

    tidings reproduce mtep.adapt [--quick] [--json]
"""

from pathlib import Path
from statistics import fmean
from typing import Any

from tidings.cli.figure import save, telling
from tidings.sim.scenario import Setup, Slowdown, simulate
from tidings.sim.sweep import sweep
from tidings.sim.workload import Paper

NAME = "mtep_adapt"
SEEDS, QUICK_SEEDS, FIRST_SEED = 40, 20, 1021
RATE = 1.0
SHARE, FACTOR = 0.2, 3.0
LINKS = ("known", "measured", "assumed")
SCHEDULERS = ("mtep", "priced")
WORLDS = {"steady": None, "slowed": Slowdown(Paper().duration_s / 2, SHARE, FACTOR)}


def run(out_dir: Path, quick: bool = False, seeds: int | None = None, first_seed: int = FIRST_SEED) -> dict[str, Any]:
    seeds = seeds or (QUICK_SEEDS if quick else SEEDS)
    every = range(first_seed, first_seed + seeds)
    points = [(world, scheduler, links) for world in WORLDS for scheduler in SCHEDULERS for links in LINKS]
    grid = [(point, seed) for point in points for seed in every]
    setups = [
        Setup(seed=seed, scheduler=scheduler, links=links, slowdown=WORLDS[world], paper=Paper(rate=RATE))
        for (world, scheduler, links), seed in grid
    ]
    outcomes = dict(zip(grid, sweep(simulate, setups, telling(NAME)), strict=True))
    rows = []
    for world, scheduler, links in points:
        own = [outcomes[(world, scheduler, links), seed] for seed in every]
        earning = fmean(outcome.earned_after for outcome in own)
        known = fmean(outcomes[(world, scheduler, "known"), seed].earned_after for seed in every)
        rows.append(
            {
                "world": world,
                "scheduler": scheduler,
                "links": links,
                "earning": round(earning, 1),
                "success": round(fmean(outcome.success_rate for outcome in own), 4),
                "cost": round(1 - earning / known, 4),
            }
        )
    result = {"seeds": seeds, "first_seed": first_seed, "rows": rows}
    save(out_dir, NAME, result, rows, lambda figure: _draw(figure, rows))
    return result


def tables(result: dict[str, Any]) -> list[tuple[str, list[str], list[list[object]]]]:
    headers = ["world", "scheduler", "links", "earning", "success rate", "cost"]
    rows = [[*list(row.values())[:-1], f"{100 * row['cost']:.2f}%"] for row in result["rows"]]
    return [(f"Means over {result['seeds']} topologies; cost is against known links", headers, rows)]


def _draw(figure: Any, rows: list[dict[str, Any]]) -> None:
    for panel, world in zip(figure.subplots(1, 2), WORLDS, strict=True):
        own = [row for row in rows if row["world"] == world]
        panel.bar([f"{row['scheduler']}\n{row['links']}" for row in own], [row["earning"] / 1000 for row in own])
        panel.set(title=f"{world}: total earning (thousands)")
        panel.grid(axis="y", alpha=0.3)
