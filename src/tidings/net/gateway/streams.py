"""Notifications as they come: Server-Sent Events, and WebSocket.

An event stream has no way back, so an event counts as received when the client's socket has taken it; what was on its way when
the connection broke is sent again to a reader that names the last one it got (`Last-Event-ID`). On a WebSocket every event has a
number, `tidingsdelivery`, and is acknowledged by `{"ack": NUMBER}`; what is not goes back to the broker when the connection ends.

A slow reader is bounded by the sockets and by the broker's window; what waits, waits in the broker's outbox.
"""

import asyncio
import re
from urllib.parse import quote

import msgspec
from starlette.types import Receive, Scope, Send
from starlette.websockets import WebSocket, WebSocketDisconnect

from tidings.errors import TidingsError
from tidings.model.event import Event
from tidings.net.gateway.cloudevents import to_cloudevent
from tidings.net.gateway.line import Line
from tidings.net.gateway.problems import Problem, decoded
from tidings.net.gateway.sessions import TAKEN_OVER, Session

PING_S = 15.0  # a comment, so that nobody on the way takes a quiet stream for a dead one
SUBPROTOCOL = "cloudevents.json"
VIOLATION, GOING_AWAY, REPLACED = 1008, 1001, 4000
_NEWLINES = re.compile(rb"[\r\n]+")


class Receipt(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What a WebSocket client sends: the number, or the numbers, of deliveries that it has; and whether it wants to hear when
    that is safe."""

    ack: int | list[int]
    confirm: bool = False


class Confirmed(msgspec.Struct, frozen=True):
    """What it then hears: these will not come again, not even after a crash."""

    acknowledged: list[int]


def sse_id(event: Event) -> str:
    """An id that fits into a line and into a header."""
    return quote(event.id, safe="/:@!$&'()*+,;=?#[]~-._")


def sse(event: Event, redelivered: bool) -> bytes:
    body = to_cloudevent(event, redelivered=redelivered or None)
    lines = b"".join(b"data: %s\n" % line for line in _NEWLINES.split(body))
    return b"id: %s\n%s\n" % (sse_id(event).encode(), lines)


class EventStream:
    """The answer to a GET: first what goes `again`, then event by event; ends after `count` events if that is not 0."""

    status_code = 200

    def __init__(self, session: Session, line: Line, again: list[Event], count: int) -> None:
        self._session, self._line, self._again, self._count = session, line, again, count

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        listening = asyncio.get_running_loop().create_task(self._until_gone(receive))
        self._session.sent.opened()
        try:
            headers = [(b"content-type", b"text/event-stream; charset=utf-8"), (b"cache-control", b"no-store")]
            await send({"type": "http.response.start", "status": 200, "headers": headers})
            await self._stream(send)
            await send({"type": "http.response.body", "body": b""})
        finally:
            listening.cancel()
            self._session.sent.closed()
            self._session.detach("the reader has left", self._line)

    async def _stream(self, send: Send) -> None:
        line, sent = self._line, 0
        await _put(send, b": %s\n\n" % self._session.id.encode())
        for event in self._again:
            await _put(send, sse(event, True))
            sent += 1
            if sent == self._count:
                return
        while not line.closed:
            arrived = await line.next(PING_S)
            if arrived is None:
                if not line.closed:
                    await _put(send, b": \n\n")
                continue
            await _put(send, sse(arrived.event, arrived.redelivered))
            if line.closed:
                return  # nobody was there to take it: it goes back to the broker
            self._session.sent.add(arrived.event, arrived.size)
            line.acknowledge(arrived.event.id)
            sent += 1
            if sent == self._count:
                return

    async def _until_gone(self, receive: Receive) -> None:
        while (await receive())["type"] != "http.disconnect":
            pass
        self._line.close("the reader has left")


async def _put(send: Send, data: bytes) -> None:
    await send({"type": "http.response.body", "body": data, "more_body": True})


async def serve_websocket(socket: WebSocket, session: Session, line: Line) -> None:
    """Until one of the two sides leaves."""
    await socket.accept(SUBPROTOCOL if SUBPROTOCOL in socket.scope.get("subprotocols", ()) else None)
    given: dict[int, str] = {}  # number -> event, not acknowledged: bounded by the window
    listening = asyncio.get_running_loop().create_task(_acknowledgements(socket, line, given))
    try:
        while (arrived := await line.next()) is not None:
            given[arrived.number] = arrived.event.id
            body = to_cloudevent(arrived.event, delivery=arrived.number, redelivered=arrived.redelivered or None)
            await socket.send_text(body.decode())
        if not listening.done():
            await socket.close(REPLACED if line.closed == TAKEN_OVER else GOING_AWAY, line.closed)
    except WebSocketDisconnect:
        pass
    finally:
        listening.cancel()
        session.detach("the reader has left", line)


async def _acknowledgements(socket: WebSocket, line: Line, given: dict[int, str]) -> None:
    """Until the client leaves, or sends something else."""
    try:
        while True:
            message = await socket.receive()
            if message["type"] != "websocket.receive":
                break
            body = message.get("bytes") or (message.get("text") or "").encode()
            receipt: Receipt = decoded(body, Receipt, "message")
            numbers = [receipt.ack] if isinstance(receipt.ack, int) else receipt.ack
            events = [given.pop(number) for number in numbers if number in given]
            if receipt.confirm:
                await line.confirm(*events)
                await socket.send_text(msgspec.json.encode(Confirmed(numbers)).decode())
            elif events:
                line.acknowledge(*events)
    except (WebSocketDisconnect, TidingsError):
        pass
    except Problem as problem:
        reason = f'{problem.body.detail}; expected {{"ack": NUMBER}}'
        await socket.close(VIOLATION, reason.encode()[:120].decode(errors="ignore"))
    finally:
        line.close("the reader has left")
