"""A broker's writing without the broker: `python store_appender.py WHERE`, to be killed at any moment.

Goes on where the store ends. Each ticket holds one event, its match and the account of an earlier one; each answer is printed.
`ticket(n)` says what the ticket's records are, so that the test can tell what any number of tickets must have left behind.
"""

import math
import os
import sys

from tidings.errors import StoreFull
from tidings.model import step as s
from tidings.model.event import checked_event
from tidings.model.filter import Op, Predicate
from tidings.model.subscription import Subscription
from tidings.store import open_store, writer

BEHIND = 5  # an account is closed this many tickets after its event


def ticket(n: int) -> list[s.Record]:
    id = f"e{n}"
    records: list[s.Record] = [
        s.EventRecord(checked_event(id, {"n": n}, "quote", timestamp_s=float(n), timeout_s=math.inf)),
        s.MatchRecord(id, ("s1", "s2"), "quote", float(n)),
    ]
    if n > BEHIND:
        records.append(s.AccountRecord(f"e{n - BEHIND}", "s1", "on_time", "", "b", 0.1, 1.0, "quote"))
    if n % 10 == 0:
        records.append(s.SubscriptionRecord(Subscription(f"s{n % 7}", "alice", Predicate("n", Op.EQ, n))))
    return records


def main(where: str) -> None:
    writer._FOLD_RECORDS, writer._FOLD_STEP = 97, 20  # so that it is killed while it folds, too
    store = open_store(
        where,
        lambda tickets: os.write(1, "".join(f"{ticket}\n" for ticket in tickets).encode()),
        lambda tickets, reason: os.write(1, f"failed: {reason}\n".encode()),
        max_waiting=50,
    )
    n = store.next_offset
    os.write(1, b"open\n")
    while True:
        try:
            store.append(n, ticket(n))
            n += 1
        except StoreFull:
            pass


if __name__ == "__main__":
    main(sys.argv[1])
