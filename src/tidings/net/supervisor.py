"""Keeps the broker processes of a network file running on this machine.

A process that ends is started again, with back-off. The supervisor holds a lock on a small run file next to the network file as
long as it lives, and writes there who it is: `down` and `status` find it by that, and a stale file fools nobody.
"""

import asyncio
import contextlib
import fcntl
import ipaddress
import json
import os
import random
import shlex
import signal
import socket
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from tidings.errors import ConfigError, NetworkError
from tidings.net.config import SPARK, NetworkConfig
from tidings.net.dialer import back_off_s

_STEADY_S = 10.0  # a process that ran so long has started well
_ENDING_S = 20.0  # then a broker that was told to end is killed


def run_file(network_file: str | Path) -> Path:
    path = Path(network_file)
    return path.with_name(path.name + ".run")


def command(file: str, broker: str) -> list[str]:
    """Of a broker, or of the pipeline that matches for all of them."""
    if broker == SPARK:
        return [sys.executable, "-m", "tidings", "pipeline", "edge", file]
    return [sys.executable, "-m", "tidings", "serve", file, "--broker", broker]


def elsewhere(network: NetworkConfig) -> list[str]:
    """The brokers that other machines run."""
    return [name for name, broker in network.brokers.items() if not _is_local(broker.listen.host)]


def how_to_start(network: NetworkConfig, broker: str) -> str:
    return shlex.join(["tidings", "serve", Path(network.file).name, "--broker", broker])


def _is_local(host: str) -> bool:
    if host in ("localhost", socket.gethostname()):
        return True
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return False
    return address.is_loopback or address.is_unspecified


class Supervisor:
    """`told(broker, what)` hears of every start and end."""

    def __init__(self, network: NetworkConfig, told: Callable[[str, str], None]) -> None:
        self.network, self._told = network, told
        away = set(elsewhere(network))
        self.brokers = [name for name in network.brokers if name not in away]
        if network.matching == SPARK and next(iter(network.brokers)) not in away:  # once: where the first broker lives
            self.brokers.append(SPARK)
        self.processes: dict[str, asyncio.subprocess.Process] = {}
        self.restarts = dict.fromkeys(self.brokers, 0)
        self._chance = random.Random()

    async def run(self, until_eof: bool = False) -> None:
        """Until SIGTERM or SIGINT; or until standard input ends, which it also does when whoever started us is killed."""
        ended = asyncio.Event()
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, ended.set)
        if until_eof:
            _at_eof(loop, ended.set)
        with self._locked():
            watchers = [loop.create_task(self._watch(broker)) for broker in self.brokers]
            await ended.wait()
            for watcher in watchers:
                watcher.cancel()
            await asyncio.gather(*watchers, return_exceptions=True)

    async def _watch(self, broker: str) -> None:
        failures = 0
        while True:
            begun_s = time.monotonic()
            process = self.processes[broker] = await asyncio.create_subprocess_exec(
                *command(self.network.file, broker),
                stdin=asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.PIPE,
                start_new_session=True,  # an interrupt at the terminal is ours to pass on
            )
            self._write()
            try:
                assert process.stdout is not None
                while line := await process.stdout.readline():
                    self._told(broker, line.decode(errors="replace").strip())
                code = await process.wait()
            finally:
                await self._end(process)
            failures = 0 if time.monotonic() - begun_s > _STEADY_S else failures + 1
            self.restarts[broker] += 1
            self._told(broker, f"ended with code {code}; starting it again")
            await asyncio.sleep(back_off_s(failures, self._chance))

    async def _end(self, process: asyncio.subprocess.Process) -> None:
        if process.returncode is not None:
            return
        process.terminate()
        try:
            await asyncio.wait_for(process.wait(), _ENDING_S)
        except TimeoutError:
            process.kill()
            await process.wait()

    @contextlib.contextmanager
    def _locked(self) -> Iterator[None]:
        path = run_file(self.network.file)
        self._run = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            fcntl.flock(self._run, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(self._run)
            raise ConfigError(f"{self.network.file}: this network is up already") from None
        try:
            self._write()
            yield
            path.unlink(missing_ok=True)
        finally:
            os.close(self._run)

    def _write(self) -> None:
        pids = {name: process.pid for name, process in self.processes.items()}
        text = json.dumps({"supervisor": os.getpid(), "brokers": pids}).encode()
        os.ftruncate(self._run, 0)
        os.pwrite(self._run, text, 0)


def _at_eof(loop: asyncio.AbstractEventLoop, call: Callable[[], None]) -> None:
    def heard() -> None:
        if not os.read(0, 4096):
            loop.remove_reader(0)
            call()

    try:
        loop.add_reader(0, heard)
    except OSError:
        raise ConfigError("--until-eof: standard input is not a pipe") from None


def running(network_file: str | Path) -> dict[str, int] | None:
    """The process ids of a network that is up (the supervisor under the empty name); None if it is not."""
    path = run_file(network_file)
    try:
        with path.open("r+b") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
            except BlockingIOError:
                found = json.loads(file.read() or b"{}")
                return {"": found.get("supervisor", 0), **found.get("brokers", {})}
    except FileNotFoundError:
        pass
    return None


def bring_down(network_file: str | Path, patience_s: float = 30.0) -> bool:
    """Tell the supervisor to end, and wait until it has; False if there is none."""
    found = running(network_file)
    if found is None or not found[""]:
        return False
    os.kill(found[""], signal.SIGTERM)
    limit_s = time.monotonic() + patience_s
    while running(network_file) is not None:
        if time.monotonic() > limit_s:
            raise NetworkError(f"{network_file}: the network did not end within {patience_s:g} s")
        time.sleep(0.05)
    return True
