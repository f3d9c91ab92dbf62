"""The gateway as a whole: the routes behind uvicorn's HTTP/1.1 and WebSocket, on the event loop that is there.

Bounds: connections by the broker's `max_connections`, a request's head by h11's own 16 KB, the wait for a first request by
`GREETING_S`, a WebSocket message by `MAX_MESSAGE_KB`.
"""

import asyncio
import contextlib
import socket
from collections.abc import Iterator

import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from tidings.errors import NetworkError
from tidings.net.address import Address, server_context
from tidings.net.gateway.app import App
from tidings.net.runtime import Runtime
from tidings.net.transport import GREETING_S

MAX_MESSAGE_KB = 64
_ENDING_S = 5  # for requests that are under way when the gateway ends


class _Protocol(H11Protocol):
    """Whoever connects and asks nothing is let go."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)  # type: ignore[arg-type]
        self._greeting = self.loop.call_later(GREETING_S, self._no_greeting)

    def connection_lost(self, exc: Exception | None) -> None:
        self._greeting.cancel()
        super().connection_lost(exc)

    def _no_greeting(self) -> None:
        if self.scope is None:
            self.transport.abort()


class _Server(uvicorn.Server):
    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Signals are the broker's business."""
        yield


class Gateway:
    """`start` after the runtime has started, `stop` before it stops."""

    def __init__(self, runtime: Runtime, listen: Address) -> None:
        self.app = App(runtime)
        self._runtime, self._listen = runtime, listen
        self._serving: asyncio.Task[None] | None = None
        self._server: _Server | None = None
        self.address = ""

    async def start(self) -> None:
        listen, tls = self._listen, self._runtime.config.tls
        sock = _bound(listen)
        try:
            await self.app.start()
            config = uvicorn.Config(
                self.app.asgi(),
                http=_Protocol,
                ws="wsproto",
                ws_max_size=MAX_MESSAGE_KB * 1024,
                ws_per_message_deflate=False,  # a small message could unfold into a large one
                lifespan="off",
                log_config=None,
                access_log=False,
                proxy_headers=False,
                server_header=False,
                limit_concurrency=self._runtime.config.max_connections,
                timeout_graceful_shutdown=_ENDING_S,
                ssl_context_factory=None if tls is None else lambda config, default: server_context(tls),
            )
            self._server = _Server(config)
            self._serving = asyncio.get_running_loop().create_task(self._server.serve([sock]))
            while not self._server.started:
                if self._serving.done():
                    await self._serving
                    raise NetworkError("http: the server ended before it had started")
                await asyncio.sleep(0)
        except BaseException:
            sock.close()
            await self.app.stop()
            raise
        scheme, host = "http" if tls is None else "https", f"[{listen.host}]" if ":" in listen.host else listen.host
        self.address = f"{scheme}://{host}:{sock.getsockname()[1]}"

    async def stop(self) -> None:
        """Streams end, requests that are under way are answered."""
        await self.app.stop()
        if self._server is not None and self._serving is not None:
            self._server.should_exit = True
            await asyncio.gather(self._serving, return_exceptions=True)


def _bound(listen: Address) -> socket.socket:
    family = socket.AF_INET6 if ":" in listen.host else socket.AF_INET
    # The protocol is named because asyncio sends small answers at once (TCP_NODELAY) only where it is.
    sock = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        sock.bind((listen.host, listen.port))
    except OSError as error:
        sock.close()
        raise NetworkError(f"http {listen.host}:{listen.port}: cannot listen there: {error.strerror}") from None
    return sock
