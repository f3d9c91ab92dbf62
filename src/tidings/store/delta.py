"""What a stretch of the journal changes, kept small: the pure heart of the store.

The journal holds every record in order, and each is written once, next to its neighbours: cheap. A Delta sums up a stretch
of it. When it is large enough it becomes cells (one change of one row each), which are written to the tables in bounded steps.
The same cells applied to a World in memory give what a restart needs. A pair that opens and closes within one stretch
never reaches the tables.
"""

import bisect
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

from tidings.model import step as s
from tidings.store.accounts import (
    ACCOUNTS,
    BROKER,
    COLUMNS,
    REASON,
    RECEIVED,
    SUBSCRIPTION,
    TOTAL,
    TYPE,
    Accounts,
    age_bucket,
)
from tidings.store.encoding import decode_as, encode

ADVERTISEMENT, COPY, TAKEN = "advertisement", "copy", "taken"
NEIGHBOUR, REMOTE, PATH = "neighbour", "remote", "path"
MAX_RUNS = 100_000

_MATCHED, _EARNING, _AGE = (COLUMNS.index(column) for column in ("matched", "earning", "age_s"))

# The kinds of cells: what happens to which table.
PUT, DROP, OPEN, CLOSE, COUNT, AGE = "put", "drop", "open", "close", "count", "age"


class Cell(NamedTuple):
    change: str
    row: tuple[Any, ...]


class Runs:
    """A set of places in the event log as runs [first, last]: events are finished nearly in order, so there are few.

    At the bound the lowest gap is closed: what it held counts as finished.
    """

    def __init__(self, runs: Iterable[tuple[int, int]] = ()) -> None:
        self.firsts = [first for first, _ in runs]
        self.lasts = [last for _, last in runs]

    def __iter__(self) -> Iterator[tuple[int, int]]:
        return zip(self.firsts, self.lasts, strict=True)

    def add(self, place: int) -> None:
        if self.lasts and place == self.lasts[-1] + 1:
            self.lasts[-1] = place
            return
        at = bisect.bisect_right(self.firsts, place)
        if at and place <= self.lasts[at - 1]:
            return
        joins_left = at > 0 and self.lasts[at - 1] == place - 1
        joins_right = at < len(self.firsts) and self.firsts[at] == place + 1
        if joins_left and joins_right:
            self.lasts[at - 1] = self.lasts[at]
            del self.firsts[at], self.lasts[at]
        elif joins_left:
            self.lasts[at - 1] = place
        elif joins_right:
            self.firsts[at] = place
        else:
            self.firsts.insert(at, place)
            self.lasts.insert(at, place)
            if len(self.firsts) > MAX_RUNS:
                del self.firsts[1], self.lasts[0]

    def gaps(self) -> list[tuple[int, int | None]]:
        """The stretches between the runs, as (first, last); the last one is open."""
        edges = [0, *(last + 1 for last in self.lasts)]
        ends: list[int | None] = [*(first - 1 for first in self.firsts), None]
        return [(first, last) for first, last in zip(edges, ends, strict=True) if last is None or first <= last]


