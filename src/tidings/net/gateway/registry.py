"""What a broker does not know of an HTTP subscription (its sink, how its filters were written), kept for the next start.

Lines of JSON in the store's folder: appended and synced before the answer leaves, written anew at the start and when most of them
are history. Without a folder (PostgreSQL, or no store) a gateway that starts again knows such subscriptions by their filter, but
not their sink.
"""

import asyncio
import contextlib
import os
from pathlib import Path

import msgspec

from tidings.errors import StoreError
from tidings.net.gateway.resources import Resource

FILE = "http.jsonl"
_HISTORY = 1_000  # lines that may be history, beyond one for each resource


class _Line(msgspec.Struct, omit_defaults=True):
    put: Resource | None = None
    remove: str = ""


class Registry:
    """What the resources of a gateway were when it last wrote."""

    def __init__(self, file: Path | None) -> None:
        self._file = file
        self._writing = asyncio.Lock()
        self._known: dict[str, Resource] = {}
        self._lines = 0

    async def load(self, live: set[str]) -> dict[str, Resource]:
        """Those that are still live at the broker."""
        await asyncio.get_running_loop().run_in_executor(None, self._load, live)
        return dict(self._known)

    async def put(self, resource: Resource) -> None:
        await self._change(_Line(put=resource))

    async def remove(self, id: str) -> None:
        await self._change(_Line(remove=id))

    async def _change(self, line: _Line) -> None:
        if self._file is not None:
            async with self._writing:
                await asyncio.get_running_loop().run_in_executor(None, self._append, self._file, line)

    def _append(self, file: Path, line: _Line) -> None:
        _write(file, [line])
        self._lines += 1
        self._apply(line)
        if self._lines > 2 * len(self._known) + _HISTORY:
            self._write_anew(file)

    def _apply(self, line: _Line) -> None:
        if line.put is not None:
            self._known[str(line.put.id)] = line.put
        self._known.pop(line.remove, None)

    def _load(self, live: set[str]) -> None:
        file = self._file
        if file is None or not file.exists():
            return
        try:
            lines = file.read_bytes().splitlines()
        except OSError as error:
            raise StoreError(f"{file}: {error.strerror}") from None
        for number, text in enumerate(lines, 1):
            try:
                self._apply(msgspec.json.decode(text, type=_Line))
            except (msgspec.DecodeError, UnicodeDecodeError) as error:
                if number < len(lines):  # the last one may be cut short by a crash: its answer never left
                    raise StoreError(f"{file}:{number}: no line of ours: {error}") from None
        self._known = {id: resource for id, resource in self._known.items() if id in live}
        self._write_anew(file)

    def _write_anew(self, file: Path) -> None:
        fresh = file.with_suffix(".new")
        fresh.unlink(missing_ok=True)
        _write(fresh, [_Line(put=resource) for resource in self._known.values()])
        os.replace(fresh, file)
        self._lines = len(self._known)


def _write(file: Path, lines: list[_Line]) -> None:
    """All or nothing, as far as the disk lets us."""
    size = 0
    try:
        with open(file, "ab") as out:
            size = out.tell()
            out.write(b"".join(msgspec.json.encode(line) + b"\n" for line in lines))
            out.flush()
            os.fsync(out.fileno())
    except OSError as error:
        with contextlib.suppress(OSError):
            os.truncate(file, size)
        raise StoreError(f"{file}: {error.strerror}") from None
