"""A broker with its gateway, on a thread of its own, and what talks to it: HTTP, event streams, WebSockets, sinks."""

import asyncio
import contextlib
import http.server
import json
import socket
import threading
import time
from collections.abc import Callable, Coroutine, Iterator
from typing import Any

import requests
from wsproto import ConnectionType, WSConnection
from wsproto.events import AcceptConnection, CloseConnection, Ping, RejectConnection, RejectData, Request, TextMessage

from net_rig import ANYWHERE, PATIENCE_S
from tidings.net.config import BrokerConfig
from tidings.net.gateway.server import Gateway
from tidings.net.runtime import Runtime

STRUCTURED = {"content-type": "application/cloudevents+json"}
BATCHED = {"content-type": "application/cloudevents-batch+json"}


class Served:
    """A broker and its gateway, seen from outside."""

    def __init__(self, settings: dict[str, Any]) -> None:
        self.config = BrokerConfig(**{"id": "b", "listen": ANYWHERE, "http": ANYWHERE, "engine": "naive"} | settings)
        self.runtime = Runtime(self.config)
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever)
        self._session = requests.Session()
        self._thread.start()
        try:
            self.run(self._start())
        except BaseException:
            self.close()
            raise

    async def _start(self) -> None:
        self.gateway: Gateway | None = None
        await self.runtime.start()
        assert self.config.http is not None
        self.gateway = Gateway(self.runtime, self.config.http)
        await self.gateway.start()
        self.url = self.gateway.address

    async def _stop(self) -> None:
        if self.gateway is not None:
            await self.gateway.stop()
        await self.runtime.stop()

    def close(self) -> None:
        self._session.close()
        try:
            self.run(self._stop())
        finally:
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join(PATIENCE_S)
            self._loop.close()

    def run(self, work: Coroutine[Any, Any, Any]) -> Any:
        """On the broker's own event loop."""
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(PATIENCE_S)

    def call(self, function: Callable[[], Any]) -> Any:
        async def work() -> Any:
            return function()

        return self.run(work())

    def ask(self, method: str, path: str, *, code: int | None = None, **options: Any) -> requests.Response:
        answer = self._session.request(method, self.url + path, timeout=PATIENCE_S, **options)
        assert code is None or answer.status_code == code, f"{answer.status_code}: {answer.text}"
        return answer

    def publish(self, data: Any, *, id: str, type: str = "quote", source: str = "/feed", **context: Any) -> None:
        event = {"specversion": "1.0", "id": id, "source": source, "type": type, "data": data, **context}
        self.ask("POST", "/events", data=json.dumps(event), headers=STRUCTURED, code=202)

    def subscribe(self, **resource: Any) -> str:
        return str(self.ask("POST", "/subscriptions", json=resource, code=201).json()["id"])

    def tally(self) -> dict[str, Any]:
        return dict(self.ask("GET", "/status").json()["accounts"])


@contextlib.contextmanager
def served(**settings: Any) -> Iterator[Served]:
    server = Served(settings)
    try:
        yield server
    finally:
        server.close()


def eventually(condition: Callable[[], Any], what: str = "") -> Any:
    limit_s = time.monotonic() + PATIENCE_S
    while not (found := condition()):
        assert time.monotonic() < limit_s, f"this never came true: {what or condition}"
        time.sleep(0.01)
    return found


class Stream:
    """Server-Sent Events, read one at a time."""

    def __init__(self, server: Served, id: str, query: str = "", **headers: str) -> None:
        self._answer = requests.get(
            f"{server.url}/subscriptions/{id}/events{query}", headers=headers, stream=True, timeout=PATIENCE_S
        )
        assert self._answer.status_code == 200, self._answer.text
        assert self._answer.headers["content-type"].startswith("text/event-stream")
        self._lines = self._answer.iter_lines(chunk_size=1)
        self.last_id = ""

    def next(self) -> dict[str, Any] | None:
        """The next CloudEvent; None at the end."""
        data: list[bytes] = []
        limit_s = time.monotonic() + PATIENCE_S
        for line in self._lines:
            assert time.monotonic() < limit_s, "no event, only pings"
            name, _, value = line.partition(b": ")
            if name == b"id":
                self.last_id = value.decode()
            elif name == b"data":
                data.append(value)
            elif not line and data:
                return dict(json.loads(b"\n".join(data)))
        return None

    def close(self) -> None:
        self._answer.close()


class Socket:
    """A WebSocket client."""

    def __init__(self, server: Served, path: str, subprotocols: tuple[str, ...] = (), **headers: str) -> None:
        host, _, port = server.url.removeprefix("http://").partition(":")
        self._socket = socket.create_connection((host, int(port)), PATIENCE_S)
        self._ws = WSConnection(ConnectionType.CLIENT)
        extra = [(name.encode(), value.encode()) for name, value in headers.items()]
        self._send(Request(host=host, target=path, subprotocols=list(subprotocols), extra_headers=extra))
        self.subprotocol: str | None = None
        self.refused: tuple[int, bytes] | None = None
        self.closed: tuple[int, str] | None = None
        self._messages: list[str] = []
        self._wait(lambda: self._greeted)

    _greeted = False

    def _send(self, event: Any) -> None:
        self._socket.sendall(self._ws.send(event))

    def _wait(self, done: Callable[[], Any]) -> None:
        while not done() and self.closed is None:
            data = self._socket.recv(65_536)
            self._ws.receive_data(data or None)
            for event in self._ws.events():
                self._happened(event)

    def _happened(self, event: Any) -> None:
        match event:
            case AcceptConnection():
                self._greeted, self.subprotocol = True, event.subprotocol
            case RejectConnection():
                self.refused = (event.status_code, b"")
            case RejectData():
                assert self.refused is not None
                self.refused = (self.refused[0], self.refused[1] + event.data)
                self._greeted = event.body_finished
            case TextMessage():
                self._part = getattr(self, "_part", "") + event.data
                if event.message_finished:
                    self._messages.append(self._part)
                    self._part = ""
            case Ping():
                self._send(event.response())
            case CloseConnection():
                self.closed = (event.code, event.reason or "")

    def next(self) -> dict[str, Any]:
        self._wait(lambda: self._messages)
        return dict(json.loads(self._messages.pop(0)))

    def send(self, message: Any) -> None:
        self._send(TextMessage(data=message if isinstance(message, str) else json.dumps(message)))

    def until_closed(self) -> tuple[int, str]:
        self._wait(lambda: self.closed)
        self.close()
        assert self.closed is not None
        return self.closed

    def close(self) -> None:
        self._socket.close()


class Sink:
    """An HTTP server that answers with `statuses` one after the other, and with 200 when there are no more."""

    def __init__(self, *statuses: int, headers: dict[str, str] | None = None) -> None:
        self.received: list[tuple[dict[str, str], dict[str, Any]]] = []
        self.statuses = list(statuses)
        self.last = 200
        sink = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["content-length"])))
                sink.received.append(({name.lower(): value for name, value in self.headers.items()}, body))
                self.send_response(sink.statuses.pop(0) if sink.statuses else sink.last)
                for name, value in (headers or {}).items():
                    self.send_header(name, value)
                self.send_header("content-length", "0")
                self.end_headers()

            def log_message(self, *_: Any) -> None:
                pass

        self._server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.01,))
        self._thread.start()
        self.port = self._server.server_address[1]
        self.url = f"http://127.0.0.1:{self.port}/sink"

    @property
    def ids(self) -> list[str]:
        return [event["id"] for _, event in self.received]

    def __enter__(self) -> "Sink":
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join(PATIENCE_S)
