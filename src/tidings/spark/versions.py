"""A subscriptions table with versions: every change (added, changed, removed) is one file, and its number is the version.

    table/0000000001.arrow        version 1: the rows of the first load
    table/0000000002.arrow        version 2: rows put and ids removed since
    table/0000000064.full.arrow   all rows of version 64, so that nobody reads 64 files

A version is there wholly or not at all, so a micro-batch that reads "the newest" reads one state of the table.
"""

import io
from collections.abc import Iterable
from typing import Any, NamedTuple

import pyarrow as pa

from tidings.errors import InvalidInput
from tidings.spark.faults import fail_point
from tidings.spark.place import Place
from tidings.spark.subscriptions import table_of

FULL_EVERY = 64
_REMOVED = "removed"


class Change(NamedTuple):
    put: pa.Table  # rows added or changed, in normal form
    removed: list[Any]  # ids


class SubscriptionTable:
    def __init__(self, where: str | Place) -> None:
        self.place = where if isinstance(where, Place) else Place(where)

    @classmethod
    def create(cls, where: str | Place, rows: pa.Table) -> "SubscriptionTable":
        """A new table with these rows as version 1; InvalidInput if there is one already."""
        table = cls(where)
        with table.place.turn():
            if table.latest():
                raise InvalidInput(f"there is a subscriptions table at {table.place} already")
            table._write(1, Change(table_of(rows), []))
        return table

    def latest(self) -> int:
        """The newest version; 0 if there is no table."""
        return max((int(name.split(".")[0]) for name in self.place.names() if name.endswith(".arrow")), default=0)

    def change(self, put: pa.Table | None = None, removed: Iterable[Any] = ()) -> int:
        """Make a new version: rows to add or to replace by id, and ids to remove. Ids that are not there are no error."""
        removed = list(removed)
        with self.place.turn():
            version = self.latest()
            if not version:
                raise InvalidInput(f"no subscriptions table at {self.place}")
            kind = self._read(f"{1:010d}.arrow").put.schema.field("id").type
            rows = table_of(put) if put is not None else self._read(f"{1:010d}.arrow").put.slice(0, 0)
            rows = rows.set_column(0, "id", rows["id"].cast(kind))
            try:
                removed = pa.array(removed).cast(kind).to_pylist() if removed else []
            except pa.ArrowException:
                raise InvalidInput(f"removed: the ids of this table are of type {kind}") from None
            self._write(version + 1, Change(rows, removed))
            if (version + 1) % FULL_EVERY == 0:
                self._write(version + 1, Change(self.read(version + 1), []), ".full")
        return version + 1

    def changes(self, version: int) -> Change:
        """What one version changed."""
        return self._read(f"{version:010d}.arrow")

    def between(self, old: int, new: int) -> Change:
        """What versions `old` + 1 to `new` changed, as one change."""
        puts: list[pa.Table] = []
        latest: dict[Any, int | None] = {}  # id -> row in the concatenation, None if removed
        start = 0
        for version in range(old + 1, new + 1):
            put, removed = self.changes(version)
            latest.update(dict.fromkeys(removed))
            latest.update(zip(put["id"].to_pylist(), range(start, start + len(put)), strict=True))
            puts.append(put)
            start += len(put)
        rows = [row for row in latest.values() if row is not None]
        gone = [id for id, row in latest.items() if row is None]
        return Change(pa.concat_tables(puts).take(pa.array(rows, pa.int64())).combine_chunks(), gone)

    def difference(self, rows: pa.Table) -> Change:
        """What would have to change for the table to hold exactly these rows."""
        now = {row["id"]: row for row in self.read(self.latest()).to_pylist()}
        wanted = rows.to_pylist()
        changed = [at for at, row in enumerate(wanted) if now.get(row["id"]) != row]
        gone = now.keys() - {row["id"] for row in wanted}
        return Change(rows.take(pa.array(changed, pa.int64())), [id for id in now if id in gone])

    def read(self, version: int) -> pa.Table:
        """All rows of a version."""
        if not 0 < version <= self.latest():
            raise InvalidInput(f"the subscriptions table at {self.place} has no version {version}")
        fulls = [
            int(name.split(".")[0])
            for name in self.place.names()
            if name.endswith(".full.arrow") and int(name.split(".")[0]) <= version
        ]
        if not fulls:
            return self.between(0, version).put
        base = self._read(f"{max(fulls):010d}.full.arrow").put
        if max(fulls) == version:
            return base
        put, removed = self.between(max(fulls), version)
        gone = {*removed, *put["id"].to_pylist()}
        kept = [row for row, id in enumerate(base["id"].to_pylist()) if id not in gone]
        return pa.concat_tables([base.take(pa.array(kept, pa.int64())), put]).combine_chunks()

    def _write(self, version: int, change: Change, suffix: str = "") -> None:
        removed = pa.array(change.removed, change.put.schema.field("id").type)
        sink = io.BytesIO()
        for table in (change.put, pa.table({_REMOVED: removed})):
            with pa.ipc.new_stream(sink, table.schema) as stream:
                stream.write_table(table)
        with self.place.writing(f"{version:010d}{suffix}.arrow") as file:
            file.write(sink.getbuffer())
            fail_point("changing")

    def _read(self, name: str) -> Change:
        content = self.place.read(name)
        if content is None:
            raise InvalidInput(f"the subscriptions table at {self.place} lacks {name}")
        buffer = io.BytesIO(content)
        put = pa.ipc.open_stream(buffer).read_all()
        return Change(put, pa.ipc.open_stream(buffer).read_all()[_REMOVED].to_pylist())
