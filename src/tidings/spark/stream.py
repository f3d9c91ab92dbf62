"""The pipeline: source -> validate -> match -> schedule -> deliver -> account, micro-batch by micro-batch, exactly once.

Why exactly once: (1) Spark's checkpoint gives a repeated batch the same input; (2) the batch's plan, written before it begins,
gives it the same version of the subscriptions, time, watermark and links; (3) its output is built aside, in this run's folder,
and put in place as a whole under the batch's number, replacing what a run that died may have left; (4) its commit is written
last, and a batch that has one is not done again. So whatever is killed whenever, each batch's rows are in the tables once.

Event time: with `lateness_s` an event is late if its timestamp lies more than that behind the newest timestamp of all earlier
batches; `late` says whether it is matched all the same (its deadline decides) or set aside. Without it nothing is late. With
`clock="event"` every event is judged at its own time, for archives; else at the time of its batch's plan.
"""

import secrets
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec
import pyarrow as pa
from pyspark.errors import PySparkException
from pyspark.sql import functions as F

from tidings.errors import InvalidInput
from tidings.model.event import MAX_ID_LENGTH
from tidings.spark import links as link_tables
from tidings.spark import saved
from tidings.spark.compiled import SHARE_BYTES, Compiler
from tidings.spark.faults import fail_point
from tidings.spark.journal import COMMITS, PLANS, Commit, Identity, Journal, Plan, now_us
from tidings.spark.layout import Layout
from tidings.spark.place import Place
from tidings.spark.schedule import Parameters
from tidings.spark.schema import CORRUPT, Roles, quoted, resolve
from tidings.spark.session import is_local
from tidings.spark.sink import Delivery, Sink
from tidings.spark.sources import heart_of, stream
from tidings.spark.stage import BORN, COUNTS, ID, KIND, NEVER_US, ORIGINAL, REASON, SIZE, SUMMARY, TIMEOUT, Stage
from tidings.spark.subscriptions import parsed, refuse, table_of
from tidings.spark.versions import SubscriptionTable

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession
    from pyspark.sql.streaming import StreamingQuery
    from pyspark.sql.types import StructType

TABLES = ("notifications", "accounts", "quarantine")
PROCESSING, EVENT = "processing", "event"
MATCH, QUARANTINE = "match", "quarantine"


class Options(msgspec.Struct, frozen=True):
    """What may differ from run to run."""

    clock: str = PROCESSING
    lateness_s: float | None = None
    late: str = MATCH
    links: str = ""  # a file with home, mu, sigma, hops; read again when it changes
    size_kb: float = 1.0  # of an event that does not say
    parameters: Parameters = Parameters()
    engine: str | None = None
    shards: int | None = None
    share_bytes: int = SHARE_BYTES
    strict: bool = False

    def __post_init__(self) -> None:
        for name, allowed in (("clock", (PROCESSING, EVENT)), ("late", (MATCH, QUARANTINE))):
            if getattr(self, name) not in allowed:
                raise InvalidInput(f"{name} {getattr(self, name)!r}: expected {' or '.join(allowed)}")


class Pipeline:
    """One pipeline and its folder. Making one checks everything and compiles the subscriptions; nothing runs yet."""

    def __init__(
        self,
        spark: "SparkSession",
        identity: Identity,
        out: str,
        options: Options = Options(),
        sink: Sink | None = None,
        on_commit: Callable[[Commit], None] | None = None,
        rows: pa.Table | None = None,
    ) -> None:
        """`rows` are what the subscriptions table shall hold: it is made, or brought up to date by one more version."""
        self.spark, self.identity, self.options, self.sink = spark, identity, options, sink
        self.on_commit = on_commit
        self.out = Place(out)
        self.journal = Journal(self.out)
        self.table = SubscriptionTable(identity.subscriptions)
        self.run = secrets.token_hex(4)
        self.roles = Roles(identity.id, identity.type, identity.timestamp, identity.timeout_s)
        self.events = stream(spark, identity.source)
        self._latest_intake: tuple[object, Intake] | None = None
        self.roles.checked(self.events.schema)
        self.journal.check(identity)
        rows = None if rows is None else table_of(rows)
        there = self.table.latest()
        if not there and rows is None:
            raise InvalidInput(f"no subscriptions table at {identity.subscriptions}")
        if options.links:
            link_tables.links_table(options.links)
        # Compiled subscriptions go where all executors write anyway, or with the tasks where that is no path.
        shared = (
            None
            if is_local(spark.sparkContext.master) or "://" in str(self.out)
            else f"{self.out}/_compiled/{self.run}"
        )
        self.compiler = Compiler(
            spark, engine=options.engine, shards=options.shards, share_bytes=options.share_bytes, folder=shared
        )
        self.version = self._first_version() if there else 1
        change = self.table.difference(rows) if there and rows is not None else None
        if there:
            saved.load(self.compiler, self.table, self.version)
        else:
            self.compiler.load(rows)
        found = list(self.compiler.problems)
        if change is not None:
            list(parsed(change.put, found))
        self.problems = tuple(map(str, found))
        if options.strict:
            refuse(found)
        resolve(self.events.schema, list(self.compiler.attributes), self.roles, None)
        # All is checked: from here on things are written.
        self.journal.claim(identity)
        for left in ("_staging", "_compiled"):  # by runs that died
            for run in self.out.names(left):
                if run != self.run:
                    self.out.delete(f"{left}/{run}")
        if not there:
            SubscriptionTable.create(identity.subscriptions, rows)
        elif change is not None and (len(change.put) or change.removed):
            self.table.change(change.put, change.removed)
        saved.save(self.compiler, self.table, self.version)

    def _first_version(self) -> int:
        """That of a batch which was planned and not finished, else the newest."""
        planned = self.journal.last(PLANS)
        plan = self.journal.plan(planned) if planned > self.journal.last(COMMITS) else None
        return plan.version if plan else self.table.latest()

    def start(self, *, once: bool = True, interval_s: float = 0.0) -> "StreamingQuery":
        """Run until the source is read to its present end (`once`), or until stopped."""
        writer = self.events.writeStream.foreachBatch(self.handle).option(
            "checkpointLocation", self.out.uri("checkpoint")
        )
        writer = writer.trigger(availableNow=True) if once else writer.trigger(processingTime=f"{interval_s} seconds")
        return writer.start()

    def run_once(self) -> list[Commit]:
        """Read the source to its present end; the commits of this run."""
        before = self.journal.last(COMMITS)
        wait(self.start())
        commits = map(self.journal.commit, range(before + 1, self.journal.last(COMMITS) + 1))
        return [commit for commit in commits if commit is not None]

    def handle(self, batch: "DataFrame", number: int) -> None:
        """One micro-batch, from plan to commit."""
        if self.journal.commit(number) is not None:
            return
        begun = time.monotonic()
        plan = self._plan(number)
        fail_point("planned")
        problems = self._follow(plan.version)
        staging = f"_staging/{self.run}/{number}"
        found = self._staged(batch, plan, staging)
        fail_point("written")
        self._publish(staging, number)
        fail_point("published")
        if self.sink is not None and found["sent"]:
            self.sink.deliver(Delivery(number, plan.version, self.notifications(number)))
        fail_point("delivered")
        previous = self.journal.commit(number - 1)
        newest = max(found.pop("newest_us"), (previous and previous.newest_us) or NEVER_US)
        commit = Commit(
            number,
            plan.version,
            plan.now_us,
            **found,
            newest_us=None if newest == NEVER_US else newest,
            delivered_us=None if self.options.clock == EVENT else now_us(),
            seconds=time.monotonic() - begun,
            problems=problems,
        )
        self.journal.write(commit)
        fail_point("committed")
        if self.on_commit is not None:
            self.on_commit(commit)

    def _plan(self, number: int) -> Plan:
        """The plan that an earlier attempt wrote, else a new one. In turn with whoever looks for the seam (`replay.py`)."""
        with self.out.turn():
            plan = self.journal.plan(number)
            if plan is None:
                links = (
                    link_tables.keep(self.out, link_tables.links_table(self.options.links))
                    if self.options.links
                    else ""
                )
                plan = Plan(number, self.table.latest(), now_us(), self._watermark(number), links)
                self.journal.write(plan)
        return plan

    def _watermark(self, number: int) -> int | None:
        previous = self.journal.commit(number - 1)
        if self.options.lateness_s is None or previous is None or previous.newest_us is None:
            return None
        return previous.newest_us - int(self.options.lateness_s * 1e6)

    def _follow(self, version: int) -> tuple[str, ...]:
        """Bring the compiled subscriptions to the version of the plan."""
        if version == self.version:
            return ()
        if version < self.version:
            self.compiler.load(self.table.read(version))
        else:
            put, removed = self.table.between(self.version, version)
            self.compiler.change(put, removed)
        fail_point("changed")
        self.version = version
        return tuple(map(str, self.compiler.problems))

    def _staged(self, batch: "DataFrame", plan: Plan, staging: str) -> dict[str, Any]:
        """Validate, match, schedule and write aside; the counts."""
        stage, chosen = prepared(
            batch, self._intake(plan), self.compiler, self.identity, self.options, self.out, plan, staging
        )
        summary = chosen.mapInArrow(stage, SUMMARY).toArrow()
        missing = [
            name for names in summary["files"].to_pylist() for name in names if not self.out.has(f"{staging}/{name}")
        ]
        if missing:
            raise InvalidInput(
                f"{self.out}: executors wrote {missing[0]} where the driver cannot see it: use a shared folder"
            )
        counts = {name: int(sum(summary[name].to_pylist())) for name in COUNTS}
        return counts | {"newest_us": max(summary["newest_us"].to_pylist(), default=NEVER_US)}

    def _intake(self, plan: Plan) -> "Intake":
        """What it was for the batch before, if that is still right: making one takes a tenth of a second."""
        watermark_us = plan.watermark_us if self.options.late == QUARANTINE else None
        key = tuple(self.compiler.attributes), watermark_us
        if self._latest_intake is None or self._latest_intake[0] != key:
            made = intake(self.events.schema, key[0], self.roles, self.identity, watermark_us)
            self._latest_intake = key, made
        return self._latest_intake[1]

    def _publish(self, staging: str, number: int) -> None:
        publish(self.out, staging, number)
        self.out.delete(f"_staging/{self.run}/{number}")

    def notifications(self, batch: int) -> "DataFrame":
        """The notifications of one batch in the order of sending."""
        rows = self.spark.read.parquet(self.out.uri(f"notifications/batch={batch}"))
        return rows.orderBy("home", F.desc("priority"), "event")


def publish(out: Place, staging: str, number: int) -> None:
    """Put the staged tables in place under the number of the batch, instead of whatever is there."""
    for table in TABLES:
        out.delete(f"{table}/batch={number}")
    for table in out.names(staging):
        out.move(f"{staging}/{table}", f"{table}/batch={number}")


class Intake(NamedTuple):
    """The columns of events as the step that executors run wants them."""

    layout: Layout
    columns: list["Column"]


def intake(
    schema: "StructType", attributes: Sequence[str], roles: Roles, identity: Identity, watermark_us: int | None = None
) -> Intake:
    """For filters that ask for these attributes; what is older than the watermark does not fit."""
    resolved = resolve(schema, list(attributes), roles, None, lenient=True)
    id = F.col(quoted(identity.id))
    if schema[identity.id].dataType.typeName() not in ("long", "integer"):
        id = id.cast("string")
    kind = F.col(quoted(identity.type)).cast("string") if identity.type else F.lit("")
    born = F.col(quoted(identity.timestamp)).cast("timestamp") if identity.timestamp else F.lit(None).cast("timestamp")
    timeout = F.col(quoted(identity.timeout_s)).cast("double") if identity.timeout_s else F.lit(None).cast("double")
    size = F.col("size_kb").cast("double") if "size_kb" in schema.names else F.lit(None).cast("double")
    reason = _why_not(schema.names, id, kind, born, timeout, identity, watermark_us)
    original = F.to_json(F.struct(*(quoted(name) for name in schema.names if name != CORRUPT)))
    if CORRUPT in schema.names:
        original = F.coalesce(F.col(CORRUPT), original)
    columns = [
        id.alias(ID),
        F.coalesce(kind, F.lit("")).alias(KIND),
        born.alias(BORN),
        timeout.alias(TIMEOUT),
        size.alias(SIZE),
        reason.alias(REASON),
        F.when(reason.isNotNull(), original).alias(ORIGINAL),
        *(F.col(quoted(name)) for name in identity.keep),
        *resolved.selected,
    ]
    return Intake(resolved.layout, columns)


