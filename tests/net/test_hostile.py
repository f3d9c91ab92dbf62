"""Whatever comes in at the port: it is told, closed, and the service goes on."""

import asyncio
import random
import resource

import pytest

from net_rig import broker, eventually, run
from tidings.errors import Refused
from tidings.model import message as m
from tidings.model.codec import decode, encode
from tidings.net.client import Client
from tidings.net.frames import FrameDecoder, frame
from tidings.net.transport import Limits

HELLO = frame(encode(m.Hello("mallory")))


async def speak(b, data: bytes, *, hang_up: bool = False) -> list[m.Message]:
    """What the broker answers before it closes; pings left out."""
    reader, writer = await asyncio.open_connection(b.address.host, b.address.port)
    writer.write(data)
    if hang_up:
        writer.close()
        return []
    writer.write_eof()
    answer = await asyncio.wait_for(reader.read(), 30)
    writer.close()
    return [message for body in FrameDecoder().feed(answer) if not isinstance(message := decode(body), m.Ping)]


async def goes_on(b) -> None:
    async with Client(str(b.address), token=b.config.token) as bus:
        stream = await bus.subscribe()
        await bus.publish({"fine": True})
        assert (await anext(stream)).event.attributes == {"fine": True}


CASES = {
    "random bytes": random.Random(1).randbytes(5_000),
    "a huge length": b"\xff\xff\xff\xff" + bytes(100),
    "half a frame": HELLO[:-3],
    "nothing": b"",
    "not a greeting": frame(encode(m.Publish(1, m.Event("e", "", {})))),
    "not a message": frame(b"\xc1\xc1"),
    "a greeting that is too long": frame(encode(m.Hello("x" * 20_000))),
    "half a frame after the greeting": HELLO + b"\0\0\1\0abc",
    "garbage after the greeting": HELLO + frame(b"garbage"),
    "a message that only brokers send": HELLO + frame(encode(m.Taken(1))),
    "an event with NaN": HELLO + frame(encode(m.Publish(1, m.Event("e", "", {"a": float("nan")})))),
}


@pytest.mark.parametrize("data", CASES.values(), ids=CASES)
def test_garbage_is_closed_and_the_service_goes_on(data):
    async def scenario():
        async with broker() as b:
            await speak(b, data)
            await speak(b, data, hang_up=True)
            await goes_on(b)
            await eventually(lambda: not b._open, "no connection is left behind")

    run(scenario)


def test_random_bytes_of_all_kinds():
    async def scenario():
        chance = random.Random(7)
        async with broker() as b:
            for _ in range(100):
                start = chance.choice([b"", HELLO, HELLO[: chance.randrange(len(HELLO))]])
                await speak(b, start + chance.randbytes(chance.randrange(200)), hang_up=chance.random() < 0.5)
            await goes_on(b)

    run(scenario)


@pytest.mark.parametrize(
    ("hello", "reason"),
    [
        (m.Hello("x", version=99, token="secret"), "protocol version 99: expected 1"),
        (m.Hello("x", token="wrong"), "wrong token"),
        (m.Hello("x", m.BROKER, token="secret"), "wrong token"),
        (m.Hello("x", "king", token="secret"), "role 'king'"),
        (m.Hello("b", token="secret"), "name 'b'"),
        (m.Hello("", token="secret"), "name ''"),
        (m.Hello("overlay:flood", token="secret"), "name 'overlay:flood'"),
    ],
)
def test_whoever_is_not_wanted_hears_why(hello, reason):
    async def scenario():
        async with broker(token="secret", broker_token="other") as b:
            (failed,) = await speak(b, frame(encode(hello)))
            assert (failed.request, failed.error) == (0, "Refused")
            assert reason in failed.reason
            await eventually(lambda: b.faults[-1].kind == "refused")
            await goes_on(b)

    run(scenario)


def test_a_frame_of_a_client_has_its_bound():
    async def scenario():
        async with broker(limits=Limits(max_frame_kb=8)) as b:
            big = encode(m.Publish(1, m.Event("e", "", {}, data=bytes(10_000))))
            answers = await speak(b, HELLO + frame(big))
            assert "expected at most 8 KB" in answers[-1].reason
            assert b.published == 0
            await goes_on(b)

    run(scenario)


def test_a_peer_that_never_reads_is_cut_off_in_the_end():
    async def scenario():
        async with broker(limits=Limits(backlog_kb=64), in_flight=1_000_000) as b:
            reader, writer = await asyncio.open_connection(b.address.host, b.address.port, limit=1024)
            reader._transport.pause_reading()
            writer.write(HELLO)
            question = frame(encode(m.AskStatus(1)))
            while not writer.is_closing() and b.connections >= 0:
                writer.write(question * 100)
                try:
                    await asyncio.wait_for(writer.drain(), 30)
                except ConnectionError:
                    break
                if b.faults and not b.peers:
                    break
                await asyncio.sleep(0)
            await eventually(lambda: not b.peers)
            assert b.status().faults[-1].kind == "slow consumer"
            writer.close()
            await goes_on(b)

    run(scenario)


def test_a_silent_peer_is_gone_after_three_pings():
    async def scenario():
        async with broker(limits=Limits(keep_alive_s=0.02)) as b:
            reader, writer = await asyncio.open_connection(b.address.host, b.address.port)
            writer.write(HELLO)
            await eventually(lambda: "mallory" in b.peers)
            await asyncio.wait_for(reader.read(), 30)
            await eventually(lambda: not b.peers)
            writer.close()

    run(scenario)


def test_a_thousand_connections():
    async def scenario():
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, 8_192), hard))
        async with broker() as b:
            ends = [await asyncio.open_connection(b.address.host, b.address.port) for _ in range(1_000)]
            await eventually(lambda: len(b._open) == 1_000)
            await goes_on(b)
            for _, writer in ends:
                writer.write(b"\xff\xff\xff\xff")
            await eventually(lambda: not b._open)
            for _, writer in ends:
                writer.close()
            await goes_on(b)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))

    run(scenario)


def test_beyond_the_bound_connections_are_turned_away():
    async def scenario():
        async with broker(max_connections=3) as b:
            clients = [Client(str(b.address)) for _ in range(3)]
            for client in clients:
                await client.publish({})
            with pytest.raises(Refused, match="too many connections"):
                await Client(str(b.address)).publish({})
            await clients[0].close()
            await eventually(lambda: len(b._open) == 2)
            await goes_on(b)
            for client in clients:
                await client.close()

    run(scenario)
