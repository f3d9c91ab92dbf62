"""`tidings explain`: verdicts, patterns, where the event comes from, and bad input."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

Run = Callable[..., Any]
FILTER = "symbol = 'LEGEND' AND change > 1"


def test_an_event_that_matches(command: Run) -> None:
    done = command("explain", FILTER, '{"symbol": "LEGEND", "change": 1.5}')
    assert (done.code, done.err) == (0, "")
    assert done.out.startswith(f"matches: {FILTER}\n")


def test_an_event_that_does_not(tidings: Run) -> None:
    done = tidings("explain", FILTER, '{"symbol": "LEGEND"}')
    assert (done.code, done.err) == (0, "")
    assert done.out.startswith(f"does not match: {FILTER}\n")
    assert "change is missing" in done.out


def test_the_exit_code_on_demand(tidings: Run) -> None:
    assert tidings("explain", "--exit-code", "a > 1", '{"a": 2}').code == 0
    assert tidings("explain", "--exit-code", "a > 1", '{"a": 1}').code == 1
    assert tidings("explain", "--exit-code", "a > 1").code == 0


def test_a_filter_alone(tidings: Run) -> None:
    done = tidings("explain", "a > 1 OR b + 1 < c")
    assert done.code == 0
    assert "index   a > 1" in done.out
    assert "verify  b + 1 < c" in done.out


def test_json(tidings: Run) -> None:
    found = json.loads(tidings("explain", "--json", "a > 1 AND s SUBSET OF (1, 2, 3)", '{"a": 2, "s": [3, 1]}').out)
    assert found["matches"] is True
    assert [(leaf["text"], leaf["held"], leaf["seen"]) for leaf in found["leaves"]] == [
        ("a > 1", True, {"a": 2}),
        ("s SUBSET OF (1, 2, 3)", True, {"s": [1, 3]}),
    ]
    assert json.loads(tidings("explain", "--json", "a > 1").out)["matches"] is None


def test_a_pattern(tidings: Run) -> None:
    assert tidings("explain", '{"a": [{"numeric": [">", 1]}]}', '{"a": 2}').out.startswith("matches: a > 1\n")


def test_the_event_from_a_file_or_from_standard_input(command: Run, tmp_path: Path) -> None:
    event = '{"type": "quote",\n "attributes": {"a": 2}}\n'
    (tmp_path / "event.json").write_text(event)
    for where in ("@event.json", "-"):
        assert command("explain", "a > 1 AND $type = 'quote'", where, input=event).out.startswith("matches: ")


def test_nested_objects_and_dates(tidings: Run) -> None:
    done = tidings(
        "explain", "--flatten", "--dates", "a.at", "a.at > DATE '2026-01-01'", '{"a": {"at": "2026-01-31T12:00:00Z"}}'
    )
    assert done.out.startswith("matches: ")


BAD = {
    "filter": (("a > 1 AND",), "column 10: "),
    "pattern": (('{"a": 1}',), "a"),
    "event": (("a > 1", '{"a": NaN}'), "attribute 'a': NaN"),
    "event that is no JSON": (("a > 1", "a=2"), "no JSON"),
    "event that is no object": (("a > 1", "2"), "expected a JSON object"),
    "event that is no text": (("a > 1", b'{"a": "\xff"}'), "no UTF-8"),
    "filter that is no text": ((b"a = '\xff'",), "tidings: "),
    "no file": (("a > 1", "@none.json"), "none.json: No such file"),
    "no filter": ((), "FILTER"),
}


@pytest.mark.parametrize(("arguments", "reason"), BAD.values(), ids=BAD)
def test_bad_input_is_one_message(tidings: Run, arguments: tuple[str, ...], reason: str) -> None:
    done = tidings("explain", *arguments)
    assert (done.code, done.out) == (2, "")
    assert reason in done.err
    assert "Traceback" not in done.err


def test_the_caret_stands_below_the_column(command: Run) -> None:
    _, text, caret = command("explain", "a > 1 AND b ?").err.splitlines()
    assert text[caret.index("^")] == "?"
