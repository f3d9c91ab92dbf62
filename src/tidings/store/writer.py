"""The store as its broker sees it: what it asks to be kept is on the disk before anything is acknowledged.

One thread writes. Whatever waits when it is free goes into one transaction with one sync (group commit), so the cost of the sync
is shared by all who wait: one row per event, and one for all other records of the group.

Bounds: `max_waiting` tickets and `max_waiting_kb` wait; beyond, `append` raises StoreFull and `full` says so. Records without
a ticket (matches and accounts) are always taken: the broker's own bounds on events and open pairs bound them. When a write
fails, all its tickets fail, its records without a ticket are kept and tried again, and `healthy` is False until a write succeeds.
"""

import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from typing import NamedTuple

from tidings.errors import InvalidInput, StoreError, StoreFull
from tidings.model import step as s
from tidings.store import tables
from tidings.store.base import REMEMBERED_IDS, Reader, recent_ids
from tidings.store.database import Database, Row
from tidings.store.delta import Delta
from tidings.store.encoding import check_account, due_s, encode, encode_record

log = logging.getLogger(__name__)

DEFAULT_RETENTION_S = 7 * 86_400.0

_GROUP_RECORDS = 10_000  # the most that one transaction takes
_FOLD_RECORDS, _FOLD_CELLS = 100_000, 100_000  # a stretch of journal this long is folded: it bounds the time of a start
_FOLD_STEP = 2_000  # cells in one transaction: what the next group may have to wait for
_RETRY_S = 1.0
_PLAIN = s.MatchRecord, s.TakenRecord, s.HandedRecord  # nothing but names and numbers: they can always be kept


class _Waiting(NamedTuple):
    ticket: int
    records: Sequence[s.Record]
    bodies: Sequence[bytes]  # of the records, if there is a ticket; those that cannot be refused are encoded later
    size_kb: float


