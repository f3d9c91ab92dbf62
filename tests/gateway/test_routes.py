"""Every route but the streams, with good and with bad requests."""

import json
import re
import socket
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import requests

from gateway_rig import BATCHED, STRUCTURED, Served, Sink, Socket, Stream, eventually, served
from net_rig import PATIENCE_S
from tidings.errors import StoreError
from tidings.net.client import Client
from tidings.net.gateway import app, openapi, sessions
from tidings.net.gateway.sessions import Session

EVENT = {"specversion": "1.0", "id": "1", "source": "/feed", "type": "quote"}


def problem(answer: requests.Response, status: int) -> dict:
    assert answer.status_code == status, answer.text
    assert answer.headers["content-type"] == "application/problem+json"
    found = answer.json()
    assert found["status"] == status
    assert found["title"]
    return found


def test_events_in_all_three_modes_are_confirmed_and_delivered(server: Served):
    id = server.subscribe(source="/modes")
    headers = {"ce-specversion": "1.0", "ce-id": "1", "ce-source": "/modes", "ce-type": "quote"}
    answer = server.ask("POST", "/events", json={"n": 1}, headers=headers, code=202)
    assert answer.json() == {"accepted": 1, "repeated": 0}
    server.publish({"n": 2}, id="2", source="/modes")
    batch = [EVENT | {"id": str(n), "source": "/modes", "data": {"n": n}} for n in (2, 3, 4)]
    answer = server.ask("POST", "/events", data=json.dumps(batch), headers=BATCHED, code=202)
    assert answer.json() == {"accepted": 3, "repeated": 1}
    stream = Stream(server, id, "?count=4")
    found = [stream.next() for _ in range(4)]
    assert [(event["id"], event["data"]) for event in found] == [(str(n), {"n": n}) for n in (1, 2, 3, 4)]
    assert stream.next() is None
    assert server.ask("POST", "/events", data="[]", headers=BATCHED, code=202).json() == {"accepted": 0, "repeated": 0}


def test_a_bad_event_in_a_batch_publishes_none_of_it(server: Served):
    before = server.ask("GET", "/status").json()["published"]
    batch = [EVENT | {"id": "good"}, EVENT | {"id": ""}]
    found = problem(server.ask("POST", "/events", data=json.dumps(batch), headers=BATCHED), 400)
    assert found["where"] == "[1].id"
    assert server.ask("GET", "/status").json()["published"] == before


def test_what_is_wrong_is_told_with_its_place_and_what_was_expected(server: Served):
    def refused(method: str, path: str, status: int = 400, **options) -> dict:
        return problem(server.ask(method, path, **options), status)

    assert refused("POST", "/events", data="x")["expected"].startswith("a CloudEvent")
    assert refused("POST", "/events", data="{", headers=STRUCTURED)["detail"].startswith("no JSON")
    assert (
        refused("POST", "/events", 415, headers={"content-type": "application/cloudevents+xml"})["where"]
        == "Content-Type"
    )
    assert refused("POST", "/subscriptions", json={"types": [5]}) | {"detail": "", "type": ""} == {
        "type": "",
        "title": "The request cannot be used",
        "status": 400,
        "detail": "",
        "where": "types[0]",
        "expected": "str",
    }
    found = refused("POST", "/subscriptions", json={"filters": [{"sql": "price > 10 AND symbol ="}]})
    assert (found["where"], found["column"]) == ("filters[0].sql", 24)
    assert refused("POST", "/subscriptions", json={"config": {"filter": "a >"}})["where"] == "config.filter"
    for resource, where in (
        ({"config": {"price": -1}}, "config.price"),
        ({"config": {"deadline_s": 0}}, "config.deadline_s"),
        ({"config": {"colour": 1}}, "config"),
        ({"id": "a b"}, "id"),
        ({"id": "abc\n"}, "id"),
        ({"types": []}, "types"),
        ({"source": "a b"}, "source"),
        ({"sink": "ftp://x"}, "sink"),
        ({"sink": "http://[::1"}, "sink"),
        ({"sink": "http://user:pass@x/"}, "sink"),
        ({"sink": "http://x/\n"}, "sink"),
        ({"protocol": "HTTP"}, "protocol"),
        ({"protocol": "SSE", "sink": "http://x"}, "protocol"),
        ({"protocol": "SMTP"}, "protocol"),
        ({"sink": "http://x", "protocolsettings": {"headers": {"host": "y"}}}, "protocolsettings.headers"),
        ({"sink": "http://x", "protocolsettings": {"headers": {"a": "b\r\nc: d"}}}, "protocolsettings.headers"),
        ({"unknown": 1}, "body"),
        ([], "body"),
    ):
        assert refused("POST", "/subscriptions", json=resource)["where"] == where, resource
    assert refused("PUT", "/subscriptions/x", json={"id": "y"})["where"] == "id"
    assert refused("PUT", "/subscriptions/a%20b", json={})["where"] == "id"
    for method in ("GET", "DELETE"):
        assert refused(method, "/subscriptions/none", 404)["detail"] == "subscription 'none' is not there"
    assert refused("GET", "/subscriptions/none/events", 404)
    assert refused("GET", "/subscriptions?limit=many")["where"] == "limit"
    assert refused("GET", "/accounts?by=colour")["where"] == "by"
    assert refused("GET", "/nothing", 404)
    answer = server.ask("PATCH", "/subscriptions/x")
    problem(answer, 405)
    assert {"GET", "PUT", "DELETE"} <= set(answer.headers["allow"].split(", "))


