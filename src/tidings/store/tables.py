"""The SQL of the store, once for every database: groups in, cells in, rows out."""

from collections.abc import Callable, Sequence
from itertools import chain, groupby, islice
from typing import Any

from tidings.model.step import MatchRecord, Record
from tidings.store.accounts import SUBSCRIPTION
from tidings.store.database import Database, Row
from tidings.store.delta import AGE, CLOSE, COUNT, DROP, OPEN, PUT, Cell, Delta, Runs, World
from tidings.store.encoding import decode_as, decode_journal, encode

MARK = "mark"
_FOLDED, _FOLDING, _FINISHED, _LAST_EVENT, _LAST_RECORD = "folded", "folding", "finished", "last event", "last record"
_REPAIRED = "repaired"
_PAGE = 1_000
_FAR = 2**63 - 1

_CHANGES = {
    PUT: "INSERT INTO state VALUES (?, ?, ?) ON CONFLICT (kind, name) DO UPDATE SET body = excluded.body",
    DROP: "DELETE FROM state WHERE kind = ? AND name = ?",
    OPEN: """INSERT INTO pair VALUES (?, ?, ?, ?)
        ON CONFLICT (event, subscription) DO UPDATE SET pos = excluded.pos, born_s = excluded.born_s""",
    CLOSE: "DELETE FROM pair WHERE event = ? AND subscription = ?",
    COUNT: """INSERT INTO tally VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT (kind, name) DO UPDATE SET
        matched = tally.matched + excluded.matched, on_time = tally.on_time + excluded.on_time,
        late = tally.late + excluded.late, expired = tally.expired + excluded.expired,
        undeliverable = tally.undeliverable + excluded.undeliverable, earning = tally.earning + excluded.earning,
        age_s = tally.age_s + excluded.age_s, at_s = excluded.at_s""",
    AGE: """INSERT INTO age VALUES (?, ?, ?, ?)
        ON CONFLICT (kind, name, bucket) DO UPDATE SET events = age.events + excluded.events""",
}


# Names are text in cells and bytes in rows.
_ROWS: dict[str, Callable[[Row, float], Row]] = {
    PUT: lambda row, at_s: (row[0], row[1].encode(), row[2]),
    DROP: lambda row, at_s: (row[0], row[1].encode()),
    OPEN: lambda row, at_s: (row[0].encode(), row[1].encode(), *row[2:]),
    CLOSE: lambda row, at_s: (row[0].encode(), row[1].encode()),
    COUNT: lambda row, at_s: (row[0], row[1].encode(), *row[2:], at_s),
    AGE: lambda row, at_s: (row[0], row[1].encode(), *row[2:]),
}


class Folding:
    """A stretch of the journal on its way into the tables: its first `done` cells are there."""

    def __init__(self, delta: Delta, finished: Runs, upto: int, done: int = 0) -> None:
        self.opened = delta.opened
        self.upto, self.done = upto, done
        finish = Cell(PUT, (MARK, _FINISHED, encode(list(finished))))
        self.left = islice(chain([finish], delta.cells()), done, None)


class Tail:
    """What the journal holds beyond the tables, and where event log and journal go on."""

    def __init__(self, db: Database) -> None:
        marks: dict[bytes, bytes] = dict(db.rows("SELECT name, body FROM state WHERE kind = ?", MARK))

        def mark(name: str, kind: Any, default: Any) -> Any:
            return decode_as(kind, marks[name.encode()]) if name.encode() in marks else default

        self.finished = Runs(mark(_FINISHED, list[tuple[int, int]], ()))
        self.next_event = next_event(db)
        self.folded: int = mark(_FOLDED, int, 0)
        last_record = self.folded
        upto, done = mark(_FOLDING, tuple[int, int], (0, 0))
        self.folding: Folding | None = None
        if upto:
            delta = Delta()
            last_record = self._replay(db, delta, last_record, upto)
            self.folding = Folding(delta, self.finished, upto, done)
        self.fresh = Delta()
        last_record = self._replay(db, self.fresh, last_record, None)
        self.next_record: int = max(last_record, mark(_LAST_RECORD, int, 0)) + 1

    def _replay(self, db: Database, delta: Delta, last: int, upto: int | None) -> int:
        """The records after `last` into the delta; the number of the last one."""
        while rows := journal_rows(db, last + 1, upto, _PAGE):
            for pos, body in rows:
                records = decode_journal(body)
                for place, record in records:
                    self.add(delta, place, record)
                last = pos + len(records) - 1
        return last

    def add(self, delta: Delta, place: int, record: Record) -> None:
        delta.add(place, record)
        if place and isinstance(record, MatchRecord):
            self.finished.add(place)


def next_event(db: Database) -> int:
    """Also when the newest events have been deleted."""
    last = db.rows("SELECT max(pos) FROM event")[0][0] or 0
    marked = db.rows("SELECT body FROM state WHERE kind = ? AND name = ?", MARK, _LAST_EVENT.encode())
    return max(last, decode_as(int, marked[0][0]) if marked else 0) + 1


