"""Spark equals embedded: what `match` finds is what the engine finds in this process, row for row."""

import datetime
import os
import random
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import spark_rig as rig
from tidings.broker import catalog
from tidings.errors import InvalidInput, TidingsError
from tidings.language import parse
from tidings.model.event import checked_event
from tidings.model.subscription import Subscription
from tidings.spark.compiled import Compiler
from tidings.spark.match import match
from tidings.spark.subscriptions import table_of

EVENTS, SUBSCRIPTIONS = (300, 200) if os.environ.get("TIDINGS_SOAK") else (80, 60)
SEED = random.randrange(1_000_000) if os.environ.get("TIDINGS_SOAK") else 7


def world(seed: int) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    chance = random.Random(seed)
    events = [rig.event(chance, number) for number in range(EVENTS)]
    return events, [rig.subscription(chance, number) for number in range(SUBSCRIPTIONS)]


def embedded(events: list[dict[str, Any]], subscriptions: list[dict[str, Any]]) -> Counter[tuple[Any, ...]]:
    """(event, subscription, dl) by the oracle."""
    engine = catalog.matcher("naive")()
    for row in subscriptions:
        engine.add(Subscription(row["id"], "x", parse(row["filter"]), tuple(row["types"] or ())))
    terms = {row["id"]: row["deadline_s"] for row in subscriptions}
    found: Counter[tuple[Any, ...]] = Counter()
    for row in events:
        for id in engine.match(checked_event(row["id"], rig.attributes(row), row["type"])):
            limits = [limit for limit in (row["timeout_s"], terms[id]) if limit is not None]
            dl = row["timestamp"] + datetime.timedelta(seconds=min(limits)) if limits else None
            found[row["id"], id, dl] += 1
    return found


def rows(frame: Any) -> Counter[tuple[Any, ...]]:
    return Counter(tuple(row.values()) for row in frame.toArrow().to_pylist())


@pytest.fixture(scope="module")
def drawn(spark: Any) -> tuple[Any, pa.Table, Counter[tuple[Any, ...]]]:
    events, subscriptions = world(SEED)
    print(f"seed {SEED}")
    return (
        spark.createDataFrame(events, rig.SCHEMA),
        pa.Table.from_pylist(subscriptions),
        embedded(events, subscriptions),
    )


@pytest.mark.parametrize("shards", [1, 3])
def test_batch_equals_embedded(drawn: Any, shards: int) -> None:
    events, subscriptions, expected = drawn
    assert len(expected) > 100
    assert rows(match(events, subscriptions, shards=shards)) == expected


@pytest.mark.parametrize("shards", [1, 3])
def test_compact_is_the_same_with_one_row_per_event(drawn: Any, shards: int) -> None:
    events, subscriptions, expected = drawn
    found = match(events, subscriptions, compact=True, shards=shards).toArrow().to_pylist()
    assert len(found) == len({row["id"] for row in found})
    pairs = [(row["id"], *pair) for row in found for pair in zip(row["subscription"], row["dl"], strict=True)]
    assert Counter(pairs) == expected


@pytest.mark.parametrize("shards", [1, 3])
def test_stream_equals_embedded(spark: Any, drawn: Any, tmp_path: Path, shards: int) -> None:
    events, subscriptions, expected = drawn
    events.repartition(3).write.parquet(str(tmp_path / "in"))
    live = spark.readStream.schema(events.schema).option("maxFilesPerTrigger", 1).parquet(str(tmp_path / "in"))
    found = match(live, subscriptions, shards=shards)
    name = f"found{shards}"
    query = found.writeStream.format("memory").queryName(name).trigger(availableNow=True).start()
    query.awaitTermination()
    assert rows(spark.table(name)) == expected


def test_a_snapshot_that_came_with_the_task_serves_as_well(spark: Any, drawn: Any) -> None:
    """As on a cluster whose executors do not see the driver's files."""
    events, subscriptions, expected = drawn
    compiler = Compiler(spark)
    compiler._ship = True
    compiler.load(table_of(subscriptions))
    compiler._made = compiler.snapshot._replace(folder="/nowhere")
    assert rows(match(events, compiler)) == expected