def prepared(
    batch: "DataFrame",
    taken: Intake,
    compiler: Compiler,
    identity: Identity,
    options: Options,
    out: Place,
    plan: Plan,
    staging: str,
) -> tuple[Stage, "DataFrame"]:
    """The step that executors run, and the events as it wants them."""
    stage = Stage(
        snapshot=compiler.snapshot,
        layout=taken.layout,
        links=link_tables.by_home(link_tables.kept(out, plan.links), compiler.homes),
        parameters=options.parameters,
        out=out,
        staging=staging,
        version=plan.version,
        now_us=None if options.clock == EVENT else plan.now_us,
        kept=identity.keep,
        compact=identity.compact,
        has_timestamp=identity.timestamp is not None,
        default_size_kb=options.size_kb,
    )
    return stage, batch.select(*taken.columns)


def _why_not(
    names: list[str],
    id: "Column",
    kind: "Column",
    born: "Column",
    timeout: "Column",
    identity: Identity,
    watermark_us: int | None,
) -> Any:
    """Why a record does not fit; null if it does."""
    text = id.cast("string")
    reason = (
        F.when(F.col(CORRUPT).isNotNull(), "does not fit the schema") if CORRUPT in names else F.when(F.lit(False), "")
    )
    reason = reason.when(id.isNull(), f"no id (column {identity.id})")
    reason = reason.when(
        (F.length(text) < 1) | (F.length(text) > MAX_ID_LENGTH), f"id: expected 1 to {MAX_ID_LENGTH} characters"
    )
    if identity.type:
        reason = reason.when(F.length(kind) > MAX_ID_LENGTH, f"type: expected at most {MAX_ID_LENGTH} characters")
    if identity.timestamp:
        reason = reason.when(born.isNull(), f"no timestamp (column {identity.timestamp})")
    if identity.timeout_s:
        reason = reason.when(F.isnan(timeout) | (timeout <= 0), "timeout: expected a positive number of seconds")
    if watermark_us is not None:
        reason = reason.when(F.unix_micros(born) < F.lit(watermark_us), "late")
    return reason


def wait(query: "StreamingQuery") -> None:
    """Until the query ends; InvalidInput with the heart of the matter if it fails."""
    try:
        query.awaitTermination()
    except PySparkException as error:
        raise InvalidInput(f"the pipeline stopped: {heart_of(error)}") from None


def committed(spark: "SparkSession", out: str, table: str = "notifications") -> "DataFrame | None":
    """One of the pipeline's tables, only what is committed; None while there is nothing."""
    place = Place(out)
    numbers = [f"batch={commit.batch}" for commit in Journal(place).commits()]
    there = [name for name in place.names(table) if name in set(numbers)]
    if not there:
        return None
    return spark.read.option("basePath", place.uri(table)).parquet(*(place.uri(f"{table}/{name}") for name in there))
