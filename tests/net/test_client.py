"""A client and a broker over real sockets, in one process."""

import asyncio
import math
import threading

import pytest

import tidings
from net_rig import ANYWHERE, broker, eventually, run
from tidings.errors import (
    BusClosed,
    FilterError,
    InvalidInput,
    InvalidSubscription,
    NetworkError,
    Refused,
    StoreError,
    UnknownName,
)
from tidings.model.event import checked_event
from tidings.net.client import Client
from tidings.net.config import BrokerConfig
from tidings.net.runtime import Runtime
from tidings.store import open_reader

LEGEND = {"symbol": "LEGEND", "change": 1.5}


def test_five_lines():
    async def scenario():
        async with broker() as b, Client(str(b.address)) as bus:
            quotes = await bus.subscribe("symbol = 'LEGEND' AND change > 1", deadline_s=40, price=1.5, penalty=0.15)
            id = await bus.publish(LEGEND, type="quote", timeout_s=60)
            notification = await anext(quotes)
            assert (notification.event.id, notification.subscription) == (id, quotes.id)
            assert notification.event.attributes == LEGEND
            await eventually(lambda: b.broker.ledger.total.on_time == 1)
            (total, one) = (await bus.ledger()).rows
            assert (total.matched, total.on_time, total.pending, total.earning) == (1, 1, 0, 1.5)
            assert (one.by, one.name) == ("subscription", quotes.id)

    run(scenario)


def test_every_type_of_value_survives_the_wire():
    async def scenario():
        event = checked_event(
            "e", {"a": 2**62, "b": -0.5, "c": "ä", "d": True, "e": {"x", "y"}, "f": math.inf}, "t", data=b"\0\xff"
        )
        async with broker() as b, Client(str(b.address)) as bus:
            everything = await bus.subscribe()
            await bus.publish(event.attributes, "t", id="e", data=event.data)
            found = (await anext(everything)).event
            assert (found.id, found.type, found.attributes, found.data) == ("e", "t", event.attributes, b"\0\xff")

    run(scenario)


def test_pipelined_publications_are_all_confirmed_and_arrive_in_order():
    async def scenario():
        async with broker() as b, Client(str(b.address), in_flight=50) as bus:
            numbers = await bus.subscribe("n >= 0")
            answers = [await bus.post({"n": n}, id=f"e{n}") for n in range(500)]
            assert [await answer for answer in answers] == [f"e{n}" for n in range(500)]
            assert [(await anext(numbers)).event.attributes["n"] for _ in range(500)] == list(range(500))

    run(scenario)


def test_the_same_id_twice_delivers_once():
    async def scenario():
        async with broker() as b, Client(str(b.address)) as bus:
            everything = await bus.subscribe()
            assert await bus.publish({"n": 1}, id="x") == await bus.publish({"n": 2}, id="x") == "x"
            await bus.publish({"n": 3}, id="y")
            assert [(await anext(everything)).event.id for _ in range(2)] == ["x", "y"]

    run(scenario)


def test_errors_come_back_as_what_they_are():
    async def scenario():
        async with broker() as b, Client(str(b.address)) as bus, Client(str(b.address)) as other:
            with pytest.raises(FilterError):
                await bus.subscribe("symbol = ")
            with pytest.raises(UnknownName, match="nothing"):
                await bus.unadvertise("nothing")
            await bus.subscribe(id="mine")
            with pytest.raises(InvalidSubscription, match="another subscriber"):
                await other.subscribe(id="mine")
            with pytest.raises(InvalidInput, match="has it already"):
                await bus.subscribe(id="mine")
            with pytest.raises(InvalidInput, match="needs an id"):
                await bus.subscribe(durable=True)

    run(scenario)


def test_advertisements_come_and_go():
    async def scenario():
        async with broker() as b, Client(str(b.address)) as bus:
            id = await bus.advertise("quote", "change > 0")
            assert list(b.broker.advertisements) == [id]
            await bus.unadvertise(id)
            assert not b.broker.advertisements

    run(scenario)