def test_bodies_have_a_bound(server: Served):
    large = b"x" * (app.MAX_BODY_KB * 1024 + 1)
    problem(server.ask("POST", "/events", data=large, headers=STRUCTURED), 413)
    problem(server.ask("POST", "/events", data=iter([large[:1000], large]), headers=STRUCTURED), 413)
    deep = '{"data": ' + "[" * 200_000
    problem(server.ask("POST", "/events", data=deep, headers=STRUCTURED), 400)
    server.ask("GET", "/healthz", code=200)


def test_a_body_that_never_ends(server: Served, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(app, "BODY_S", 0.05)

    def endless():
        yield b"{"
        eventually(lambda: server.gateway.app.requests.count["/events", "POST", 408])

    answer = server.ask("POST", "/events", data=endless(), headers=STRUCTURED)
    assert problem(answer, 408)["where"] == "body"


def test_subscriptions_as_resources(server: Served):
    wanted = {
        "source": "/crud",
        "types": ["quote"],
        "filters": [{"any": [{"prefix": {"subject": "LE"}}, {"not": {"suffix": {"data.symbol": "X"}}}]}],
        "config": {"deadline_s": 40.0, "price": 1.5, "penalty": 0.15, "filter": "change > 1"},
        "protocol": "SSE",
    }
    answer = server.ask("POST", "/subscriptions", json=wanted, code=201)
    id = answer.json()["id"]
    assert answer.headers["location"] == f"/subscriptions/{id}"
    assert server.ask("GET", f"/subscriptions/{id}", code=200).json() == wanted | {"id": id}
    problem(server.ask("POST", "/subscriptions", json=wanted | {"id": id}), 409)
    assert server.ask("PUT", f"/subscriptions/{id}", json={"types": ["news"]}, code=200).json()["types"] == ["news"]
    assert server.ask("PUT", "/subscriptions/new", json={}, code=201).json() == {"id": "new"}
    assert {"id": "new"} in server.ask("GET", "/subscriptions").json()
    assert len(server.ask("GET", "/subscriptions?limit=1").json()) == 1
    assert "new" not in [one["id"] for one in server.ask("GET", "/subscriptions?after=new").json()]
    server.ask("DELETE", "/subscriptions/new", code=204)
    server.ask("DELETE", "/subscriptions/new", code=404)
    server.ask("DELETE", f"/subscriptions/{id}", code=204)


def test_many_change_the_same_subscription_at_once(server: Served):
    """Whatever the order, what the gateway shows is what the broker has, and nobody gets an error of ours."""

    def change(number: int) -> int:
        method = ("PUT", "DELETE", "PUT", "GET")[number % 4]
        body = {"types": [f"busy{number % 3}"]} if method == "PUT" else None
        return requests.request(method, f"{server.url}/subscriptions/busy", json=body, timeout=PATIENCE_S).status_code

    with ThreadPoolExecutor(8) as threads:
        found = list(threads.map(change, range(60)))
    assert set(found) <= {200, 201, 204, 404, 409}
    shown = server.ask("PUT", "/subscriptions/busy", json={"types": ["last"]}).json()
    known = server.call(lambda: server.runtime.broker.subscriptions["busy"])
    assert (list(known.types), shown["types"]) == (["last"], ["last"])
    server.ask("DELETE", "/subscriptions/busy", code=204)
    assert "busy" not in server.call(lambda: dict(server.runtime.broker.subscriptions))


def test_what_the_store_does_not_take_has_not_happened(server: Served, monkeypatch: pytest.MonkeyPatch):
    async def failing(*_):
        raise StoreError("disk full")

    with Sink() as sink:
        wanted = {"id": "stays", "types": ["stays"], "sink": sink.url}
        server.subscribe(**wanted)
        monkeypatch.setattr(Session, "ask", failing)
        for method, path, body in (
            ("DELETE", "/subscriptions/stays", None),
            ("PUT", "/subscriptions/stays", {}),
            ("PUT", "/subscriptions/never", {}),
            ("POST", "/subscriptions", {}),
        ):
            answer = server.ask(method, path, json=body)
            assert problem(answer, 503)["detail"] == "disk full"
            assert answer.headers["retry-after"] == "1"
        monkeypatch.undo()
        assert server.ask("GET", "/subscriptions/stays", code=200).json() == wanted
        server.ask("GET", "/subscriptions/never", code=404)
        server.publish({}, id="stays", type="stays")
        eventually(lambda: sink.ids == ["stays"])
        server.ask("DELETE", "/subscriptions/stays", code=204)


def test_a_change_keeps_what_waits_if_the_broker_need_not_know(server: Served):
    with Sink() as sink:
        id = server.subscribe(types=["kept"])
        server.publish({}, id="kept", type="kept")
        server.ask("PUT", f"/subscriptions/{id}", json={"types": ["kept"], "sink": sink.url}, code=200)
        eventually(lambda: sink.ids == ["kept"])
        server.ask("PUT", f"/subscriptions/{id}", json={"types": ["kept"]}, code=200)
        server.publish({}, id="kept 2", type="kept")
        assert Stream(server, id, "?count=1").next()["id"] == "kept 2"
        assert sink.ids == ["kept"]
        server.ask("DELETE", f"/subscriptions/{id}", code=204)


def test_socket_clients_and_http_share_events_and_ids(server: Served):
    async def other(work):
        async with Client(str(server.runtime.address), name="desk") as bus:
            return await work(bus)

    async def subscribe(bus):
        stream = await bus.subscribe("$source = '/shared'", id="mine")
        server_side.append(stream)
        return (await anext(stream)).event

    server_side: list = []
    with ThreadPoolExecutor(1) as thread:
        future = thread.submit(server.run, other(subscribe))
        eventually(lambda: server_side)
        problem(server.ask("POST", "/subscriptions", json={"id": "mine"}), 409)
        server.publish({"a": 1}, id="7", source="/shared", type="quote")
        event = future.result(PATIENCE_S)
    assert (event.type, event.attributes) == ("quote", {"$id": "7", "$source": "/shared", "a": 1})
    id = server.subscribe(config={"filter": "from_socket"})
    server.run(other(lambda bus: bus.publish({"from_socket": True, "set": {"b", "a"}}, type="t", id="s1")))
    found = Stream(server, id, "?count=1").next()
    assert (found["id"], found["source"], found["data"]) == (
        "s1",
        "urn:tidings",
        {"from_socket": True, "set": ["a", "b"]},
    )


def test_explain(server: Served):
    asked = {"filter": "change > 1 AND $source = '/feed'", "event": {"source": "/feed", "data": {"change": 0.5}}}
    answer = server.ask("POST", "/explain", json=asked, code=200).json()
    assert answer["matches"] is False
    assert [(leaf["text"], leaf["held"]) for leaf in answer["leaves"]] == [
        ("change > 1", False),
        ("$source = '/feed'", True),
    ]
    alone = server.ask("POST", "/explain", json={"types": ["a", "b"], "filters": [{"sql": "x = 1"}]}, code=200).json()
    assert (alone["matches"], alone["filter"]) == (None, "$type IN ('a', 'b') AND x = 1")
    typed = server.ask("POST", "/explain", json={"types": ["a"], "event": {"type": "a"}}, code=200).json()
    assert typed["matches"] is True
    assert problem(server.ask("POST", "/explain", json={"filter": "x ="}), 400)["where"] == "filter"
    assert problem(server.ask("POST", "/explain", json={"event": {"Time": 1}}), 400)["where"] == "event.Time"
    assert (
        problem(server.ask("POST", "/explain", json={"event": {"data": 1, "time": "x"}}), 400)["where"] == "event.time"
    )


SAMPLE = re.compile(r'[a-z_]+(\{([a-z_]+="([^"\\\n]|\\["\\n])*",?)+\})? -?[0-9.e+-]+')


def test_metrics_are_what_prometheus_reads(server: Served):
    server.publish({}, id="metrics")
    answer = server.ask("GET", "/metrics", code=200)
    assert answer.headers["content-type"] == "text/plain; version=0.0.4; charset=utf-8"
    lines = answer.text.splitlines()
    assert answer.text.endswith("\n")
    kinds = {line.split()[2]: line.split()[3] for line in lines if line.startswith("# TYPE")}
    for line in lines:
        if not line.startswith("#"):
            assert SAMPLE.fullmatch(line), line
            name = re.split(r"[{ ]", line)[0]
            base = re.sub(r"_(sum|count)$", "", name) if name not in kinds else name
            assert kinds[base] in ("counter", "gauge", "summary")
            assert (kinds[base] == "counter") == name.endswith("_total")
            assert name.startswith("tidings_")
            assert not re.search(r"_(ms|kb|s)(_|$)", name)
    values = dict(line.rsplit(" ", 1) for line in lines if not line.startswith("#"))
    assert float(values["tidings_events_published_total"]) == server.ask("GET", "/status").json()["published"]
    assert any(
        name.startswith('tidings_http_requests_total{route="/events",method="POST",status="202"}') for name in values
    )


def test_status_and_accounts(server: Served):
    report = server.ask("GET", "/status", code=200).json()
    assert (report["broker"], report["engine"], report["healthy"]) == ("b", "naive", True)
    accounts = server.ask("GET", "/accounts?by=total", code=200).json()
    assert [row["by"] for row in accounts["rows"]] == ["total"]
    assert accounts["rows"][0]["matched"] == report["accounts"]["matched"]
    server.ask("GET", "/accounts", code=200)


def test_the_document_names_every_route(server: Served):
    document = server.ask("GET", "/openapi.json", code=200).json()
    assert document == json.loads(json.dumps(openapi.document()))
    routes = {
        (route.path, method)
        for route in server.gateway.app.asgi().routes
        for method in getattr(route, "methods", ())
        if method != "HEAD"
    }
    documented = {
        (path, method.upper()) for path, item in document["paths"].items() for method in item if method != "parameters"
    }
    assert routes == documented
    server.ask("HEAD", "/healthz", code=200)


def test_the_token():
    with served(token="secret") as server:
        bearer = {"authorization": "Bearer secret"}
        for path in ("/healthz", "/readyz", "/openapi.json"):
            server.ask("GET", path, code=200)
        for method, path in (("GET", "/subscriptions"), ("GET", "/metrics"), ("GET", "/status"), ("POST", "/events")):
            for headers in ({}, {"authorization": "Bearer wrong"}, {"authorization": "Basic secret"}):
                answer = server.ask(method, path, headers=headers)
                assert problem(answer, 401)["expected"] == "Bearer TOKEN"
                assert answer.headers["www-authenticate"].startswith("Bearer")
        server.ask("GET", "/status", headers=bearer, code=200)
        server.ask("POST", "/subscriptions", json={}, headers=bearer, code=201)


def test_a_foreign_page_cannot_make_a_browser_act_for_it(server: Served):
    foreign, own = {"origin": "http://evil.example"}, {"origin": server.url}
    assert problem(server.ask("POST", "/subscriptions", json={}, headers=foreign), 403)["where"] == "Origin"
    server.ask("GET", "/status", headers={"origin": "null"}, code=403)
    server.ask("GET", "/status", headers=own, code=200)
    id = server.subscribe()
    ws = Socket(server, f"/subscriptions/{id}/events", **foreign)
    ws.close()
    assert ws.refused[0] == 403
    server.ask("DELETE", f"/subscriptions/{id}", code=204)


def test_when_the_broker_cannot_keep_up():
    with served(in_flight=2) as server:
        line = server.call(server.gateway.app._line)
        server.call(line.pause_reading)
        answer = server.ask("POST", "/events", data=json.dumps(EVENT), headers=STRUCTURED)
        problem(answer, 503)
        assert answer.headers["retry-after"] == "1"
        server.call(line.resume_reading)
        server.ask("POST", "/events", data=json.dumps(EVENT), headers=STRUCTURED, code=202)
        batch = [EVENT | {"id": str(n)} for n in range(50)]  # far beyond in_flight, and all are answered
        server.ask("POST", "/events", data=json.dumps(batch), headers=BATCHED, code=202)
        server.ask("POST", "/events", data=json.dumps(EVENT), headers=STRUCTURED, code=202)


def test_the_number_of_subscriptions_has_a_bound(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(sessions, "MAX_SUBSCRIPTIONS", 2)
    with served() as server:
        for _ in range(2):
            server.subscribe()
        assert "2 HTTP subscriptions" in problem(server.ask("POST", "/subscriptions", json={}), 503)["detail"]


def test_subscriptions_and_their_sinks_survive_a_restart(tmp_path: Path):
    store = str(tmp_path / "data")
    with Sink() as sink:
        with served(store=store) as server:
            kept = server.subscribe(types=["a"], filters=[{"exact": {"subject": "x"}}], config={"price": 2.0})
            gone = server.subscribe()
            hook = server.subscribe(types=["b"], sink=sink.url, protocolsettings={"headers": {"x-key": "k"}})
            shown = {one["id"]: one for one in server.ask("GET", "/subscriptions").json()}
            server.ask("DELETE", f"/subscriptions/{gone}", code=204)
            server.publish({"n": 1}, id="1", type="a", subject="x")
        with served(store=store) as server:
            found = {one["id"]: one for one in server.ask("GET", "/subscriptions").json()}
            assert found == {id: shown[id] for id in (kept, hook)}
            assert Stream(server, kept, "?count=1").next()["id"] == "1"
            server.publish({}, id="2", type="b")
            eventually(lambda: sink.ids == ["2"])
            assert sink.received[0][0]["x-key"] == "k"
            eventually(lambda: server.tally()["pending"] == 0)


def test_a_store_that_fails_is_not_ready(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    with served(store=str(tmp_path / "data")) as server:
        server.ask("GET", "/readyz", code=200)
        monkeypatch.setattr(server.runtime.store, "healthy", False)
        monkeypatch.setattr(server.runtime.store, "reason", "disk full")
        assert problem(server.ask("GET", "/readyz"), 503)["detail"] == "disk full"
        server.ask("GET", "/healthz", code=200)
        monkeypatch.setattr(server.runtime.store, "append", full_disk)
        assert "disk full" in problem(server.ask("POST", "/subscriptions", json={"id": "x"}), 503)["detail"]
        server.ask("GET", "/subscriptions/x", code=404)


def full_disk(ticket: int, records: object) -> None:
    raise StoreError("disk full")


GARBAGE = {
    "random bytes": b"\xff\x00\x17garbage\r\n\r\n",
    "no HTTP": b"hello there\r\n\r\n",
    "a huge head": b"GET / HTTP/1.1\r\nx: " + b"y" * 100_000 + b"\r\n\r\n",
    "half a head": b"GET /healthz HTTP/1.1\r\nhost: x",
    "half a body": b"POST /events HTTP/1.1\r\nhost: x\r\ncontent-length: 100\r\n\r\n{",
    "two lengths": b"POST /events HTTP/1.1\r\nhost: x\r\ncontent-length: 1\r\ncontent-length: 2\r\n\r\n{}",
    "a bad chunk": b"POST /events HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\nzz\r\n",
    "our own protocol": b"\0\0\0\x10\x83\xa2op\xa5hello",
    "a bad upgrade": b"GET /subscriptions/x/events HTTP/1.1\r\nhost: x\r\nconnection: upgrade\r\nupgrade: websocket\r\n\r\n",
}


@pytest.mark.parametrize("data", GARBAGE.values(), ids=GARBAGE)
def test_garbage_is_closed_and_the_service_goes_on(server: Served, data: bytes):
    host, port = server.url.removeprefix("http://").split(":")
    with socket.create_connection((host, int(port)), PATIENCE_S) as raw:
        raw.sendall(data)
        raw.shutdown(socket.SHUT_WR)
        answer = b""
        while chunk := raw.recv(65_536):
            answer += chunk
    assert answer == b"" or answer.startswith((b"HTTP/1.1 4", b"HTTP/1.0 4"))
    server.publish({}, id=f"after {data[:20]!r}")
