"""Server-Sent Events and WebSockets: every event once acknowledged never again, and before that until it is."""

import json
import socket

import pytest

from gateway_rig import Served, Sink, Socket, Stream, eventually, served
from net_rig import PATIENCE_S
from tidings.net.gateway import sessions, streams


def numbers(stream: Stream | Socket, count: int) -> list[int]:
    return [stream.next()["data"]["n"] for _ in range(count)]


def publish(server: Served, type: str, *some: int) -> None:
    for n in some:
        server.publish({"n": n}, id=str(n), type=type, source=f"/{type}")


def test_events_wait_for_their_reader_and_go_on_while_it_reads(server: Served):
    id = server.subscribe(types=["wait"])
    publish(server, "wait", 1, 2)
    stream = Stream(server, id)
    assert numbers(stream, 2) == [1, 2]
    publish(server, "wait", 3)
    assert numbers(stream, 1) == [3]
    assert stream.last_id == "/wait%203"
    stream.close()
    eventually(lambda: server.gateway.app.sessions[id].line is None)
    publish(server, "wait", 4)
    assert numbers(Stream(server, id, "?count=1"), 1) == [4]


def test_last_event_id_resumes(server: Served):
    id = server.subscribe(types=["resume"])
    publish(server, "resume", 1, 2, 3, 4)
    first = Stream(server, id, "?count=4")
    first.next()
    after_one = first.last_id
    assert numbers(first, 3) == [2, 3, 4]
    publish(server, "resume", 5)
    again = Stream(server, id, "?count=4", **{"last-event-id": after_one})
    assert [(again.next()["data"]["n"], again.last_id) for _ in range(4)] == [
        (n, f"/resume%20{n}") for n in (2, 3, 4, 5)
    ]
    publish(server, "resume", 6)
    assert numbers(Stream(server, id, "?count=1", **{"last-event-id": "unknown"}), 1) == [6]
    half = Stream(server, id, "?count=2", **{"last-event-id": after_one})
    assert half.next()["tidingsredelivered"] is True
    assert numbers(half, 1) == [3]
    assert half.next() is None


