"""`tidings warm` compiles, and is quiet in a pipe."""

from collections.abc import Callable
from typing import Any


def test_it_compiles_and_says_nothing_in_a_pipe(command: Callable[..., Any]) -> None:
    done = command("warm")
    assert (done.code, done.out) == (0, "")
    assert "\r" not in done.err
    assert "Traceback" not in done.err