def test_changes_equal_a_fresh_compilation(spark: Any, drawn: Any) -> None:
    events, subscriptions, _ = drawn
    compiler = Compiler(spark, shards=2)
    compiler.load(table_of(subscriptions))
    chance = random.Random(SEED + 1)
    state = {row["id"]: row for row in subscriptions.to_pylist()}
    for step in range(3):
        put = [rig.subscription(chance, chance.randrange(SUBSCRIPTIONS + 20)) for _ in range(8)]
        put = list({row["id"]: row for row in put}.values())
        removed = [id for id in chance.sample(sorted(state), 5) if id not in {row["id"] for row in put}]
        for id in removed:
            del state[id]
        state |= {row["id"]: row for row in put}
        compiler.change(table_of(pa.Table.from_pylist(put, subscriptions.schema)), removed)
        assert len(compiler) == len(state), step
    fresh = match(events, pa.Table.from_pylist(list(state.values()), subscriptions.schema))
    assert rows(match(events, compiler)) == rows(fresh)


def test_ids_and_columns_come_out_as_they_went_in(spark: Any) -> None:
    events = spark.createDataFrame([(7, 1.5, "x")], "id int, change double, note string")
    wanted = spark.createDataFrame(
        [(2**40, "change > 1", "b1", 3.0)], "id long, filter string, home string, price double"
    )
    found = match(events, wanted, keep=["id", "note"], columns=["subscription", "home", "price"])
    assert found.schema.simpleString() == "struct<id:int,note:string,subscription:bigint,home:string,price:double>"
    assert rows(found) == Counter([(7, "x", 2**40, "b1", 3.0)])


def test_decimals_dates_and_odd_column_names(spark: Any) -> None:
    events = spark.sql("SELECT 'e' id, 0.10BD price, DATE '2026-01-02' day, 3Y small, 'v' `a.b`, array(1, NULL) nums")
    filters = [
        "price = 0.1",
        "day = DATE '2026-01-02'",
        "small = 3",
        "a.b = 'v'",
        "nums SUBSET OF (1, 2)",
        "none IS NULL",
    ]
    wanted = pa.table({"id": list(range(len(filters))), "filter": filters})
    assert sorted(row[1] for row in rows(match(events, wanted))) == list(range(len(filters)))


def test_bad_filters_are_reported_and_the_others_run(spark: Any) -> None:
    events = spark.createDataFrame([("e", 1.5)], "id string, change double")
    wanted = pa.table({"id": ["good", "bad", "worse"], "filter": ["change > 1", "change >", None]})
    assert rows(match(events, wanted)) == Counter([("e", "good")])
    with pytest.raises(InvalidInput, match=r"(?s)subscription bad: column .*subscription worse: no filter"):
        match(events, wanted, strict=True)


@pytest.mark.parametrize(
    ("subscriptions", "arguments", "complaint"),
    [
        ({"id": ["a", "a"], "filter": ["x > 1", "x > 2"]}, {}, "1 ids are there more than once: a"),
        ({"id": ["a"], "text": ["x > 1"]}, {}, "no column filter: they have id, text"),
        ({"id": ["a"], "filter": ["raw = 'x'"]}, {}, r"no filter can compare the column raw \(binary\)"),
        ({"id": ["a"], "filter": ["x > 1"]}, {"keep": ["nope"]}, "the events have no column nope"),
        ({"id": ["a"], "filter": ["x > 1"]}, {"columns": ["dl"]}, "name the column that is its timestamp"),
        ({"id": ["a"], "filter": ["x > 1"]}, {"timestamp": "when"}, "no column 'when'"),
        ({"id": [None], "filter": ["x > 1"]}, {}, "1 of 1 rows have no id"),
        ({"id": ["a"], "filter": ["x > 1"], "price": ["dear"]}, {}, "column 'price': expected double"),
    ],
)
def test_bad_input_is_named(spark: Any, subscriptions: Any, arguments: Any, complaint: str) -> None:
    events = spark.createDataFrame([("e", 1.5, b"")], "id string, x double, raw binary")
    with pytest.raises(TidingsError, match=complaint):
        match(events, pa.table(subscriptions), **arguments)
