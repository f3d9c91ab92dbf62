"""Replay: a new subscription gets the stored events it matches, and goes on live without a gap or a repeat.

The seam is a batch number. The subscription enters the versioned table in turn with the planning of batches, so from one batch
on every plan has it and no earlier one has; the stored events are exactly the input of the earlier batches, which Spark's
checkpoint tells. Their notifications are put in place as batch -version, so to replay again changes nothing.
"""

import json
import secrets
import time
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import functions as F

from tidings.errors import InvalidInput
from tidings.spark import sources
from tidings.spark.compiled import Compiler
from tidings.spark.faults import fail_point
from tidings.spark.journal import PLANS, Commit, Identity, Journal, Plan, now_us
from tidings.spark.place import Place
from tidings.spark.schema import Roles, quoted, resolve
from tidings.spark.stage import COUNTS, SUMMARY
from tidings.spark.stream import EVENT, Options, intake, prepared, publish
from tidings.spark.subscriptions import refuse, table_of
from tidings.spark.versions import SubscriptionTable

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def replay(spark: "SparkSession", out: str, subscriptions: pa.Table, *, history: bool = False) -> Commit:
    """Subscribe and give what is stored: events that have not timed out, or all with `history`."""
    begun = time.monotonic()
    place = Place(out)
    journal = Journal(place)
    identity = journal.identity()
    if identity is None:
        raise InvalidInput(f"no pipeline at {out}")
    rows = table_of(subscriptions)
    compiler = Compiler(spark)
    compiler.load(rows)
    refuse(compiler.problems)
    version, seam = _seam(place, journal, SubscriptionTable(identity.subscriptions), rows)
    fail_point("changed")
    done = journal.commit(-version)
    if done is not None:
        return done
    plan = Plan(-version, version, now_us())
    counts: dict[str, Any] = dict.fromkeys(COUNTS, 0)
    events = _stored(spark, place, identity, seam)
    if events is not None:
        counts = _given(spark, place, identity, compiler, plan, events, history)
    commit = Commit(-version, version, plan.now_us, **counts, seconds=time.monotonic() - begun, replay=True)
    journal.write(commit)
    return commit


def _seam(place: Place, journal: Journal, table: SubscriptionTable, rows: pa.Table) -> tuple[int, int]:
    """The version that has these subscriptions, and the first batch that uses it."""
    with place.turn():
        version = _version_with(table, rows) or table.change(rows)
        last = journal.last(PLANS)
        seam = last + 1
        while seam > 0:
            plan = journal.plan(seam - 1)
            if plan is None or plan.version < version:
                break
            seam -= 1
    return version, seam


def _version_with(table: SubscriptionTable, rows: pa.Table) -> int | None:
    """The version that already put exactly these rows: a replay that was interrupted and is asked for again."""
    wanted = rows.to_pylist()
    for version in range(table.latest(), 1, -1):
        change = table.changes(version)
        if change.put.num_rows == len(wanted) and change.put.to_pylist() == wanted:
            return version
        touched = {*change.put["id"].to_pylist(), *change.removed}
        if touched & set(rows["id"].to_pylist()):
            return None
    return None


def _given(
    spark: "SparkSession",
    place: Place,
    identity: Identity,
    compiler: Compiler,
    plan: Plan,
    events: "DataFrame",
    history: bool,
) -> dict[str, Any]:
    if not history and identity.timestamp and identity.timeout_s:
        born, timeout = (
            F.col(quoted(identity.timestamp)).cast("timestamp"),
            F.col(quoted(identity.timeout_s)).cast("double"),
        )
        ends_us = F.unix_micros(born) + timeout * 1e6
        events = events.where(timeout.isNull() | F.isnan(timeout) | (ends_us > F.lit(plan.now_us)))
    roles = Roles(identity.id, identity.type, identity.timestamp, identity.timeout_s)
    resolve(events.schema, list(compiler.attributes), roles, None)
    taken = intake(events.schema, list(compiler.attributes), roles, identity)
    staging = f"_replay/{secrets.token_hex(4)}"
    # Stored events are judged at their own time: what is valid is given, however old its deadline makes it.
    stage, chosen = prepared(events, taken, compiler, identity, Options(clock=EVENT), place, plan, staging)
    summary = chosen.mapInArrow(stage, SUMMARY).toArrow()
    place.delete(f"{staging}/quarantine")  # the stream has set these aside already
    publish(place, staging, plan.batch)
    place.delete(staging)
    return {name: int(pc.sum(summary[name]).as_py() or 0) for name in COUNTS} | {"quarantined": 0}


def _stored(spark: "SparkSession", place: Place, identity: Identity, seam: int) -> "DataFrame | None":
    """The input of all batches before the seam; None if there is none."""
    if seam <= 0:
        return None
    offset = _offset(place, seam - 1)
    source = identity.source
    match source.format:
        case "tidings":
            return sources.batch(spark, source, {"end": str(offset["offset"])})
        case "kafka":
            ranges = {"startingOffsets": "earliest", "endingOffsets": json.dumps(offset)}
            return sources.batch(spark, source, ranges)
        case "json" | "csv" | "parquet":
            files = _files(place, int(offset["logOffset"]))
            reader = spark.read.format(source.format).options(**sources.reading(source))
            return reader.schema(source.struct).load(files) if files else None
    raise InvalidInput(f"a {source.format} source cannot be replayed: it does not say what it has given")


def _offset(place: Place, batch: int) -> Any:
    content = place.read(f"checkpoint/offsets/{batch}")
    if content is None:
        raise InvalidInput(f"{place}: the checkpoint does not reach back to batch {batch}")
    return json.loads(content.decode().splitlines()[2])


def _files(place: Place, last: int) -> list[str]:
    """What Spark's file source has listed up to one of its own offsets."""
    found: dict[str, None] = {}
    for name in place.names("checkpoint/sources/0"):
        content = None if name.startswith(".") else place.read(f"checkpoint/sources/0/{name}")
        for line in (content or b"").decode().splitlines()[1:]:
            entry = json.loads(line)
            if entry["batchId"] <= last:
                found[unquote(entry["path"])] = None
    return sorted(found)
