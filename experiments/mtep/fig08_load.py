"""mtep, Fig. 8: total earning and success rate of the four algorithms under growing load.

The paper prints a picture (lost) and words: under light load all four are alike; under growing load FCFS, LRT and FIX fall
fast, while MTEP's earning keeps growing and its success rate falls.

    tidings reproduce mtep.fig08 [--quick] [--json]
"""

from pathlib import Path
from statistics import fmean
from typing import Any

from tidings.cli.figure import save, telling
from tidings.sim.scenario import Setup, simulate
from tidings.sim.sweep import sweep
from tidings.sim.workload import Paper

NAME = "mtep_fig08"
RATES = (0.25, 0.5, 1.0, 1.5, 2.0, 3.0)
QUICK_RATES = (0.25, 1.0, 3.0)
SEEDS, QUICK_SEEDS, FIRST_SEED = 10, 3, 1001
ALGORITHMS = ("mtep", "fix", "lrt", "fcfs")
LIGHT, ALIKE = 0.25, 0.01  # at this rate, nobody is worse than the best by more than this


def run(out_dir: Path, quick: bool = False, seeds: int | None = None, first_seed: int = FIRST_SEED) -> dict[str, Any]:
    seeds = seeds or (QUICK_SEEDS if quick else SEEDS)
    points = [(rate, name) for rate in (QUICK_RATES if quick else RATES) for name in ALGORITHMS]
    grid = [(rate, name, seed) for rate, name in points for seed in range(first_seed, first_seed + seeds)]
    setups = [Setup(seed=seed, scheduler=name, paper=Paper(rate=rate)) for rate, name, seed in grid]
    outcomes = dict(zip(grid, sweep(simulate, setups, telling(NAME)), strict=True))
    rows = []
    for rate, name in points:
        own = [outcomes[rate, name, seed] for seed in range(first_seed, first_seed + seeds)]
        rows.append(
            {
                "rate": rate,
                "algorithm": name,
                "earning": round(fmean(outcome.earning for outcome in own), 1),
                "success": round(fmean(outcome.success_rate for outcome in own), 4),
            }
        )
    result = {"seeds": seeds, "first_seed": first_seed, "rows": rows, "claims": _claims(rows)}
    save(out_dir, NAME, result, rows, lambda figure: _draw(figure, rows))
    return result


def _claims(rows: list[dict[str, Any]]) -> dict[str, bool]:
    """The paper's sentences."""
    earning = {(row["rate"], row["algorithm"]): row["earning"] for row in rows}
    success = {(row["rate"], row["algorithm"]): row["success"] for row in rows}
    rates = sorted({row["rate"] for row in rows})
    best = max(earning[LIGHT, name] for name in ALGORITHMS)
    own = [earning[rate, "mtep"] for rate in rates]
    falling = [success[rate, "mtep"] for rate in rates]
    return {
        "alike under light load": all(earning[LIGHT, name] >= (1 - ALIKE) * best for name in ALGORITHMS),
        "mtep's earning keeps growing": own == sorted(own),
        "mtep's success rate falls": falling == sorted(falling, reverse=True),
        "the others' earning falls in the end": all(
            earning[rates[-1], name] < max(earning[rate, name] for rate in rates) for name in ALGORITHMS[1:]
        ),
    }


def tables(result: dict[str, Any]) -> list[tuple[str, list[str], list[list[object]]]]:
    return [
        (
            f"Means over {result['seeds']} topologies",
            ["rate", "algorithm", "earning", "success rate"],
            [list(row.values()) for row in result["rows"]],
        ),
        ("Claims", ["claim", "holds"], [[claim, str(holds)] for claim, holds in result["claims"].items()]),
    ]


def _draw(figure: Any, rows: list[dict[str, Any]]) -> None:
    left, right = figure.subplots(1, 2)
    for name in ALGORITHMS:
        own = [row for row in rows if row["algorithm"] == name]
        rates = [row["rate"] for row in own]
        left.plot(rates, [row["earning"] / 1000 for row in own], marker="o", label=name)
        right.plot(rates, [100 * row["success"] for row in own], marker="o", label=name)
    left.set(title="total earning (thousands)", xlabel="events per minute and publisher")
    right.set(title="success rate (%)", xlabel="events per minute and publisher")
    for panel in (left, right):
        panel.grid(alpha=0.3)
    left.legend()
