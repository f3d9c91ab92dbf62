"""The command as its user runs it: `tidings` inside this process, which is quick, and `command` as a process of its own."""

import os
import signal
import subprocess
import sysconfig
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest
from typer.testing import CliRunner

from tidings.cli.main import app

COMMAND = Path(sysconfig.get_path("scripts")) / "tidings"


class Done(NamedTuple):
    code: int
    out: str
    err: str


Run = Callable[..., Done]
Argument = str | bytes


@pytest.fixture
def tidings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    """tidings("match", "-e", "a > 1", input='{"a": 2}') in an empty folder; only what is a bug raises."""
    monkeypatch.chdir(tmp_path)

    def run(*arguments: Argument, input: str = "") -> Done:
        done = CliRunner().invoke(
            app, list(map(os.fsdecode, arguments)), input=input, prog_name="tidings", catch_exceptions=False
        )
        return Done(done.exit_code, done.stdout, done.stderr)

    return run


@pytest.fixture
def started(tmp_path: Path) -> Callable[..., "subprocess.Popen[bytes]"]:
    """Starts the installed command in an empty folder, with pipes at all its ends; the test ends it."""
    # What a shell runs in the background ignores interrupts, and so would all that is started from there.
    signal.signal(signal.SIGINT, signal.default_int_handler)

    def start(*arguments: Argument) -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            [COMMAND, *arguments],
            cwd=tmp_path,
            env=os.environ | {"PYTHONIOENCODING": "utf-8"},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )

    return start


@pytest.fixture
def command(started: Callable[..., "subprocess.Popen[bytes]"]) -> Run:
    """The same call as `tidings`, of the installed command."""

    def run(*arguments: Argument, input: str = "") -> Done:
        with started(*arguments) as process:
            out, err = process.communicate(input.encode(), timeout=120)
        return Done(process.returncode, out.decode(), err.decode())

    return run
