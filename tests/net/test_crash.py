"""kill -9 while publishing: nothing confirmed is lost, nothing acknowledged comes again, the ledger balances."""

import asyncio
import os
import random

from net_rig import PATIENCE_S, Process, eventually, free_port, run
from tidings.net.client import Client
from tidings.store import open_reader

SOAK = bool(os.environ.get("TIDINGS_SOAK"))
EVENTS, KILLS = (20_000, 10) if SOAK else (1_500, 2)


def test_kill_9_in_the_middle_of_confirmed_publishing(tmp_path):
    chance = random.Random(6)
    served = Process("--listen", f"tidings://127.0.0.1:{free_port()}", "--store", tmp_path, "--engine", "naive")
    confirmed: list[str] = []
    taken: list[str] = []

    async def read(stream):
        while True:
            taken.append((await anext(stream)).event.id)

    async def publish(bus):
        for n in range(EVENTS):
            answer = await bus.post({"n": n}, "number", id=f"e{n}")
            answer.add_done_callback(lambda done: confirmed.append(done.result()))
        await bus.flush()

    async def kill():
        for count in sorted(chance.sample(range(EVENTS), KILLS)):
            await eventually(lambda count=count: len(confirmed) >= count, "publishing goes on")
            served.kill()
            await asyncio.to_thread(served.start)

    async def scenario():
        address = served.start()
        async with Client(address, name="desk") as desk, Client(address, in_flight=200) as bus:
            stream = await desk.subscribe("n >= 0", id="all", durable=True, deadline_s=3_600)
            reader = asyncio.create_task(read(stream))
            await asyncio.gather(publish(bus), kill())
            await eventually(lambda: len(taken) >= EVENTS or reader.done(), "everything arrives")

            async def settled():
                return (await desk.ledger("total")).rows[0].pending == 0

            while not await settled():
                await asyncio.sleep(0.01)
            assert not reader.done()
            reader.cancel()

    try:
        run(scenario, 600 if SOAK else PATIENCE_S * 3)
    finally:
        complaints = served.stop()
    assert sorted(confirmed) == sorted(f"e{n}" for n in range(EVENTS)), "each is confirmed once"
    assert sorted(taken) == sorted(confirmed), "each is taken once"
    with open_reader(tmp_path) as store:
        total = store.ledger().total
    assert (total.matched, total.on_time + total.late, total.pending) == (EVENTS, EVENTS, 0)
    assert not complaints


def test_a_new_process_of_the_subscriber_goes_on_where_the_old_one_stopped(tmp_path):
    """The broker is killed while the subscriber is away, too."""
    served = Process("--listen", f"tidings://127.0.0.1:{free_port()}", "--store", tmp_path, "--engine", "naive")

    async def desk(address, take):
        async with Client(address, name="desk") as bus:
            stream = await bus.subscribe("n >= 0", id="all", durable=True)
            found = [(await anext(stream)).event.attributes["n"] for _ in range(take)]
            while take and (await bus.ledger("total")).rows[0].on_time < found[-1] + 1:
                await asyncio.sleep(0.01)  # the acknowledgements are on the disk
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
        run(scenario)
    finally:
        assert not served.stop()
