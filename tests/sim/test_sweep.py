"""The seam for many runs: results in the order of the grid, on one core or several."""

import math

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
