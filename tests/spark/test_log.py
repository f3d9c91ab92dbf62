"""The event log and the versioned table, without Spark: what is there is whole, in order, and there once."""

import threading
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from store_rig import Rig
from tidings.errors import InvalidInput
from tidings.model.event import checked_event
from tidings.model.step import EventRecord
from tidings.spark.log import EventLog
from tidings.spark.stores import StoreLog, open_log
from tidings.spark.versions import FULL_EVERY, SubscriptionTable


def events(first: int, count: int) -> list[Any]:
    return [checked_event(f"e{number}", {"n": number}) for number in range(first, first + count)]


def ids(log: EventLog | StoreLog, start: int, end: int) -> list[str]:
    return [id for batch in log.read(start, end) for id in batch.column("id").to_pylist()]


def test_offsets_count_events_and_ranges_cut_segments(tmp_path: Path) -> None:
    log = EventLog.create(tmp_path / "log")
    assert [log.append_events(events(first, 5)) for first in (0, 5, 10)] == [5, 10, 15]
    assert ids(log, 3, 12) == [f"e{number}" for number in range(3, 12)]
    assert ids(EventLog(tmp_path / "log"), 0, 99) == [f"e{number}" for number in range(15)]
    assert log.ranges(3, 12, 2) == [(3, 7), (7, 12)]
    assert log.ranges(3, 3, 2) == []


def test_a_named_append_is_there_once(tmp_path: Path) -> None:
    log = EventLog.create(tmp_path / "log")
    assert log.append_events(events(0, 3), "writer.0") == 3
    log.append_events(events(3, 2))
    assert log.append_events(events(0, 3), "writer.0") == 3
    assert log.end() == 5


def test_a_broker_s_store_is_a_log_too(tmp_path: Path) -> None:
    with Rig(tmp_path / "store") as rig:
        log = open_log(str(tmp_path / "store"))
        assert isinstance(log, StoreLog)
        assert (log.first(), log.end()) == (1, 1)
        for first in (0, 5):
            rig.write(*(EventRecord(event) for event in events(first, 5)))
        assert (log.first(), log.end()) == (1, 11)
        assert ids(log, 3, 7) == ["e2", "e3", "e4", "e5"]
        (batch,) = log.read(1, 2)
        assert batch.schema == log.schema
        assert batch.to_pylist()[0]["ints"] == [("n", 0)]
    assert isinstance(open_log(str(EventLog.create(tmp_path / "log").path)), EventLog)
    with pytest.raises(InvalidInput, match="no event log at"):
        open_log(str(tmp_path / "nothing"))


def test_writers_take_turns(tmp_path: Path) -> None:
    log = EventLog.create(tmp_path / "log")
    threads = [
        threading.Thread(
            target=lambda first=first: [EventLog(log.path).append_events(events(first + n, 1)) for n in range(20)]
        )
        for first in (0, 100, 200)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert log.end() == 60
    assert len(set(ids(log, 0, 60))) == 60


def test_what_is_no_log_or_does_not_fit_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match="no event log at"):
        EventLog(tmp_path)
    log = EventLog.create(tmp_path / "log", pa.schema([("id", pa.string()), ("n", pa.int64())]))
    with pytest.raises(InvalidInput, match="do not fit the event log"):
        log.append(pa.table({"id": ["e"], "n": ["text"]}))
    with pytest.raises(InvalidInput, match="another schema: n is int64 there and double here"):
        EventLog.create(tmp_path / "log", pa.schema([("id", pa.string()), ("n", pa.float64())]))
    log.append(pa.table({"id": ["e"], "n": [1]}))
    log.append(pa.table({"id": ["f"], "n": [2]}))
    log.append(pa.table({"id": ["g"], "n": [2]}))
    (tmp_path / "log" / log.segments()[1].name).unlink()
    with pytest.raises(InvalidInput, match="damaged: offsets 1 to 2 are gone"):
        log.end()


def rows(*ids: str, filter: str = "n > 0") -> pa.Table:
    return pa.table({"id": list(ids), "filter": [filter] * len(ids)})


def test_versions_hold_every_state_of_the_table(tmp_path: Path) -> None:
    table = SubscriptionTable.create(str(tmp_path / "t"), rows("a", "b", "c"))
    assert table.change(rows("b", filter="n > 1"), ["a"]) == 2
    assert table.change(rows("a", "d")) == 3
    states = [{row["id"]: row["filter"] for row in table.read(version).to_pylist()} for version in (1, 2, 3)]
    assert states[0] == dict.fromkeys("abc", "n > 0")
    assert states[1] == {"b": "n > 1", "c": "n > 0"}
    assert states[2] == {"a": "n > 0", "b": "n > 1", "c": "n > 0", "d": "n > 0"}
    put, removed = table.between(1, 3)
    assert sorted(put["id"].to_pylist()) == ["a", "b", "d"]
    assert removed == []
    with pytest.raises(InvalidInput, match="no version 4"):
        table.read(4)
    with pytest.raises(InvalidInput, match="already"):
        SubscriptionTable.create(str(tmp_path / "t"), rows("a"))
    with pytest.raises(InvalidInput, match="no subscriptions table at"):
        SubscriptionTable(str(tmp_path / "none")).change(rows("a"))


def test_many_versions_are_read_from_a_full_one(tmp_path: Path) -> None:
    table = SubscriptionTable.create(str(tmp_path / "t"), rows("a", "b"))
    for number in range(FULL_EVERY + 5):
        table.change(rows(f"x{number}"), [f"x{number - 1}"])
    assert f"{FULL_EVERY:010d}.full.arrow" in table.place.names()
    last = FULL_EVERY + 6
    assert table.latest() == last
    assert sorted(table.read(last)["id"].to_pylist()) == ["a", "b", f"x{last - 2}"]
    assert sorted(table.read(FULL_EVERY)["id"].to_pylist()) == ["a", "b", f"x{FULL_EVERY - 2}"]


def test_the_difference_to_a_file_is_one_change(tmp_path: Path) -> None:
    table = SubscriptionTable.create(str(tmp_path / "t"), rows("a", "b", "c"))
    from tidings.spark.subscriptions import table_of

    wanted = table_of(pa.concat_tables([rows("a"), rows("b", filter="n > 9"), rows("d")]))
    put, removed = table.difference(wanted)
    assert (put["id"].to_pylist(), removed) == (["b", "d"], ["c"])
