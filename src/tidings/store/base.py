"""The contract of the store as its readers see it: the event log, the journal, the ledger, and what a start restores.

Events have offsets that only grow. All other records (subscriptions, matches, accounts) stand in a journal, which is folded into
tables as it grows, so that a start reads little: the tables and at most two stretches of the journal.
"""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import NamedTuple, Self

import msgspec

from tidings.errors import StoreError
from tidings.model import step as s
from tidings.model.event import Event
from tidings.model.subscription import Advertisement, Subscription
from tidings.store import tables
from tidings.store.accounts import SUBSCRIPTION, Accounts
from tidings.store.database import Database
from tidings.store.delta import ADVERTISEMENT, COPY, NEIGHBOUR, PATH, REMOTE, TAKEN, World
from tidings.store.encoding import decode_as, decode_copy, decode_event, decode_journal, is_copied

REMEMBERED_IDS = 100_000
REMEMBERED_RECORDS = 100_000  # of the journal's end, in which arrivals are looked for

_PAGE = 1_000


class Entry(NamedTuple):
    """An event at its place in the log."""

    offset: int
    event: Event
    copied: bool = False  # published elsewhere: `read` tells


class JournalEntry(NamedTuple):
    """Any other record at its place in the journal."""

    offset: int
    record: s.Record


class Live(NamedTuple):
    """A subscription; events from offset `since` on were matched against it as they came, earlier ones were not."""

    subscription: Subscription
    since: int


class Open(NamedTuple):
    """An event that still waits for these subscriptions. `event` is None if it is not in the log: then its pairs can only be
    given up. `born_s` is when it was published, on this machine's wall clock."""

    id: str
    event: Event | None
    offset: int
    born_s: float
    subscriptions: tuple[str, ...]


class State(msgspec.Struct, frozen=True):
    """What a broker was when it last wrote: all that it needs to go on."""

    subscriptions: tuple[Live, ...]
    advertisements: tuple[Advertisement, ...]
    open: tuple[Open, ...]
    accounts: Accounts
    recent_ids: tuple[str, ...]  # of the last events, oldest first: what is published again is recognised
    next_offset: int
    copies: tuple[s.CopyRecord, ...] = ()  # that the broker carries for others
    taken: dict[str, int] = {}  # peer -> the last number of its copies that is here
    arrivals: tuple[s.TakenRecord, ...] = ()  # the last copies that came: what is sent again is recognised
    neighbours: tuple[str, ...] = ()
    learned: tuple[s.OverlayRecord, ...] = ()  # of subscriptions at other brokers, and of the way there


