"""The mesh, live: events between brokers, healing, and links that take their time. All brokers in one process."""

import asyncio
import contextlib

from net_rig import ANYWHERE, eventually, free_port, run
from tidings.model import step as s
from tidings.net.address import Address
from tidings.net.client import Client
from tidings.net.config import BrokerConfig, Neighbour
from tidings.net.runtime import Runtime
from tidings.net.shape import Shape
from tidings.store import open_reader


def runtime(id, address, *neighbours, **settings):
    return Runtime(BrokerConfig(id, address, engine="naive", overlay="mesh", neighbours=neighbours, **settings))


@contextlib.asynccontextmanager
async def chain(*ids, shape=Shape(), window_kb=256.0, **settings):
    """Brokers in a row; each dials the one before it."""
    brokers = {}
    address = ANYWHERE
    for id in ids:
        before = list(brokers.values())[-1] if brokers else None
        neighbours = []
        if before is not None:
            neighbours.append(Neighbour(before.address, before.config.id, True, shape, window_kb))
        if id != ids[-1]:
            neighbours.append(Neighbour(ANYWHERE, ids[ids.index(id) + 1], False, shape, window_kb))
        brokers[id] = runtime(id, address, *neighbours, **settings)
        await brokers[id].start()
    try:
        yield brokers
    finally:
        for broker in brokers.values():
            await broker.stop()


@contextlib.asynccontextmanager
async def clients(brokers, *ids):
    async with contextlib.AsyncExitStack() as stack:
        yield [await stack.enter_async_context(Client(str(brokers[id].address))) for id in ids]


async def knows(broker, home):
    """The broker knows the one subscription, and the way to its home."""
    await eventually(lambda: len(broker.broker.overlay.homes) == 1, "the subscription has come")
    await eventually(lambda: home in broker.broker.overlay.atlas.least_mu(broker.config.id), f"a path to {home}")


def balanced(brokers):
    totals = [broker.broker.ledger.total for broker in brokers.values()]
    assert all(total.balanced for total in totals)
    return sum(totals[1:], totals[0])


def test_an_event_crosses_the_mesh_with_its_age_and_is_accounted_for_once():
    async def scenario():
        async with chain("a", "b", "c") as brokers, clients(brokers, "c", "a") as (desk, bus):
            stream = await desk.subscribe("n > 0", deadline_s=30, price=2.0)
            await knows(brokers["a"], "c")
            await bus.publish({"n": 1}, "number", id="e")
            notification = await anext(stream)
            assert notification.event.id == "e"
            await eventually(lambda: brokers["c"].broker.ledger.total.on_time == 1)
            total = balanced(brokers)
            assert (total.matched, total.on_time, total.earning) == (1, 1, 2.0)
            assert total.forwarded == total.received == 2
            status = await bus.status()
            assert {(edge.sender, edge.receiver) for edge in status.topology} >= {("a", "b"), ("b", "c")}
            steps = [(record.step, record.peer) for record in status.trace]
            assert steps == [("published", ""), ("forwarded", "b")]

    run(scenario)


def test_a_broker_that_comes_back_gets_its_routes_again():
    async def scenario():
        async with chain("a", "b") as brokers:
            address = Address("127.0.0.1", free_port())
            c = runtime("c", address, Neighbour(brokers["b"].address, "b"))
            await c.start()
            async with Client(str(address)) as desk, Client(str(brokers["a"].address)) as bus:
                stream = await desk.subscribe("n > 0")
                await knows(brokers["a"], "c")
                await bus.publish({"n": 1})
                assert (await anext(stream)).event.attributes == {"n": 1}
                await c.stop()
                await eventually(lambda: "c" not in brokers["b"].peers)
                c = runtime("c", address, Neighbour(brokers["b"].address, "b"))
                await c.start()
                await eventually(lambda: len(c.broker.subscriptions) == 1, "the client is back")
                await eventually(lambda: "c" in brokers["b"].peers)
                await knows(brokers["a"], "c")
                n = 1
                while not stream._arrived:  # until a knows the way again, its events have no path
                    n += 1
                    await bus.publish({"n": n})
                    await asyncio.sleep(0.01)
                assert (await anext(stream)).event.attributes["n"] > 1
            await c.stop()

    run(scenario)


def test_a_link_that_is_cut_and_mended_loses_nothing():
    async def scenario():
        async with chain("a", "b") as brokers, clients(brokers, "b", "a") as (desk, bus):
            stream = await desk.subscribe("n >= 0")
            await knows(brokers["a"], "b")
            for n in range(60):
                if n % 20 == 10:
                    brokers["a"].peers["b"].connection.abort("test")
                await bus.publish({"n": n})
                await eventually(lambda: "b" in brokers["a"].peers)
                await eventually(lambda: len(brokers["a"].broker.overlay.atlas.links["a"]) == 1)
            found = [(await anext(stream)).event.attributes["n"] for _ in range(60)]
            assert sorted(found) == list(range(60))
            await eventually(lambda: brokers["b"].broker.ledger.total.on_time == 60)
            assert balanced(brokers).matched == 60

    run(scenario)