def test_unsubscribing_ends_the_iterator():
    async def scenario():
        async with broker() as b, Client(str(b.address)) as bus:
            stream = await bus.subscribe()
            reader = asyncio.create_task(anext(stream, None))
            await bus.unsubscribe(stream)
            assert await reader is None
            assert not b.broker.subscriptions

    run(scenario)


def test_a_closed_bus_says_so():
    async def scenario():
        async with broker() as b:
            async with Client(str(b.address)) as bus:
                stream = await bus.subscribe()
            assert [notification async for notification in stream] == []
            with pytest.raises(BusClosed):
                await bus.publish({})
            await eventually(lambda: not b.broker.subscriptions, "its subscription is gone with it")

    run(scenario)


def test_wrong_token_wrong_port_and_no_broker():
    async def scenario():
        async with broker(token="secret") as b:
            with pytest.raises(Refused, match="wrong token"):
                await Client(str(b.address), token="guess").publish({})
            async with Client(str(b.address), token="secret") as bus:
                await bus.publish({})
            address = str(b.address)
        with pytest.raises(NetworkError, match="gave up"):
            await Client(address, patience_s=0).publish({})

    run(scenario)


def test_after_a_loss_the_client_is_back_with_its_subscriptions_and_open_requests():
    async def scenario():
        async with broker() as b, Client(str(b.address)) as bus:
            numbers = await bus.subscribe("n >= 0")
            await bus.publish({"n": 0})
            assert (await anext(numbers)).event.attributes == {"n": 0}
            for n in range(1, 6):
                b.peers[bus.name].connection.abort("test")
                answer = await bus.post({"n": n})  # it may be sent into a connection that is gone
                await answer
                assert (await anext(numbers)).event.attributes == {"n": n}
            assert b.published == 6

    run(scenario)


def test_a_client_outlives_its_broker(tmp_path):
    async def scenario():
        first = Runtime(BrokerConfig("b", ANYWHERE, str(tmp_path), "naive"))
        await first.start()
        address = first.address
        async with Client(str(address)) as bus:
            numbers = await bus.subscribe("n >= 0")
            await bus.publish({"n": 1})
            await anext(numbers)
            await first.stop()
            waiting = asyncio.create_task(bus.publish({"n": 2}))
            async with broker(listen=address, store=str(tmp_path)):
                await waiting
                assert (await anext(numbers)).event.attributes == {"n": 2}

    run(scenario)


def test_a_durable_subscription_resumes_after_the_last_acknowledged_event():
    async def scenario():
        async with broker() as b, Client(str(b.address)) as publisher:

            async def desk(take):
                async with Client(str(b.address), name="desk") as bus:
                    stream = await bus.subscribe("n > 0", id="movers", durable=True)
                    return [(await anext(stream)).event.attributes["n"] for _ in range(take)]

            assert await desk(0) == []
            await eventually(lambda: "desk" not in b.peers)
            for n in range(1, 8):
                await publisher.publish({"n": n})
            assert await desk(3) == [1, 2, 3]
            await eventually(lambda: "desk" not in b.peers)
            assert b.broker.ledger.total.pending == 4
            assert sorted(await desk(4)) == [4, 5, 6, 7]
            await eventually(lambda: b.broker.ledger.total.pending == 0)
            assert b.broker.ledger.total.on_time == 7

    run(scenario)


def test_what_is_not_durable_ends_with_its_client():
    async def scenario():
        async with broker() as b, Client(str(b.address)) as publisher:
            async with Client(str(b.address), name="desk") as bus:
                await bus.subscribe("n > 0", id="kept", durable=True)
                await bus.subscribe("n > 0", id="lost")
            await eventually(lambda: list(b.broker.subscriptions) == ["kept"])
            await publisher.publish({"n": 1})
            assert b.broker.ledger.total.matched == 1

    run(scenario)


