"""The pipeline over files and over the event log: quarantine, live changes, schedule, lateness, replay, and its errors."""

import datetime
import itertools
import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from tidings.errors import InvalidInput
from tidings.model.event import checked_event
from tidings.spark.account import fold, measured_links, of_pipeline, records
from tidings.spark.journal import Identity, Journal
from tidings.spark.log import EventLog
from tidings.spark.place import Place
from tidings.spark.replay import replay
from tidings.spark.sink import Delivery
from tidings.spark.sources import source
from tidings.spark.stream import Options, Pipeline, committed
from tidings.spark.versions import SubscriptionTable

NOON_S = datetime.datetime(2026, 1, 1, 12, tzinfo=datetime.UTC).timestamp()
SCHEMA = "id string, type string, timestamp timestamp, timeout_s double, symbol string, change double"
_written = itertools.count()
BY_EVENT = Options(clock="event")


def quote(number: int, **other: Any) -> dict[str, Any]:
    at = datetime.datetime.fromtimestamp(NOON_S + number, datetime.UTC).isoformat()
    return {
        "id": f"e{number}",
        "type": "quote",
        "timestamp": at,
        "timeout_s": 60.0,
        "symbol": "A",
        "change": number,
        **other,
    }


def lines(path: Path, rows: Sequence[Any]) -> None:
    path.parent.mkdir(exist_ok=True)
    path.write_text("\n".join(row if isinstance(row, str) else json.dumps(row) for row in rows) + "\n")
    at = 1_700_000_000 + next(_written)  # Spark reads files in the order of their times: no two may have the same
    os.utime(path, (at, at))


def subscriptions(*filters: str, **columns: Any) -> pa.Table:
    return pa.table({"id": [f"s{number}" for number in range(len(filters))], "filter": list(filters), **columns})


def identity(spark: Any, folder: Path, **other: Any) -> Identity:
    given = source(spark, str(folder / "in"), "json", {"maxFilesPerTrigger": "1"}, SCHEMA)
    return Identity(given, str(folder / "table"), "id", "type", "timestamp", "timeout_s", **other)


def pairs(spark: Any, out: Path, table: str = "notifications") -> list[tuple[Any, ...]]:
    found = committed(spark, str(out), table)
    if found is None:
        return []
    return sorted(tuple(row.values()) for row in found.select("event", "subscription", "batch").toArrow().to_pylist())


def test_a_record_that_does_not_fit_is_set_aside_with_reason_and_original(spark: Any, tmp_path: Path) -> None:
    bad = [
        "no json {",
        json.dumps(quote(1, id=None)),
        json.dumps(quote(2, timeout_s=-1)),
        json.dumps(quote(3, change="dear")),
    ]
    bad.append(json.dumps(quote(4, timestamp=None)))
    lines(tmp_path / "in" / "1.jsonl", [*bad, quote(5)])
    SubscriptionTable.create(str(tmp_path / "table"), subscriptions("change > 0"))
    (commit,) = Pipeline(spark, identity(spark, tmp_path), str(tmp_path / "out"), BY_EVENT).run_once()
    assert (commit.events, commit.quarantined, commit.matched, commit.sent) == (6, 5, 1, 1)
    found = committed(spark, str(tmp_path / "out"), "quarantine").toArrow().to_pylist()
    assert sorted(row["reason"] for row in found) == [
        "does not fit the schema",
        "does not fit the schema",
        "no id (column id)",
        "no timestamp (column timestamp)",
        "timeout: expected a positive number of seconds",
    ]
    originals = [row["original"] for row in found]
    assert bad[0] in originals
    assert bad[3] in originals
    assert any('"timeout_s":-1.0' in text for text in originals)


