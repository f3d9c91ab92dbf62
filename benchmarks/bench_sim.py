"""How fast the simulator is: two simulated hours of mtep's experiment at rate 1, with the real broker, on one core.

The goal is 20 CPU seconds without checkers and 40 with them. What can be compared between machines is the ratio to a loop that
does nothing but take events from a heap and put them back.

    python benchmarks/bench_sim.py [--hours 0.25] [--scheduler priced] [--routing balanced] [--json]
"""

import argparse
import json
import time
from typing import Any

from tidings.cli.output import print_table
from tidings.sim.loop import Loop
from tidings.sim.scenario import Setup, simulate
from tidings.sim.workload import Paper

EMPTY_STEPS = 300_000


def empty_steps_per_s() -> float:
    """The machine's own speed: steps of a loop in which nothing happens."""
    loop = Loop()

    def again() -> None:
        loop.at(loop.now + 1.0, again)

    for number in range(300):
        loop.at(number / 300, again)
    began_s = time.process_time()
    loop.run(EMPTY_STEPS / 300)
    return loop.steps / (time.process_time() - began_s)


def measure(hours: float, scheduler: str, routing: str, seed: int) -> dict[str, Any]:
    simulate(
        Setup(seed=seed, scheduler=scheduler, routing=routing, paper=Paper(duration_s=10.0))
    )  # compiles the kernels
    empty = empty_steps_per_s()
    rows = []
    for checked in (False, True):
        paper = Paper(duration_s=hours * 3600)
        outcome = simulate(Setup(seed=seed, scheduler=scheduler, routing=routing, paper=paper, checked=checked))
        rows.append(
            {
                "checkers": "with" if checked else "without",
                "cpu_s": round(outcome.cpu_s, 2),
                "cpu_s_per_2_hours": round(outcome.cpu_s * 2 / hours, 2),
                "steps": outcome.steps,
                "steps_per_s": round(outcome.steps / outcome.cpu_s),
                "empty_steps_per_step": round(empty * outcome.cpu_s / outcome.steps, 1),
            }
        )
    return {"hours": hours, "scheduler": scheduler, "routing": routing, "seed": seed, "rows": rows}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--hours", type=float, default=2.0)
    parser.add_argument("--scheduler", default="mtep")
    parser.add_argument("--routing", default="paper")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    measured = measure(arguments.hours, arguments.scheduler, arguments.routing, arguments.seed)
    if arguments.json:
        print(json.dumps(measured))
    else:
        rows = measured["rows"]
        print_table(list(rows[0]), [list(row.values()) for row in rows])


if __name__ == "__main__":
    main()