def test_what_was_delivered_and_not_acknowledged_comes_again_marked_and_is_handed_out_once():
    async def scenario():
        async with broker() as b, Client(str(b.address), name="desk") as bus:
            stream = await bus.subscribe(id="all", durable=True)
            for n in range(4):
                await bus.publish({"n": n})
            assert (await anext(stream)).event.attributes == {"n": 0}
            await eventually(lambda: b.broker.ledger.total.on_time == 1 and len(stream._arrived) == 3)
            b.peers["desk"].connection.abort("test")
            await eventually(lambda: b.peers.get("desk") and len(b.peers["desk"]) == 3, "sent again")
            assert [(await anext(stream)).event.attributes["n"] for _ in range(3)] == [1, 2, 3]
            await bus.publish({"n": 4})
            assert (await anext(stream)).event.attributes == {"n": 4}
            await eventually(lambda: b.broker.ledger.total.on_time == 5)

    run(scenario)


def test_what_is_acknowledged_by_hand_comes_again_until_then_and_never_after(tmp_path):
    async def scenario():
        async with broker(store=str(tmp_path)) as b:

            async def desk(expected, acknowledged):
                async with Client(str(b.address), name="desk") as bus:
                    stream = await bus.subscribe(id="all", durable=True, by_hand=True)
                    found = [await anext(stream) for _ in expected]
                    assert [n.event.attributes["n"] for n in found] == expected
                    assert all(n.redelivered == (n.event.attributes["n"] in seen) for n in found)
                    seen.update(expected)
                    answers = [stream.acknowledge(n) for n in found if n.event.attributes["n"] in acknowledged]
                    await asyncio.gather(*answers)
                    with open_reader(tmp_path) as store:
                        total = store.ledger().total
                    return total.on_time, total.pending

            seen: set[int] = set()
            assert await desk([], []) == (0, 0)
            async with Client(str(b.address)) as bus:
                for n in range(4):
                    await bus.publish({"n": n})
            assert await desk([0, 1, 2, 3], [1, 2]) == (2, 2)
            assert await desk([0, 3], [0]) == (3, 1)
            assert await desk([3], [3]) == (4, 0)

    run(scenario)


def test_flush_waits_until_what_was_taken_is_stored(tmp_path):
    async def scenario():
        async with broker(store=str(tmp_path)) as b, Client(str(b.address)) as bus:
            numbers = await bus.subscribe("n >= 0")
            for n in range(2_500):
                await bus.post({"n": n})
            for _ in range(2_500):
                await anext(numbers)
            b.peers[bus.name].connection.abort("test")  # what was told and not confirmed is told again
            await bus.flush()
            assert not bus._told
            with open_reader(tmp_path) as store:
                total = store.ledger().total
            assert (total.matched, total.on_time + total.undeliverable) == (2_500, 2_500)

    run(scenario)


def test_without_a_store_acknowledgements_are_confirmed_all_the_same():
    async def scenario():
        async with broker() as b, Client(str(b.address)) as bus:
            stream = await bus.subscribe(by_hand=True)
            await bus.publish({"n": 1})
            await stream.acknowledge(await anext(stream))
            assert b.broker.ledger.total.on_time == 1
            assert not b.peers[bus.name].requests

    run(scenario)


def test_a_disk_that_refuses_is_told_to_whoever_acknowledges_and_to_the_status(tmp_path, monkeypatch):
    async def scenario():
        async with broker(store=str(tmp_path)) as b, Client(str(b.address)) as bus:
            stream = await bus.subscribe(by_hand=True)
            await bus.publish({"n": 1})
            notification = await anext(stream)

            def full(*_):
                raise StoreError("the disk is full")

            with monkeypatch.context() as patch:
                patch.setattr(b.store, "_commit", full)
                with pytest.raises(StoreError, match="disk is full"):
                    await stream.acknowledge(notification)
                status = await bus.status()
                assert (status.durable, status.healthy, status.reason) == (True, False, "the disk is full")
            await stream.acknowledge(notification)
            kinds = [fault.kind for fault in (await bus.status()).faults]
            assert kinds == ["started", "store failed", "store mended"]
            with open_reader(tmp_path) as store:
                assert store.ledger().total.on_time == 1, "what could not be written then is written now"

    run(scenario)