def test_what_is_remembered_for_a_reader_that_comes_back_is_bounded(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(sessions, "REMEMBERED", 3)
    with served() as server:
        id = server.subscribe()
        publish(server, "t", *range(10))
        first = Stream(server, id, "?count=10")
        first.next()
        after_0 = first.last_id
        assert numbers(first, 8) == list(range(1, 9))
        after_8 = first.last_id
        assert numbers(first, 1) == [9]
        assert numbers(Stream(server, id, "?count=1", **{"last-event-id": after_8}), 1) == [9]
        publish(server, "t", 10)
        assert numbers(Stream(server, id, "?count=1", **{"last-event-id": after_0}), 1) == [10]
        monkeypatch.setattr(sessions, "RESUME_S", 0.0)
        publish(server, "t", 11)
        assert numbers(Stream(server, id, "?count=1"), 1) == [11]
        session = server.gateway.app.sessions[id]
        eventually(lambda: not session.sent._events)


def test_a_new_reader_takes_over(server: Served):
    id = server.subscribe(types=["takeover"])
    old = Stream(server, id)
    new = Stream(server, id)
    assert old.next() is None
    ws = Socket(server, f"/subscriptions/{id}/events")
    assert new.next() is None
    publish(server, "takeover", 1)
    assert numbers(ws, 1) == [1]
    last = Stream(server, id, "?count=1")
    code, reason = ws.until_closed()
    assert (code, reason) == (streams.REPLACED, "another consumer has taken over")
    again = last.next()  # it was not acknowledged
    assert (again["data"], again["tidingsredelivered"]) == ({"n": 1}, True)


def test_a_quiet_stream_is_kept_alive(server: Served, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(streams, "PING_S", 0.01)
    id = server.subscribe(types=["quiet"])
    stream = Stream(server, id)
    comments = [line for line, _ in zip(stream._lines, range(5), strict=False) if line.startswith(b":")]
    assert len(comments) >= 2
    publish(server, "quiet", 1)
    assert numbers(stream, 1) == [1]
    stream.close()


def test_data_with_newlines_stays_one_event(server: Served):
    id = server.subscribe(types=["lines"])
    headers = {"ce-specversion": "1.0", "ce-id": "1\n%0a2", "ce-source": "/x", "ce-type": "lines"}
    body = '{\n  "text": "a\\nb",\r\n  "list": [1,\n2]\n}'
    headers = {**headers, "ce-id": "1%0a2", "content-type": "application/json"}
    server.ask("POST", "/events", data=body, headers=headers, code=202)
    event = Stream(server, id, "?count=1").next()
    assert (event["id"], event["data"]) == ("1\n2", {"text": "a\nb", "list": [1, 2]})


def test_what_was_under_way_and_not_sent_is_not_called_redelivered(server: Served):
    id = server.subscribe(types=["count"])
    publish(server, "count", 1, 2, 3)
    for n in (1, 2, 3):
        event = Stream(server, id, "?count=1").next()
        assert event["data"] == {"n": n}
        assert "tidingsredelivered" not in event


def test_the_end_of_a_subscription_ends_its_stream(server: Served):
    id = server.subscribe(types=["end"])
    stream = Stream(server, id)
    server.ask("DELETE", f"/subscriptions/{id}", code=204)
    assert stream.next() is None
    server.ask("GET", f"/subscriptions/{id}/events", code=404)


def test_slow_readers_are_bounded_by_the_window_and_lose_nothing():
    with served(window_kb=8) as server:
        id = server.subscribe()
        ws = Socket(server, f"/subscriptions/{id}/events")
        for n in range(40):
            server.publish({"n": n, "filling": "x" * 1_000}, id=str(n))
        link = eventually(lambda: next(link for link in links(server) if link["queued"]))
        assert link["unacknowledged_kb"] < 10
        assert link["queued"] > 20
        for n in range(40):
            event = ws.next()
            assert event["data"]["n"] == n
            ws.send({"ack": event["tidingsdelivery"]})
        eventually(lambda: server.tally()["on_time"] == 40)
        ws.close()


def test_a_reader_that_does_not_read_is_bounded_too():
    """Only what the sockets hold, and the window, has left the broker; and all of it arrives when it reads."""
    with served(window_kb=256) as server:
        id = server.subscribe()
        host, port = server.url.removeprefix("http://").split(":")
        with socket.socket() as reader:
            reader.settimeout(PATIENCE_S)
            reader.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 65_536)
            reader.connect((host, int(port)))
            reader.sendall(f"GET /subscriptions/{id}/events HTTP/1.1\r\nhost: x\r\n\r\n".encode())
            eventually(lambda: server.gateway.app.sessions[id].line)
            for n in range(100):
                server.publish({"n": n, "filling": "x" * 100_000}, id=f"slow-{n}")
            (link,) = eventually(lambda: [link for link in links(server) if link["unacknowledged_kb"] > 200])
            assert link["unacknowledged_kb"] < 1_200  # a few events at once may exceed the window
            assert link["queued"] > 20
            received = b""
            while b'"id":"slow-99"' not in received[-200_000:]:
                received += reader.recv(1_000_000)
            assert received.count(b"\nid: ") == 100
        eventually(lambda: server.tally()["on_time"] == 100)


def links(server: Served) -> list[dict]:
    return server.ask("GET", "/status").json()["links"]


def test_websocket_events_are_acknowledged_by_message(server: Served):
    id = server.subscribe(types=["ws"])
    path = f"/subscriptions/{id}/events"
    ws = Socket(server, path, ("cloudevents.json", "other"))
    assert ws.subprotocol == "cloudevents.json"
    publish(server, "ws", 1, 2, 3, 4)
    events = [ws.next() for _ in range(4)]
    assert [event["data"]["n"] for event in events] == [1, 2, 3, 4]
    first, second, third, _ = [event["tidingsdelivery"] for event in events]
    before = server.tally()["on_time"]
    ws.send({"ack": second})
    ws.send({"ack": [first, third, 999, first]})
    eventually(lambda: server.tally()["on_time"] == before + 3)
    ws.close()
    again = Socket(server, path)
    event = again.next()
    assert (event["data"]["n"], event["tidingsredelivered"]) == (4, True)
    again.send({"ack": event["tidingsdelivery"]})
    eventually(lambda: server.tally()["on_time"] == before + 4)
    again.close()


@pytest.mark.parametrize(
    "message", ["{", '{"ack": "x"}', '{"nack": 1}', "[]", '{"ack": 1, "more": 2}', "\ud7ff", "[" * 10_000]
)
def test_a_websocket_that_says_something_else_is_told_and_closed(server: Served, message: str):
    id = server.subscribe(types=["strange"])
    ws = Socket(server, f"/subscriptions/{id}/events")
    ws.send(message)
    code, reason = ws.until_closed()
    assert code == streams.VIOLATION
    assert "expected" in reason
    server.ask("DELETE", f"/subscriptions/{id}", code=204)


def test_a_websocket_message_has_a_bound(server: Served):
    id = server.subscribe(types=["large"])
    ws = Socket(server, f"/subscriptions/{id}/events")
    ws.send(json.dumps({"ack": list(range(100_000))}))
    assert ws.until_closed()[0] == 1009
    eventually(lambda: server.gateway.app.sessions[id].line is None)


def test_whom_a_websocket_is_refused():
    with served(token="secret") as server, Sink() as sink:
        bearer = {"authorization": "Bearer secret"}
        hook = server.ask("POST", "/subscriptions", json={"sink": sink.url}, headers=bearer, code=201).json()["id"]
        for path, headers, status in (
            (f"/subscriptions/{hook}/events", {}, 401),
            ("/subscriptions/none/events", bearer, 404),
            (f"/subscriptions/{hook}/events", bearer, 409),
        ):
            ws = Socket(server, path, **headers)
            assert ws.refused is not None
            assert ws.refused[0] == json.loads(ws.refused[1])["status"] == status
            ws.close()
        server.ask("GET", f"/subscriptions/{hook}/events", headers=bearer, code=409)


def test_readers_hear_that_the_broker_ends():
    with served() as server:
        stream = Stream(server, server.subscribe())
        ws = Socket(server, f"/subscriptions/{server.subscribe()}/events")
    assert stream.next() is None
    assert ws.until_closed() == (streams.GOING_AWAY, "the broker is shutting down")
