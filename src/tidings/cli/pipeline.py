"""`tidings pipeline`: events from files, Kafka or an event log against a table of subscriptions, on Spark, exactly once."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from tidings.cli.output import BAD_INPUT, complain, counted, fail, on_terminal, print_json, print_table
from tidings.errors import InvalidInput

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tidings.spark.journal import Commit

HELP = """Match streams and archives of events against subscriptions on Spark.

\b
  tidings pipeline check events --subscriptions subscriptions.jsonl
  tidings pipeline run events --subscriptions subscriptions.jsonl --out notifications
  tidings pipeline account notifications
"""
RUN_HELP = """Run a pipeline: source, validate, match, schedule, deliver, account.

SOURCE is a folder of .jsonl, .csv or .parquet files or an event log; for Kafka and other Spark sources name --format and its
options instead. --subscriptions is a .jsonl, .csv or .parquet file with the columns id, filter, and optionally types, deadline_s,
price, penalty, subscriber, home; or a versioned table that may change while the pipeline runs.

Reads what is there and ends; --follow goes on until it is stopped. To run it again with the same --out goes on where it was,
whatever happened to it.

\b
  tidings pipeline run events --subscriptions subscriptions.jsonl --out notifications
  tidings pipeline run --format kafka --option subscribe=quotes --option kafka.bootstrap.servers=host:9092 \\
      --schema "id string, price double" --subscriptions table --out notifications --follow