def test_a_change_is_in_effect_from_the_next_batch_on_and_versions_are_recorded(spark: Any, tmp_path: Path) -> None:
    table = SubscriptionTable.create(str(tmp_path / "table"), subscriptions("change >= 0", "symbol = 'A'"))
    seen: list[tuple[int, int]] = []

    def between(commit: Any) -> None:
        seen.append((commit.batch, commit.version))
        if commit.batch == 0:
            table.change(pa.table({"id": ["new", "s0"], "filter": ["change < 100", "change > 100"]}), ["s1"])

    for number in range(3):
        lines(tmp_path / "in" / f"{number}.jsonl", [quote(2 * number), quote(2 * number + 1)])
    Pipeline(spark, identity(spark, tmp_path), str(tmp_path / "out"), BY_EVENT, on_commit=between).run_once()
    assert seen == [(0, 1), (1, 2), (2, 2)]
    before = [(f"e{number}", id, 0) for number in (0, 1) for id in ("s0", "s1")]
    after = [(f"e{number}", "new", number // 2) for number in range(2, 6)]
    assert pairs(spark, tmp_path / "out") == sorted(before + after)
    versions = committed(spark, str(tmp_path / "out")).select("batch", "version", "schema_version").distinct()
    assert sorted(map(tuple, versions.collect())) == [(0, 1, 1), (1, 2, 1), (2, 2, 1)]


def test_the_schedule_orders_by_priority_and_accounts_for_what_cannot_arrive(spark: Any, tmp_path: Path) -> None:
    """b1 is near; b2's path takes 50 s for an event of 1 KB: its 20 s deadline cannot be met, its 60 s one can."""
    lines(tmp_path / "in" / "1.jsonl", [quote(1), quote(2, symbol="B")])
    terms = {"deadline_s": [20.0, 20.0, 60.0, 20.0], "price": [3.0, 3.0, 1.0, 5.0], "penalty": [0.3, 0.3, 0.1, 0.5]}
    wanted = subscriptions(
        "change > 0", "change > 0", "symbol = 'A'", "symbol = 'B'", **terms, home=["b1", "b2", "b2", "b1"]
    )
    SubscriptionTable.create(str(tmp_path / "table"), wanted)
    (tmp_path / "links.csv").write_text("home,mu,sigma,hops\nb1,0.1,0.01,1\nb2,50,0,3\n")
    pipeline = Pipeline(
        spark,
        identity(spark, tmp_path),
        str(tmp_path / "out"),
        Options(clock="event", links=str(tmp_path / "links.csv")),
    )
    (commit,) = pipeline.run_once()
    assert (commit.matched, commit.sent, commit.expired) == (6, 4, 2)
    order = pipeline.notifications(0).select("home", "event", "subscription").toArrow().to_pylist()
    assert [tuple(row.values()) for row in order][:3] == [("b1", "e2", "s0"), ("b1", "e2", "s3"), ("b1", "e1", "s0")]
    lost = committed(spark, str(tmp_path / "out"), "accounts").orderBy("event").toArrow().to_pylist()
    assert [(row["event"], row["subscription"]) for row in lost] == [("e1", "s1"), ("e2", "s1")]
    expired = lost[0]
    assert expired["account"] == "expired"
    assert (expired["reason"], expired["broker"], expired["earning"]) == ("cannot arrive in time", "b2", -0.3)
    total = fold(of_pipeline(spark, str(tmp_path / "out"))).toArrow().to_pylist()[0]
    assert (total["matched"], total["on_time"], total["expired"]) == (6, 4, 2)
    assert total["earning"] == pytest.approx(3 + 3 + 5 + 1 - 0.3 - 0.3)
    by_broker = fold(of_pipeline(spark, str(tmp_path / "out")), ["broker"]).toArrow().to_pylist()
    assert {row["broker"]: row["matched"] for row in by_broker} == {"b1": 3, "b2": 3}


def test_by_processing_time_what_has_passed_is_expired(spark: Any, tmp_path: Path) -> None:
    lines(tmp_path / "in" / "1.jsonl", [quote(1), quote(2, timeout_s=1e12)])
    SubscriptionTable.create(str(tmp_path / "table"), subscriptions("change > 0", deadline_s=[1e12]))
    Pipeline(spark, identity(spark, tmp_path), str(tmp_path / "out")).run_once()
    assert pairs(spark, tmp_path / "out") == [("e2", "s0", 0)]
    (expired,) = committed(spark, str(tmp_path / "out"), "accounts").toArrow().to_pylist()
    assert (expired["event"], expired["reason"]) == ("e1", "timed out")


def test_late_events_are_matched_or_set_aside_as_the_user_says(spark: Any, tmp_path: Path) -> None:
    SubscriptionTable.create(str(tmp_path / "table"), subscriptions("change >= 0"))
    lines(tmp_path / "in" / "1.jsonl", [quote(1000)])
    lines(tmp_path / "in" / "2.jsonl", [quote(995), quote(5)])
    found = {}
    for late in ("match", "quarantine"):
        options = Options(clock="event", lateness_s=10, late=late)
        commits = Pipeline(spark, identity(spark, tmp_path), str(tmp_path / late), options).run_once()
        found[late] = [(commit.sent, commit.quarantined) for commit in commits]
    assert found == {"match": [(1, 0), (2, 0)], "quarantine": [(1, 0), (1, 1)]}


def test_compact_notifications_are_the_same_pairs(spark: Any, tmp_path: Path) -> None:
    lines(tmp_path / "in" / "1.jsonl", [quote(number) for number in range(5)])
    SubscriptionTable.create(str(tmp_path / "table"), subscriptions("change > 1", "change < 4", home=["b1", "b1"]))
    Pipeline(spark, identity(spark, tmp_path), str(tmp_path / "pairs"), BY_EVENT).run_once()
    Pipeline(
        spark, identity(spark, tmp_path, compact=True, keep=("symbol",)), str(tmp_path / "rows"), BY_EVENT
    ).run_once()
    rows = committed(spark, str(tmp_path / "rows")).toArrow().to_pylist()
    assert {row["symbol"] for row in rows} == {"A"}
    assert len(rows) == 5
    unfolded = sorted((row["event"], id, 0) for row in rows for id in row["subscriptions"])
    assert unfolded == pairs(spark, tmp_path / "pairs")
    accounts = [of_pipeline(spark, str(tmp_path / out)).drop("at") for out in ("pairs", "rows")]
    assert sorted(map(tuple, accounts[0].collect())) == sorted(map(tuple, accounts[1].collect()))


class Taken:
    def __init__(self) -> None:
        self.batches: list[tuple[int, int, int]] = []

    def deliver(self, delivery: Delivery) -> None:
        self.batches.append((delivery.batch, delivery.version, delivery.notifications.count()))


def test_the_event_log_is_a_source_and_a_sink_takes_each_batch(spark: Any, tmp_path: Path) -> None:
    log = EventLog.create(tmp_path / "log")
    attributes = [{"change": float(number), "tags": {"x"}, "symbol": "A" if number % 2 else 7} for number in range(10)]
    log.append_events(
        checked_event(f"e{number}", each, "quote", timestamp_s=NOON_S + number)
        for number, each in enumerate(attributes)
    )
    SubscriptionTable.create(str(tmp_path / "table"), subscriptions("change > 4 AND tags CONTAINS 'x'", "symbol = 7"))
    given = source(spark, str(tmp_path / "log"), options={"maxEventsPerTrigger": "4"})
    made = Identity(given, str(tmp_path / "table"), "id", "type", "timestamp", "timeout_s")
    taken = Taken()
    commits = Pipeline(spark, made, str(tmp_path / "out"), BY_EVENT, taken).run_once()
    assert [commit.events for commit in commits] == [4, 4, 2]
    assert [batch[0] for batch in taken.batches] == [0, 1, 2]
    expected = [(f"e{number}", "s0") for number in range(5, 10)] + [(f"e{number}", "s1") for number in range(0, 10, 2)]
    assert [pair[:2] for pair in pairs(spark, tmp_path / "out")] == sorted(expected)


def test_a_stream_writes_an_event_log_once(spark: Any, tmp_path: Path) -> None:
    lines(tmp_path / "in" / "1.jsonl", [quote(number) for number in range(7)])
    events = spark.readStream.schema(SCHEMA).json(str(tmp_path / "in"))

    def run(checkpoint: str) -> None:
        writer = events.writeStream.format("tidings").option("path", str(tmp_path / "log")).option("writer", "w")
        writer.option("checkpointLocation", str(tmp_path / checkpoint)).trigger(
            availableNow=True
        ).start().awaitTermination()

    run("one")
    run("two")  # the same batch number again, as after a crash before Spark's own commit
    assert EventLog(tmp_path / "log").end() == 7
    assert spark.read.format("tidings").load(str(tmp_path / "log")).count() == 7


@pytest.mark.parametrize("kind", ["files", "log"])
def test_replay_has_neither_gap_nor_repeat_at_the_seam(spark: Any, tmp_path: Path, kind: str) -> None:
    """The new subscription gets from replay and live together each matching event once."""
    SubscriptionTable.create(str(tmp_path / "table"), subscriptions("change < 0"))
    if kind == "files":
        put = lambda first: lines(tmp_path / "in" / f"{first}.jsonl", [quote(n) for n in range(first, first + 5)])  # noqa: E731
        put(0)
        made = identity(spark, tmp_path)
    else:
        log = EventLog.create(tmp_path / "log")
        put = lambda first: log.append_events(  # noqa: E731
            checked_event(f"e{n}", {"change": float(n)}, "quote", timestamp_s=NOON_S + n, timeout_s=60)
            for n in range(first, first + 5)
        )
        put(0)
        made = Identity(
            source(spark, str(tmp_path / "log")), str(tmp_path / "table"), "id", "type", "timestamp", "timeout_s"
        )
    out = str(tmp_path / "out")
    Pipeline(spark, made, out, BY_EVENT).run_once()
    put(5)
    late = pa.table({"id": ["late"], "filter": ["change >= 2"]})
    first = replay(spark, out, late, history=True)
    assert (first.batch, first.sent) == (-2, 3)
    put(10)
    Pipeline(spark, made, out, BY_EVENT).run_once()
    assert replay(spark, out, late, history=True) == first
    assert sorted(pair[0] for pair in pairs(spark, tmp_path / "out")) == sorted(f"e{number}" for number in range(2, 15))


def test_replay_without_history_gives_only_what_is_still_valid(spark: Any, tmp_path: Path) -> None:
    SubscriptionTable.create(str(tmp_path / "table"), subscriptions("change < 0"))
    lines(tmp_path / "in" / "1.jsonl", [quote(1), quote(2, timeout_s=1e10)])
    Pipeline(spark, identity(spark, tmp_path), str(tmp_path / "out"), BY_EVENT).run_once()
    assert replay(spark, str(tmp_path / "out"), pa.table({"id": ["late"], "filter": ["change > 0"]})).sent == 1
    assert [pair[0] for pair in pairs(spark, tmp_path / "out")] == ["e2"]


def test_a_second_run_goes_on_and_another_pipeline_is_refused(spark: Any, tmp_path: Path) -> None:
    lines(tmp_path / "in" / "1.jsonl", [quote(1)])
    SubscriptionTable.create(str(tmp_path / "table"), subscriptions("change > 0"))
    made, out = identity(spark, tmp_path), str(tmp_path / "out")
    Pipeline(spark, made, out, BY_EVENT).run_once()
    assert Pipeline(spark, made, out, BY_EVENT).run_once() == []
    lines(tmp_path / "elsewhere" / "1.jsonl", [quote(1)])
    other = Identity(source(spark, str(tmp_path / "elsewhere"), "json", None, SCHEMA), str(tmp_path / "table"), "id")
    with pytest.raises(
        InvalidInput, match=r"belongs to another pipeline: its source is json .*/in, not json .*/elsewhere"
    ):
        Pipeline(spark, other, out)


def test_errors_come_before_anything_is_written(spark: Any, tmp_path: Path) -> None:
    lines(tmp_path / "in" / "1.jsonl", [quote(1)])
    out = tmp_path / "out"
    with pytest.raises(InvalidInput, match="no source at"):
        source(spark, str(tmp_path / "gone"))
    with pytest.raises(InvalidInput, match="no subscriptions table at"):
        Pipeline(spark, identity(spark, tmp_path), str(out))
    twice = pa.table({"id": ["a", "a"], "filter": ["change > 0", "change > 1"]})
    with pytest.raises(InvalidInput, match="more than once: a"):
        Pipeline(spark, identity(spark, tmp_path), str(out), rows=twice)
    with pytest.raises(InvalidInput, match="subscription s0: column"):
        Pipeline(spark, identity(spark, tmp_path), str(out), Options(strict=True), rows=subscriptions("change >"))
    assert not out.exists()
    assert not (tmp_path / "table").exists()
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "novel.txt").write_text("chapter one")
    with pytest.raises(InvalidInput, match=r"no pipeline's folder: it holds novel\.txt"):
        Pipeline(spark, identity(spark, tmp_path), str(tmp_path / "mine"), rows=subscriptions("change > 0"))


def test_a_source_that_disappears_is_told_and_the_pipeline_goes_on_when_it_is_back(spark: Any, tmp_path: Path) -> None:
    log = EventLog.create(tmp_path / "log")
    log.append_events([checked_event("e1", {"change": 1.0}, timestamp_s=NOON_S)])
    SubscriptionTable.create(str(tmp_path / "table"), subscriptions("change > 0"))
    made = Identity(source(spark, str(tmp_path / "log")), str(tmp_path / "table"), "id", "type", "timestamp")
    Pipeline(spark, made, str(tmp_path / "out"), BY_EVENT).run_once()
    (tmp_path / "log").rename(tmp_path / "away")
    with pytest.raises(InvalidInput, match="no event log at"):
        Pipeline(spark, made, str(tmp_path / "out"), BY_EVENT).run_once()
    (tmp_path / "away").rename(tmp_path / "log")
    log.append_events([checked_event("e2", {"change": 1.0}, timestamp_s=NOON_S)])
    Pipeline(spark, made, str(tmp_path / "out"), BY_EVENT).run_once()
    assert [pair[0] for pair in pairs(spark, tmp_path / "out")] == ["e1", "e2"]
    assert len(Journal(Place(str(tmp_path / "out"))).commits()) == 2


def test_accounts_of_a_delivery_log_and_links_from_measurements(spark: Any) -> None:
    log = records(
        spark.createDataFrame(
            [
                ("e1", "s1", "on_time", "", "b1", 1.0, 3.0),
                ("e2", "s1", "late", "", "b1", 30.0, -0.3),
                ("e3", "s2", "expired", "deadline passed", "b2", 40.0, -0.1),
                ("e4", "s2", "undeliverable", "unsubscribed", "b2", 2.0, -0.1),
            ],
            "event string, subscription string, account string, reason string, broker string, age_s double, earning double",
        )
    )
    (total,) = fold(log).toArrow().to_pylist()
    assert [total[name] for name in ("matched", "on_time", "late", "expired", "undeliverable")] == [4, 1, 1, 1, 1]
    assert total["success_rate"] == 0.25
    assert total["earning"] == pytest.approx(2.5)
    assert total["p50_s"] == 1.0
    hops = spark.createDataFrame(
        [("b1", 10.0, 0.5), ("b1", 10.0, 0.7), ("b2", 2.0, 0.2)], "home string, size_kb double, seconds double"
    )
    found = {row["home"]: row for row in measured_links(hops).toArrow().to_pylist()}
    assert found["b1"]["mu"] == pytest.approx(0.06)
    assert found["b1"]["sigma"] == pytest.approx(0.0141421, rel=1e-4)
    assert (found["b2"]["sigma"], found["b2"]["samples"]) == (0.0, 1)
    with pytest.raises(InvalidInput, match="no column event"):
        records(spark.createDataFrame([(1,)], "x int"))
