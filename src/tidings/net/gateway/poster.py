"""POST to one URL, again and again: HTTP/1.1 by h11, one connection that is kept, every wait and every answer bounded."""

import asyncio
import contextlib
import ssl
from collections.abc import Mapping
from typing import NamedTuple
from urllib.parse import urlsplit

import h11

from tidings.errors import NetworkError

TIMEOUT_S = 10.0
MAX_HEAD, MAX_ANSWER = 16 * 1024, 64 * 1024


class PostFailed(NetworkError):
    """There was no answer."""


class Answer(NamedTuple):
    status: int
    retry_after_s: float = 0.0


class Poster:
    def __init__(self, url: str, headers: Mapping[str, str]) -> None:
        parts = urlsplit(url)
        assert parts.hostname is not None
        self._url, self._host = url, parts.hostname
        self._tls = ssl.create_default_context() if parts.scheme == "https" else None
        self._port = parts.port or (443 if self._tls else 80)
        self._target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
        self._headers = [("host", parts.netloc), ("user-agent", "tidings"), *headers.items()]
        self._http = h11.Connection(h11.CLIENT, MAX_HEAD)
        self._streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None

    async def post(self, body: bytes) -> Answer:
        """PostFailed if there is no answer in time. A kept connection that is dead by now is dialled anew."""
        kept = self._streams is not None
        try:
            async with asyncio.timeout(TIMEOUT_S):
                try:
                    return await self._once(body)
                except (OSError, h11.RemoteProtocolError):
                    if not kept:
                        raise
                    self.close()
                    return await self._once(body)
        except (OSError, h11.RemoteProtocolError) as error:  # a TimeoutError is an OSError
            self.close()
            raise PostFailed(f"{self._url}: {str(error) or 'no answer'}") from None
        except BaseException:
            self.close()
            raise

    async def _once(self, body: bytes) -> Answer:
        if self._streams is None:
            self._http = h11.Connection(h11.CLIENT, MAX_HEAD)
            self._streams = await asyncio.open_connection(self._host, self._port, ssl=self._tls)
        reader, writer = self._streams
        head = h11.Request(
            method="POST", target=self._target, headers=[*self._headers, ("content-length", str(len(body)))]
        )
        for event in (head, h11.Data(data=body), h11.EndOfMessage()):
            writer.write(self._http.send(event) or b"")
        await writer.drain()
        return await self._answer(reader)

    async def _answer(self, reader: asyncio.StreamReader) -> Answer:
        answer, size = Answer(0), 0
        while True:
            event = self._http.next_event()
            if event is h11.NEED_DATA:
                self._http.receive_data(await reader.read(16 * 1024))
            elif isinstance(event, h11.Response):
                answer = Answer(event.status_code, _seconds(dict(event.headers).get(b"retry-after", b"")))
            elif isinstance(event, h11.Data):
                size += len(event.data)
                if size > MAX_ANSWER:
                    self.close()  # nobody needs all that
                    return answer
            elif isinstance(event, h11.EndOfMessage):
                if self._http.our_state is h11.DONE and self._http.their_state is h11.DONE:
                    self._http.start_next_cycle()
                else:
                    self.close()
                return answer
            elif isinstance(event, h11.ConnectionClosed):
                raise ConnectionResetError("closed by the sink")

    def close(self) -> None:
        if self._streams is not None:
            with contextlib.suppress(OSError):
                self._streams[1].close()
            self._streams = None


def _seconds(retry_after: bytes) -> float:
    """Dates are left to those who have clocks to compare."""
    return float(retry_after) if retry_after.isdigit() and len(retry_after) < 10 else 0.0
