"""ceem, Fig. 5 and 6: the memory that the engines take, every 5,000 subscriptions.

The paper shows tree and CEEM only and reads the memory of the whole process; we count the bytes of the engines' arrays, and add
counting and our own engine. The paper's tree was built once per subscription; ours is one tree for all, see matching/tree.py.

    tidings reproduce ceem.fig05 [--quick] [--json]
"""

from pathlib import Path
from typing import Any

from tidings.cli.bench_match import ENGINES
from tidings.cli.figure import save, telling
from tidings.matching.workloads import Workload

NAME = "ceem_fig05_06"
SETTINGS = {"ceem1": "Fig. 5 (5 attributes, 8 families)", "ceem2": "Fig. 6 (7 attributes, 11 families)"}
COMPARED = ["counting", "tree", "ceem", "boxtree"]
STEP, LAST = 5_000, 50_000
QUICK_STEP, QUICK_LAST = 500, 2_000
SEED = 1

Row = dict[str, Any]


def run(out_dir: Path, quick: bool = False) -> dict[str, Any]:
    """Measure, and write data and picture into a folder; returns the rows and what they say about the claims."""
    step, last = (QUICK_STEP, QUICK_LAST) if quick else (STEP, LAST)
    rows: list[Row] = []
    progress = telling(NAME)
    for setting in SETTINGS:
        for name in COMPARED:
            for count in range(step, last + 1, step):
                # All at once: arrays that grew by doubling would show the doubling, not the engine.
                workload, engine = Workload(setting, count, SEED), ENGINES[name]()
                assert workload.boxes is not None
                engine.add_boxes(workload.ids(), workload.boxes)
                while (job := engine.maintenance()) is not None:
                    job()
                size = engine.nbytes()
                rows.append(
                    {
                        "setting": setting,
                        "engine": name,
                        "subscriptions": count,
                        "mb": round(size / 1e6, 3),
                        "bytes_per_subscription": round(size / count, 1),
                    }
                )
                progress(len(rows), len(SETTINGS) * len(COMPARED) * (last // step))
    claims = {
        f"{row['setting']} {row['engine']}": row["bytes_per_subscription"]
        for row in rows
        if row["subscriptions"] == last
    }
    result = {"rows": rows, "claims": claims}
    save(out_dir, NAME, result, rows, lambda figure: _draw(figure, rows))
    return result


def _draw(figure: Any, rows: list[Row]) -> None:
    panels = figure.subplots(1, 2, sharey=True)
    for panel, (setting, title) in zip(panels, SETTINGS.items(), strict=True):
        for name in dict.fromkeys(row["engine"] for row in rows):
            own = [row for row in rows if (row["setting"], row["engine"]) == (setting, name)]
            panel.plot([row["subscriptions"] for row in own], [row["mb"] for row in own], marker="o", label=name)
        panel.set(title=title, xlabel="subscriptions", ylabel="MB in arrays")
        panel.grid(alpha=0.3)
    panels[0].legend()
