"""The whole system, small: live brokers, a market, Spark's second opinion, and nothing left behind."""

import json
import tempfile
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import pytest

from tidings.cli.system import report as reports
from tidings.cli.system.run import Settings, run
from tidings.cli.system.world import World


def test_brokers_and_spark_find_the_same_matches(
    spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "left"
    folder.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    starting: Future[Any] = Future()
    starting.set_result(spark)
    world = World(7, ("b1", "b2"), 300, 200)
    report, kept = run(Settings(world, 2.0, 100.0, "boxtree", "priced"), starting)
    assert kept is None
    assert not [path for path in folder.iterdir() if path.name.startswith("tidings-demo-")]
    assert (report["events"], report["spark"]["events"], report["spark"]["quarantined"]) == (200, 200, 0)
    check, accounts = report["check"], report["accounts"]
    assert (check["by"], check["same"], check["balanced"]) == ("spark", True, True)
    assert check["brokers"] == check["other"] == report["spark"]["matched"] == accounts["matched"] > 0
    assert accounts["matched"] == sum(accounts[name] for name in ("on_time", "late", "expired", "undeliverable"))
    assert accounts["on_time"] > 0

    out = tmp_path / "out"
    reports.save(report, out)
    assert json.loads((out / "demo.json").read_text())["check"] == check
    assert f"brokers and Spark found the same {check['brokers']:,} matches" in (out / "demo.txt").read_text()
    assert (out / "demo.png").stat().st_size > 0
    assert capsys.readouterr().out == ""