class Reader:
    """The store as others see it, also from another process while a broker writes. Any thread may call it."""

    def __init__(self, connect: Callable[[bool], Database]) -> None:
        self._connect = connect
        self._reading = threading.Lock()
        self._read_db: Database | None = connect(False)
        self._closed = False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        with self._reading:
            self._closed = True
            if self._read_db is not None:
                self._read_db.close()

    @contextmanager
    def _reads(self) -> Iterator[Database]:
        """The connection, one thread at a time; after an error the next call connects anew."""
        with self._reading:
            if self._closed:
                raise StoreError("the store is closed")
            if self._read_db is None:
                self._read_db = self._connect(False)
            try:
                yield self._read_db
            except StoreError:
                self._read_db.close()
                self._read_db = None
                raise

    def _forget_reader(self) -> None:
        with self._reading:
            if self._read_db is not None:
                self._read_db.close()
                self._read_db = None

    @property
    def next_offset(self) -> int:
        """The offset after that of the newest event; offsets only grow and are never used again."""
        with self._reads() as db:
            return tables.next_event(db)

    @property
    def next_record(self) -> int:
        """The same of the journal."""
        with self._reads() as db, db.transaction(write=False):
            return tables.Tail(db).next_record

    def read(self, from_offset: int = 0, limit: int = _PAGE) -> list[Entry]:
        """The next events from an offset on, in order. Go on from the last one's offset + 1."""
        with self._reads() as db:
            rows = tables.event_rows(db, from_offset, None, limit)
        return [Entry(pos, decode_event(body), is_copied(body)) for pos, body in rows]

    def read_journal(self, from_offset: int = 0, limit: int = _PAGE) -> list[JournalEntry]:
        """The next records that are no events (matches, accounts, subscriptions), in order."""
        with self._reads() as db:
            rows = tables.journal_rows(db, from_offset, None, limit)
        entries = [
            JournalEntry(number, record)
            for pos, body in rows
            for number, (_, record) in enumerate(decode_journal(body), start=pos)
            if number >= from_offset
        ]
        return entries[:limit]

    def ledger(self) -> Accounts:
        """The accounts of all time, as of the last commit."""
        with self._reads() as db, db.transaction(write=False):
            return tables.load(db)[0].accounts

    def restore(self) -> State:
        """The state as of the last commit."""
        with self._reads() as db, db.transaction(write=False):
            world, tail = tables.load(db)
            recent = recent_ids(db, tail.next_event)
            opened = opened_pairs(db, world.pairs, recent)
            arrivals = latest_arrivals(db, tail.next_record) if world.bodies(TAKEN) else ()
        return state_of(world, opened, tuple(recent), tail.next_event, arrivals)

    def unmatched(self) -> Iterator[Entry]:
        """Events without a match record, in order: a broker that starts matches them now."""
        with self._reads() as db, db.transaction(write=False):
            tail = tables.Tail(db)
        for first, last in tail.finished.gaps():
            yield from self._entries(first, last)

    def valid(self, now: float) -> Iterator[Entry]:
        """Events whose timeout has not passed, in order: what a late subscriber may still get."""
        return (entry for entry in self._entries(0, None) if entry.event.timestamp_s + entry.event.timeout_s > now)

    def _entries(self, first: int, last: int | None) -> Iterator[Entry]:
        while True:
            with self._reads() as db:
                rows = tables.event_rows(db, first, last, _PAGE)
            for first, body in rows:
                yield Entry(first, decode_event(body))
            if len(rows) < _PAGE:
                return
            first += 1


def state_of(
    world: World,
    opened: tuple[Open, ...],
    recent_ids: tuple[str, ...],
    next_offset: int,
    arrivals: tuple[s.TakenRecord, ...],
) -> State:
    live = [Live(decoded[1], decoded[0]) for decoded in world.decoded(SUBSCRIPTION, tuple[int, Subscription])]
    copies = map(decode_copy, world.bodies(COPY).values())
    return State(
        tuple(sorted(live, key=lambda live: (live.since, live.subscription.id))),
        tuple(world.decoded(ADVERTISEMENT, Advertisement)),
        opened,
        world.accounts,
        recent_ids,
        next_offset,
        tuple(sorted(copies, key=lambda copy: copy.number)),
        {peer: decode_as(int, body) for peer, body in world.bodies(TAKEN).items()},
        arrivals,
        tuple(world.bodies(NEIGHBOUR)),
        (*world.decoded(REMOTE, s.RemoteRecord), *world.decoded(PATH, s.PathRecord)),
    )


def latest_arrivals(db: Database, next_record: int) -> tuple[s.TakenRecord, ...]:
    rows = tables.journal_rows(db, max(0, next_record - REMEMBERED_RECORDS), None, REMEMBERED_RECORDS)
    records = (record for _, body in rows for _, record in decode_journal(body))
    return tuple(record for record in records if isinstance(record, s.TakenRecord) and record.event)


class _OnlyId(msgspec.Struct):
    id: str


def recent_ids(db: Database, next_event: int) -> dict[str, int]:
    """Id and offset of the last events."""
    rows = tables.event_rows(db, next_event - REMEMBERED_IDS, None, REMEMBERED_IDS)
    return {decode_as(_OnlyId, body).id: pos for pos, body in rows}


def opened_pairs(
    db: Database, pairs: dict[tuple[str, str], tuple[int, float]], recent: dict[str, int]
) -> tuple[Open, ...]:
    """Open pairs by event, in the order of the log."""
    by_event: dict[tuple[int, str, float], list[str]] = {}
    for (id, subscription), (place, born_s) in pairs.items():
        by_event.setdefault((place or recent.get(id, 0), id, born_s), []).append(subscription)
    opened = []
    for (place, id, born_s), subscriptions in sorted(by_event.items()):
        rows = tables.event_rows(db, place, place, 1) if place else []
        event = decode_event(rows[0][1]) if rows else None
        opened.append(Open(id, event, place, born_s, tuple(sorted(subscriptions))))
    return tuple(opened)
