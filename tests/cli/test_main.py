"""The command as a whole: help, version, exit codes, and that it is there at once."""

import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest

from tidings import __version__
from tidings.cli.main import app

Run = Callable[..., Any]
COMMANDS = sorted(command.name or "" for command in app.registered_commands)


def test_version(command: Run) -> None:
    assert command("--version") == (0, f"tidings {__version__}\n", "")


def test_help_shows_commands_examples_and_exit_codes(command: Run) -> None:
    done = command("--help")
    assert done.code == 0
    for part in (*COMMANDS, "tidings explain \"symbol = 'LEGEND'", "Exit codes:"):
        assert part in done.out


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_has_help(tidings: Run, command: str) -> None:
    done = tidings(command, "--help")
    assert (done.code, done.err) == (0, "")
    assert f"Usage: tidings {command}" in done.out


@pytest.mark.parametrize("arguments", [(), ("magic",), ("--magic",)], ids=str)
def test_wrong_usage(command: Run, arguments: tuple[str, ...]) -> None:
    done = command(*arguments)
    assert done.code == 2
    assert "Traceback" not in done.err


def test_help_loads_nothing_heavy() -> None:
    source = (
        "import sys, tidings.cli.main; print(*{'numpy', 'numba', 'msgspec', 'rich', 'asyncio'} & sys.modules.keys())"
    )
    done = subprocess.run([sys.executable, "-c", source], capture_output=True, text=True, check=True, timeout=60)
    assert set(done.stdout.split()) <= {"asyncio"}
