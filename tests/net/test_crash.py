"""kill -9 while publishing: nothing confirmed is lost, nothing acknowledged comes again, the ledger balances."""

import asyncio
import itertools
import random

import pytest

from net_rig import PATIENCE_S, Process, eventually, eventually_async, free_port, run
from tidings.net.client import Client
from tidings.store import open_reader


class Network:
    """Broker processes in a row, each with a store; the first takes the events, the last has the subscriber."""

    def __init__(self, folder, *ids):
        ports = {id: free_port() for id in ids}
        self.folder = folder
        self.processes = {}
        for before, id in itertools.pairwise((None, *ids)):
            link = () if before is None else ("--peer", f"tidings://127.0.0.1:{ports[before]}")
            mesh = ("--mesh",) if len(ids) > 1 else ()
            at = ("--name", id, "--listen", f"tidings://127.0.0.1:{ports[id]}", "--store", folder / id)
            self.processes[id] = Process(*at, "--engine", "naive", *mesh, *link)

    def start(self):
        for process in self.processes.values():
            process.begin()
        return [process.await_ready() for process in self.processes.values()]

    async def kill(self, id):
        self.processes[id].kill()
        await asyncio.to_thread(self.processes[id].start)

    def stop(self):
        complaints = [process.stop() for process in self.processes.values()]
        assert not any(complaints), complaints

    def accounts(self):
        totals = []
        for id in self.processes:
            with open_reader(self.folder / id) as store:
                totals.append(store.ledger().total)
        return {
            name: sum(getattr(total, name) for total in totals) for name in ("matched", "on_time", "late", "pending")
        }


class Desk:
    """A subscriber that acknowledges by hand, and forgets everything now and then: only the broker knows what it has seen."""

    def __init__(self, address):
        self.address = address
        self.seen = set()
        self.acknowledged = set()
        self.repeated = []
        self.forget = asyncio.Event()

    async def read(self):
        while True:
            async with Client(self.address, name="desk") as bus:
                stream = await bus.subscribe("n >= 0", id="all", durable=True, by_hand=True, deadline_s=3_600)
                reader = asyncio.create_task(self._take_all(stream))
                forgetting = asyncio.create_task(self.forget.wait())
                await asyncio.wait((reader, forgetting), return_when=asyncio.FIRST_COMPLETED)
                self.forget.clear()
                for task in (reader, forgetting):
                    task.cancel()
                for outcome in await asyncio.gather(reader, forgetting, return_exceptions=True):
                    if isinstance(outcome, Exception):
                        raise outcome

    async def _take_all(self, stream):
        async for notification in stream:
            self._took(stream, notification)

    def _took(self, stream, notification):
        id = notification.event.id
        assert id not in self.acknowledged, f"{id} comes again after its acknowledgement"
        if id in self.seen:
            assert notification.redelivered, f"{id} comes again, unmarked"
            self.repeated.append(id)
        self.seen.add(id)

        def stored(done):
            if not done.cancelled() and done.exception() is None:
                self.acknowledged.add(id)

        stream.acknowledge(notification).add_done_callback(stored)


def crash(folder, ids, events, kills, seed):
    """`kills` names the brokers to kill, in order."""
    chance = random.Random(seed)
    network = Network(folder, *ids)
    confirmed = []

    async def publish(bus):
        for n in range(events):
            answer = await bus.post({"n": n}, "number", id=f"e{n}")
            answer.add_done_callback(lambda done: confirmed.append(done.result()))
        await bus.flush()

    async def kill(desk):
        for count, id in zip(sorted(chance.sample(range(events), len(kills))), kills, strict=True):
            await eventually(lambda count=count: len(confirmed) >= count, "publishing goes on")
            if chance.random() < 0.5:
                desk.forget.set()
            await network.kill(id)

    async def scenario():
        first, *_, last = (addresses := network.start()) * 2
        desk = Desk(last)
        async with Client(first, in_flight=200) as bus:
            reader = asyncio.create_task(desk.read())

            async def known():
                status = await bus.status()
                return status.matched_here == 1 and len(status.topology) == 2 * (len(addresses) - 1)

            await eventually_async(known, "the subscription is known where events are published")
            await asyncio.gather(publish(bus), kill(desk))
            await eventually(lambda: len(desk.seen) == events or reader.done(), "everything arrives")
            async with Client(last) as other:

                async def settled():
                    return reader.done() or (await other.status()).accounts["pending"] == 0

                await eventually_async(settled, "everything is acknowledged")
            assert not reader.done(), reader.result()
            reader.cancel()
            await asyncio.gather(reader, return_exceptions=True)

    try:
        run(scenario, 900)
    finally:
        network.stop()
    assert sorted(confirmed) == sorted(f"e{n}" for n in range(events)), "each is confirmed once"
    accounts = network.accounts()
    received = accounts["on_time"] + accounts["late"]
    assert (accounts["matched"], received, accounts["pending"]) == (events, events, 0)


@pytest.mark.parametrize(("ids", "kills"), [(["a"], "aa"), (["a", "b"], "ba")], ids=["one broker", "source and edge"])
def test_kill_9_in_the_middle_of_confirmed_publishing(tmp_path, ids, kills):
    crash(tmp_path, ids, 2_000, kills, 6)


@pytest.mark.soak
@pytest.mark.parametrize(
    ("ids", "kills"),
    [(["a"], "a" * 10), (["a", "b"], "ab" * 5), (["a", "b", "c"], "b" * 10), (["a", "b", "c"], "abcbacbbca")],
    ids=["one broker", "source and edge", "the middle", "all of three"],
)
def test_ten_times_kill_9_in_20_000_events(tmp_path, ids, kills):
    crash(tmp_path, ids, 20_000, kills, 7)


def test_a_new_process_of_the_subscriber_goes_on_where_the_old_one_stopped(tmp_path):
    """The broker is killed while the subscriber is away, too."""
    served = Process("--listen", f"tidings://127.0.0.1:{free_port()}", "--store", tmp_path, "--engine", "naive")

    async def desk(address, take):
        async with Client(address, name="desk") as bus:
            stream = await bus.subscribe("n >= 0", id="all", durable=True)
            found = [(await anext(stream)).event.attributes["n"] for _ in range(take)]
            await bus.flush()  # the acknowledgements are on the disk
            return found

    async def scenario():
        address = served.start()
        assert await desk(address, 0) == []
        async with Client(address) as bus:
            for n in range(10):
                await bus.publish({"n": n})
        assert await desk(address, 4) == [0, 1, 2, 3]
        served.kill()
        served.start()
        assert await desk(address, 6) == [4, 5, 6, 7, 8, 9]

    try:
        run(scenario, PATIENCE_S)
    finally:
        assert not served.stop()
