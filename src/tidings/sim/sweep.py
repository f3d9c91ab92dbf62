"""Many runs of one function, on all cores: the seam where a cluster can take over.

`sweep` takes any function that can be sent to another process and gives its results in the order of the grid. A failure names
the grid point that replays it.
"""

import multiprocessing
import os
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from typing import TypeVar

Point = TypeVar("Point")
Result = TypeVar("Result")
Progress = Callable[[int, int], None]


def sweep(
    function: Callable[[Point], Result],
    grid: Sequence[Point],
    progress: Progress | None = None,
    workers: int | None = None,
) -> list[Result]:
    """The function at every point of the grid; `progress` hears how many of how many are done."""
    workers = min(workers or os.cpu_count() or 1, len(grid))
    if workers <= 1:
        results = []
        for number, point in enumerate(grid, start=1):
            results.append(function(point))
            if progress is not None:
                progress(number, len(grid))
        return results
    done: dict[int, Result] = {}
    with worker_pool(workers) as pool:
        places = {pool.submit(function, point): place for place, point in enumerate(grid)}
        for future in as_completed(places):
            place = places[future]
            try:
                done[place] = future.result()
            except Exception as error:
                pool.shutdown(cancel_futures=True)
                raise RuntimeError(f"failed at {grid[place]!r}") from error
            if progress is not None:
                progress(len(done), len(grid))
    return [done[place] for place in range(len(grid))]


def worker_pool(workers: int) -> ProcessPoolExecutor:
    """New processes that end with this one, also if it is killed while they work."""
    return ProcessPoolExecutor(workers, multiprocessing.get_context("spawn"), _end_with_parent)


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    assert parent is not None

    def wait() -> None:
        parent.join()
        os._exit(1)

    threading.Thread(target=wait, daemon=True).start()