def load(db: Database) -> tuple[World, Tail]:
    """Everything. In one transaction it is as of one moment."""
    world = World()
    tail = Tail(db)
    for kind, name, body in db.rows("SELECT kind, name, body FROM state WHERE kind <> ? ORDER BY kind, name", MARK):
        world.registered[kind, name.decode()] = body
    for event, subscription, pos, born_s in db.rows("SELECT * FROM pair ORDER BY event, subscription"):
        world.pairs[event.decode(), subscription.decode()] = pos, born_s
    for kind, name, *counts, _ in db.rows("SELECT * FROM tally ORDER BY kind, name"):
        world.apply([Cell(COUNT, (kind, name.decode(), *counts))])
    for kind, name, bucket, events in db.rows("SELECT * FROM age ORDER BY kind, name, bucket"):
        world.apply([Cell(AGE, (kind, name.decode(), bucket, events))])
    if tail.folding:
        world.apply(tail.folding.left)
    world.apply(tail.fresh.cells())
    return world, tail


def journal_rows(db: Database, first: int, upto: int | None, limit: int) -> list[Row]:
    """(number of its first record, body) of the rows that hold the records from `first` on."""
    return db.rows(
        "SELECT pos, body FROM journal WHERE pos + records > ? AND pos <= ? AND pos >= "
        "(SELECT coalesce(max(pos), 0) FROM journal WHERE pos <= ?) ORDER BY pos LIMIT ?",
        first,
        _FAR if upto is None else upto,
        first,
        limit,
    )


def event_rows(db: Database, first: int, last: int | None, limit: int) -> list[Row]:
    return db.rows(
        "SELECT pos, body FROM event WHERE pos >= ? AND pos <= ? ORDER BY pos LIMIT ?",
        first,
        _FAR if last is None else last,
        limit,
    )


def write_group(db: Database, events: Sequence[Row], journal: Row | None) -> None:
    if events:
        db.many("INSERT INTO event VALUES (?, ?, ?)", events)
    if journal:
        db.rows("INSERT INTO journal VALUES (?, ?, ?, ?)", *journal)


def fold(db: Database, folding: Folding, step: int, at_s: float) -> bool:
    """Write the next cells; True when that was all."""
    some = list(islice(folding.left, step))
    for change, cells in groupby(some, key=lambda cell: cell.change):
        as_row = _ROWS[change]
        db.many(_CHANGES[change], [as_row(cell.row, at_s) for cell in cells])
    folding.done += len(some)
    if len(some) == step:
        _mark(db, _FOLDING, (folding.upto, folding.done))
        return False
    _mark(db, _FOLDED, folding.upto)
    db.rows(_CHANGES[DROP], MARK, _FOLDING.encode())
    return True


def truncate(db: Database, next_event: int, next_record: int) -> None:
    """After a commit of unknown outcome: what was reported as failed must not be there. Its offsets are not used again."""
    for table, first, mark in (("event", next_event, _LAST_EVENT), ("journal", next_record, _LAST_RECORD)):
        last = db.rows(f"SELECT max(pos) FROM {table}")[0][0] or 0
        if last >= first:
            if table == "journal":
                last += db.rows("SELECT records FROM journal WHERE pos = ?", last)[0][0]
            db.rows(f"DELETE FROM {table} WHERE pos >= ?", first)
            _mark(db, mark, last)
    _mark(db, _REPAIRED, 0)  # a write in any case: it shows whether the disk takes one again


def sweep(db: Database, before_s: float, folded: int, spared: set[int], limit: int) -> int:
    """Delete at most `limit` rows of each table that is past its retention; how many events and journal rows went.

    An event with an open pair stays: `spared` are those whose pairs are not in the tables yet.
    """
    due = db.rows(
        "SELECT pos FROM event WHERE due_s <= ? AND NOT EXISTS (SELECT 1 FROM pair WHERE pair.pos = event.pos) "
        "ORDER BY due_s LIMIT ?",
        before_s,
        limit + len(spared),
    )
    events = [row for row in due if row[0] not in spared][:limit]
    if events:
        _mark(db, _LAST_EVENT, next_event(db) - 1)
        db.many("DELETE FROM event WHERE pos = ?", events)
    rows = db.rows("SELECT pos FROM journal WHERE at_s <= ? AND pos <= ? ORDER BY pos LIMIT ?", before_s, folded, limit)
    db.many("DELETE FROM journal WHERE pos = ?", rows)
    gone = db.rows(
        "SELECT kind, name FROM tally WHERE kind = ? AND at_s <= ? AND NOT EXISTS "
        "(SELECT 1 FROM state WHERE state.kind = tally.kind AND state.name = tally.name) LIMIT ?",
        SUBSCRIPTION,
        before_s,
        limit,
    )
    for table in ("tally", "age"):
        db.many(f"DELETE FROM {table} WHERE kind = ? AND name = ?", gone)
    return len(events) + len(rows)


def _mark(db: Database, name: str, value: Any) -> None:
    db.rows(_CHANGES[PUT], MARK, name.encode(), encode(value))
