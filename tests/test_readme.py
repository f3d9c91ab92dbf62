"""What the pages promise is tried: their Python and their commands run, their links lead somewhere."""

import os
import re
import subprocess
import sysconfig
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]
FENCE = re.compile(r"^```([^\n]*)\n(.*?)^```", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\]\(([^)#\s]+)[^)]*\)|src=\"([^\"]+)\"")


def blocks(language: str) -> list[tuple[str, str]]:
    """(page:line, text) of the fenced blocks that are just marked so: `python`, not `python no-run`."""
    return [
        (f"{page.relative_to(ROOT)}:{text.count(chr(10), 0, fence.start()) + 1}", fence[2])
        for page in PAGES
        for text in [page.read_text("utf-8")]
        for fence in FENCE.finditer(text)
        if fence[1].strip() == language
    ]


PYTHON = blocks("python")
CONSOLE = blocks("console")


@pytest.mark.parametrize(("where", "source"), PYTHON, ids=[where for where, _ in PYTHON])
def test_python_runs(where: str, source: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    exec(compile(source, where, "exec"), {"__name__": "__main__"})


@pytest.mark.parametrize(("where", "session"), CONSOLE, ids=[where for where, _ in CONSOLE])
def test_commands_run(where: str, session: str, tmp_path: Path) -> None:
    """Each `$` line of a console block succeeds; where the page shows output, it prints just that."""
    environment = os.environ | {
        "PATH": sysconfig.get_path("scripts") + os.pathsep + os.environ["PATH"],
        "NO_COLOR": "1",
        "COLUMNS": "100",
    }
    for step in re.split(r"^\$ ", session, flags=re.MULTILINE)[1:]:
        command, _, expected = step.partition("\n")
        done = subprocess.run(
            ["sh", "-c", command], cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=120
        )
        assert done.returncode == 0, f"{where}: {command}\n{done.stderr}"
        if expected.strip():
            assert done.stdout.rstrip() == expected.rstrip(), f"{where}: {command}"


def test_the_first_page_shows_python_and_commands() -> None:
    assert any(where.startswith("README.md") for where, _ in PYTHON)
    assert any(where.startswith("README.md") for where, _ in CONSOLE)


def test_make_targets_exist() -> None:
    targets = set(re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text("utf-8"), re.MULTILINE))
    code = re.compile(r"`[^`]+`|^```.*?^```", re.MULTILINE | re.DOTALL)
    named = {
        target
        for page in PAGES
        for quoted in code.findall(page.read_text("utf-8"))
        for target in re.findall(r"\bmake ([a-z]+)", quoted)
    }
    assert {"demo", "test"} <= named <= targets


def test_links_lead_somewhere() -> None:
    broken = [
        f"{page.relative_to(ROOT)}: {target}"
        for page in PAGES
        for link in LINK.finditer(FENCE.sub("", page.read_text("utf-8")))
        for target in [link[1] or link[2]]
        if "://" not in target and not (page.parent / target).exists()
    ]
    assert not broken
