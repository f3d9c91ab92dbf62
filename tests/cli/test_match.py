"""`tidings match` as a user runs it: files, pipes, bad lines, exit codes."""

import json
import os
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tidings.broker.catalog import MATCHERS

EXAMPLES = Path(__file__).parents[2] / "examples"
QUOTES = str(EXAMPLES / "quotes.jsonl")

Run = Callable[..., Any]
Start = Callable[..., "subprocess.Popen[bytes]"]


def pairs(out: str) -> list[tuple[str, str]]:
    found = [json.loads(line) for line in out.splitlines()]
    return [(notification["event"], notification["subscription"]) for notification in found]


@pytest.mark.parametrize("engine", sorted(MATCHERS))
def test_every_engine_finds_the_same(tidings: Run, engine: str) -> None:
    done = tidings("match", "--engine", engine, "--filters", str(EXAMPLES / "filters.jsonl"), QUOTES)
    assert (done.code, done.err) == (0, "")
    assert pairs(done.out) == [
        ("q1", "risers"),
        ("q1", "movers"),
        ("q2", "heavy"),
        ("q2", "movers"),
        ("q3", "heavy"),
        ("q3", "evening"),
        (f"{QUOTES}:4"[-255:], "halts"),
        (f"{QUOTES}:5"[-255:], "movers"),
    ]


def test_a_notification_says_where_its_event_stands(tidings: Run) -> None:
    done = tidings("match", "-e", "a > 1", "-e", "b = 'x'", "-", input='{"a": 1}\n\n{"a": 2, "b": "x"}\n')
    assert [json.loads(line) for line in done.out.splitlines()] == [
        {"event": "-:3", "subscription": "1", "file": "-", "line": 3},
        {"event": "-:3", "subscription": "2", "file": "-", "line": 3},
    ]


def test_standard_input_is_the_default(tidings: Run) -> None:
    assert pairs(tidings("match", "-e", "a > 1", input='{"a": 2}').out) == [("-:1", "1")]


def test_filters_from_standard_input(tidings: Run, tmp_path: Path) -> None:
    (tmp_path / "e.jsonl").write_text('{"a": 2}\n')
    assert pairs(tidings("match", "-f", "-", "e.jsonl", input="a > 1\na > 2\n").out) == [("e.jsonl:1", "1")]


def test_the_example_filters_of_both_kinds_are_good(command: Run) -> None:
    done = command("match", "--filters", str(EXAMPLES / "filters.txt"), QUOTES)
    assert (done.code, done.err) == (0, "")
    assert [id for _, id in pairs(done.out)] == ["2", "4", "7", "3", "3", "5", "4"]


def test_text_for_people(tidings: Run) -> None:
    done = tidings("match", "--text", "-e", "a > 1", input='{"a": 2, "s": "\x9b31m"}\n')
    assert done.out == '-:1: 1: {"a": 2, "s": "\\x9b31m"}\n'


def test_lines_and_invert_are_grep(tidings: Run) -> None:
    events = '{"a":1}\n{"a": 2}\n{"a":   3}\n'
    assert tidings("match", "-e", "a > 1", "--lines", input=events).out == '{"a": 2}\n{"a":   3}\n'
    assert tidings("match", "-e", "a > 1", "--invert", input=events).out == '{"a":1}\n'


def test_count(tidings: Run) -> None:
    events = '{"a":1}\n{"a": 2}\n'
    counts = tidings("match", "-e", "a > 0", "-e", "a > 5", "--count", input=events).out
    assert [json.loads(line) for line in counts.splitlines()] == [
        {"subscription": "1", "count": 2},
        {"subscription": "2", "count": 0},
    ]
    table = tidings("match", "-e", "a > 0", "-e", "a > 5", "--count", "--text", input=events).out
    assert [line.split() for line in table.splitlines()] == [
        ["subscription", "events", "filter"],
        ["1", "2", "a", ">", "0"],
        ["2", "0", "a", ">", "5"],
    ]


def test_flatten_and_dates(tidings: Run) -> None:
    event = '{"seen": {"at": "2026-01-31T12:00:00Z", "by": "x"}}'
    wanted = "seen.at > DATE '2026-01-31' AND seen.by = 'x'"
    assert tidings("match", "-e", wanted, input=event).code == 1
    assert pairs(tidings("match", "-e", wanted, "--flatten", "--dates", "seen.at", input=event).out) == [("-:1", "1")]


