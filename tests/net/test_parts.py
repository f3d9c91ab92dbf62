"""The small parts: links that take their time, back-off, and the program of the documentation."""

import random
import re
from pathlib import Path

import pytest

from net_rig import process
from tidings.net.dialer import FIRST_S, LONGEST_S, back_off_s
from tidings.net.shape import Shape

PAGE = Path(__file__).parents[2] / "docs" / "network.md"


def test_a_link_is_occupied_for_its_rate_on_average():
    chance = random.Random(1)
    shape = Shape(s_per_kb=0.06, sigma_s_per_kb=0.02)
    seconds = [shape.seconds(50, chance) for _ in range(2_000)]
    assert sum(seconds) / len(seconds) == pytest.approx(3.0, rel=0.02)
    deviation = (sum((s - 3.0) ** 2 for s in seconds) / len(seconds)) ** 0.5
    assert deviation == pytest.approx(0.02 * 50**0.5, rel=0.1)


def test_what_gets_lost_takes_its_time_once_more():
    chance = random.Random(1)
    seconds = [Shape(s_per_kb=1.0, loss=0.25).seconds(1, chance) for _ in range(4_000)]
    assert set(map(round, seconds)) >= {1, 2, 3}
    assert sum(seconds) / len(seconds) == pytest.approx(Shape(s_per_kb=1.0, loss=0.25).belief[0], rel=0.05)


def test_no_time_is_negative_and_no_shape_is_false():
    chance = random.Random(1)
    assert all(Shape(0.001, 1.0).seconds(1, chance) > 0 for _ in range(1_000))
    assert not Shape()
    assert Shape(delay_s=0.1)


def test_back_off_doubles_up_to_its_bound_with_jitter():
    chance = random.Random(1)
    for failures in range(30):
        bound = min(LONGEST_S, FIRST_S * 2**failures)
        assert all(bound / 2 <= back_off_s(failures, chance) <= bound for _ in range(20))


def test_the_program_of_the_page_runs(tmp_path, capsys):
    (program,) = re.findall(r"^```python no-run\n(.*?)^```", PAGE.read_text("utf-8"), re.MULTILINE | re.DOTALL)
    with process(
        "--listen", "tidings://127.0.0.1:0", "--token", "...", "--store", tmp_path, "--engine", "naive"
    ) as served:
        program = program.replace("tidings://localhost:7740", served.address)
        exec(compile(program, "docs/network.md", "exec"), {"__name__": "__main__"})
    assert "{symbol='LEGEND', change=1.5} for movers after" in capsys.readouterr().out
