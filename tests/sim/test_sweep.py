"""The seam for many runs: results in the order of the grid, on one core or several."""

import math
import os
import signal
import subprocess
import sys
import time

import pytest

from tidings.sim.sweep import sweep


@pytest.mark.parametrize("workers", [1, 2])
def test_in_the_order_of_the_grid(workers):
    told = []
    assert sweep(math.sqrt, [4.0, 9.0, 16.0], lambda done, of: told.append((done, of)), workers) == [2.0, 3.0, 4.0]
    assert told == [(1, 3), (2, 3), (3, 3)]


def test_a_failure_names_its_point():
    with pytest.raises(RuntimeError, match=r"failed at -1\.0"):
        sweep(math.sqrt, [4.0, -1.0], workers=2)


def test_workers_end_when_their_parent_is_killed():
    parent = subprocess.Popen([sys.executable, __file__], stdout=subprocess.PIPE, text=True)
    assert parent.stdout is not None
    worker = int(parent.stdout.readline())
    parent.kill()
    try:
        parent.communicate(timeout=30)  # ends when nobody holds its standard output any more
    except subprocess.TimeoutExpired:
        os.kill(worker, signal.SIGKILL)
        raise


def say_who_then_work(_: int) -> None:
    print(os.getpid(), flush=True)
    time.sleep(120)


if __name__ == "__main__":
    sweep(say_who_then_work, [0, 1], workers=2)
