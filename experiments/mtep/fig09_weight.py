"""mtep, Fig. 9: the weight of expected earning against urgency, w from 0 to 1 at rate 1.

Printed: success rate 88.85%-90.84% with its maximum at w = 0.8, earning 332,927.9-348,287.2 with its maximum at w = 0.15 (max/min
1.046), flat for w > 0.2; correlation of the two 0.403.

    tidings reproduce mtep.fig09 [--quick] [--json]
"""

from pathlib import Path
from statistics import correlation, fmean
from typing import Any

from tidings.cli.figure import save, telling
from tidings.sim.scenario import Setup, simulate
from tidings.sim.sweep import sweep

NAME = "mtep_fig09"
WEIGHTS = (0.0, 0.05, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0)
QUICK_WEIGHTS = (0.0, 0.1, 0.2, 0.4, 0.6, 0.8, 1.0)
SEEDS, QUICK_SEEDS, FIRST_SEED = 40, 20, 1001
FLAT_FROM = 0.2
PRINTED = {
    "earning": [332_927.9, 348_287.2],
    "earning_max_over_min": 1.046,
    "best_weight_for_earning": 0.15,
    "success": [0.8885, 0.9084],
    "best_weight_for_success": 0.8,
    "correlation": 0.403,
}


def run(out_dir: Path, quick: bool = False, seeds: int | None = None, first_seed: int = FIRST_SEED) -> dict[str, Any]:
    seeds = seeds or (QUICK_SEEDS if quick else SEEDS)
    weights = QUICK_WEIGHTS if quick else WEIGHTS
    every = range(first_seed, first_seed + seeds)
    grid = [(weight, seed) for weight in weights for seed in every]
    setups = [Setup(seed=seed, options={"weight": weight}) for weight, seed in grid]
    outcomes = dict(zip(grid, sweep(simulate, setups, telling(NAME)), strict=True))
    rows = [
        {
            "weight": weight,
            "earning": round(fmean(outcomes[weight, seed].earning for seed in every), 1),
            "success": round(fmean(outcomes[weight, seed].success_rate for seed in every), 4),
        }
        for weight in weights
    ]
    earning, success = [row["earning"] for row in rows], [row["success"] for row in rows]
    flat = [row["earning"] for row in rows if row["weight"] > FLAT_FROM]
    result = {
        "seeds": seeds,
        "first_seed": first_seed,
        "rows": rows,
        "earning": [min(earning), max(earning)],
        "earning_max_over_min": max(earning) / min(earning),
        "earning_max_over_min_above_0.2": max(flat) / min(flat),
        "best_weight_for_earning": weights[earning.index(max(earning))],
        "success": [min(success), max(success)],
        "best_weight_for_success": weights[success.index(max(success))],
        "correlation": correlation(earning, success),
        "printed": PRINTED,
    }
    save(out_dir, NAME, result, rows, lambda figure: _draw(figure, rows))
    return result


def tables(result: dict[str, Any]) -> list[tuple[str, list[str], list[list[object]]]]:
    return [
        (
            f"Means over {result['seeds']} topologies",
            ["weight", "earning", "success rate"],
            [list(row.values()) for row in result["rows"]],
        ),
        ("Beside the paper", ["", "ours", "printed"], [[key, str(result[key]), str(PRINTED[key])] for key in PRINTED]),
    ]


def _draw(figure: Any, rows: list[dict[str, Any]]) -> None:
    left, right = figure.subplots(1, 2)
    weights = [row["weight"] for row in rows]
    left.plot(weights, [row["earning"] / 1000 for row in rows], marker="o")
    left.set(title="total earning (thousands)", xlabel="weight")
    right.plot(weights, [100 * row["success"] for row in rows], marker="o", color="C1")
    right.set(title="success rate (%)", xlabel="weight")
    for panel in (left, right):
        panel.grid(alpha=0.3)
