"""What commands print: the same data always prints the same, and text of unknown origin does no harm."""

import sys

import pytest

from tidings.cli import output


def test_json_orders_sets_and_has_no_infinity(capsysbinary: pytest.CaptureFixture[bytes]) -> None:
    output.print_json({"set": frozenset({3, 1, 2}), "nested": [{"x", "a"}], "deadline_s": float("inf")})
    assert capsysbinary.readouterr().out == b'{"set":[1,2,3],"nested":[["a","x"]],"deadline_s":null}\n'


def test_control_characters_are_shown() -> None:
    assert output.printable("a\x1b[31m\r\n ü") == r"a\x1b[31m\r\n ü"


TABLE = (["name", "count"], [("[red]x", 5), ("y\x1b", 1_234)])


def test_a_table_in_a_pipe_is_plain(capsys: pytest.CaptureFixture[str]) -> None:
    output.print_table(*TABLE)
    assert capsys.readouterr().out == "name    count\n[red]x      5\ny\\x1b   1,234\n"


def test_a_table_on_a_terminal_is_drawn(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    monkeypatch.setenv("TERM", "dumb")
    output.print_table(*TABLE)
    out = capsys.readouterr().out
    assert "─" in out
    assert "[red]x" in out
    assert "\\x1b" in out


def test_counting_words() -> None:
    assert output.counted(1, "event") == "1 event"
    assert output.counted(1_200, "event") == "1,200 events"
