"""`tidings bench match`: rows that a program can read, engines that must agree, and clear refusals."""

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tidings.cli.bench_match import Disagreement, Measured, Row, _compare, measure

NUMBERS = (
    "match_us call_us batch_us insert_us insert_p9999_ms insert_max_ms remove_us load_us bytes_per_subscription".split()
)


def test_rows_as_json(tidings: Callable[..., Any]) -> None:
    sizes = ("--subscriptions", "300", "--budget-s", "0.01")
    done = tidings("bench", "match", "--workload", "ceem1", *sizes, "--engines", "ceem,scan", "--json")
    assert (done.code, done.err) == (0, "")
    rows = json.loads(done.out)
    assert [(row["engine"], row["workload"], row["subscriptions"]) for row in rows] == [
        (engine, "ceem1", 300) for engine in ("ceem", "scan")
    ]
    for row in rows:
        assert all(row[name] > 0 for name in NUMBERS)
        assert row["indexed_share"] == 1


@pytest.mark.parametrize("workload", ["ceem2", "mtep", "sparse", "mixed"])
def test_every_workload_runs(workload: str) -> None:
    found = {}
    for engine in ("counting", "tree"):
        measured = measure(engine, workload, 300, 0.01, seed=2)
        assert measured.row.workload == workload
        found[engine] = measured.found
    shorter = min(map(len, found.values()))
    assert found["counting"][:shorter] == found["tree"][:shorter]


def test_engines_that_disagree_are_told_apart() -> None:
    row = Row("ceem", "ceem1", 1, *[0.0] * 13, 1)
    with pytest.raises(Disagreement, match=r"event 1 of ceem1"):
        _compare(Measured(row, ["a", "b", "c"]), Measured(row, ["a", "x"]))


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        (("--engines", "quantum"), "quantum"),
        (("--engines", "scan", "--workload", "ceem9"), "ceem9"),
        (("--subscriptions", "many"), "many"),
        (("--subscriptions", "0"), "above zero"),
    ],
)
def test_refusals_name_what_is_wrong(tidings: Callable[..., Any], options: tuple[str, ...], complaint: str) -> None:
    done = tidings("bench", "match", *options)
    assert done.code == 2
    assert complaint in done.err
    assert done.out == ""


def test_no_picture_without_the_means(
    tidings: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    done = tidings("bench", "match", "--picture", str(tmp_path / "speed.png"))
    assert done.code == 2
    assert "matplotlib" in done.err