def test_bad_events_are_told_and_counted_and_the_rest_goes_on(command: Run, tmp_path: Path) -> None:
    good, bad = '{"a": 2}', ['{"a": NaN}', '{"a": {"b": 1}}', '{"a": 9223372036854775808}', '{"": 1}', "nonsense", "[]"]
    (tmp_path / "e.jsonl").write_text("".join(f"{line}\n{good}\n" for line in bad))
    done = command("match", "-e", "a > 1", "e.jsonl")
    assert done.code == 1
    assert pairs(done.out) == [(f"e.jsonl:{number}", "1") for number in range(2, 13, 2)]
    *reasons, summary = done.err.splitlines()
    places = ["'a': NaN", "'a': a nested", "'a': the integer", "name ''", "no JSON", "expected a JSON object"]
    for number, (reason, part) in enumerate(zip(reasons, places, strict=True)):
        assert reason.startswith(f"e.jsonl:{2 * number + 1}: ")
        assert part in reason
    assert summary == "tidings: 6 events, 6 notifications, 6 bad lines"


def test_a_bad_filter_in_a_file_is_told_and_the_rest_goes_on(tidings: Run, tmp_path: Path) -> None:
    (tmp_path / "f.txt").write_text("a > 1\na >> 1\na > 2\n")
    done = tidings("match", "-f", "f.txt", input='{"a": 3}\n')
    assert done.code == 1
    assert pairs(done.out) == [("-:1", "1"), ("-:1", "3")]
    assert done.err.startswith("f.txt:2: column 4: ")
    assert done.err.endswith("tidings: 1 event, 2 notifications, 1 bad line\n")


def test_a_missing_file_of_events_is_told_and_the_rest_goes_on(tidings: Run, tmp_path: Path) -> None:
    (tmp_path / "e.jsonl").write_text('{"a": 2}\n')
    done = tidings("match", "-e", "a > 1", "none.jsonl", ".", "e.jsonl")
    assert done.code == 1
    assert pairs(done.out) == [("e.jsonl:1", "1")]
    assert done.err.startswith("none.jsonl: No such file or directory\n.: Is a directory\n")


NOTHING_DONE = {
    "no filter": ((), "give either"),
    "both kinds": (("-f", "f", "-e", "a > 1"), "give either"),
    "bad filter": (("-e", "a >"), "column 4: "),
    "bad pattern": (("-e", '{"a": 1'), "JSON"),
    "no file of filters": (("-f", "none.txt"), "none.txt: No such file"),
    "no file of events": (("-e", "a > 1", "none.jsonl"), "none.jsonl: No such file"),
    "no engine": (("-e", "a > 1", "--engine", "magic"), "unknown matching engine 'magic': expected one of"),
    "two outputs": (("-e", "a > 1", "--lines", "--count"), "exclude each other"),
    "stdin twice": (("-f", "-", "-"), "standard input"),
    "no option": (("--colour",), "colour"),
}


@pytest.mark.parametrize(("arguments", "reason"), NOTHING_DONE.values(), ids=NOTHING_DONE)
def test_nothing_could_be_done(tidings: Run, arguments: tuple[str, ...], reason: str) -> None:
    done = tidings("match", *arguments, input='{"a": 2}')
    assert (done.code, done.out) == (2, "")
    assert reason in done.err
    assert "Traceback" not in done.err


def test_a_file_without_any_good_filter(command: Run, tmp_path: Path) -> None:
    (tmp_path / "f.txt").write_text("# nothing\na >\n")
    done = command("match", "-f", "f.txt", input='{"a": 2}')
    assert (done.code, done.out) == (2, "")
    assert done.err.startswith("f.txt:2: column 4: ")
    assert done.err.endswith("tidings: f.txt: no usable filter\n")


def test_an_endless_pipe_is_answered_line_by_line(started: Start) -> None:
    with started("match", "-e", "a > 1", "-") as process:
        assert process.stdin is not None
        assert process.stdout is not None
        for number in range(1, 4):
            process.stdin.write(b'{"a": 2}\n')
            process.stdin.flush()
            # Standard input is still open: the answer cannot have waited for its end.
            assert json.loads(process.stdout.readline())["line"] == number
        process.stdin.close()
        assert process.wait(60) == 0


def test_a_reader_that_goes_away_ends_it_quietly(started: Start, tmp_path: Path) -> None:
    (tmp_path / "e.jsonl").write_text('{"a": 2}\n' * 100_000)
    with started("match", "-e", "a > 1", "e.jsonl") as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.readline()
        process.stdout.close()
        assert process.wait(60) == 141
        assert process.stderr.read() == b""


def test_an_interrupt_ends_it_quietly(started: Start) -> None:
    with started("match", "-e", "a > 1", "-") as process:
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdin.write(b'{"a": 2}\n')
        process.stdin.flush()
        process.stdout.readline()
        process.send_signal(signal.SIGINT)
        assert process.wait(60) == 130
        assert process.stderr.read() == b""


def test_a_file_whose_name_is_no_text(command: Run, tmp_path: Path) -> None:
    (tmp_path / os.fsdecode(b"\xff.jsonl")).write_text('{"a": 2}\n')
    done = command("match", "-e", "a > 1", os.fsdecode(b"\xff.jsonl"))
    assert (done.code, pairs(done.out)) == (0, [("\N{REPLACEMENT CHARACTER}.jsonl:1", "1")])
