"""One connection, on either side: greeting, frames, keep-alive, and one write for all that is sent in one turn of the loop.

The dialling side greets first; both sides then know each other's name, role and version. Whoever owns the connection
decides what messages mean. Ping and Pong stay in here: they keep it alive and measure its round trip.

Bounds: frames by `max_frame_kb`, a greeting by its size and time, what waits for a peer that does not read by `backlog_kb`.
"""

import asyncio
import logging
import ssl
from collections.abc import Callable
from typing import Any, Protocol, cast

import msgspec

from tidings.errors import CodecError, NetworkError, Refused, TidingsError
from tidings.model import message as m
from tidings.model.codec import decode
from tidings.net.frames import GREETING_KB, HEAD, MAX_FRAME_KB, FrameDecoder

log = logging.getLogger(__name__)

GREETING_S = 10.0
_CLOSING_S = 2.0
_encoder = msgspec.msgpack.Encoder()


class Limits(msgspec.Struct, frozen=True):
    """The bounds of one connection."""

    max_frame_kb: float = MAX_FRAME_KB
    backlog_kb: float = 64 * 1024
    keep_alive_s: float = 10.0  # between pings; a peer that is silent for three of them is gone


class Owner(Protocol):
    """Who a connection belongs to."""

    def made(self, connection: "Connection") -> None:
        """Somebody is there, whoever it is; a TidingsError turns it away."""

    def greeted(self, connection: "Connection", hello: m.Hello) -> m.Hello | None:
        """The other side has said who it is: the answer to it (on the dialled side), or a TidingsError to refuse it."""

    def opened(self, connection: "Connection") -> None:
        """Both sides have greeted."""

    def received(self, connection: "Connection", message: m.Message) -> None: ...

    def drained(self, connection: "Connection") -> None:
        """The peer reads again: there is room for more."""

    def closed(self, connection: "Connection", reason: str) -> None:
        """After `opened`, or for a connection that never came so far."""