class Delta:
    """`place` is where a record stands in the event log: of a match its event's offset (0 if unknown), of a subscription the
    offset of the next event."""

    def __init__(self) -> None:
        self.records = 0
        self.opened: dict[tuple[str, str], tuple[int, float]] = {}
        self.closed: dict[tuple[str, str], None] = {}  # pairs that an earlier stretch opened
        self.registered: dict[tuple[str, str], bytes | None] = {}  # None: it is gone
        self.copies: dict[int, s.CopyRecord] = {}
        self.handed: dict[int, None] = {}  # copies of an earlier stretch
        self.taken: dict[str, int] = {}  # peer -> number
        self._by_subscription: dict[str, list[float]] = {}
        self._matched: dict[str, int] = {}  # by type
        self._ended: dict[tuple[str, str, str, str], _Ended] = {}  # by type, broker, account, reason: few

    def __len__(self) -> int:
        """About how many cells there will be."""
        pairs, copies = len(self.opened) + len(self.closed), len(self.copies) + len(self.handed)
        return pairs + copies + len(self.registered) + len(self._by_subscription)

    def add(self, place: int, record: s.Record) -> None:
        self.records += 1
        if isinstance(record, s.AccountRecord):
            self._end(record)
        elif isinstance(record, s.MatchRecord):
            self._open(place, record)
        else:
            self._register(place, record)

    def _end(self, record: s.AccountRecord) -> None:
        event, subscription, account = record.event, record.subscription, record.account
        age_s, earning = record.age_s, record.earning
        pair = event, subscription
        if self.opened.pop(pair, None) is None:
            self.closed[pair] = None
        counts = self._by_subscription.get(subscription)
        if counts is None:
            counts = self._by_subscription[subscription] = _nothing()
        counts[ACCOUNTS[account]] += 1
        counts[_EARNING] += earning
        key = record.event_type, record.broker, account, record.reason
        ended = self._ended.get(key)
        if ended is None:
            ended = self._ended[key] = _Ended()
        ended.count += 1
        ended.earning += earning
        if account in RECEIVED:
            counts[_AGE] += age_s
            ended.age_s += age_s
            bucket = age_bucket(age_s)
            ages = ended.ages
            ages[bucket] = ages.get(bucket, 0) + 1

    def _open(self, place: int, record: s.MatchRecord) -> None:
        event, born = record.event, (place, record.born_s)
        for subscription in record.subscriptions:
            self.opened[event, subscription] = born
            counts = self._by_subscription.get(subscription)
            if counts is None:
                counts = self._by_subscription[subscription] = _nothing()
            counts[_MATCHED] += 1
        self._matched[record.event_type] = self._matched.get(record.event_type, 0) + len(record.subscriptions)

    def _register(self, place: int, record: s.Record) -> None:
        match record:
            case s.SubscriptionRecord(subscription):
                self.registered[SUBSCRIPTION, subscription.id] = encode((place, subscription))
            case s.UnsubscriptionRecord(id):
                self.registered[SUBSCRIPTION, id] = None
            case s.AdvertisementRecord(advertisement):
                self.registered[ADVERTISEMENT, advertisement.id] = encode(advertisement)
            case s.UnadvertisementRecord(id):
                self.registered[ADVERTISEMENT, id] = None
            case s.CopyRecord(number):
                self.copies[number] = record
            case s.HandedRecord(numbers):
                for number in numbers:
                    if self.copies.pop(number, None) is None:
                        self.handed[number] = None
            case s.NeighbourRecord(peer):
                self.registered[NEIGHBOUR, peer] = b""
            case s.RemoteRecord(home, _, id, subscription):
                self.registered[REMOTE, f"{home}\0{id}"] = encode(record) if subscription or not id else None
            case s.PathRecord(home):
                self.registered[PATH, home] = encode(record)
            case s.TakenRecord(peer, number):
                self.taken[peer] = max(number, self.taken.get(peer, 0))

    def cells(self) -> Iterator[Cell]:
        """Always in the same order for the same records: a restart finds its place in it again."""
        # What was closed goes before what was opened: a pair may have been closed and opened anew.
        for pair in self.closed:
            yield Cell(CLOSE, pair)
        for pair, born in self.opened.items():
            yield Cell(OPEN, (*pair, *born))
        for key, body in self.registered.items():
            yield Cell(DROP, key) if body is None else Cell(PUT, (*key, body))
        for number in self.handed:
            yield Cell(DROP, (COPY, str(number)))
        for number, copy in self.copies.items():
            yield Cell(PUT, (COPY, str(number), encode(copy)))
        for peer, number in self.taken.items():
            yield Cell(PUT, (TAKEN, peer, encode(number)))
        for name, counts in self._by_subscription.items():
            yield Cell(COUNT, (SUBSCRIPTION, name, *counts))
        for type, matched in self._matched.items():
            for kind in ((TOTAL, ""), (TYPE, type)):
                yield Cell(COUNT, (*kind, matched, 0, 0, 0, 0, 0.0, 0.0))
        for (type, broker, account, reason), ended in self._ended.items():
            for kind in ((TOTAL, ""), (TYPE, type), (BROKER, broker), (REASON, reason)):
                if kind == (REASON, ""):
                    continue
                counts = _nothing()
                counts[_MATCHED] = ended.count if kind[0] in (BROKER, REASON) else 0
                counts[ACCOUNTS[account]] = ended.count
                counts[_EARNING], counts[_AGE] = ended.earning, ended.age_s
                yield Cell(COUNT, (*kind, *counts))
                for bucket, events in ended.ages.items():
                    yield Cell(AGE, (*kind, bucket, events))


class _Ended:
    """Pairs that ended alike."""

    __slots__ = "age_s", "ages", "count", "earning"

    def __init__(self) -> None:
        self.count, self.earning, self.age_s = 0, 0.0, 0.0
        self.ages: dict[int, int] = {}


def _nothing() -> list[float]:
    return [0, 0, 0, 0, 0, 0.0, 0.0]


class World:
    """Everything that the tables hold, in memory."""

    def __init__(self) -> None:
        self.registered: dict[tuple[str, str], bytes] = {}
        self.pairs: dict[tuple[str, str], tuple[int, float]] = {}
        self.accounts = Accounts()

    def bodies(self, kind: str) -> dict[str, bytes]:
        """By name, in order."""
        return {name: body for (of, name), body in sorted(self.registered.items()) if of == kind}

    def decoded(self, kind: str, type: Any) -> list[Any]:
        return [decode_as(type, body) for body in self.bodies(kind).values()]

    def apply(self, cells: Iterable[Cell]) -> None:
        for change, row in cells:
            match change:
                case "put":
                    self.registered[row[0], row[1]] = row[2]
                case "drop":
                    self.registered.pop((row[0], row[1]), None)
                case "open":
                    self.pairs[row[0], row[1]] = row[2], row[3]
                case "close":
                    self.pairs.pop((row[0], row[1]), None)
                case "count":
                    tally = self.accounts.tally(row[0], row[1])
                    for field, amount in zip(COLUMNS, row[2:], strict=True):
                        setattr(tally, field, getattr(tally, field) + amount)
                case "age":
                    ages = self.accounts.tally(row[0], row[1]).ages
                    ages[row[2]] = ages.get(row[2], 0) + row[3]
