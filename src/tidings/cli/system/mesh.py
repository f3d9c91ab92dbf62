"""The demo's broker processes: a network file with links that take their time, started by `tidings network up`, and ended."""

import shutil
import socket
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from tidings.cli.system.world import DEVIATION_MS_PER_KB, SIZE_KB, SPEED, World

_PAGE = """# Written by `tidings demo`.
name = "demo"
overlay = "mesh"
data = "stores"
engine = "{engine}"
scheduler = "{scheduler}"
"""


class Mesh:
    """`start`, then talk to `addresses`; `stop` ends the processes and `remove` deletes what they left."""

    def __init__(self, folder: Path, world: World, engine: str, scheduler: str) -> None:
        self.folder, self.file = folder, folder / "network.toml"
        ports = _free_ports(len(world.brokers))
        self.addresses = {name: f"tidings://127.0.0.1:{port}" for name, port in zip(world.brokers, ports, strict=True)}
        self.stores = {name: str(folder / "stores" / name) for name in world.brokers}
        self._process: subprocess.Popen[bytes] | None = None
        self.file.write_text(_page(world, self.addresses, engine, scheduler), "utf-8")

    @property
    def log(self) -> Path:
        return self.folder / "network.log"

    def start(self, keep: bool = False) -> None:
        """Unless it is to be kept, it ends with this process, even if that is killed: it waits for the end of a pipe."""
        with self.log.open("wb") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "tidings", "network", "up", str(self.file), *([] if keep else ["--until-eof"])],
                stdin=subprocess.DEVNULL if keep else subprocess.PIPE,
                stdout=log,
                stderr=log,
                start_new_session=True,  # an interrupt at the terminal is ours: we end it
            )

    def stop(self) -> None:
        process, self._process = self._process, None
        if process is not None:
            process.terminate()
            try:
                process.communicate(timeout=30.0)  # it ends its brokers first
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()

    def leave(self) -> None:
        """It goes on without us."""
        if self._process is not None:
            self._process.returncode = 0
            self._process = None

    def remove(self) -> None:
        shutil.rmtree(self.folder, ignore_errors=True)


def _page(world: World, addresses: Mapping[str, str], engine: str, scheduler: str) -> str:
    parts = [_PAGE.format(engine=engine, scheduler=scheduler)]
    parts += [f'[brokers.{name}]\naddress = "{address}"\n' for name, address in addresses.items()]
    deviation = DEVIATION_MS_PER_KB / 1000 / SPEED
    for (first, second), s_per_kb in world.links():
        # Two quotes under way: the link never waits for the disk at its other end.
        parts.append(
            f'[[links]]\nbetween = ["{first}", "{second}"]\ns_per_kb = {s_per_kb:.6f}\n'
            f"sigma_s_per_kb = {deviation:.6f}\nwindow_kb = {2 * SIZE_KB:g}\n"
        )
    return "\n".join(parts)


def _free_ports(count: int) -> list[int]:
    sockets = [socket.socket() for _ in range(count)]
    try:
        for one in sockets:
            one.bind(("127.0.0.1", 0))
        return [int(one.getsockname()[1]) for one in sockets]
    finally:
        for one in sockets:
            one.close()
