"""Compiled subscriptions outlive a run: what is restored finds what a fresh compilation finds."""

import random
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from spark_rig import subscription
from tidings.spark import saved
from tidings.spark.compiled import Compiler
from tidings.spark.versions import SubscriptionTable
from tidings.spark.worker import Whole

COLUMNS = {
    "n": np.array([0, 1, 2, 3, 4, 5] * 5, float),
    "f": np.array([0.5, 1.0, 2.5] * 10),
    "s": np.array(["a", "ab", "b", "ba", ""] * 6, object),
}
BROKEN = {"id": "broken", "filter": "n >"}


def rows(count: int, seed: int, first: int = 0) -> list[dict[str, Any]]:
    chance = random.Random(seed)
    return [subscription(chance, number) for number in range(first, first + count)]


def found(compiler: Compiler) -> set[tuple[int, str, float, str]]:
    """(event, subscription, price, home) of every match."""
    whole = Whole(compiler.snapshot)
    events, slots = whole.find(COLUMNS)
    terms = whole.terms
    return {
        (int(event), terms.id[slot].as_py(), float(terms.price[slot]), compiler.homes[terms.home[slot]])
        for event, slot in zip(events, slots.tolist(), strict=True)
    }


@pytest.mark.parametrize("shards", [1, 3])
def test_what_is_restored_finds_the_same(spark: Any, tmp_path: Path, shards: int) -> None:
    table = SubscriptionTable.create(str(tmp_path / "table"), pa.Table.from_pylist([*rows(400, 1), BROKEN]))
    first = Compiler(spark, shards=shards)
    assert not saved.load(first, table, 1)
    saved.save(first, table, 1)
    again = Compiler(spark, shards=shards)
    assert saved.load(again, table, 1)
    assert (len(again), list(again.attributes), again.homes) == (len(first), list(first.attributes), first.homes)
    assert again.problems == first.problems
    assert [problem.id for problem in again.problems] == ["broken"]
    assert found(again) == found(first) != set()

    table.change(pa.Table.from_pylist([*rows(50, 2, 380), {"id": "broken", "filter": "n = 1"}]), ["s1", "s2"])
    changed, fresh = Compiler(spark, shards=shards), Compiler(spark, shards=shards)
    assert saved.load(changed, table, 2)
    fresh.load(table.read(2))
    assert found(changed) == found(fresh)
    assert changed.problems == []
    assert len(changed) == len(fresh)
    saved.save(changed, table, 2)  # part of it is in a delta: what was saved stays
    assert saved.load(Compiler(spark, shards=shards), table, 1)


@pytest.mark.parametrize("other", [{"engine": "naive"}, {"shards": 2}, {"missing": "satisfies"}])
def test_what_was_compiled_otherwise_is_not_taken(spark: Any, tmp_path: Path, other: dict[str, Any]) -> None:
    table = SubscriptionTable.create(str(tmp_path / "table"), pa.Table.from_pylist(rows(20, 1)))
    first = Compiler(spark)
    saved.load(first, table, 1)
    saved.save(first, table, 1)
    assert not saved.load(Compiler(spark, **other), table, 1)
    assert saved.load(Compiler(spark), table, 1)


@pytest.mark.parametrize("damage", ["record", "file"])
def test_damage_only_costs_time(spark: Any, tmp_path: Path, damage: str) -> None:
    table = SubscriptionTable.create(str(tmp_path / "table"), pa.Table.from_pylist(rows(20, 1)))
    first = Compiler(spark, folder=str(tmp_path / "first"))
    saved.load(first, table, 1)
    saved.save(first, table, 1)
    kept = tmp_path / "table" / "compiled"
    if damage == "record":
        (kept / "saved.json").write_text("{")
    else:
        next(kept.glob("*.engine")).unlink()
    again = Compiler(spark, folder=str(tmp_path / "second"))
    assert not saved.load(again, table, 1)
    assert found(again) == found(first)