def test_a_shaped_link_takes_its_time_and_is_measured():
    async def scenario():
        slow = {"shape": Shape(s_per_kb=0.01, delay_s=0.02), "window_kb": 1.0, "scheduler": "fcfs"}
        async with chain("a", "b", **slow) as brokers, clients(brokers, "b", "a") as (desk, bus):
            stream = await desk.subscribe("n >= 0")
            await knows(brokers["a"], "b")
            for n in range(10):
                await bus.publish({"n": n}, size_kb=2.0)
            assert len(brokers["a"].peers["b"]) == 1, "one at a time: the others wait in the outbox"
            assert len(brokers["a"].broker.outboxes["b"]) >= 5
            ages = [(await anext(stream)).age_s for _ in range(10)]
            assert min(ages) >= 0.02 + 2 * 0.01, "the age grows on the way"
            assert ages == sorted(ages)
            await eventually(lambda: brokers["a"].peers["b"].hop_s > 0)
            (link,) = (link for link in (await bus.status()).links if link.peer == "b")
            assert link.mu >= 0.01

    run(scenario)


def test_what_cannot_arrive_in_time_is_dropped_by_the_scheduler():
    async def scenario():
        slow = {"shape": Shape(s_per_kb=0.02), "window_kb": 1.0, "scheduler": "mtep"}
        async with chain("a", "b", **slow) as brokers, clients(brokers, "b", "a") as (desk, bus):
            await desk.subscribe("n >= 0", deadline_s=0.3, penalty=0.1)
            await knows(brokers["a"], "b")
            for n in range(60):
                await bus.publish({"n": n}, size_kb=1.0)
            await eventually(lambda: brokers["a"].broker.ledger.total.expired > 0)
            await eventually(lambda: brokers["a"].broker.ledger.total.pending == 0)
            total = balanced(brokers)
            assert total.matched == 60
            assert brokers["a"].broker.ledger.total.expired + brokers["b"].broker.ledger.total.received == 60

    run(scenario)


def test_both_sides_may_dial_and_one_connection_stays():
    async def scenario():
        ports = {id: free_port() for id in "ab"}
        brokers = {
            id: runtime(id, Address("127.0.0.1", ports[id]), Neighbour(Address("127.0.0.1", ports[other]), other))
            for id, other in ("ab", "ba")
        }
        for broker in brokers.values():
            await broker.start()
        async with Client(str(brokers["b"].address)) as desk, Client(str(brokers["a"].address)) as bus:
            stream = await desk.subscribe("n > 0")
            await knows(brokers["a"], "b")
            await bus.publish({"n": 1})
            assert (await anext(stream)).event.attributes == {"n": 1}
        for broker in brokers.values():
            await broker.stop()

    run(scenario)


def test_the_stores_of_all_brokers_together_hold_every_pair_once(tmp_path):
    async def scenario():
        address = {id: Address("127.0.0.1", free_port()) for id in "ab"}
        a = runtime("a", address["a"], store=str(tmp_path / "a"))
        b = runtime("b", address["b"], Neighbour(address["a"], "a"), store=str(tmp_path / "b"))
        for broker in (a, b):
            await broker.start()
        async with Client(str(b.address), name="desk") as desk, Client(str(a.address)) as bus:
            stream = await desk.subscribe("n > 0", id="far", durable=True)
            near = await bus.subscribe("n > 1", id="near")
            await knows(a, "b")
            for n in range(1, 4):
                await bus.publish({"n": n})
            assert [(await anext(near)).event.attributes["n"] for _ in range(2)] == [2, 3]
            assert (await anext(stream)).event.attributes == {"n": 1}
            await eventually(lambda: b.broker.ledger.total.on_time == 1)
        await b.stop()
        b = runtime("b", address["b"], Neighbour(address["a"], "a"), store=str(tmp_path / "b"))
        await b.start()
        async with Client(str(b.address), name="desk") as desk:
            stream = await desk.subscribe("n > 0", id="far", durable=True)
            assert [(await anext(stream)).event.attributes["n"] for _ in range(2)] == [2, 3]
            await eventually(lambda: b.broker.ledger.total.on_time == 2)
        for broker in (a, b):
            await broker.stop()
        totals = []
        for id in "ab":
            with open_reader(tmp_path / id) as store:
                totals.append(store.ledger().total)
        assert [(total.matched, total.on_time, total.pending) for total in totals] == [(2, 2, 0), (3, 3, 0)]

    run(scenario)


def test_the_ledger_tells_the_hops_of_every_delivery(tmp_path):
    async def scenario():
        address = {id: Address("127.0.0.1", free_port()) for id in "abc"}
        brokers = {}
        for id, before in zip("abc", (None, "a", "b"), strict=True):
            neighbours = () if before is None else (Neighbour(address[before], before),)
            brokers[id] = runtime(id, address[id], *neighbours, store=str(tmp_path / id))
            await brokers[id].start()
        async with clients(brokers, "c", "a") as (desk, bus):
            stream = await desk.subscribe("n > 0")
            await knows(brokers["a"], "c")
            await bus.publish({"n": 1})
            await anext(stream)
            await desk.flush()
        for broker in brokers.values():
            await broker.stop()
        with open_reader(tmp_path / "c") as store:
            (record,) = (e.record for e in store.read_journal() if isinstance(e.record, s.AccountRecord))
        assert [hop.broker for hop in record.hops] == ["a", "b", "c"]
        ages = [age_s for hop in record.hops for age_s in (hop.received_s, hop.sent_s)]
        assert ages == sorted(ages), "the event grew older on its way"
        assert 0 == ages[0] < ages[-1]

    run(scenario)