class Connection(asyncio.Protocol):
    """`hello` is what the dialling side says first; the dialled side has none."""

    def __init__(self, owner: Owner, limits: Limits, hello: m.Hello | None = None) -> None:
        self.peer = self.role = ""
        self.rtt_s = 0.0  # the least of late: what is slower waited somewhere
        self.open = self.was_open = False
        self.cut_off = self.backlogged = False  # by us, without a word; because it did not read
        self.writable = True
        self.refusal: TidingsError | None = None  # why one of the two sides does not want the other
        self.dialled = hello is None
        self.address = "?"
        self._owner, self._limits, self._hello = owner, limits, hello
        self._frames = FrameDecoder(min(GREETING_KB, limits.max_frame_kb))
        self._out = bytearray()
        self._flushing = False
        self._reason = ""
        self._closing = False
        self._loop = asyncio.get_running_loop()
        self.gone: asyncio.Future[str] = self._loop.create_future()  # the reason, when it is over
        self._transport: asyncio.Transport | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._heard_s = self._loop.time()
        self._pings: dict[int, float] = {}
        self._ping = 0

    # What asyncio tells us.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        name = transport.get_extra_info("peername")
        self.address = f"{name[0]}:{name[1]}" if isinstance(name, tuple) and len(name) > 1 else str(name or "?")
        self._timer = self._loop.call_later(GREETING_S, self.close, f"no greeting within {GREETING_S:g} s")
        try:
            self._owner.made(self)
        except TidingsError as error:
            self._refuse(error)
            return
        if self._hello is not None:
            self.send(self._hello)

    def data_received(self, data: bytes) -> None:
        self._heard_s = self._loop.time()
        try:
            for body in self._frames.feed(data):
                if self._closing:
                    return
                message = decode(body)
                if self.open and type(message) not in _OURS:
                    self._owner.received(self, message)
                else:
                    self._spoken(message)
        except CodecError as error:
            log.warning("%s %s: %s", self.address, self.peer, error)
            self.close(str(error), error)

    def pause_writing(self) -> None:
        self.writable = False

    def resume_writing(self) -> None:
        self.writable = True
        if self.open:
            self._owner.drained(self)

    def connection_lost(self, error: Exception | None) -> None:
        self._transport = None
        self._stop_timer()
        self.open = False
        reason = self._reason or (str(error) if error else "") or "closed by the other side"
        self._owner.closed(self, reason)
        if not self.gone.done():
            self.gone.set_result(reason)

    # Greeting and keep-alive.

    def _spoken(self, message: m.Message) -> None:
        """A message that is the connection's own business."""
        match message:
            case m.Ping(number):
                self.send(m.Pong(number))
            case m.Pong(number):
                sent_s = self._pings.pop(number, None)
                if sent_s is not None:
                    rtt_s = self._loop.time() - sent_s
                    self.rtt_s = min(rtt_s, self.rtt_s * 1.1) if self.rtt_s else rtt_s
            case m.Hello() if not self.open:
                self._greeted(message)
            case m.Failed(_, error, reason) if not self.open and not self.dialled:
                self.refusal = Refused(reason) if error == Refused.__name__ else NetworkError(reason)
                self.close(f"refused: {reason}")
            case _:
                self.close("expected a greeting", CodecError("expected a greeting first"))

    def _greeted(self, hello: m.Hello) -> None:
        try:
            if hello.version != m.PROTOCOL_VERSION:
                raise Refused(f"protocol version {hello.version}: expected {m.PROTOCOL_VERSION}")
            answer = self._owner.greeted(self, hello)
        except TidingsError as error:
            self._refuse(error)
            return
        self.peer, self.role = hello.peer, hello.role
        self.open = self.was_open = True
        self._frames.limit_kb = self._limits.max_frame_kb
        if answer is not None:
            self.send(answer)
        self._stop_timer()
        self._keep_alive()
        self._owner.opened(self)

    def _refuse(self, error: TidingsError) -> None:
        log.warning("%s refused: %s", self.address, error)
        self.refusal = error
        self.close(str(error), error)

    def _keep_alive(self) -> None:
        every_s, now = self._limits.keep_alive_s, self._loop.time()
        if now - self._heard_s > 3 * every_s:
            self.abort(f"silent for {now - self._heard_s:.1f} s")
            return
        self._ping += 1
        self._pings = {self._ping: now}  # an answer that comes after the next ping is none
        self.send(m.Ping(self._ping))
        self._timer = self._loop.call_later(every_s, self._keep_alive)

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    # Sending.

    def send(self, message: m.Message | msgspec.Struct) -> int:
        """The size of the frame, in bytes."""
        out = self._out
        start = len(out)
        out += b"\0\0\0\0"
        _encoder.encode_into(message, out, -1)
        size = len(out) - start
        HEAD.pack_into(out, start, size - HEAD.size)
        if not self._flushing:
            self._flushing = True
            self._loop.call_soon(self._flush)
        return size

    def _flush(self) -> None:
        self._flushing = False
        transport = self._transport
        if transport is None or not self._out:
            return
        transport.write(bytes(self._out))
        self._out.clear()
        if not self.writable and transport.get_write_buffer_size() > self._limits.backlog_kb * 1024:
            self.backlogged = True
            self.abort(f"more than {self._limits.backlog_kb:g} KB wait for a peer that does not read")

    @property
    def backlog_kb(self) -> float:
        waiting = self._transport.get_write_buffer_size() if self._transport is not None else 0
        return (len(self._out) + waiting) / 1024

    def pause_reading(self) -> None:
        """Back-pressure: the sender's socket fills up, and it waits."""
        if self._transport is not None:
            self._transport.pause_reading()
            self._heard_s = float("inf")  # it cannot be silent while we do not listen

    def resume_reading(self) -> None:
        if self._transport is not None:
            self._heard_s = self._loop.time()
            self._transport.resume_reading()

    # The end.

    def close(self, reason: str, error: TidingsError | None = None) -> None:
        """Say why if it is the other side's fault, send what waits, and close; a peer that does not read is cut off."""
        if self._closing:
            return
        self._closing, self._reason = True, reason
        if error is not None:
            self.send(m.Failed(0, type(error).__name__, str(error)))
        self._flush()
        self._stop_timer()
        if self._transport is not None:
            self._transport.close()
            self._timer = self._loop.call_later(_CLOSING_S, self.abort, reason)

    def abort(self, reason: str) -> None:
        self._closing, self._reason, self.cut_off = True, reason, True
        if self._transport is not None:
            self._transport.abort()


_OURS = {m.Hello, m.Ping, m.Pong}


async def dial(
    owner: Owner, host: str, port: int, limits: Limits, hello: m.Hello, tls: ssl.SSLContext | None = None
) -> Connection:
    """A connection that has begun to greet; OSError if nobody is there."""
    loop = asyncio.get_running_loop()
    make: Callable[[], Any] = lambda: Connection(owner, limits, hello)  # noqa: E731
    async with asyncio.timeout(GREETING_S):
        _, connection = await loop.create_connection(make, host, port, ssl=tls)
    return cast("Connection", connection)
