"""PostgreSQL by configuration: the same tables in a schema of their own, so that several brokers may share a database.

`postgresql://user@host/database?schema=name`; the schema is `tidings` if none is named. The server promises the disk: its `fsync`
and full_page_writes must be on, which is the default; the commit itself waits for the sync whatever the server's default.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any, ClassVar
from urllib.parse import parse_qsl, urlencode

import psycopg
from psycopg import sql as quoting

from tidings.errors import ForeignStore, StoreError, StoreLocked
from tidings.store.database import VERSION, Database, Row

_DEFAULT_SCHEMA = "tidings"
_CONNECT_S = 10
_LOCK_S = 3


class Postgres(Database):
    types: ClassVar[dict[str, str]] = {
        "integer": "BIGINT",
        "real": "DOUBLE PRECISION",
        "blob": "BYTEA",
        "keyed": "",
    }

    def __init__(self, url: str, *, write: bool) -> None:
        base, _, query = url.partition("?")
        options = {"connect_timeout": str(_CONNECT_S), **dict(parse_qsl(query))}
        self.schema = options.pop("schema", _DEFAULT_SCHEMA)
        self._name = f"PostgreSQL, schema {self.schema!r}"  # without the address: it may hold a password
        self._connection: psycopg.Connection[Row] | None = None
        try:
            with self._translated():
                self._connection = psycopg.connect(f"{base}?{urlencode(options)}", autocommit=True)
                self.rows("SET client_min_messages = warning")
                self.rows("SET synchronous_commit = on")
                if write:
                    self._lock()
                self._check(write)
                self._connection.execute(quoting.SQL("SET search_path = {}").format(quoting.Identifier(self.schema)))
        except BaseException:
            self.close()
            raise

    def _lock(self) -> None:
        """One writer: the lock ends with its connection. A writer that was killed holds it until the server notices."""
        self.rows("SET tcp_keepalives_idle = 10")
        self.rows("SET tcp_keepalives_interval = 5")
        self.rows("SET tcp_keepalives_count = 3")
        self.rows(f"SET lock_timeout = '{_LOCK_S}s'")
        try:
            self.rows("SELECT pg_advisory_lock(hashtextextended(?, 0))", f"tidings store {self.schema}")
        except StoreError as error:
            if isinstance(error.__cause__, psycopg.errors.LockNotAvailable):
                raise StoreLocked(f"{self._name}: another broker has this store open") from None
            raise
        self.rows("SET lock_timeout = 0")

    def _check(self, write: bool) -> None:
        """Ours and of our version, or not there and then made; anything else stays untouched."""
        found = self.rows(
            "SELECT obj_description(oid, 'pg_namespace') FROM pg_namespace WHERE nspname = ?", self.schema
        )
        ours = f"store of Tidings, version {VERSION}"
        if not found and not write:
            raise StoreError(f"{self._name}: there is no store here")
        if not found:
            name = quoting.Identifier(self.schema)
            assert self._connection is not None
            with self.transaction():
                self._connection.execute(quoting.SQL("CREATE SCHEMA {}").format(name))
                self._connection.execute(quoting.SQL("SET LOCAL search_path = {}").format(name))
                self.create()
                self._connection.execute(quoting.SQL("COMMENT ON SCHEMA {} IS {}").format(name, quoting.Literal(ours)))
        elif found[0][0] != ours:
            raise ForeignStore(f"{self._name}: expected a {ours}, found: {found[0][0] or 'another schema'}")

    def rows(self, sql: str, *parameters: Any) -> list[Row]:
        with self._translated():
            assert self._connection is not None
            cursor = self._connection.execute(sql.replace("?", "%s").encode(), parameters)
            return cursor.fetchall() if cursor.description else []

    def many(self, sql: str, rows: Sequence[Row]) -> None:
        with self._translated():
            assert self._connection is not None
            self._connection.cursor().executemany(sql.replace("?", "%s").encode(), rows)

    def _begin(self, write: bool) -> None:
        self.rows("BEGIN" if write else "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")

    def _commit(self) -> None:
        self.rows("COMMIT")

    def _rollback(self) -> None:
        if self._connection is not None and not self._connection.broken:
            with suppress(psycopg.Error):
                self._connection.execute("ROLLBACK")

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    @contextmanager
    def _translated(self) -> Iterator[None]:
        try:
            yield
        except psycopg.Error as error:
            raise StoreError(f"{self._name}: {str(error).strip() or type(error).__name__}") from error
