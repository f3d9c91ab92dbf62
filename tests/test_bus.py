"""The embedded bus, asynchronous and synchronous."""

import asyncio

import pytest

import tidings
from tidings.errors import BusClosed, FilterError, InvalidEvent, InvalidInput, InvalidSubscription, UnknownName

LEGEND = {"symbol": "LEGEND", "change": 1.5}


def run(scenario):
    """Bounded: a scenario that hangs fails."""
    return asyncio.run(asyncio.wait_for(scenario(), 30))


def test_five_lines():
    async def scenario():
        async with tidings.connect() as bus:
            quotes = await bus.subscribe("symbol = 'LEGEND' AND change > 1", deadline_s=40, price=1.5, penalty=0.15)
            id = await bus.publish(LEGEND, type="quote", timeout_s=60)
            notification = await anext(quotes)
            assert notification.event.id == id
            assert notification.subscription == quotes.id
            total = bus.ledger().total
            assert (total.matched, total.on_time, total.pending, total.earning) == (1, 1, 0, 1.5)
            assert bus.ledger().by_subscription[quotes.id].on_time == 1

    run(scenario)


def test_a_subscriber_gets_what_it_asked_for_in_order_and_nothing_else():
    async def scenario():
        async with tidings.connect() as bus:
            quotes = await bus.subscribe("change > 1", types="quote")
            everything = await bus.subscribe()
            for change in range(5):
                await bus.publish({"change": change}, type="quote")
            await bus.publish({"change": 9}, type="trade")
            assert [(await anext(quotes)).event.attributes["change"] for _ in range(3)] == [2, 3, 4]
            assert [(await anext(everything)).event.attributes["change"] for _ in range(6)] == [0, 1, 2, 3, 4, 9]
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(anext(quotes), 0.01)
            await bus.publish({"change": 7}, type="quote")
            assert (await anext(quotes)).event.attributes["change"] == 7

    run(scenario)


def test_a_waiting_subscriber_wakes_up():
    async def scenario():
        async with tidings.connect() as bus:
            quotes = await bus.subscribe("change > 1")
            waiting = asyncio.create_task(anext(quotes))
            await asyncio.sleep(0)
            await bus.publish(LEGEND)
            assert (await waiting).event.attributes == LEGEND

    run(scenario)


def test_what_nobody_takes_in_time_expires_without_any_traffic():
    async def scenario():
        async with tidings.connect() as bus:
            await bus.subscribe("change > 1", deadline_s=0.01, penalty=0.5)
            await bus.publish(LEGEND)
            while not bus.ledger().total.expired:
                await asyncio.sleep(0.005)
            report = bus.ledger()
            assert report.total.earning == -0.5
            assert report.reasons == {"deadline passed": 1}
            assert report.total.balanced

    run(scenario)


def test_unsubscribing_ends_the_iterator_and_accounts_for_the_rest():
    async def scenario():
        async with tidings.connect() as bus:
            quotes = await bus.subscribe("change > 1")
            await bus.publish(LEGEND)
            await bus.unsubscribe(quotes)
            assert [notification async for notification in quotes] == []
            assert bus.ledger().total.undeliverable == 1
            with pytest.raises(UnknownName):
                await bus.unsubscribe(quotes)

    run(scenario)


def test_closing_ends_everything():
    async def scenario():
        bus = tidings.connect()
        quotes = await bus.subscribe()
        waiting = asyncio.create_task(anext(quotes))
        await asyncio.sleep(0)
        await bus.close()
        with pytest.raises(StopAsyncIteration):
            await waiting
        with pytest.raises(BusClosed):
            await bus.publish({})
        with pytest.raises(BusClosed):
            bus.ledger()

    run(scenario)


