"""`tidings pipeline` on the shipped sample."""

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from tidings.cli.main import app

SAMPLE = Path(__file__).parents[2] / "examples" / "pipeline"
EVENTS, SUBSCRIPTIONS = str(SAMPLE / "events"), str(SAMPLE / "subscriptions.jsonl")


def tidings(*arguments: str) -> Any:
    return CliRunner().invoke(app, ["pipeline", *arguments])


@pytest.fixture(scope="module")
def out(spark: Any, tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = str(tmp_path_factory.mktemp("sample") / "out")
    done = tidings("run", EVENTS, "-s", SUBSCRIPTIONS, "--out", folder, "--links", str(SAMPLE / "links.csv"), "--json")
    assert done.exit_code == 0, done.output
    shown = json.loads(done.stdout)
    assert (shown["events"], shown["quarantined"], shown["subscriptions"]) == (242, 2, 61)
    assert shown["matched"] == shown["sent"] + shown["expired"] > 1_000
    return folder


def test_a_second_run_has_nothing_to_do(out: str) -> None:
    done = tidings("run", EVENTS, "-s", SUBSCRIPTIONS, "--out", out)
    assert done.exit_code == 0, done.output
    assert done.stdout == "Nothing new to read.\n"


def test_run_prints_what_it_did(spark: Any, tmp_path: Path) -> None:
    done = tidings("run", EVENTS, "-s", SUBSCRIPTIONS, "--out", str(tmp_path / "out"), "--compact")
    assert done.exit_code == 0, done.output
    assert done.stdout.startswith("242 events in 1 micro-batches, 61 subscriptions\n")
    assert "2 records set aside" in done.stdout


def test_account_folds_it(out: str, tmp_path: Path) -> None:
    picture = tmp_path / "accounts.png"
    done = tidings("account", out, "--by", "broker", "--picture", str(picture), "--json")
    assert done.exit_code == 0, done.output
    shown = json.loads(done.stdout)
    assert {row["broker"] for row in shown["groups"]} == {"west", "east", "south"}
    assert shown["total"]["matched"] == sum(row["matched"] for row in shown["groups"])
    assert picture.stat().st_size > 1_000


def test_change_and_replay(out: str, tmp_path: Path) -> None:
    new = tmp_path / "new.jsonl"
    new.write_text('{"id": "late", "filter": "symbol = \'LEGEND\'"}\n')
    done = tidings("replay", out, "-s", str(new), "--history", "--json")
    assert done.exit_code == 0, done.output
    assert json.loads(done.stdout)["sent"] > 20
    done = tidings("change", out, "--remove", "late")
    assert (done.exit_code, done.stdout) == (0, "version 3\n")


def test_check_tells_costs_and_mistakes(spark: Any, tmp_path: Path) -> None:
    wanted = tmp_path / "s.csv"
    wanted.write_text("id,filter\na,change > 1\nb,symbol > 5\nc,change >\nd,nowhere = 1 AND price + 1 > 3\n")
    done = tidings("check", EVENTS, "-s", str(wanted), "--json")
    assert done.exit_code == 1
    shown = json.loads(done.stdout)
    assert (shown["subscriptions"], shown["usable"], shown["shards"]) == (4, 3, 1)
    assert shown["problems"][0].startswith("subscription c: column 9")
    assert shown["indexed"] == pytest.approx(2 / 3)
    assert shown["absent"] == ["nowhere"]
    assert shown["never"] == ["symbol: 1 filters compare it with a number, but the column is a string"]


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["run", "nowhere", "-s", SUBSCRIPTIONS, "--out", "{}"], "no source at nowhere"),
        (["run", EVENTS, "-s", "nowhere.jsonl", "--out", "{}"], "no subscriptions at nowhere.jsonl"),
        (["run", EVENTS, "-s", SUBSCRIPTIONS, "--out", "{}", "--id", "key"], "the events have no column 'key'"),
        (["run", EVENTS, "-s", SUBSCRIPTIONS, "--out", "{}", "--option", "x"], "expected NAME=VALUE"),
        (["account", "nowhere"], "no delivery log at nowhere"),
        (["replay", "{}", "-s", SUBSCRIPTIONS], "no pipeline at"),
    ],
)
def test_errors_are_one_message(spark: Any, tmp_path: Path, arguments: list[str], complaint: str) -> None:
    done = tidings(*(argument.format(tmp_path / "out") for argument in arguments))
    assert done.exit_code == 2
    assert complaint in done.stderr
    assert "Traceback" not in done.stderr
    assert not (tmp_path / "out").exists()
