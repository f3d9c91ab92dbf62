"""Frames: four bytes of length (big-endian), then one message in MessagePack. Pure: bytes in, bodies out.

A length beyond the limit is refused when its four bytes are there, before anything is kept for it; so a decoder never holds
more than one frame and what arrived with it.
"""

import struct
from collections.abc import Iterator

from tidings.errors import CodecError

HEAD = struct.Struct(">I")
MAX_FRAME_KB = 16 * 1024
GREETING_KB = 16  # before the other side has said who it is


def frame(body: bytes) -> bytes:
    return HEAD.pack(len(body)) + body


class FrameDecoder:
    """`limit_kb` may change between calls: strangers get a small one."""

    def __init__(self, limit_kb: float = MAX_FRAME_KB) -> None:
        self.limit_kb = limit_kb
        self._rest = bytearray()
        self._needed = HEAD.size  # so many bytes make the next frame, as far as is known

    def __len__(self) -> int:
        """Bytes of a frame that is not complete yet."""
        return len(self._rest)

    def feed(self, data: bytes | bytearray) -> Iterator[memoryview]:
        """The bodies of all frames that are complete now; each is good until the next call. CodecError for a length that is
        too great: nothing that follows can be understood."""
        if self._rest:
            self._rest += data
            if len(self._rest) < self._needed:
                return
            data, self._rest = self._rest, bytearray()
        view = memoryview(data)
        at, end = 0, len(view)
        try:
            while end - at >= HEAD.size:
                (length,) = HEAD.unpack_from(view, at)
                if length > self.limit_kb * 1024:
                    at = end
                    raise CodecError(f"a frame of {length} bytes: expected at most {self.limit_kb:g} KB")
                body = at + HEAD.size
                if end - body < length:
                    self._needed = HEAD.size + length
                    break
                at = body + length
                yield view[body:at]
            else:
                self._needed = HEAD.size
        finally:
            self._rest += view[at:]
