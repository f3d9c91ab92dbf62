"""`tidings demo` as its user runs it, without Spark (tests/spark has that): it ends by itself, and leaves nothing behind."""

import json
import os
import re
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from net_rig import PATIENCE_S
from store_rig import until
from tidings.cli.system.world import World
from tidings.net import supervisor

Run = Callable[..., Any]
SMALL = ("--no-spark", "--brokers", "2", "--subscriptions", "200", "--rate", "50")


@pytest.fixture
def left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where the demo keeps what it does not want to keep."""
    folder = tmp_path / "left"
    folder.mkdir()
    monkeypatch.setenv("TMPDIR", str(folder))
    return folder


def test_it_reports_and_ends(command: Run, left: Path, tmp_path: Path) -> None:
    done = command("demo", *SMALL, "--seconds", "2", "--out", "found")
    assert (done.code, done.err) == (0, "")
    assert "A live market: 2 brokers, 200 subscriptions" in done.out
    assert "brokers and the engine in this process found the same" in done.out
    report = json.loads((tmp_path / "found" / "demo.json").read_text())
    assert (report["events"], report["spark"], report["check"]["balanced"]) == (100, None, True)
    assert {file.name for file in (tmp_path / "found").iterdir()} == {"demo.json", "demo.txt", "demo.csv", "demo.png"}
    assert not list(left.iterdir())


def test_an_interrupt_puts_everything_away(started: Callable[..., "subprocess.Popen[bytes]"], left: Path) -> None:
    with started("demo", *SMALL, "--seconds", "600") as process:
        pids = _running(left)
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=PATIENCE_S)
    assert process.returncode not in (0, None)
    assert not list(left.iterdir())
    assert not any(map(_alive, pids))


def test_killed_it_leaves_no_process_behind(started: Callable[..., "subprocess.Popen[bytes]"], left: Path) -> None:
    with started("demo", *SMALL, "--seconds", "600") as process:
        pids = _running(left)
        process.kill()
        process.communicate(timeout=PATIENCE_S)
    until(lambda: not any(map(_alive, pids)))


def _running(left: Path) -> list[int]:
    """The processes of the demo's network, once its brokers run."""
    limit_s = time.monotonic() + PATIENCE_S
    while time.monotonic() < limit_s:
        for file in left.glob("*/network.toml"):
            pids = supervisor.running(file)
            if pids is not None and len(pids) == 3:
                return list(pids.values())
    raise AssertionError("the brokers did not start")


def _alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def test_what_is_kept_can_be_reached_and_ended(command: Run, tidings: Run, left: Path) -> None:
    done = command("demo", *SMALL, "--seconds", "1", "--keep", "--json")
    assert done.code == 0
    assert json.loads(done.out)["events"] == 50
    (file,) = left.glob("*/network.toml")
    try:
        assert f"tidings network down {file}" in done.err
        assert re.search(r"b1: tidings://127\.0\.0\.1:\d+", done.err)
        status = json.loads(tidings("network", "status", str(file), "--json").out)
        assert [status[name]["broker"] for name in ("b1", "b2")] == ["b1", "b2"]
    finally:
        assert tidings("network", "down", str(file)).code == 0


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (("--brokers", "1"), "--brokers"),
        (("--seconds", "0"), "--seconds"),
        (("--rate", "0"), "--rate"),
        (("--subscriptions", "0"), "--subscriptions"),
        (("--engine", "magic"), "unknown matching engine 'magic'"),
        (("--scheduler", "magic"), "unknown scheduler 'magic'"),
    ],
)
def test_what_cannot_be_is_told(tidings: Run, arguments: tuple[str, ...], complaint: str) -> None:
    done = tidings("demo", *arguments)
    assert (done.code, done.out) == (2, "")
    assert complaint in done.err


def test_matches_that_differ_are_an_error(tidings: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    from tidings.cli.system import run

    check = {
        "by": "spark",
        "brokers": 3,
        "other": 2,
        "only_brokers": 1,
        "only_other": 0,
        "same": False,
        "balanced": True,
    }
    world = World(1, ("a", "b"), 5, 5)
    books = run.books.tally(run.books.Books(set(), [], {}), world.wishes(), 1)
    speeds = dict.fromkeys(("feed_s", "events_per_s", "delivered_per_s"), 1.0)
    report = {"brokers": 2, "subscriptions": 5, "events": 5, **speeds, **books, "spark": None, "check": check}
    monkeypatch.setattr(run, "run", lambda *_: (report, None))
    done = tidings("demo", "--no-spark")
    assert done.code == 1
    assert "NOT THE SAME MATCHES: 3 by the brokers and 2 by Spark; 1 only by the brokers, 0 only by Spark" in done.out


def test_the_seed_fixes_the_world() -> None:
    one, same, other = (World(seed, ("a", "b", "c"), 50, 50) for seed in (1, 1, 2))
    for part in ("wishes", "feed", "links"):
        assert list(getattr(one, part)()) == list(getattr(same, part)()) != list(getattr(other, part)())
    assert {link.between for link in World(1, tuple("abcdef"), 1, 1).links()} >= {("a", "b"), ("a", "c"), ("a", "f")}