def test_bad_input_changes_nothing():
    async def scenario():
        async with tidings.connect() as bus:
            with pytest.raises(FilterError, match="column 3"):
                await bus.subscribe("a ? 1")
            with pytest.raises(InvalidSubscription):
                await bus.subscribe("a = 1", deadline_s=-1)
            with pytest.raises(InvalidEvent):
                await bus.publish({"a": float("nan")})
            quotes = await bus.subscribe("a = 1", id="mine")
            with pytest.raises(InvalidSubscription, match="another subscriber"):
                await bus.subscribe("a = 2", id="mine")
            await bus.publish({"a": 1})
            assert (await anext(quotes)).subscription == "mine"
            waiting = asyncio.create_task(anext(quotes))
            await asyncio.sleep(0)
            with pytest.raises(InvalidInput, match="another task"):
                await anext(quotes)
            waiting.cancel()
        for wrong in ({"engine": "warp"}, {"scheduler": "warp"}):
            with pytest.raises(UnknownName, match="'warp': expected one of"):
                tidings.connect(**wrong)

    run(scenario)


def test_the_same_id_twice_delivers_once():
    async def scenario():
        async with tidings.connect() as bus:
            quotes = await bus.subscribe()
            for _ in range(2):
                assert await bus.publish(LEGEND, id="only") == "only"
            await bus.publish(LEGEND, id="next")
            assert [(await anext(quotes)).event.id for _ in range(2)] == ["only", "next"]

    run(scenario)


def test_patterns_and_bodies_and_advertisements():
    async def scenario():
        async with tidings.connect() as bus:
            quotes = await bus.subscribe({"symbol": [{"prefix": "LEG"}], "change": [{"numeric": [">", 1]}]})
            await bus.publish(LEGEND, data=b"\0body", content_type="application/octet-stream")
            event = (await anext(quotes)).event
            assert (event.data, event.content_type) == (b"\0body", "application/octet-stream")
            advertised = await bus.advertise("quote", "symbol = 'LEGEND'")
            await bus.unadvertise(advertised)
            with pytest.raises(UnknownName):
                await bus.unadvertise(advertised)

    run(scenario)


def test_the_synchronous_face():
    with tidings.connect_sync() as bus:
        quotes = bus.subscribe("change > 1")
        bus.publish(LEGEND)
        bus.publish({"change": 0})
        assert next(quotes).event.attributes == LEGEND
        with pytest.raises(TimeoutError):
            quotes.take(timeout_s=0.01)
        with pytest.raises(InvalidEvent):
            bus.publish({"a": None})
        assert bus.ledger().total.on_time == 1
        bus.unsubscribe(quotes)
        assert list(quotes) == []
    with pytest.raises(BusClosed):
        bus.publish({})


def test_with_a_path_nothing_confirmed_is_lost(tmp_path):
    async def first():
        async with tidings.connect(path=tmp_path) as bus:
            stream = await bus.subscribe("n > 0", id="kept", durable=True)
            for n in range(5):
                await bus.publish({"n": n}, id=f"e{n}")
            return [(await anext(stream)).event.id for _ in range(2)]

    async def second():
        async with tidings.connect(path=tmp_path) as bus:
            stream = await bus.subscribe("n > 0", id="kept", durable=True)
            await bus.publish({"n": 3}, id="e3")  # it was published before
            await bus.publish({"n": 9}, id="e9")
            return [(await anext(stream)).event.id for _ in range(3)]

    assert run(first) == ["e1", "e2"]
    assert run(second) == ["e3", "e4", "e9"]


def test_what_is_acknowledged_by_hand_comes_again_until_then(tmp_path):
    async def scenario(expected):
        async with tidings.connect(path=tmp_path) as bus:
            stream = await bus.subscribe("n > 0", id="kept", durable=True, by_hand=True)
            if not expected:
                for n in (1, 2, 3):
                    await bus.publish({"n": n})
            found = [await anext(stream) for _ in expected]
            assert [n.event.attributes["n"] for n in found] == expected
            if found:
                await stream.acknowledge(found[0])
            await bus.flush()

    for expected in ([], [1, 2, 3], [2, 3], [3]):
        run(lambda expected=expected: scenario(expected))


def test_a_durable_subscription_needs_a_path_and_an_id():
    async def scenario():
        async with tidings.connect() as bus:
            with pytest.raises(InvalidInput, match="needs an id, and a bus with a path"):
                await bus.subscribe(id="kept", durable=True)

    run(scenario)


def test_a_folder_that_cannot_be_used_is_told(tmp_path):
    (tmp_path / "file").write_text("x")

    async def scenario():
        with pytest.raises(tidings.TidingsError, match="expected a folder"):
            await tidings.connect(path=tmp_path / "file").publish({})

    run(scenario)