def test_the_synchronous_face_over_the_network():
    started, ended = threading.Event(), threading.Event()
    found = []

    async def serve():
        async with broker() as b:
            found.append(str(b.address))
            started.set()
            await asyncio.to_thread(ended.wait, 60)

    server = threading.Thread(target=run, args=(serve,))
    server.start()
    try:
        assert started.wait(60)
        with tidings.connect_sync(found[0], name="desk") as bus:
            stream = bus.subscribe("n > 0", id="movers", by_hand=True)
            id = bus.publish({"n": 1}, "number")
            notification = next(stream)
            assert notification.event.id == id
            assert bus.ledger("total").rows[0].pending == 1
            stream.acknowledge(notification)
            bus.flush()
            (row,) = bus.ledger("subscription").rows
            assert (row.name, row.on_time, row.pending) == ("movers", 1, 0)
            assert bus.status().broker == "b"
    finally:
        ended.set()
        server.join()


def test_a_new_client_under_the_same_name_takes_over():
    async def scenario():
        async with broker() as b, Client(str(b.address), name="desk") as old:
            await old.subscribe(id="all", durable=True)
            first = b.peers["desk"].connection
            old._task.cancel()  # the old one hangs: it does not come back
            async with Client(str(b.address), name="desk") as bus:
                stream = await bus.subscribe(id="all", durable=True)
                await bus.publish({"n": 1})
                assert (await anext(stream)).event.attributes == {"n": 1}
                assert b.peers["desk"].connection is not first

    run(scenario)


def test_a_slow_reader_is_bounded_and_accounted_for():
    async def scenario():
        async with broker(window_kb=1) as b, Client(str(b.address)) as bus:
            slow = await bus.subscribe(deadline_s=0.2, penalty=0.5)
            for n in range(100):
                await bus.publish({"n": n})
            assert len(b.peers[bus.name]) < 20, "the window bounds what it has"
            await eventually(lambda: b.broker.ledger.total.expired > 80, "the rest expires in the outbox")
            total = b.broker.ledger.total
            assert total.balanced
            assert total.expired + total.pending == 100
            assert (await anext(slow)).event.attributes == {"n": 0}

    run(scenario)


def test_a_publisher_that_does_not_wait_is_held_back_and_loses_nothing():
    async def scenario():
        async with broker(in_flight=10) as b, Client(str(b.address), in_flight=5_000) as bus:
            numbers = await bus.subscribe("n >= 0")
            answers = [await bus.post({"n": n}) for n in range(1_000)]
            await asyncio.gather(*answers)
            assert [(await anext(numbers)).event.attributes["n"] for _ in range(1_000)] == list(range(1_000))

    run(scenario)


def test_status_shows_links_queues_faults_and_the_latest_events():
    async def scenario():
        async with broker() as b, Client(str(b.address), name="desk") as bus:
            stream = await bus.subscribe("n > 0")
            await bus.publish({"n": 1}, "number", id="e")
            await anext(stream)
            status = await bus.status()
            assert (status.broker, status.subscriptions, status.clients, status.published) == ("b", 1, 1, 1)
            assert [(link.peer, link.role, link.sent) for link in status.links] == [("desk", "client", 1)]
            assert [(t.event, t.type, t.step) for t in status.trace] == [
                ("e", "number", "published"),
                ("e", "number", "delivered"),
            ]
            assert [fault.kind for fault in status.faults] == ["started"]
            assert status.accounts["matched"] == 1

    run(scenario)
