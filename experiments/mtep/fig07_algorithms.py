"""mtep, Fig. 7: total earning and success rate of MTEP, FIX, LRT and FCFS at rate 1, weight 0.4.

Read as the paper must be read for its numbers to appear: publishing rate per publisher, one transmission at a time on a link, one
copy for each neighbour, per-source paths of least mean rate, LRT over the mean of the matches downstream, and baselines that
delete an event once every matched deadline downstream has passed. Ratios are ratios of means over topologies. Fig. 5 taken
literally stands beside the equations.

    tidings reproduce mtep.fig07 [--quick] [--json]
"""

from pathlib import Path
from statistics import fmean
from typing import Any

from tidings.cli.figure import save, telling
from tidings.sim.scenario import Outcome, Setup, simulate
from tidings.sim.sweep import sweep

NAME = "mtep_fig07"
RATE, WEIGHT = 1.0, 0.4  # the defaults of Paper and mtep
SEEDS, QUICK_SEEDS, FIRST_SEED = 40, 20, 1001
ALGORITHMS: dict[str, dict[str, Any]] = {
    "mtep": {"scheduler": "mtep", "options": {"weight": WEIGHT}},
    "fix": {"scheduler": "fix"},
    "lrt": {"scheduler": "lrt"},
    "fcfs": {"scheduler": "fcfs"},
    "figure5": {"scheduler": "mtep", "options": {"weight": WEIGHT, "figure5": True}},
}
BASELINES = ("fix", "lrt", "fcfs")
PRINTED = {
    "earning_ratio": {"fix": 1.47, "lrt": 3.16, "fcfs": 2.84},
    "success_ratio": {"fix": 1.33, "lrt": 2.26, "fcfs": 1.97},
    "mtep_success": [0.8885, 0.9084],
}


def run(out_dir: Path, quick: bool = False, seeds: int | None = None, first_seed: int = FIRST_SEED) -> dict[str, Any]:
    seeds = seeds or (QUICK_SEEDS if quick else SEEDS)
    names = [name for name in ALGORITHMS if not (quick and name == "figure5")]
    grid = [(name, seed) for seed in range(first_seed, first_seed + seeds) for name in names]
    outcomes = sweep(simulate, [Setup(seed=seed, **ALGORITHMS[name]) for name, seed in grid], telling(NAME))
    rows = [
        {"algorithm": name, "seed": seed, "earning": round(outcome.earning, 2), "success": outcome.success_rate}
        for (name, seed), outcome in zip(grid, outcomes, strict=True)
    ]
    means = {name: _means([o for (own, _), o in zip(grid, outcomes, strict=True) if own == name]) for name in names}
    result = {
        "rate": RATE,
        "weight": WEIGHT,
        "seeds": seeds,
        "first_seed": first_seed,
        "earning": {name: mean["earning"] for name, mean in means.items()},
        "success": {name: mean["success"] for name, mean in means.items()},
        "earning_ratio": {name: means["mtep"]["earning"] / means[name]["earning"] for name in BASELINES},
        "success_ratio": {name: means["mtep"]["success"] / means[name]["success"] for name in BASELINES},
        "mtep_success": means["mtep"]["success"],
        "printed": PRINTED,
        "cpu_s": fmean(outcome.cpu_s for outcome in outcomes),
    }
    save(out_dir, NAME, result, rows, lambda figure: _draw(figure, result))
    return result


def _means(outcomes: list[Outcome]) -> dict[str, float]:
    return {
        "earning": fmean(outcome.earning for outcome in outcomes),
        "success": fmean(outcome.success_rate for outcome in outcomes),
    }


def tables(result: dict[str, Any]) -> list[tuple[str, list[str], list[list[object]]]]:
    own = [[name, round(result["earning"][name]), round(result["success"][name], 4)] for name in result["earning"]]
    ratios = [
        [
            f"mtep / {name}",
            round(result["earning_ratio"][name], 3),
            PRINTED["earning_ratio"][name],
            round(result["success_ratio"][name], 3),
            PRINTED["success_ratio"][name],
        ]
        for name in BASELINES
    ]
    return [
        (f"Means over {result['seeds']} topologies", ["algorithm", "earning", "success rate"], own),
        ("Ratios of means", ["", "earning", "printed", "success rate", "printed"], ratios),
    ]


def _draw(figure: Any, result: dict[str, Any]) -> None:
    """How many times as much MTEP reaches as each of the others, beside what the paper prints."""
    places = range(len(BASELINES))
    for panel, what in zip(figure.subplots(1, 2), ("earning", "success"), strict=True):
        for shift, (whose, shown) in enumerate({"ours": result, "printed": PRINTED}.items()):
            ratios = [shown[f"{what}_ratio"][name] for name in BASELINES]
            bars = panel.bar([place + 0.4 * shift for place in places], ratios, 0.4, label=whose)
            panel.bar_label(bars, fmt="%.2f")
        panel.set_xticks([place + 0.2 for place in places], [f"MTEP / {name.upper()}" for name in BASELINES])
        panel.set(title={"earning": "total earning", "success": "success rate"}[what])
        panel.grid(axis="y", alpha=0.3)
        panel.margins(y=0.1)
        panel.legend()
