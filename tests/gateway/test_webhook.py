"""Webhooks: posted, tried again, acknowledged only after a 2xx."""

import asyncio

import pytest

from gateway_rig import Served, Sink, eventually, served
from tidings.net.gateway import poster, webhook
from tidings.net.gateway.poster import Poster, PostFailed


def publish(server: Served, type: str, *ids: str) -> None:
    for id in ids:
        server.publish({"n": 1}, id=id, type=type, source=f"/{type}")


def test_a_sink_that_fails_first_is_tried_again(server: Served):
    with Sink(500, 429, 302, 204) as sink:
        settings = {"headers": {"authorization": "Bearer theirs"}}
        id = server.subscribe(types=["retry"], sink=sink.url, protocol="HTTP", protocolsettings=settings)
        before = server.tally()["on_time"]
        publish(server, "retry", "1")
        eventually(lambda: len(sink.received) == 4)
        publish(server, "retry", "2", "3")
        eventually(lambda: sink.ids == ["1", "1", "1", "1", "2", "3"])
        headers, event = sink.received[0]
        assert (headers["content-type"], headers["authorization"]) == ("application/cloudevents+json", "Bearer theirs")
        assert (event["source"], event["type"], event["data"]) == ("/retry", "retry", {"n": 1})
        eventually(lambda: server.tally()["on_time"] == before + 3)
        server.ask("DELETE", f"/subscriptions/{id}", code=204)


def test_nothing_is_acknowledged_before_a_2xx(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(webhook, "REST_S", 0.01)
    with Sink() as sink, served() as server:
        sink.last = 503
        server.subscribe(sink=sink.url, config={"attempts": 2})
        publish(server, "t", "1")
        eventually(lambda: len(sink.received) >= 5)  # it rested at least twice
        tally = server.tally()
        assert (tally["matched"], tally["pending"], tally["on_time"]) == (1, 1, 0)
        sink.last = 200
        eventually(lambda: server.tally()["on_time"] == 1)
        assert sink.received[-1][1]["tidingsredelivered"] is True
        assert "tidings_webhook_attempts_total" in server.ask("GET", "/metrics").text


def test_an_event_that_is_never_taken_expires_at_its_deadline(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(webhook, "REST_S", 0.01)
    with Sink() as sink, served() as server:
        sink.last = 500
        server.subscribe(sink=sink.url, config={"attempts": 1, "deadline_s": 0.2, "penalty": 3.0})
        publish(server, "t", "1")
        eventually(lambda: server.tally()["expired"] == 1)
        assert server.tally()["earning"] == -3.0


def test_a_refused_event_does_not_hold_up_the_next_ones(monkeypatch: pytest.MonkeyPatch):
    with Sink(400) as sink, served() as server:
        server.subscribe(sink=sink.url)
        publish(server, "t", "bad", "good")
        eventually(lambda: sink.ids == ["bad", "good"])
        eventually(lambda: server.tally()["on_time"] == 1)
        assert server.tally()["pending"] == 1


def test_a_refused_event_comes_back_after_a_rest(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(webhook, "REST_S", 0.01)
    with Sink(410) as sink, served() as server:
        server.subscribe(sink=sink.url)
        publish(server, "t", "1")
        eventually(lambda: server.tally()["on_time"] == 1)
        assert sink.ids == ["1", "1"]


def test_a_sink_that_is_not_there(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(webhook, "REST_S", 0.01)
    with Sink() as gone:
        pass
    with served() as server, Sink() as sink:
        id = server.subscribe(sink=gone.url, config={"attempts": 1})
        publish(server, "t", "1")
        eventually(lambda: server.gateway.app.sessions.tally.failed, "an attempt that fails")
        server.ask("PUT", f"/subscriptions/{id}", json={"sink": sink.url}, code=200)
        eventually(lambda: sink.ids == ["1"])
        eventually(lambda: server.tally()["pending"] == 0)


# The client beneath, against sinks that misbehave.


def post(answers: list[bytes], count: int = 1, body: bytes = b"{}") -> list:
    """The results of posting to a server that sends these bytes, one for each connection, and closes."""
    waiting = iter(answers)

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(body)
        writer.write(next(waiting, b""))
        writer.close()

    async def scenario() -> list:
        server = await asyncio.start_server(serve, "127.0.0.1", 0)
        sink = Poster(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/x?y=z", {})
        results = []
        for _ in range(count):
            try:
                results.append(await sink.post(body))
            except PostFailed as error:
                results.append(error)
        sink.close()
        server.close()
        return results

    return asyncio.run(scenario())


def test_answers_are_read():
    (answer,) = post([b"HTTP/1.1 429 Slow\r\nretry-after: 7\r\ncontent-length: 2\r\n\r\nno"])
    assert answer == (429, 7.0)
    (answer,) = post([b"HTTP/1.0 200 OK\r\nretry-after: tomorrow\r\n\r\nuntil the end"])
    assert answer == (200, 0.0)
    (answer,) = post([b"HTTP/1.1 200 OK\r\n\r\n" + b"x" * (2 * poster.MAX_ANSWER)])
    assert answer.status == 200


def test_a_kept_connection_that_is_dead_is_dialled_anew():
    answer = b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n"
    assert [result.status for result in post([answer, answer, answer], 3)] == [200, 200, 200]


@pytest.mark.parametrize(
    "answer", [b"", b"garbage\r\n\r\n", b"HTTP/1.1 200 OK\r\nx: " + b"y" * 100_000, b"HTTP/1.1 200 OK\r\n"]
)
def test_no_answer_is_a_failure(answer: bytes):
    (result,) = post([answer])
    assert isinstance(result, PostFailed)


def test_a_silent_sink_is_given_up(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(poster, "TIMEOUT_S", 0.05)

    async def scenario() -> None:
        async def never(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await reader.read()
            writer.close()
            ended.set()

        ended = asyncio.Event()
        async with await asyncio.start_server(never, "127.0.0.1", 0) as server:
            sink = Poster(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}", {})
            with pytest.raises(PostFailed, match="no answer"):
                await sink.post(b"{}")
            await ended.wait()

    asyncio.run(scenario())
