"""Confirmed events per second: group commit against one commit per event, on the same disk in the same run.

    python benchmarks/bench_store.py [--seconds 1.5] [--where FOLDER or postgresql://...]

"In flight" is how many events a publisher has sent without having their confirmation: with one, each event pays its own sync;
with many, they share it. `events` appends events only; `accounts` is a broker's whole writing: each event with its match of five
subscriptions, and their five accounts. Then: how long a start takes after all that.
"""

import argparse
import itertools
import tempfile
import threading
import time
from pathlib import Path

from tidings.model import step as s
from tidings.model.event import checked_event
from tidings.store import Store, open_store
from tidings.store.encoding import due_s, encode_record
from tidings.store.sqlite import Sqlite

IN_FLIGHT = (1, 10, 100, 1_000)
SUBSCRIPTIONS = 200_000
ATTRIBUTES = {f"a{n}": n * 0.1 for n in range(15)}


class Publisher:
    """Keeps so many events in flight; counts confirmations."""

    def __init__(self, where: str) -> None:
        self._lost: list[str] = []
        self._left = threading.Semaphore(0)
        self._numbers = itertools.count(1)
        self.store: Store = open_store(where, self._stored, lambda tickets, reason: self._lost.append(reason))

    def _stored(self, tickets: list[int]) -> None:
        self._left.release(len(tickets))

    def run(self, in_flight: int, seconds: float, accounts: bool) -> tuple[float, float]:
        """Events per second, and CPU microseconds per event in all threads."""
        start, cpu_s, confirmed = time.perf_counter(), time.process_time(), 0
        for _ in range(in_flight):
            self._publish(accounts)
        while (now := time.perf_counter()) - start < seconds:
            self._left.acquire()
            confirmed += 1
            self._publish(accounts)
        for _ in range(in_flight):
            self._left.acquire()
        assert not self._lost, self._lost[0]
        cpu_s = time.process_time() - cpu_s
        return confirmed / (now - start), cpu_s / (confirmed + in_flight) * 1e6

    def _publish(self, accounts: bool) -> None:
        n = next(self._numbers)
        id = f"event-{n}"
        self.store.append(n, (s.EventRecord(checked_event(id, ATTRIBUTES, "quote", timestamp_s=float(n))),))
        if accounts:
            wanted = tuple(f"subscription-{(n * 7919 + k * 40_009) % SUBSCRIPTIONS}" for k in range(5))
            self.store.append(0, (s.MatchRecord(id, wanted, "quote", float(n)),))
            for name in wanted:
                self.store.append(0, (s.AccountRecord(id, name, "on_time", "", "b", 0.01, 1.0, "quote"),))


def one_commit_each(folder: str, seconds: float) -> float:
    """What the group commit is measured against: the same rows, a transaction and a sync for each."""
    db = Sqlite(folder, write=True)
    start = time.perf_counter()
    for n in itertools.count(1):
        event = checked_event(f"event-{n}", ATTRIBUTES, "quote", timestamp_s=float(n))
        with db.transaction():
            db.many("INSERT INTO event VALUES (?, ?, ?)", [(n, due_s(event), encode_record(s.EventRecord(event)))])
        if (now := time.perf_counter()) - start > seconds:
            break
    db.close()
    return n / (now - start)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=1.5)
    parser.add_argument("--where", default="")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="tidings-bench-") as folder:
        single = one_commit_each(str(Path(folder) / "single"), options.seconds)
        print(f"{'one commit per event':28} {single:10,.0f} events/s")
        where = options.where or str(Path(folder) / "store")
        for accounts in (False, True):
            for in_flight in IN_FLIGHT:
                publisher = Publisher(where)
                rate, cpu_us = publisher.run(in_flight, options.seconds, accounts)
                publisher.store.close()
                what = "accounts" if accounts else "events"
                print(
                    f"{what + f', {in_flight:,} in flight':28} {rate:10,.0f} events/s {rate / single:8.1f} x {cpu_us:8.0f} us CPU"
                )
        start = time.process_time()
        publisher = Publisher(where)
        state = publisher.store.restore()
        cpu_s = time.process_time() - start
        events, accounts = state.next_offset - 1, state.accounts.total.closed
        print(f"start and restore: {cpu_s:.2f} s CPU with {events:,} events and {accounts:,} accounts")
        publisher.store.close()


if __name__ == "__main__":
    main()
