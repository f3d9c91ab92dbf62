"""Beyond mtep: our scheduler `priced`, our balanced routing, and both, against MTEP on the paper's routing.

Seeds 1 to 20 were used for tuning, and a few others had been looked at by then; nobody had run `priced` on those from 1021 on.

    tidings reproduce mtep.beyond [--quick] [--json] [--seeds N] [--first-seed K]
"""

from pathlib import Path
from statistics import fmean
from typing import Any

from tidings.cli.figure import save, telling
from tidings.sim.scenario import Setup, simulate
from tidings.sim.sweep import sweep
from tidings.sim.workload import Paper

NAME = "mtep_beyond"
RATES = (0.25, 0.5, 1.0, 1.5, 2.0, 3.0)
QUICK_RATES = (1.0, 2.0, 3.0)
SEEDS, QUICK_SEEDS, FIRST_SEED = 40, 20, 1021
BASE = ("mtep", "paper")
VARIANTS = (BASE, ("priced", "paper"), ("mtep", "balanced"), ("priced", "balanced"))


def run(out_dir: Path, quick: bool = False, seeds: int | None = None, first_seed: int = FIRST_SEED) -> dict[str, Any]:
    seeds = seeds or (QUICK_SEEDS if quick else SEEDS)
    rates = QUICK_RATES if quick else RATES
    every = range(first_seed, first_seed + seeds)
    grid = [(rate, variant, seed) for rate in rates for variant in VARIANTS for seed in every]
    setups = [
        Setup(seed=seed, scheduler=scheduler, routing=routing, paper=Paper(rate=rate))
        for rate, (scheduler, routing), seed in grid
    ]
    outcomes = dict(zip(grid, sweep(simulate, setups, telling(NAME)), strict=True))
    rows = []
    for rate in rates:
        base = fmean(outcomes[rate, BASE, seed].earning for seed in every)
        for scheduler, routing in VARIANTS:
            own = [outcomes[rate, (scheduler, routing), seed] for seed in every]
            earning = fmean(outcome.earning for outcome in own)
            rows.append(
                {
                    "rate": rate,
                    "scheduler": scheduler,
                    "routing": routing,
                    "earning": round(earning, 1),
                    "success": round(fmean(outcome.success_rate for outcome in own), 4),
                    "busiest": round(fmean(outcome.busiest for outcome in own), 3),
                    "earning_gain": round(earning / base - 1, 4),
                }
            )
    gains = [row for row in rows if (row["scheduler"], row["routing"]) != BASE]
    result = {"seeds": seeds, "first_seed": first_seed, "gains": gains, "rows": rows}
    save(out_dir, NAME, result, rows, lambda figure: _draw(figure, rows))
    return result


def tables(result: dict[str, Any]) -> list[tuple[str, list[str], list[list[object]]]]:
    headers = ["rate", "scheduler", "routing", "earning", "success rate", "busiest link", "gain"]
    rows = [[*list(row.values())[:-1], f"{100 * row['earning_gain']:+.1f}%"] for row in result["rows"]]
    return [(f"Means over {result['seeds']} topologies", headers, rows)]


def _draw(figure: Any, rows: list[dict[str, Any]]) -> None:
    left, right = figure.subplots(1, 2)
    for scheduler, routing in VARIANTS:
        own = [row for row in rows if (row["scheduler"], row["routing"]) == (scheduler, routing)]
        rates, label = [row["rate"] for row in own], f"{scheduler}, {routing} routing"
        left.plot(rates, [row["earning"] / 1000 for row in own], marker="o", label=label)
        right.plot(rates, [100 * row["earning_gain"] for row in own], marker="o", label=label)
    left.set(title="total earning (thousands)", xlabel="events per minute and publisher")
    right.set(title="gain over MTEP on the paper's routing (%)", xlabel="events per minute and publisher")
    for panel in (left, right):
        panel.grid(alpha=0.3)
    left.legend()
