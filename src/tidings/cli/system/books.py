"""What the brokers' stores tell when all is over: every matched pair, and the account that it ended in."""

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from tidings.broker.ledger import Account
from tidings.cli.system.world import Wish
from tidings.model.event import Event
from tidings.model.step import AccountRecord, MatchRecord
from tidings.store import Reader, open_reader

Pairs = set[tuple[str, str]]  # event and subscription

_PAGE = 10_000
ACCOUNTS = tuple(map(str, Account))
LATENCIES = (0.5, 0.9, 0.99)


class Books(NamedTuple):
    pairs: Pairs
    closed: list[AccountRecord]
    born_s: dict[str, float]  # of the matched events

    @property
    def whole(self) -> bool:
        """Every pair has its account, and every account its pair."""
        ended = Counter((record.event, record.subscription) for record in self.closed)
        return ended.keys() == self.pairs and all(count == 1 for count in ended.values())


def read(stores: Mapping[str, str]) -> Books:
    books = Books(set(), [], {})
    for where in stores.values():
        with open_reader(where) as store:
            for record in _journal(store):
                if isinstance(record, MatchRecord):
                    books.pairs.update((record.event, id) for id in record.subscriptions)
                    books.born_s[record.event] = record.born_s
                elif isinstance(record, AccountRecord):
                    books.closed.append(record)
    return books


def events(stores: Mapping[str, str]) -> Iterator[Event]:
    """Everything that was published."""
    for where in stores.values():
        at = 0
        with open_reader(where) as store:
            while page := store.read(at, _PAGE):
                yield from (entry.event for entry in page)
                at = page[-1].offset + 1


def tally(books: Books, wishes: list[Wish], seconds: int) -> dict[str, Any]:
    """Accounts in all, by terms, by reason and by second; earning against what all in time would have earned."""
    terms = {wish.id: wish.terms for wish in wishes}
    classes = {term: _row(term.deadline_s, term.price, term.penalty) for term in sorted(set(terms.values()))}
    begin_s = min(books.born_s.values(), default=0.0)
    moments: list[dict[str, Any]] = [dict.fromkeys((*ACCOUNTS, "earning"), 0) for _ in range(seconds)]
    reasons: Counter[tuple[str, str]] = Counter()
    for record in books.closed:
        at = min(seconds - 1, int(books.born_s[record.event] - begin_s))
        for row in (classes[terms[record.subscription]], moments[at]):
            row[record.account] += 1
            row["earning"] += record.earning
        if record.reason:
            reasons[record.account, record.reason] += 1
    for term, row in classes.items():
        row["matched"] = sum(row[account] for account in ACCOUNTS)
        row["ideal"] = row["matched"] * term.price
    total = {name: sum(row[name] for row in classes.values()) for name in ("matched", *ACCOUNTS, "earning", "ideal")}
    return {
        "accounts": total,
        "success_rate": total["on_time"] / total["matched"] if total["matched"] else 1.0,
        "terms": list(classes.values()),
        "reasons": [
            {"account": account, "reason": reason, "count": count} for (account, reason), count in reasons.most_common()
        ],
        "latency_s": _latencies(books),
        "seconds": moments,
    }


def _row(deadline_s: float, price: float, penalty: float) -> dict[str, Any]:
    names = ("matched", *ACCOUNTS, "earning", "ideal")
    return {"deadline_s": deadline_s, "price": price, "penalty": penalty, **dict.fromkeys(names, 0)}


def _latencies(books: Books) -> dict[str, float | None]:
    ages = sorted(record.age_s for record in books.closed if record.account in (Account.ON_TIME, Account.LATE))
    return {f"p{share * 100:g}": ages[int(share * (len(ages) - 1))] if ages else None for share in LATENCIES}


def _journal(store: Reader) -> Iterator[Any]:
    at = 0
    while page := store.read_journal(at, _PAGE):
        yield from (entry.record for entry in page)
        at = page[-1].offset + 1
