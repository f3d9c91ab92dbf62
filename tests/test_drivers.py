"""The same script on every driver: the embedded bus, live brokers in two and in five processes, and the simulator."""

import asyncio
import random
from collections.abc import Callable
from typing import NamedTuple

import pytest

import tidings
from net_rig import Process, eventually_async, free_port, run
from tidings.broker.broker import Broker
from tidings.language import parse
from tidings.matching.naive import Naive
from tidings.model import step as s
from tidings.model.event import checked_event
from tidings.model.subscription import Subscription
from tidings.net.client import Client
from tidings.overlay.mesh import Mesh
from tidings.scheduling.fcfs import Fcfs
from tidings.sim.network import Network, Rate, generator

BROKERS = ("a", "b", "c", "d", "e")
LINKS = (("a", "b"), ("b", "c"), ("c", "d"), ("d", "e"), ("a", "e"), ("b", "d"))
SYMBOLS = ("LEGEND", "HAIER", "VANKE")


class Wish(NamedTuple):
    id: str
    home: str
    filter: str


class Fact(NamedTuple):
    id: str
    source: str
    attributes: dict[str, object]


class Script(NamedTuple):
    wishes: list[Wish]
    facts: list[Fact]


Deliveries = set[tuple[str, str]]


def script(seed: int) -> Script:
    chance = random.Random(seed)
    filters = [
        lambda: f"symbol = '{chance.choice(SYMBOLS)}' AND change > {chance.randrange(5)}",
        lambda: (
            f"change BETWEEN {chance.randrange(3)} AND {chance.randrange(3, 6)} OR volume < {chance.randrange(100)}"
        ),
        lambda: f"NOT (symbol = '{chance.choice(SYMBOLS)}') AND volume >= {chance.randrange(900)}",
    ]
    wishes = [Wish(f"s{n}", chance.choice(BROKERS), chance.choice(filters)()) for n in range(20)]
    facts = []
    for n in range(40):
        attributes = {
            "symbol": chance.choice(SYMBOLS),
            "change": chance.randrange(7),
            "volume": chance.randrange(1_000),
        }
        if chance.random() < 0.2:
            del attributes["volume"]
        facts.append(Fact(f"e{n}", chance.choice(BROKERS), attributes))
    return Script(wishes, facts)


def embedded(script: Script) -> Deliveries:
    async def scenario() -> Deliveries:
        found: Deliveries = set()
        async with tidings.connect(engine="naive") as bus:
            streams = [await bus.subscribe(wish.filter, id=wish.id) for wish in script.wishes]
            for fact in script.facts:
                await bus.publish(fact.attributes, id=fact.id)
            for stream in streams:
                while bus.ledger().by_subscription.get(stream.id) and bus.ledger().by_subscription[stream.id].pending:
                    found.add(((await anext(stream)).event.id, stream.id))
        return found

    return run(scenario)


def simulated(script: Script) -> Deliveries:
    found: list[tuple[str, str]] = []

    def watch(node, input, effects, now):
        found.extend((e.event.id, id) for e in effects if isinstance(e, s.Deliver) for id in e.subscriptions)

    network = Network(1, watchers=[watch])
    for id in BROKERS:
        network.node(id, lambda incarnation, id=id: Broker(id, Naive(), Fcfs, Mesh(), incarnation=incarnation))
    for a, b in LINKS:
        network.link(a, b, *(Rate(0.01, 0.001, generator(1, a, b, way)) for way in ("there", "back")))
    for id in BROKERS:
        network.client(f"publisher-{id}", id)
    for wish in script.wishes:
        network.client(wish.id, wish.home)
    network.start()
    for wish in script.wishes:
        network.subscribe(wish.id, Subscription(wish.id, wish.id, parse(wish.filter)))
    network.run(60)
    for fact in script.facts:
        network.publish(f"publisher-{fact.source}", checked_event(fact.id, fact.attributes))
    network.run(600)
    assert network.totals().pending == 0
    assert len(found) == len(set(found)), "nothing is delivered twice"
    return set(found)


def live(brokers: tuple[str, ...]) -> Callable[[Script], Deliveries]:
    """One process for each of these brokers; what lives at others lives at the first."""

    def deliveries(script: Script) -> Deliveries:
        ports = {id: free_port() for id in brokers}
        peers = {id: [f"tidings://127.0.0.1:{ports[b]}" for a, b in LINKS if a == id and b in ports] for id in brokers}
        processes = {
            id: Process(
                *("--name", id, "--listen", f"tidings://127.0.0.1:{port}", "--engine", "naive", "--mesh"),
                *(argument for peer in peers[id] for argument in ("--peer", peer)),
            )
            for id, port in ports.items()
        }
        try:
            for process in processes.values():
                process.begin()
            addresses = {id: process.await_ready() for id, process in processes.items()}
            return run(lambda: _live(script, addresses))
        finally:
            complaints = [process.stop() for process in processes.values()]
            assert not any(complaints), complaints

    return deliveries


async def _live(script: Script, addresses: dict[str, str]) -> Deliveries:
    found: list[tuple[str, str]] = []

    async def read(stream):
        while True:
            found.append(((await anext(stream)).event.id, stream.id))

    clients = {id: Client(address) for id, address in addresses.items()}
    at = lambda home: clients.get(home) or next(iter(clients.values()))  # noqa: E731

    async def statuses():
        return [await client.status() for client in clients.values()]

    async def settled():
        links = 2 * sum(a in clients and b in clients for a, b in LINKS)
        return all(
            status.matched_here == len(script.wishes) and len(status.topology) == links for status in await statuses()
        )

    async def delivered():
        accounts = [status.accounts for status in await statuses()]
        total = {name: sum(account[name] for account in accounts) for name in accounts[0]}
        return (
            total["pending"] == 0 and total["received"] == total["forwarded"] and total["matched"] == total["on_time"]
        )

    readers = [
        asyncio.create_task(read(await at(wish.home).subscribe(wish.filter, id=wish.id))) for wish in script.wishes
    ]
    await eventually_async(settled, "every broker knows every subscription")
    for fact in script.facts:
        await at(fact.source).publish(fact.attributes, id=fact.id)
    await eventually_async(delivered, "everything is delivered")
    for reader in readers:
        reader.cancel()
    for client in clients.values():
        await client.close()
    assert len(found) == len(set(found)), "nothing is delivered twice"
    return set(found)


@pytest.mark.parametrize("driver", [simulated, live(("a", "b")), live(BROKERS)], ids=["simulator", "two", "five"])
def test_every_driver_delivers_what_the_embedded_bus_delivers(driver):
    for seed in (1, 2) if driver is simulated else (1,):
        expected = embedded(script(seed))
        assert len(expected) > 100
        assert driver(script(seed)) == expected
