"""How fast engines match and change and what they take, all measured alike; `tidings bench match` shows it.

Each engine runs in a process of its own, so that what the process grows by is what the engine needs. Times are CPU time of the
thread, so that other work on the machine disturbs them less. Slow engines are measured on fewer events, never on less than a
few, and the first events are the same for all: on those, all must have found the same ids. Times are the medians of
the quietest of three windows.
"""

import gc
import hashlib
import itertools
import os
import statistics
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from tidings.broker.catalog import MATCHERS
from tidings.errors import TidingsError, UnknownName
from tidings.matching.base import Matcher
from tidings.matching.scan import Scan
from tidings.matching.workloads import Workload
from tidings.model.subscription import Subscription
from tidings.sim.sweep import worker_pool

ENGINES: dict[str, type[Matcher]] = {**MATCHERS, Scan.name: Scan}

FEWEST_EVENTS, MOST_EVENTS = 2, 1_000
ROUNDS = 20  # over all events, as far as the budget goes: one round of a fast engine is too short to be trusted
WINDOWS = 3  # the quietest counts: neighbours on the machine slow everything down for seconds
BATCH = 1_024
MOST_CHANGES = 20_000
_WARM = 200  # subscriptions of a first, thrown away engine: kernels are compiled, memory pools filled


class Row(msgspec.Struct):
    """One engine on one workload. Times are medians per event or per change; `None` where there is nothing to measure."""

    engine: str
    workload: str
    subscriptions: int
    match_us: float  # an encoded event in, slots out
    call_us: float  # an Event in, a list of ids out
    batch_us: float  # columns in, two arrays out, per event
    insert_us: float  # a parsed Subscription in
    insert_p9999_ms: float
    insert_max_ms: float
    remove_us: float
    remove_max_ms: float
    load_us: float  # per subscription, all at once
    bytes_per_subscription: float  # in the engine's arrays
    process_bytes_per_subscription: float | None  # by which the whole process grew, ids included
    indexed_share: float  # of the subscriptions: answered by the index without verifying
    ids_per_event: float
    events: int


class Measured(NamedTuple):
    row: Row
    found: list[str]  # a digest of the ids for each of the first events


class Disagreement(TidingsError):
    """Two engines found different ids for the same event."""


def measure_all(
    engines: Sequence[str],
    workloads: Sequence[str],
    counts: Sequence[int],
    budget_s: float = 2.0,
    seed: int = 1,
    progress: Callable[[str], None] = lambda _: None,
) -> list[Row]:
    """Every engine on every workload and size; Disagreement if they do not find the same."""
    for name in engines:
        if name not in ENGINES:
            raise UnknownName(f"unknown matching engine {name!r}: expected one of {', '.join(ENGINES)}")
    rows: list[Row] = []
    for workload, count in itertools.product(workloads, counts):
        Workload(workload, 0)  # an unknown name is told before anything is measured
        reference: Measured | None = None
        for engine in engines:
            progress(f"{engine} on {workload}, {count:,} subscriptions")
            with worker_pool(1) as process:
                measured = process.submit(measure, engine, workload, count, budget_s, seed).result()
            reference = reference or measured
            _compare(reference, measured)
            rows.append(measured.row)
    return rows


def _compare(a: Measured, b: Measured) -> None:
    for number, (one, other) in enumerate(zip(a.found, b.found, strict=False)):
        if one != other:
            raise Disagreement(
                f"{a.row.engine} and {b.row.engine} found different ids for event {number} of {a.row.workload},"
                f" {a.row.subscriptions} subscriptions"
            )


def measure(engine: str, workload_name: str, count: int, budget_s: float, seed: int) -> Measured:
    """One engine on one workload, in this process."""
    _run(ENGINES[engine](), Workload(workload_name, _WARM, seed), 0.0, None)
    return _run(ENGINES[engine](), Workload(workload_name, count, seed), budget_s, _resident_bytes)


