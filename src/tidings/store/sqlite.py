"""SQLite, the default: one file in a folder, write-ahead log, synced at each commit.

Readers, also in other processes, never wait for the writer. Memory: SQLite's page cache. Disk: freed pages are used again, the
file itself does not shrink.
"""

import fcntl
import os
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, ClassVar
from urllib.parse import quote

from tidings.errors import ForeignStore, StoreError, StoreLocked
from tidings.store.database import VERSION, Database, Row

FILE, LOCK = "tidings.db", "tidings.lock"
APPLICATION_ID = 0x54444E47  # "TDNG" in the file's header
_BUSY_S = 10.0
_CHECKPOINT_PAGES = 4_000  # 16 MB of log before it is copied into the file: the more, the less often the same page


class Sqlite(Database):
    types: ClassVar[dict[str, str]] = {
        "integer": "INTEGER",
        "real": "REAL",
        "blob": "BLOB",
        "keyed": "WITHOUT ROWID",
    }

    def __init__(self, folder: str | Path, *, write: bool) -> None:
        self.path = Path(folder) / FILE
        self._lock = _locked(self.path.parent) if write else None
        self._connection: sqlite3.Connection | None = None
        try:
            with self._translated():
                self._connection = self._connect(write)
                self._check(write)
                if write:
                    self.rows("PRAGMA journal_mode = WAL")
                    self.rows("PRAGMA synchronous = FULL")
                    self.rows(f"PRAGMA wal_autocheckpoint = {_CHECKPOINT_PAGES}")
        except BaseException:
            self.close()
            raise

    def _connect(self, write: bool) -> sqlite3.Connection:
        if not write and not self.path.exists():
            raise StoreError(f"{self.path}: there is no store here")
        return sqlite3.connect(
            f"file:{quote(str(self.path.absolute()))}?mode={'rwc' if write else 'ro'}",
            uri=True,
            timeout=_BUSY_S,
            isolation_level=None,
            check_same_thread=False,  # opened by one thread, then used by one other
        )

    def _check(self, write: bool) -> None:
        """Ours and of our version, or empty and then made ours; anything else stays untouched."""
        application, version, tables = (
            self.rows(sql)[0][0]
            for sql in ("PRAGMA application_id", "PRAGMA user_version", "SELECT count(*) FROM sqlite_master")
        )
        if not application and not tables and write:
            with self.transaction():
                self.create()
                self.rows(f"PRAGMA application_id = {APPLICATION_ID}")
                self.rows(f"PRAGMA user_version = {VERSION}")
        elif application != APPLICATION_ID:
            raise ForeignStore(f"{self.path}: a database of another program; expected a store of Tidings")
        elif version != VERSION:
            raise ForeignStore(f"{self.path}: a store of version {version}; this Tidings reads version {VERSION}")

    def rows(self, sql: str, *parameters: Any) -> list[Row]:
        with self._translated():
            assert self._connection is not None
            return self._connection.execute(sql, parameters).fetchall()

    def many(self, sql: str, rows: Sequence[Row]) -> None:
        with self._translated():
            assert self._connection is not None
            self._connection.executemany(sql, rows)

    def _begin(self, write: bool) -> None:
        self.rows("BEGIN IMMEDIATE" if write else "BEGIN")

    def _commit(self) -> None:
        self.rows("COMMIT")

    def _rollback(self) -> None:
        assert self._connection is not None
        if self._connection.in_transaction:  # SQLite ends it by itself after some errors
            self._connection.rollback()

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    @contextmanager
    def _translated(self) -> Iterator[None]:
        try:
            yield
        except sqlite3.Error as error:
            code = getattr(error, "sqlite_errorcode", 0) & 0xFF
            if code == sqlite3.SQLITE_NOTADB:
                raise ForeignStore(f"{self.path}: not a database; expected a store of Tidings") from None
            raise StoreError(f"{self.path}: {error}") from error


def _locked(folder: Path) -> int:
    """One writer: the lock ends with the process, however it ends."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        lock = os.open(folder / LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    except OSError as error:
        raise StoreError(f"{folder}: expected a folder that can be written to: {error.strerror}") from error
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        os.close(lock)
        if isinstance(error, BlockingIOError):
            raise StoreLocked(f"{folder}: another broker has this store open") from None
        raise StoreError(f"{folder}: cannot be locked: {error.strerror}") from error
    return lock
