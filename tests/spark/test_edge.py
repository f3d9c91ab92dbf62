"""`matching = "spark"`: brokers take in and deliver, Spark matches; killed and started again, nothing is lost or repeated."""

import asyncio
import os
import subprocess
import sys
from pathlib import Path

from net_rig import PATIENCE_S, eventually, free_port, process, run
from tidings.net.client import Client
from tidings.net.config import read_network
from tidings.net.supervisor import Supervisor, command
from tidings.store import open_reader

FILTERS = ("n >= 0", "n < 40", "colour = 'red' AND n > 100")
COLOURS = ("red", "blue")
PATIENCE = 4 * PATIENCE_S


def network(folder: Path) -> Path:
    file = folder / "network.toml"
    brokers = "".join(f'[brokers.{name}]\naddress = "tidings://127.0.0.1:{free_port()}"\n' for name in ("east", "west"))
    file.write_text(f'matching = "spark"\ndata = "data"\n{brokers}')
    return file


def pipeline(file: Path, fail_at: str = "") -> "subprocess.Popen[bytes]":
    settings = os.environ | {"TIDINGS_FAIL_AT": fail_at}
    return subprocess.Popen(command(str(file), "spark"), stdout=subprocess.DEVNULL, env=settings)


def test_killed_between_delivery_and_commit_nothing_is_lost_or_repeated(tmp_path: Path) -> None:
    file = network(tmp_path)
    got: list[tuple[str, str]] = []
    expected: set[tuple[str, str]] = set()

    async def publish(buses: list[Client], first: int, count: int) -> None:
        for n in range(first, first + count):
            colour = COLOURS[n % 2]
            id = await buses[n % 2].publish({"n": n, "colour": colour}, "number", id=f"e{n}", data=b"kept")
            wanted = (True, n < 40, colour == "red" and n > 100)
            expected.update((id, f"{home}-{k}") for home in ("east", "west") for k in range(3) if wanted[k])

    def has(notification) -> None:
        assert notification.event.data == b"kept"
        got.append((notification.event.id, notification.subscription))

    async def scenario() -> None:
        addresses = {name: str(broker.listen) for name, broker in read_network(file).brokers.items()}
        async with (
            Client(addresses["east"], name="desk-e") as east,
            Client(addresses["west"], name="desk-w") as west,
        ):
            for home, desk in (("east", east), ("west", west)):
                for k, filter in enumerate(FILTERS[:2]):
                    await desk.subscribe(filter, id=f"{home}-{k}", durable=k == 0, handler=has)
            first = pipeline(file, fail_at="delivered:1")
            try:
                await publish([east, west], 0, 100)
                assert await asyncio.to_thread(first.wait, PATIENCE) == -9
            finally:
                first.kill()
            await eventually(lambda: got, "some were delivered")
            for home, desk in (("east", east), ("west", west)):  # subscriptions that come while nobody matches
                await desk.subscribe(FILTERS[2], id=f"{home}-2", handler=has)
            second = pipeline(file)
            try:
                await publish([east, west], 100, 200)
                await eventually(lambda: set(got) >= expected, "all were delivered", patience_s=PATIENCE)
                await publish([east, west], 300, 1)  # and behind it nothing comes twice
                await eventually(lambda: set(got) >= expected, "the last was delivered", patience_s=PATIENCE)
            finally:
                second.terminate()
                await asyncio.to_thread(second.wait, PATIENCE)

    with process(file, "--broker", "east"), process(file, "--broker", "west"):
        run(scenario, 3 * PATIENCE)
    assert sorted(got) == sorted(expected)
    totals = []
    for name in ("east", "west"):
        with open_reader(tmp_path / "data" / name) as store:
            totals.append(store.ledger().total)
    assert sum(total.matched for total in totals) == sum(total.on_time for total in totals) == len(expected)


def test_the_supervisor_runs_the_pipeline_too(tmp_path: Path) -> None:
    supervisor = Supervisor(read_network(network(tmp_path)), lambda *_: None)
    assert supervisor.brokers == ["east", "west", "spark"]
    assert command("f", "spark") == [sys.executable, "-m", "tidings", "pipeline", "edge", "f"]
