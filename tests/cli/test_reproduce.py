"""`tidings reproduce`: every experiment is found, and says what its page promises; the simulator itself is tested elsewhere."""

import json

import pytest
from typer.testing import CliRunner

from tidings.cli import reproduce
from tidings.cli.main import app
from tidings.sim.scenario import Outcome, Setup

EARNING = {"mtep": 300.0, "fix": 200.0, "lrt": 100.0, "fcfs": 120.0, "priced": 330.0}


def pretended(setup: Setup) -> Outcome:
    """An outcome that depends on what an experiment varies."""
    earning = EARNING[setup.scheduler] * setup.paper.rate + (30.0 if setup.routing == "balanced" else 0.0)
    earning += 10.0 * setup.options.get("weight", 0.4) - (1.0 if setup.links == "measured" else 0.0)
    return Outcome(100, int(earning / 10 / setup.paper.rate), earning, earning, {}, 0.9, 0, 1000, 1.0)


@pytest.fixture
def run(monkeypatch, tmp_path):
    load = reproduce._load

    def loaded(file: str):
        module = load(file)
        monkeypatch.setattr(module, "sweep", lambda function, grid, progress: [pretended(point) for point in grid])
        return module

    monkeypatch.setattr(reproduce, "_load", loaded)

    def run(*arguments: str):
        return CliRunner().invoke(app, ["reproduce", *arguments, "--no-spark", "--out", str(tmp_path / "out")])

    return run


@pytest.mark.parametrize("name", [name for name in reproduce.EXPERIMENTS if name.startswith("mtep.")])
def test_every_experiment_leaves_table_picture_and_data(run, tmp_path, name):
    done = run(name, "--seeds", "2", "--first-seed", "5")
    assert done.exit_code == 0, done.output
    assert "topologies" in done.output
    kinds = sorted(path.suffix for path in (tmp_path / "out").iterdir())
    assert kinds == [".csv", ".json", ".png"]
    (data,) = (tmp_path / "out").glob("*.json")
    written = json.loads(data.read_text())
    assert (written["seeds"], written["first_seed"]) == (2, 5)


def test_fig07_as_json(run):
    result = json.loads(run("mtep.fig07", "--json").stdout)
    assert (result["seeds"], result["first_seed"]) == (40, 1001)
    for ratios in (result["earning_ratio"], result["success_ratio"]):
        assert list(ratios) == ["fix", "lrt", "fcfs"]
    assert result["earning_ratio"]["lrt"] == pytest.approx(304 / 104)
    assert result["mtep_success"] == 0.30
    assert result["earning"]["figure5"] == 304


def test_beyond_as_json(run):
    gains = json.loads(run("mtep.beyond", "--json", "--quick").stdout)["gains"]
    assert {(row["rate"], row["scheduler"], row["routing"]) for row in gains} == {
        (rate, *variant)
        for rate in (1.0, 2.0, 3.0)
        for variant in (("priced", "paper"), ("mtep", "balanced"), ("priced", "balanced"))
    }
    (gain,) = [
        row["earning_gain"]
        for row in gains
        if (row["rate"], row["scheduler"], row["routing"]) == (1.0, "priced", "paper")
    ]
    assert gain == pytest.approx(334 / 304 - 1, abs=1e-4)


def test_an_unknown_experiment_says_which_there_are(run):
    done = run("mtep.fig99")
    assert done.exit_code == 2
    assert "mtep.fig07" in done.output


def test_seeds_mean_nothing_to_ceem(run):
    done = run("ceem.fig03", "--seeds", "3")
    assert done.exit_code == 2


def test_without_a_clone_there_are_no_experiments(monkeypatch, tmp_path):
    monkeypatch.setattr(reproduce.tidings, "__file__", str(tmp_path / "a" / "b" / "c.py"))
    monkeypatch.chdir(tmp_path)
    done = CliRunner().invoke(app, ["reproduce", "mtep.fig07"])
    assert done.exit_code == 2
    assert "clone" in done.output
