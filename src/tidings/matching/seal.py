"""The envelope of a snapshot: whose it is and a checksum, so that a damaged or foreign one is refused before it is read."""

import zlib

from tidings.errors import SnapshotError

_CHECKSUM_BYTES = 4


def sealed(engine: str, payload: bytes) -> bytes:
    return b"".join([_head(engine), _checksum(payload), payload])


def unsealed(engine: str, buffer: bytes | memoryview) -> memoryview:
    """The payload, or SnapshotError saying what is wrong with the buffer."""
    head, view = _head(engine), memoryview(buffer)
    begin = len(head) + _CHECKSUM_BYTES
    if view[: len(head)] != head:
        raise SnapshotError(f"no snapshot of the {engine} engine: it begins with {bytes(view[: len(head)])!r}")
    if view[len(head) : begin] != _checksum(view[begin:]):
        raise SnapshotError(f"damaged snapshot of the {engine} engine: its checksum does not fit")
    return view[begin:]


def _head(engine: str) -> bytes:
    return f"tidings-{engine}-1\n".encode()


def _checksum(payload: bytes | memoryview) -> bytes:
    return zlib.crc32(payload).to_bytes(_CHECKSUM_BYTES, "little")
