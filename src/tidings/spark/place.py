"""A folder that driver and executors share: a local or network path, or a URI that Arrow opens (s3, gs, hdfs).

Files appear whole: they are written aside and moved. On a local path `turn` is a lock between processes; object stores have none,
and there one process at a time may change a table.
"""

import contextlib
import fcntl
import os
import secrets
from collections.abc import Iterator
from typing import Any

from pyarrow import fs


class Place:
    def __init__(self, where: str) -> None:
        self.where = where if "://" in where else os.path.abspath(where)
        self._opened: tuple[Any, str] | None = None

    def __getstate__(self) -> str:
        return self.where

    def __setstate__(self, where: str) -> None:
        self.where, self._opened = where, None

    def __str__(self) -> str:
        return self.where

    @property
    def _at(self) -> tuple[Any, str]:
        if self._opened is None:
            self._opened = (
                fs.FileSystem.from_uri(self.where) if "://" in self.where else (fs.LocalFileSystem(), self.where)
            )
        return self._opened

    def uri(self, name: str = "") -> str:
        """As Spark's own readers take it."""
        path = f"{self.where}/{name}".rstrip("/")
        return path if "://" in path else f"file://{path}"

    def within(self, name: str) -> "Place":
        return Place(f"{self.where}/{name}")

    def names(self, folder: str = "") -> list[str]:
        """What is in a folder, sorted; nothing if there is none."""
        filesystem, base = self._at
        selector = fs.FileSelector(f"{base}/{folder}".rstrip("/"), allow_not_found=True)
        return sorted(info.base_name for info in filesystem.get_file_info(selector))

    def has(self, name: str) -> bool:
        filesystem, base = self._at
        return bool(filesystem.get_file_info(f"{base}/{name}").type != fs.FileType.NotFound)

    def read(self, name: str) -> bytes | None:
        filesystem, base = self._at
        try:
            with filesystem.open_input_stream(f"{base}/{name}") as file:
                return bytes(file.read())
        except FileNotFoundError:
            return None

    def write(self, name: str, content: Any) -> None:
        with self.writing(name) as file:
            file.write(content)

    @contextlib.contextmanager
    def writing(self, name: str) -> Iterator[Any]:
        """A file that is there when the block ends well, and not at all when it does not."""
        filesystem, base = self._at
        folder, _, last = f"{base}/{name}".rpartition("/")
        filesystem.create_dir(folder, recursive=True)
        aside = f"{folder}/.{last}.{secrets.token_hex(4)}"
        try:
            with filesystem.open_output_stream(aside) as file:
                yield file
            filesystem.move(aside, f"{folder}/{last}")
        except BaseException:
            with contextlib.suppress(OSError):
                filesystem.delete_file(aside)
            raise

    def move(self, source: str, target: str) -> None:
        filesystem, base = self._at
        filesystem.create_dir(f"{base}/{target}".rpartition("/")[0], recursive=True)
        filesystem.move(f"{base}/{source}", f"{base}/{target}")

    def delete(self, folder: str) -> None:
        filesystem, base = self._at
        with contextlib.suppress(FileNotFoundError):
            filesystem.delete_dir(f"{base}/{folder}")

    @contextlib.contextmanager
    def turn(self) -> Iterator[None]:
        """One process at a time, where the filesystem can say so."""
        filesystem, base = self._at
        filesystem.create_dir(base, recursive=True)
        if not isinstance(filesystem, fs.LocalFileSystem):
            yield
            return
        with open(f"{base}/.lock", "w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield
