"""`match(events, subscriptions)`: a DataFrame of events, batch or streaming, against a table of subscriptions.

    notifications = match(spark.read.json("quotes"), spark.read.json("subscriptions.jsonl"))

One row per (event, subscription), or with `compact=True` one row per event with arrays. Subscriptions are compiled on the
driver and mapped by the workers (`compiled.py`); events flow through Arrow batches past the engine's `match_batch`. When the
subscriptions are more than a worker's share they are sharded by id, and every event goes to every shard: that costs one
exchange. What comes out is what the embedded matcher finds, row for row.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark.sql import functions as F
from pyspark.sql import types as T

from tidings.errors import InvalidInput
from tidings.model.filter import FAILS
from tidings.spark.compiled import SHARE_BYTES, Compiler
from tidings.spark.schema import Roles, quoted, resolve
from tidings.spark.subscriptions import refuse, table_of
from tidings.spark.worker import MatchStep

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

# What a notification can say besides the event's own columns.
COLUMNS: dict[str, T.DataType] = {
    "subscription": T.StringType(),
    "subscriber": T.StringType(),
    "home": T.StringType(),
    "dl": T.TimestampType(),
    "deadline_s": T.DoubleType(),
    "price": T.DoubleType(),
    "penalty": T.DoubleType(),
}
_SHARD, _ROW = "$shard", "$row"


def match(
    events: "DataFrame",
    subscriptions: "DataFrame | pa.Table | Compiler",
    *,
    id: str | None = None,
    type: str | None = None,
    timestamp: str | None = None,
    timeout_s: str | None = None,
    attributes: Sequence[str] | None = None,
    keep: Sequence[str] | None = None,
    columns: Sequence[str] | None = None,
    compact: bool = False,
    engine: str | None = None,
    missing: str = FAILS,
    shards: int | None = None,
    share_bytes: int = SHARE_BYTES,
    strict: bool = False,
) -> "DataFrame":
    """Notifications: the columns `keep` of the event (by default its id), and `columns` of COLUMNS.

    The event's id, type, timestamp and timeout are the columns of these names unless others are named; all other columns are
    attributes, unless `attributes` lists them. `dl` is when the event must have arrived: its timestamp plus the smaller of its
    timeout and the subscription's deadline, null for never.
    """
    found = Roles.found(events.schema)
    roles = Roles(id or found.id, type or found.type, timestamp or found.timestamp, timeout_s or found.timeout_s)
    roles.checked(events.schema)
    kept = tuple(keep if keep is not None else [roles.id] if roles.id else [])
    wanted = tuple(columns or (("subscription", "dl") if roles.timestamp else ("subscription",)))
    _check_columns(events, roles, kept, wanted)
    if isinstance(subscriptions, Compiler):
        compiler = subscriptions
    else:
        compiler = Compiler(events.sparkSession, engine=engine, missing=missing, shards=shards, share_bytes=share_bytes)
        compiler.load(table_of(subscriptions))
        if strict:
            refuse(compiler.problems)
    return matched(events, compiler, roles, kept, wanted, compact, attributes)


def matched(
    events: "DataFrame",
    compiler: Compiler,
    roles: Roles,
    kept: tuple[str, ...],
    wanted: tuple[str, ...],
    compact: bool = False,
    attributes: Sequence[str] | None = None,
) -> "DataFrame":
    """The plan of one match against the compiler's newest snapshot."""
    resolved = resolve(events.schema, list(compiler.attributes), roles, attributes)
    snapshot = compiler.snapshot
    shards = len(snapshot.shards)
    if compact and shards > 1 and events.isStreaming:
        raise InvalidInput("compact rows of a sharded match would need a state on a stream: ask for pairs")
    # Event columns keep their names; roles get names of their own, so that one column can be both.
    sent = [F.col(quoted(name)) for name in dict.fromkeys(kept)]
    names: dict[str, str | None] = {}
    for role, column in roles._asdict().items():
        used = role == "type" or (role != "id" and "dl" in wanted)
        names[role] = f"${role}" if column and used else None
        if column and used:
            sent.append(
                F.col(quoted(column)).cast("string" if role == "type" else _as_is(events, column)).alias(f"${role}")
            )
    sent += resolved.selected
    fields = [events.schema[name] for name in kept] + [_field(name, compiler, compact) for name in wanted]
    chosen = events.select(*sent)
    if shards > 1:
        chosen = _to_every_shard(chosen, shards, compact)
        if compact:
            kept, fields = (_ROW, *kept), [T.StructField(_ROW, T.LongType()), *fields]
    step = MatchStep(
        snapshot,
        resolved.layout,
        kept,
        wanted,
        compact,
        names["type"],
        names["timestamp"],
        names["timeout_s"],
        _SHARD if shards > 1 else None,
    )
    result = chosen.mapInArrow(step, T.StructType(fields))
    return _rejoined(result, kept, wanted) if compact and shards > 1 else result


def _to_every_shard(events: "DataFrame", shards: int, compact: bool) -> "DataFrame":
    """Every event once per shard, each shard's copies in partitions of their own: a worker maps one shard at a time."""
    if compact:
        events = events.withColumn(_ROW, F.monotonically_increasing_id())
    spark = events.sparkSession
    hashed = [field.name for field in events.schema.fields if not isinstance(field.dataType, T.MapType)]
    slices = max(1, round(spark.sparkContext.defaultParallelism / shards)) if hashed else 1
    within = F.pmod(F.xxhash64(*map(quoted, hashed)), F.lit(slices)) if slices > 1 else F.lit(0)
    spread = F.col(_SHARD) * slices + within
    copies = events.withColumn(_SHARD, F.explode(F.lit(list(range(shards)))))
    return copies.withColumn("$at", spread.cast("int")).repartitionById(shards * slices, F.col("$at"))


def _rejoined(result: "DataFrame", kept: tuple[str, ...], wanted: tuple[str, ...]) -> "DataFrame":
    one = [F.first(quoted(name)).alias(name) for name in kept[1:]]
    lists = [F.flatten(F.collect_list(quoted(name))).alias(name) for name in wanted]
    return result.groupBy(quoted(_ROW)).agg(*one, *lists).drop(_ROW)


def _field(name: str, compiler: Compiler, compact: bool) -> T.StructField:
    kind = T.LongType() if name == "subscription" and pa.types.is_integer(compiler.id_type) else COLUMNS[name]
    return T.StructField(name, T.ArrayType(kind) if compact else kind)


def _as_is(events: "DataFrame", column: str) -> T.DataType:
    return events.schema[column].dataType


def _check_columns(events: "DataFrame", roles: Roles, kept: Sequence[str], wanted: Sequence[str]) -> None:
    absent = [name for name in kept if name not in events.columns]
    if absent:
        raise InvalidInput(f"keep: the events have no column {', '.join(absent)}")
    unknown = [name for name in wanted if name not in COLUMNS]
    if unknown:
        raise InvalidInput(f"columns: expected some of {', '.join(COLUMNS)}, found {', '.join(unknown)}")
    twice = sorted(set(kept) & set(wanted))
    if twice:
        raise InvalidInput(
            f"the events have a column {', '.join(twice)}, as the notifications do: rename it, or keep another"
        )
    if "dl" in wanted and roles.timestamp is None:
        raise InvalidInput("dl is the event's time plus its deadline: name the column that is its timestamp")
