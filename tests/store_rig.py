"""What the tests of the store share: a store whose answers can be waited for, records, and the plainest ledger there is."""

import math
import threading
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, Self

from tidings.model import step as s
from tidings.model.event import Event, checked_event
from tidings.model.filter import Op, Predicate
from tidings.model.subscription import Subscription
from tidings.store import Store, open_store

PATIENCE_S = 60


class Rig:
    """A store with its answers. `hold` keeps the writer waiting in its callback until `release`."""

    def __init__(self, where: str | Path, **options: Any) -> None:
        self.stored: list[int] = []
        self.groups: list[list[int]] = []
        self.failed: dict[int, str] = {}
        self.fell_ill = False  # seen at the last failure: the store may recover at any moment after it
        self._free = threading.Event()
        self._free.set()
        self._news = threading.Condition()
        self.store: Store = open_store(where, self._on_stored, self._on_failed, **options)
        self._ticket = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.release()
        self.store.close()

    def append(self, *records: s.Record) -> int:
        """Without waiting."""
        self.store.append(self._ticket + 1, records)
        self._ticket += 1
        return self._ticket

    def write(self, *records: s.Record) -> None:
        """And wait until it is safe."""
        ticket = self.append(*records)
        self.wait(lambda: ticket in self.stored or ticket in self.failed)
        assert ticket not in self.failed, self.failed[ticket]

    def refused(self, *records: s.Record) -> str:
        """And wait until it is known that it is not safe; why."""
        ticket = self.append(*records)
        self.wait(lambda: ticket in self.stored or ticket in self.failed)
        assert ticket in self.failed
        return self.failed[ticket]

    def wait(self, condition: Callable[[], bool]) -> None:
        with self._news:
            assert self._news.wait_for(condition, PATIENCE_S)

    def hold(self) -> None:
        self._free.clear()

    def release(self) -> None:
        self._free.set()

    def _on_stored(self, tickets: list[int]) -> None:
        with self._news:
            self.stored += tickets
            self.groups.append(tickets)
            self._news.notify_all()
        assert self._free.wait(PATIENCE_S)

    def _on_failed(self, tickets: list[int], reason: str) -> None:
        with self._news:
            self.failed |= dict.fromkeys(tickets, reason)
            self.fell_ill = not self.store.healthy
            self._news.notify_all()


def until(condition: Callable[[], bool]) -> None:
    """Wait for what nobody announces."""
    pause, tries = threading.Event(), PATIENCE_S * 50
    while not condition():
        assert tries > 0
        tries -= 1
        pause.wait(0.02)


def event(id: str, timestamp_s: float = 0.0, timeout_s: float = math.inf, type: str = "quote") -> Event:
    return checked_event(id, {"n": 1}, type, timestamp_s=timestamp_s, timeout_s=timeout_s)


def subscription(id: str, limit: int = 1) -> Subscription:
    return Subscription(id, "alice", Predicate("n", Op.GE, limit), ("quote",), 40, 1.5, 0.15)


def account(
    event: str, subscription: str, account: str = "on_time", reason: str = "", age_s: float = 0.5
) -> s.AccountRecord:
    earning = 1.5 if account == "on_time" else -0.15
    return s.AccountRecord(event, subscription, account, reason, "b1", age_s, earning, "quote")


class Oracle:
    """What a store must know after these records: no folding, no files, everything in plain sight."""

    def __init__(self, records: Iterable[s.Record] = ()) -> None:
        self.events: list[Event] = []
        self.subscriptions: dict[str, tuple[int, Subscription]] = {}
        self.pairs: set[tuple[str, str]] = set()
        self.matched: set[str] = set()
        self.accounts: list[s.AccountRecord] = []
        self.opened = 0
        for record in records:
            self.add(record)

    def add(self, record: s.Record) -> None:
        match record:
            case s.EventRecord(event):
                self.events.append(event)
            case s.SubscriptionRecord(subscription):
                self.subscriptions[subscription.id] = (len(self.events) + 1, subscription)
            case s.UnsubscriptionRecord(id):
                self.subscriptions.pop(id, None)
            case s.MatchRecord(event, subscriptions):
                self.matched.add(event)
                self.pairs |= {(event, subscription) for subscription in subscriptions}
                self.opened += len(subscriptions)
            case s.AccountRecord(event, subscription):
                self.pairs.discard((event, subscription))
                self.accounts.append(record)

    def check(self, store: Any) -> None:
        """The store says the same."""
        state = store.restore()
        assert [entry.event for entry in store.read(0, 1_000_000)] == self.events
        assert state.next_offset == len(self.events) + 1
        assert {
            live.subscription.id: (live.since, live.subscription) for live in state.subscriptions
        } == self.subscriptions
        assert {(open.id, subscription) for open in state.open for subscription in open.subscriptions} == self.pairs
        assert all(open.event is not None and open.event.id == open.id for open in state.open)
        assert [entry.event.id for entry in store.unmatched()] == [
            e.id for e in self.events if e.id not in self.matched
        ]
        assert state.recent_ids == tuple(event.id for event in self.events)
        self.check_accounts(state.accounts)

    def check_accounts(self, accounts: Any) -> None:
        self._check_tally(accounts.total, self.accounts)
        assert (accounts.total.matched, accounts.total.pending) == (self.opened, len(self.pairs))
        for kind, by in (
            ("subscription", accounts.by_subscription),
            ("broker", accounts.by_broker),
            ("reason", accounts.by_reason),
            ("event_type", accounts.by_type),
        ):
            for key, tally in by.items():
                self._check_tally(tally, [record for record in self.accounts if getattr(record, kind) == key])
        assert {record.reason for record in self.accounts} - {""} == set(accounts.by_reason)

    @staticmethod
    def _check_tally(tally: Any, records: list[s.AccountRecord]) -> None:
        for name in ("on_time", "late", "expired", "undeliverable"):
            assert getattr(tally, name) == sum(record.account == name for record in records)
        assert abs(tally.earning - sum(record.earning for record in records)) < 1e-6
