"""Where a broker keeps what it must not lose: a folder with SQLite by default, or a PostgreSQL database."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from tidings.errors import StoreError
from tidings.store.accounts import Accounts, Tally
from tidings.store.base import Entry, JournalEntry, Live, Open, Reader, State
from tidings.store.database import Database
from tidings.store.sqlite import Sqlite
from tidings.store.writer import Store

__all__ = [
    "Accounts",
    "Entry",
    "JournalEntry",
    "Live",
    "Open",
    "Reader",
    "State",
    "Store",
    "Tally",
    "open_reader",
    "open_store",
]


def open_store(
    where: str | Path,
    on_stored: Callable[[list[int]], object],
    on_failed: Callable[[list[int], str], object],
    **options: Any,
) -> Store:
    """The store in a folder, or at `postgresql://...`, for its one writer; it is made if it is not there."""
    return Store(_database(where), on_stored, on_failed, **options)


def open_reader(where: str | Path) -> Reader:
    """A store to read from, while a broker writes to it or not."""
    return Reader(_database(where))


def _database(where: str | Path) -> Callable[[bool], Database]:
    if not str(where).startswith(("postgresql://", "postgres://")):
        return lambda write: Sqlite(where, write=write)
    try:
        from tidings.store.postgres import Postgres
    except ImportError:
        raise StoreError("PostgreSQL needs a driver: pip install 'tidings[postgres]'") from None
    return lambda write: Postgres(str(where), write=write)
