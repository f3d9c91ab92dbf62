"""A broker's store as an event log: Spark reads what the broker has accepted, while the broker writes.

Offsets are the store's own: they only grow, and events past their retention leave gaps. Executors must see the store, so it is a
folder on a shared disk or a PostgreSQL database; on one machine any folder does.
"""

from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa

from tidings.spark.log import OPEN_SCHEMA, EventLog, even_ranges, table_of_events
from tidings.store import open_reader
from tidings.store.sqlite import FILE

_PAGE = 10_000


class StoreLog:
    """The reading half of `EventLog`."""

    schema = OPEN_SCHEMA

    def __init__(self, where: str) -> None:
        self.where = where
        open_reader(where).close()

    def first(self) -> int:
        with open_reader(self.where) as store:
            entries = store.read(0, 1)
            return entries[0].offset if entries else store.next_offset

    def end(self) -> int:
        with open_reader(self.where) as store:
            return store.next_offset

    def ranges(self, start: int, end: int, parts: int) -> list[tuple[int, int]]:
        return even_ranges(start, end, parts)

    def read(self, start: int, end: int) -> Iterator[pa.RecordBatch]:
        with open_reader(self.where) as store:
            while start < end:
                entries = [entry for entry in store.read(start, min(_PAGE, end - start)) if entry.offset < end]
                if not entries:
                    return
                yield from table_of_events(entry.event for entry in entries).to_batches()
                start = entries[-1].offset + 1


def open_log(where: str) -> EventLog | StoreLog:
    """The event log in a folder, or the store of a broker there or at `postgresql://...`."""
    if "://" in where or (Path(where) / FILE).is_file():
        return StoreLog(where)
    return EventLog(where)