def _run(matcher: Matcher, workload: Workload, budget_s: float, resident: Callable[[], int | None] | None) -> Measured:
    before = resident() if resident else None
    load_s = _load(matcher, workload)
    after = resident() if resident else None
    grown = None if before is None or after is None else (after - before) / workload.count
    array_bytes = matcher.nbytes() / workload.count

    events = workload.events(MOST_EVENTS)
    matcher.match(events[0])
    encoded = [matcher.encode(event.matchable()) for event in events]
    columns = workload.columns(BATCH)
    match_s, call_s, batch_s = [], [], []
    for _ in range(WINDOWS):
        match_s.append(_each(matcher.find, encoded, budget_s / WINDOWS))
        call_s.append(_each(matcher.match, events, budget_s / WINDOWS / 2))
        size = max(1, min(BATCH, int(budget_s / WINDOWS / statistics.fmean(match_s[-1]))))
        batch = {name: column[:size] for name, column in columns.items()}
        batch_s.append([_timed(matcher.match_batch, batch) / size])
    tried = min(len(call_s[0]), len(events))
    found = [matcher.match(event) for event in events[:tried]]

    new = list(workload.more(workload.count, workload.count + _changes(matcher, workload, budget_s)))
    insert_s = _change(matcher, matcher.add, new)
    remove_s = _change(matcher, matcher.remove, [subscription.id for subscription in new])
    row = Row(
        engine=matcher.name,
        workload=workload.name,
        subscriptions=workload.count,
        match_us=min(map(_us, match_s)),
        call_us=min(map(_us, call_s)),
        batch_us=min(map(_us, batch_s)),
        insert_us=_us(insert_s),
        insert_p9999_ms=round(sorted(insert_s)[int(0.9999 * (len(insert_s) - 1))] * 1e3, 3),
        insert_max_ms=round(max(insert_s) * 1e3, 3),
        remove_us=_us(remove_s),
        remove_max_ms=round(max(remove_s) * 1e3, 3),
        load_us=round(load_s / workload.count * 1e6, 3),
        bytes_per_subscription=round(array_bytes, 1),
        process_bytes_per_subscription=None if grown is None else round(grown, 1),
        indexed_share=round(matcher.indexed(), 4),
        ids_per_event=round(statistics.fmean(map(len, found)), 2),
        events=min(len(match_s[0]), len(events)),
    )
    return Measured(row, [hashlib.sha256(" ".join(sorted(ids)).encode()).hexdigest() for ids in found])


def _load(matcher: Matcher, workload: Workload) -> float:
    """Fill the engine, from columns where the workload has them; the CPU time it took, maintenance included."""
    began = time.thread_time()
    if workload.boxes is not None:
        matcher.add_boxes(workload.ids(), workload.boxes)
    else:
        matcher.add_all(workload.subscriptions())
    _maintain(matcher)
    return time.thread_time() - began


def _maintain(matcher: Matcher) -> None:
    while (job := matcher.maintenance()) is not None:
        job()


def _each(call: Callable[[Any], object], arguments: Sequence[Any], budget_s: float) -> list[float]:
    """The time of each call, until the budget is used up, less what looking at the clock takes."""
    clock = time.thread_time
    overhead = statistics.median(_clock_steps())
    taken: list[float] = []
    total = 0.0
    for argument in itertools.chain.from_iterable(itertools.repeat(arguments, ROUNDS)):
        began = clock()
        call(argument)
        taken.append(max(0.0, clock() - began - overhead))
        total += taken[-1]
        if total > budget_s and len(taken) >= FEWEST_EVENTS:
            break
    return taken


def _clock_steps() -> Iterable[float]:
    clock = time.thread_time
    for _ in range(200):
        began = clock()
        yield clock() - began


def _changes(matcher: Matcher, workload: Workload, budget_s: float) -> int:
    """How many inserts fit into the budget, from one that is tried."""
    (tried,) = workload.more(workload.count, workload.count + 1)
    began = time.thread_time()
    matcher.add(tried)
    matcher.remove(tried.id)
    return max(FEWEST_EVENTS, min(MOST_CHANGES, int(budget_s / (time.thread_time() - began))))


def _change(matcher: Matcher, change: Callable[[Any], None], arguments: Sequence[Subscription | str]) -> list[float]:
    """The time of each change. What the engine wants to be done in the background is done between two of them."""
    taken = []
    for argument in arguments:
        taken.append(_timed(change, argument))
        if (job := matcher.maintenance()) is not None:
            job()
    return taken


def _timed(change: Callable[[Any], object], argument: Any) -> float:
    began = time.thread_time()
    change(argument)
    return time.thread_time() - began


def _resident_bytes() -> int | None:
    """What the process holds in memory now; None where the system does not tell."""
    gc.collect()
    statm = Path("/proc/self/statm")
    if not statm.exists():
        return None
    return int(statm.read_text("ascii").split()[1]) * os.sysconf("SC_PAGE_SIZE")


def _us(taken: Sequence[float]) -> float:
    return round(statistics.median(taken) * 1e6, 3)