class Store(Reader):
    """`on_stored(tickets)` and `on_failed(tickets, reason)` are called on the store's own thread: a driver with an event loop
    passes functions that hand over to it (`loop.call_soon_threadsafe`)."""

    def __init__(
        self,
        connect: Callable[[bool], Database],
        on_stored: Callable[[list[int]], object],
        on_failed: Callable[[list[int], str], object],
        *,
        retention_s: float = DEFAULT_RETENTION_S,
        max_waiting: int = 100_000,
        max_waiting_kb: float = 256 * 1024,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._db = connect(True)  # first, for it makes what the reader reads
        try:
            super().__init__(connect)
            self._tail = tables.Tail(self._db)
            self._ids = recent_ids(self._db, self._tail.next_event)
        except BaseException:
            self._db.close()
            raise
        self.healthy = True
        self.reason = ""  # why it is not healthy
        self._on_stored, self._on_failed = on_stored, on_failed
        self._retention_s, self._clock = retention_s, clock
        self._max_waiting, self._max_waiting_kb = max_waiting, max_waiting_kb
        self._waiting_tickets, self._waiting_kb = 0, 0.0
        self._queue: deque[_Waiting] = deque()
        self._kept: list[_Waiting] = []  # without a ticket, from a group that failed
        self._sweeps: deque[tuple[float, int, Future[int]]] = deque()
        self._closing = False
        self._lock = threading.Lock()
        self._news = threading.Event()  # something waits for the writer
        self._thread = threading.Thread(target=self._run, name="tidings-store", daemon=True)
        self._thread.start()

    @property
    def full(self) -> bool:
        """Publishers should wait: nothing with a ticket is taken now."""
        return self._waiting_tickets >= self._max_waiting or self._waiting_kb >= self._max_waiting_kb

    def append(self, ticket: int, records: Sequence[s.Record]) -> None:
        """Write all of the records or none. The answer comes to on_stored or on_failed; ticket 0 wants none."""
        bodies: Sequence[bytes] = ()
        size_kb = 0.0
        if ticket:  # what cannot be kept is refused here, before anybody waits for it
            bodies = [b"" if isinstance(record, _PLAIN) else encode_record(record) for record in records]
            size_kb = sum(map(len, bodies)) / 1024
        for record in records:
            if isinstance(record, s.AccountRecord):
                check_account(record)
        with self._lock:
            self._check_open()
            if ticket:
                if self.full:
                    raise StoreFull(f"{self._waiting_tickets} writes wait for the disk; try again later")
                self._waiting_tickets += 1
                self._waiting_kb += size_kb
            self._queue.append(_Waiting(ticket, records, bodies, size_kb))
        if not self._news.is_set():
            self._news.set()

    def sweep(self, now: float, limit: int = 1_000) -> int:
        """Delete what is past its retention, at most `limit` rows of a kind; call again while this returns something.

        Waits for the writer: call it from a thread that may wait.
        """
        done: Future[int] = Future()
        with self._lock:
            self._check_open()
            self._sweeps.append((now, limit, done))
        self._news.set()
        return done.result()

    def close(self) -> None:
        """Write what waits, then end."""
        super().close()  # first: the last connection to SQLite tidies up, and must be able to write
        with self._lock:
            self._closing = True
        self._news.set()
        self._thread.join()

    def _check_open(self) -> None:
        if self._closing:
            raise StoreError("the store is closed")

    # The writer's thread, in the order of its work.

    def _run(self) -> None:
        last = False
        while not last:
            self._news.wait(self._patience_s())
            self._news.clear()
            with self._lock:
                group, sweeps = self._take(), list(self._sweeps)
                self._sweeps.clear()
                last = self._closing and not self._queue
            if group:
                self._write(group)
            for now, limit, done in sweeps:
                self._sweep(now, limit, done)
            if self.healthy or not group:
                self._fold()
        if self._kept:
            log.error("store: %d lists of records could not be written: %s", len(self._kept), self.reason)
        self._db.close()

    def _patience_s(self) -> float | None:
        if self._queue or (self._tail.folding and self.healthy):
            return 0
        return None if self.healthy else _RETRY_S

    def _take(self) -> list[_Waiting]:
        group, self._kept = self._kept, []
        records = 0
        while self._queue and records < _GROUP_RECORDS:
            group.append(self._queue.popleft())
            records += len(group[-1].records)
        return group

    def _write(self, group: list[_Waiting]) -> None:
        tickets = [waiting.ticket for waiting in group if waiting.ticket]
        try:
            self._repair()
            self._commit(group)
        except Exception as error:
            self._failed(error)
            self._kept = [waiting for waiting in group if not waiting.ticket]
            self._answer(group, tickets, lambda: self._on_failed(tickets, self.reason))
        else:
            self.healthy, self.reason = True, ""
            self._answer(group, tickets, lambda: self._on_stored(tickets))

    def _commit(self, group: list[_Waiting]) -> None:
        tail = self._tail
        next_event = tail.next_event
        events: list[Row] = []
        journal: list[tuple[int, s.Record]] = []
        for _, records, bodies, _ in group:
            for number, record in enumerate(records):
                if isinstance(record, s.AccountRecord):
                    journal.append((0, record))
                elif isinstance(record, s.MatchRecord):
                    journal.append((self._ids.get(record.event, 0), record))
                elif isinstance(record, s.EventRecord):
                    self._remember(record.event.id, next_event)
                    events.append(
                        (next_event, due_s(record.event), bodies[number] if bodies else encode_record(record))
                    )
                    next_event += 1
                else:
                    journal.append((next_event, record))
        row: Row | None = None
        if journal:
            body = _encoded(journal)
            row = tail.next_record, len(journal), self._clock(), body
        with self._db.transaction():
            tables.write_group(self._db, events, row)
        tail.next_event = next_event
        tail.next_record += len(journal)
        for place, record in journal:
            tail.add(tail.fresh, place, record)

    def _remember(self, id: str, offset: int) -> None:
        self._ids.pop(id, None)
        self._ids[id] = offset
        if len(self._ids) > REMEMBERED_IDS:
            del self._ids[next(iter(self._ids))]

    def _answer(self, group: list[_Waiting], tickets: list[int], callback: Callable[[], object]) -> None:
        with self._lock:
            self._waiting_tickets -= len(tickets)
            self._waiting_kb -= sum(waiting.size_kb for waiting in group)
        if tickets:
            try:
                callback()
            except Exception:
                log.exception("store: nobody took the answer for %d tickets", len(tickets))

    def _fold(self) -> None:
        """One bounded step of bringing the journal into the tables, if one is due."""
        try:
            if not self.healthy:
                self._repair()
                self.healthy, self.reason = True, ""
            tail = self._tail
            if tail.folding is None:
                if tail.fresh.records < _FOLD_RECORDS and len(tail.fresh) < _FOLD_CELLS:
                    return
                tail.folding = tables.Folding(tail.fresh, tail.finished, tail.next_record - 1)
                tail.fresh = Delta()
            with self._db.transaction():
                complete = tables.fold(self._db, tail.folding, _FOLD_STEP, self._clock())
            if complete:
                tail.folded, tail.folding = tail.folding.upto, None
        except Exception as error:
            self._failed(error)

    def _sweep(self, now: float, limit: int, done: "Future[int]") -> None:
        try:
            self._repair()
            tail = self._tail
            spared = {place for place, _ in tail.fresh.opened.values()}
            if tail.folding:
                spared |= {place for place, _ in tail.folding.opened.values()}
            with self._db.transaction():
                count = tables.sweep(self._db, now - self._retention_s, tail.folded, spared, limit)
        except Exception as error:
            self._failed(error)
            done.set_exception(StoreError(self.reason))
        else:
            done.set_result(count)

    def _failed(self, error: Exception) -> None:
        if self.healthy:
            log.error("store: %s", error, exc_info=None if isinstance(error, StoreError) else error)
        self.healthy, self.reason = False, str(error)

    def _repair(self) -> None:
        """After a failure: connect anew, take back what was reported as failed, and learn again what is there."""
        if self.healthy:
            return
        self._db.close()
        self._db = self._connect(True)
        with self._db.transaction():
            tables.truncate(self._db, self._tail.next_event, self._tail.next_record)
        self._tail = tables.Tail(self._db)
        self._ids = recent_ids(self._db, self._tail.next_event)
        self._forget_reader()


def _encoded(journal: list[tuple[int, s.Record]]) -> bytes:
    """A record without a ticket that cannot be kept is left out: it must not hold up all others forever."""
    try:
        return encode(journal)
    except (TypeError, ValueError, OverflowError, RecursionError):
        for entry in list(journal):
            try:
                encode_record(entry[1])
            except InvalidInput as error:
                log.error("store: %s: %r", error, entry[1])
                journal.remove(entry)
        return encode(journal)
