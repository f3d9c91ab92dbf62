"""One buffer for many arrays: what `snapshot` gives and `load` maps.

    16 bytes   magic, with the version of the format
     4 bytes   CRC-32 of everything after it
     4 bytes   (unused)
     8 bytes   size of the header
    header     MessagePack: what the arrays mean (for whoever wrote them), then type, place and length of each
    arrays     little-endian, each at a cache line

Arrays that are unpacked are views of the buffer: several processes that map one file share its memory.
"""

import sys
import zlib
from collections.abc import Sequence
from typing import Any

import msgspec
import numpy as np

from tidings.errors import SnapshotError
from tidings.matching.boxtree.memory import LINE, Array

MAGIC = b"tidings-boxtree1"
_CHECKSUM, _SIZE, _HEADER = 16, 24, 32


def pack(meaning: bytes, arrays: Sequence[Array]) -> memoryview:
    """One buffer with the arrays, and `meaning` to tell them apart."""
    places, end = [], 0
    for array in arrays:
        places.append((array.dtype.str, end, len(array)))
        end += -(-array.nbytes // LINE) * LINE
    header = msgspec.msgpack.encode((meaning, places))
    begin = -(-(_HEADER + len(header)) // LINE) * LINE
    buffer = bytearray(begin + end)
    buffer[: len(MAGIC)] = MAGIC
    buffer[_SIZE:_HEADER] = len(header).to_bytes(8, "little")
    buffer[_HEADER : _HEADER + len(header)] = header
    for (dtype, place, length), array in zip(places, arrays, strict=True):
        np.frombuffer(buffer, dtype, length, begin + place)[:] = array
    view = memoryview(buffer)
    buffer[_CHECKSUM : _CHECKSUM + 4] = zlib.crc32(view[_CHECKSUM + 4 :]).to_bytes(4, "little")
    return view


def unpack(buffer: Any) -> tuple[bytes, list[Array]]:
    """The meaning and the arrays, as views; SnapshotError for a buffer that is damaged or not ours."""
    view = memoryview(buffer).cast("B")
    if sys.byteorder != "little":
        raise SnapshotError("a snapshot holds little-endian numbers, and this machine is big-endian")
    if view[: len(MAGIC)] != MAGIC:
        raise SnapshotError(f"no snapshot of the boxtree engine of this version: it begins with {bytes(view[:16])!r}")
    if len(view) < _HEADER or zlib.crc32(view[_CHECKSUM + 4 :]) != int.from_bytes(
        view[_CHECKSUM : _CHECKSUM + 4], "little"
    ):
        raise SnapshotError("damaged snapshot of the boxtree engine: its checksum does not fit")
    size = int.from_bytes(view[_SIZE:_HEADER], "little")
    meaning, places = msgspec.msgpack.decode(
        view[_HEADER : _HEADER + size], type=tuple[bytes, list[tuple[str, int, int]]]
    )
    begin = -(-(_HEADER + size) // LINE) * LINE
    if np.frombuffer(view, np.uint8).ctypes.data % 8:
        view = memoryview(bytes(view))  # numbers must not begin at odd addresses
    return meaning, [np.frombuffer(view, dtype, length, begin + place) for dtype, place, length in places]