"""

app = typer.Typer(help=HELP, no_args_is_help=True, rich_markup_mode=None)

_SUBSCRIPTIONS = typer.Option(..., "--subscriptions", "-s", metavar="PATH", help="A file or a versioned table.")
_MASTER = typer.Option(None, metavar="URL", help="Spark's master; local[*] if nobody says.")
_CONF = typer.Option(None, "--conf", metavar="NAME=VALUE", help="A Spark setting; may be repeated.")
_PACKAGES = typer.Option(None, metavar="COORDINATES", help="Spark packages, such as the Kafka connector.")
_JSON = typer.Option(False, "--json", help="Print JSON.")
_OUT = typer.Argument(..., metavar="OUT", help="The folder of the pipeline.")


def _pairs(given: list[str] | None, what: str) -> dict[str, str]:
    found = {}
    for text in given or []:
        name, equals, value = text.partition("=")
        if not equals or not name:
            fail(f"{what} {text!r}: expected NAME=VALUE")
        found[name] = value
    return found


def _session(master: str | None, conf: list[str] | None, packages: str | None = None) -> "SparkSession":
    from tidings.spark.session import session

    settings = _pairs(conf, "--conf")
    if packages:
        settings["spark.jars.packages"] = packages
    if on_terminal(sys.stderr):
        complain("Starting Spark")
    return session("tidings pipeline", master, settings)


def _roles(spark: "SparkSession", given: Any, **named: str | None) -> dict[str, str | None]:
    """The columns with a meaning: those that were named, else those of the customary names."""
    from tidings.spark.schema import Roles
    from tidings.spark.sources import stream

    schema = stream(spark, given).schema
    found = Roles.found(schema)._asdict()
    roles = {role: name or found[role] for role, name in named.items()}
    if roles["id"] is None:
        raise InvalidInput(f"which column is the event's id? Name it with --id: there are {', '.join(schema.names)}")
    Roles(**roles).checked(schema)
    return roles


@app.command("run", help=RUN_HELP)
def run(
    path: str = typer.Argument("", metavar="[SOURCE]", show_default=False, help="A folder of files, or an event log."),
    subscriptions: str = _SUBSCRIPTIONS,
    out: str = typer.Option(
        ..., "--out", "-o", metavar="DIR", help="The pipeline's folder: its output and its memory."
    ),
    format: str = typer.Option("", metavar="NAME", help="The source's Spark format, if it is no folder of files."),
    option: list[str] = typer.Option(None, metavar="NAME=VALUE", help="An option of the source; may be repeated."),
    schema: str = typer.Option("", metavar="DDL", help="The events' columns; inferred from the files if not given."),
    id: str = typer.Option(None, metavar="COLUMN", help="The event's id (id)."),
    type: str = typer.Option(None, metavar="COLUMN", help="Its type (type)."),
    timestamp: str = typer.Option(None, metavar="COLUMN", help="Its time (timestamp)."),
    timeout: str = typer.Option(None, metavar="COLUMN", help="How many seconds it is valid (timeout_s)."),
    keep: str = typer.Option("", metavar="COLUMNS", help="Event columns that notifications carry: symbol,price"),
    compact: bool = typer.Option(False, "--compact", help="One row per event and home, with arrays."),
    clock: str = typer.Option("", help="Judge deadlines by time of `processing` (with --follow) or `event` (without)."),
    lateness: float = typer.Option(None, metavar="SECONDS", help="How far behind the newest event is late."),
    late: str = typer.Option("match", help="What becomes of late events: match or quarantine."),
    links: str = typer.Option("", metavar="FILE", help="A table of home, mu, sigma, hops."),
    sink: str = typer.Option("parquet", metavar="NAME", help="parquet, console, kafka, or a Spark format."),
    sink_option: list[str] = typer.Option(None, metavar="NAME=VALUE", help="An option of the sink."),
    follow: bool = typer.Option(False, "--follow", "-f", help="Go on until stopped."),
    interval: float = typer.Option(0.0, metavar="SECONDS", help="With --follow: time between micro-batches."),
    strict: bool = typer.Option(False, "--strict", help="Stop if a filter does not parse."),
    engine: str = typer.Option(None, metavar="NAME", help="The matching engine."),
    shards: int = typer.Option(None, min=1, help="Into how many parts to cut the subscriptions."),
    master: str = _MASTER,
    conf: list[str] = _CONF,
    packages: str = _PACKAGES,
    json: bool = _JSON,
) -> None:
    options, sink_options = _pairs(option, "--option"), _pairs(sink_option, "--sink-option")
    rows = None
    table = subscriptions
    if not Path(subscriptions).is_dir() and "://" not in subscriptions:
        from tidings.spark.subscriptions import read_file, table_of

        rows = table_of(read_file(subscriptions))
        table = f"{out}/subscriptions"
    spark = _session(master, conf, packages)

    from tidings.spark.journal import Identity, Journal
    from tidings.spark.place import Place
    from tidings.spark.sink import sink as sink_named
    from tidings.spark.sources import source
    from tidings.spark.stream import Options, Pipeline, wait

    # A pipeline that runs again reads by the schema it began with.
    there = Journal(Place(out)).identity()
    if there is not None and not schema and there.source.format == (format or there.source.format):
        given = source(
            spark, path, there.source.format, options, there.source.struct.toDDL() if there.source.schema else ""
        )
    else:
        given = source(spark, path, format, options, schema)
    roles = _roles(spark, given, id=id, type=type, timestamp=timestamp, timeout_s=timeout)
    kept = tuple(name.strip() for name in keep.split(",") if name.strip())
    identity = Identity(given, str(Place(table)), **roles, keep=kept, compact=compact)  # type: ignore[arg-type]
    settings = Options(
        clock or ("processing" if follow else "event"),
        lateness,
        late,
        links,
        engine=engine,
        shards=shards,
        strict=strict,
    )
    pipeline = Pipeline(
        spark, identity, out, settings, sink_named(sink, sink_options), None if json else _told, rows=rows
    )
    for problem in pipeline.problems:
        complain(problem)
    if follow:
        query = pipeline.start(once=False, interval_s=interval)
        try:
            wait(query)
        except KeyboardInterrupt:
            query.stop()
        commits = []
    else:
        commits = pipeline.run_once()
    _print_run(out, pipeline.version, len(pipeline.compiler), commits, json)
    if pipeline.problems:
        raise typer.Exit(BAD_INPUT)


def _told(commit: "Commit") -> None:
    if on_terminal(sys.stderr):
        complain(
            f"batch {commit.batch}: {counted(commit.events, 'event')}, {commit.sent:,} notifications, {commit.seconds:.1f} s"
        )
    for problem in commit.problems:
        complain(problem)


def _print_run(out: str, version: int, subscriptions: int, commits: list["Commit"], json: bool) -> None:
    names = ("events", "quarantined", "matched", "sent", "expired")
    totals = {name: sum(getattr(commit, name) for commit in commits) for name in names}
    shown = {"out": out, "version": version, "subscriptions": subscriptions, "batches": len(commits), **totals}
    if json:
        print_json(shown)
        return
    if not commits:
        typer.echo("Nothing new to read.")
        return
    typer.echo(f"{counted(totals['events'], 'event')} in {len(commits)} micro-batches, {subscriptions:,} subscriptions")
    print_table(
        ["batch", "version", *names], [(c.batch, c.version, *(getattr(c, name) for name in names)) for c in commits]
    )
    law = f"{totals['matched']:,} matched = {totals['sent']:,} sent + {totals['expired']:,} expired"
    typer.echo(f"{law}; {totals['quarantined']:,} records set aside")
    typer.echo(
        f"notifications: {out}/notifications   quarantine: {out}/quarantine   accounts: tidings pipeline account {out}"
    )


@app.command("replay")
def replay(
    out: str = _OUT,
    subscriptions: str = _SUBSCRIPTIONS,
    history: bool = typer.Option(False, "--history", help="Also events that are no longer valid."),
    master: str = _MASTER,
    conf: list[str] = _CONF,
    packages: str = _PACKAGES,
    json: bool = _JSON,
) -> None:
    """Subscribe and get the stored events as well, then go on live without a gap or a repeat."""
    from tidings.spark.subscriptions import read_file

    rows = read_file(subscriptions)
    spark = _session(master, conf, packages)

    from tidings.spark.replay import replay as replayed

    commit = replayed(spark, out, rows, history=history)
    if json:
        print_json({"batch": commit.batch, "version": commit.version, "events": commit.events, "sent": commit.sent})
        return
    typer.echo(
        f"{commit.sent:,} stored notifications from {counted(commit.events, 'event')}; live from version {commit.version} on"
    )
    typer.echo(f"notifications: {out}/notifications/batch={commit.batch}")


@app.command("change")
def change(
    table: str = typer.Argument(
        ..., metavar="TABLE", help="A versioned table, or the folder of a pipeline that has one."
    ),
    put: str = typer.Option(None, metavar="FILE", help="Subscriptions to add, or to replace by id."),
    remove: list[str] = typer.Option(None, metavar="ID", help="A subscription to remove; may be repeated."),
    create: bool = typer.Option(False, "--create", help="Make the table of the rows of --put."),
) -> None:
    """Change subscriptions while pipelines run: the next micro-batch has it."""
    from tidings.spark.subscriptions import read_file
    from tidings.spark.versions import SubscriptionTable

    where = f"{table}/subscriptions" if Path(table, "pipeline.json").is_file() else table
    rows = read_file(put) if put else None
    if create:
        if rows is None:
            fail("--create needs --put FILE")
        SubscriptionTable.create(where, rows)
        typer.echo("version 1")
        return
    removed: list[Any] = list(remove or [])
    typer.echo(f"version {SubscriptionTable(where).change(rows, removed)}")


@app.command("account")
def account(
    logs: list[str] = typer.Argument(
        ..., metavar="LOGS", help="Folders of pipelines, or delivery logs (.parquet, .jsonl)."
    ),
    by: str = typer.Option(
        "", metavar="GROUPS", help="type, subscription, broker, reason, window; several with commas."
    ),
    window: str = typer.Option("1 minute", help="The length of a time window."),
    hops: str = typer.Option("", metavar="FILE", help="Measured transmissions: home, size_kb, seconds."),
    links: str = typer.Option("", metavar="FILE", help="Where to write the links that --hops measured (.parquet)."),
    picture: str = typer.Option("", metavar="FILE", help="Draw the accounts over time."),
    limit: int = typer.Option(20, min=1, help="How many groups to print."),
    master: str = _MASTER,
    conf: list[str] = _CONF,
    json: bool = _JSON,
) -> None:
    """Fold delivery logs: earning, success rate, on time, late and expired by reason, latency percentiles, link rates."""
    for path in [*logs, *([hops] if hops else [])]:
        if "://" not in path and not Path(path).exists():
            raise InvalidInput(f"no delivery log at {path}")
    spark = _session(master, conf)

    import pyarrow.parquet as pq

    from tidings.spark import account as accounts

    found = [
        accounts.of_pipeline(spark, path)
        if Path(path, "pipeline.json").is_file()
        else accounts.records(_table(spark, path))
        for path in logs
    ]
    log = found[0]
    for more in found[1:]:
        log = log.unionByName(more)
    log = log.cache()
    total = accounts.fold(log).toArrow().to_pylist()[0]
    groups = [name.strip() for name in by.split(",") if name.strip()]
    rows = accounts.fold(log, groups, window).orderBy(*groups).limit(limit).toArrow().to_pylist() if groups else []
    why = accounts.reasons(log).limit(limit).toArrow().to_pylist()
    measured = accounts.measured_links(_table(spark, hops)).orderBy("home").toArrow() if hops else None
    if measured is not None and links:
        pq.write_table(measured, links)
    if picture:
        windows = accounts.fold(log, ["window"], window).where("window IS NOT NULL").orderBy("window")
        accounts.draw(windows.toArrow().to_pylist(), picture)
    if json:
        print_json(
            {
                "total": total,
                "groups": rows,
                "reasons": why,
                "links": measured.to_pylist() if measured is not None else [],
            }
        )
        return
    shown = [*([{**dict.fromkeys(groups, ""), **total}] if not groups else []), *rows]
    names = [*groups, *(name for name in total if name not in groups)]
    print_table([name.replace("_", " ") for name in names], [[_cell(row.get(name)) for name in names] for row in shown])
    for row in why:
        typer.echo(f"{row['account']}: {row['count']:,} {row['reason']}")
    if measured is not None:
        print_table(measured.column_names, [[_cell(value) for value in row.values()] for row in measured.to_pylist()])
    typer.echo(f"TotalEarning {total['earning'] or 0:,.2f}; success rate {total['success_rate'] or 0:.1%}")


def _cell(value: Any) -> Any:
    return (
        "-"
        if value is None
        else round(value, 4)
        if isinstance(value, float)
        else value
        if isinstance(value, int)
        else str(value)
    )


def _table(spark: "SparkSession", path: str) -> Any:
    text = any(Path(path).glob("*.jsonl")) if Path(path).is_dir() else path.endswith((".jsonl", ".ndjson", ".json"))
    return spark.read.json(path) if text else spark.read.parquet(path)


@app.command("check")
def check(
    path: str = typer.Argument("", metavar="[SOURCE]", show_default=False, help="Events, to compare the filters with."),
    subscriptions: str = _SUBSCRIPTIONS,
    format: str = typer.Option("", metavar="NAME", help="The source's Spark format."),
    schema: str = typer.Option("", metavar="DDL", help="The events' columns."),
    engine: str = typer.Option(None, metavar="NAME", help="The matching engine."),
    share_mb: int = typer.Option(4096, min=1, help="What one worker may map."),
    master: str = _MASTER,
    conf: list[str] = _CONF,
    json: bool = _JSON,
) -> None:
    """A dry run: what a subscriptions table would cost, and what in it cannot work."""
    from tidings.spark.subscriptions import read_file, table_of
    from tidings.spark.versions import SubscriptionTable

    if Path(subscriptions).is_dir():
        versions = SubscriptionTable(subscriptions)
        rows = versions.read(versions.latest())
    else:
        rows = table_of(read_file(subscriptions))
    from tidings.spark.estimate import estimate
    from tidings.spark.schema import Roles

    struct = None
    if path or schema:
        from tidings.spark.sources import source, stream

        spark = _session(master, conf)
        struct = (
            stream(spark, source(spark, path, format or ("json" if schema and not path else ""), None, schema)).schema
            if path
            else None
        )
        if struct is None:
            from pyspark.sql import types

            struct = types.StructType.fromDDL(schema)
    found = estimate(
        rows, struct, Roles.found(struct) if struct else Roles(), engine=engine, share_bytes=share_mb << 20
    )
    if json:
        print_json({name: getattr(found, name) for name in found.__struct_fields__})
    else:
        for problem in found.problems:
            complain(problem)
        typer.echo(
            f"{found.subscriptions:,} subscriptions, {found.usable:,} usable, {len(found.problems):,} that do not parse"
        )
        typer.echo(f"served by the index: {found.indexed:.1%}")
        typer.echo(
            f"memory: {found.memory_bytes / 2**20:,.1f} MB ({found.bytes_per_subscription:,.0f} bytes each), "
            f"{counted(found.shards, 'shard')} of at most {share_mb:,} MB"
        )
        for title, names in (
            ("filters ask for attributes that no column can hold", found.absent),
            ("columns that no filter can compare", found.incomparable),
            ("never true", found.never),
        ):
            if names:
                typer.echo(f"{title}: {', '.join(names)}")
    if found.problems:
        raise typer.Exit(BAD_INPUT)
