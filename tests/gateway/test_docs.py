"""The commands of docs/http.md, run as they stand there against a broker process, by curl and by a stand-in for it."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from gateway_rig import Sink, eventually
from net_rig import PATIENCE_S, Process, free_port

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "http.md").read_text("utf-8")
FENCE = re.compile(r"^```(\w+)\n(.*?)^```\n", re.MULTILINE | re.DOTALL)


def steps() -> list[tuple[str, str]]:
    """The commands of each block, and what the page shows right after it."""
    fences = list(FENCE.finditer(PAGE))
    found = []
    for fence, after in zip(fences, [*fences[1:], None], strict=True):
        if fence[1] == "sh":
            answered = after is not None and after[1] != "sh" and not PAGE[fence.end() : after.start()].strip()
            found.append((fence[2], after[2] if answered and after is not None else ""))
    return found


def same(shown: str, printed: str) -> bool:
    """`...` on the page stands for anything."""
    pattern = ".*".join(re.escape(part) for part in shown.strip().split("..."))
    return re.fullmatch(pattern, printed.strip(), re.DOTALL) is not None


@pytest.mark.parametrize("with_curl", [False, pytest.param(True, id="curl")] if shutil.which("curl") else [False])
def test_the_commands_of_the_page_do_what_it_says(with_curl: bool, tmp_path: Path) -> None:
    if not with_curl:
        shim = tmp_path / "bin" / "curl"
        shim.parent.mkdir()
        shim.write_text(f'#!/bin/sh\nexec "{sys.executable}" "{ROOT / "tests" / "curl_shim.py"}" "$@"\n')
        shim.chmod(0o755)
    environment = os.environ | {"PATH": f"{tmp_path / 'bin'}{os.pathsep}{os.environ['PATH']}"}
    (serve, _), *rest = steps()
    assert serve == "tidings serve --store data --http 127.0.0.1:8080\n"
    http = f"127.0.0.1:{free_port()}"
    broker = Process(
        "--store", tmp_path / "data", "--http", http, "--listen", "tidings://127.0.0.1:0", "--engine", "naive"
    )
    with Sink() as sink:
        try:
            broker.start()
            for command, shown in rest:
                command = command.replace("localhost:8080", http).replace("localhost:9000", f"127.0.0.1:{sink.port}")
                done = subprocess.run(
                    ["sh", "-ec", command], env=environment, capture_output=True, text=True, timeout=PATIENCE_S
                )
                assert done.returncode == 0, f"{command}\n{done.stderr}"
                assert not shown or same(shown, done.stdout), f"{command}\n{shown}\n{done.stdout}"
                assert shown or '"status":4' not in done.stdout, f"{command}\n{done.stdout}"
            eventually(lambda: sink.ids == ["4"], "the webhook of the page")
            assert sink.received[0][0]["authorization"] == "Bearer theirs"
        finally:
            broker.stop()


def test_the_page_shows_what_comes_back() -> None:
    assert len(steps()) >= 8
    assert sum(bool(shown) for _, shown in steps()) >= 7
    assert same("a ... b", "a x\n b")
    assert not same("a ... b", "a x c")
