"""Where a pipeline's events come from: folders of files, Kafka, the event log, or any other Spark source with its options.

Records that do not fit keep their original: Spark's JSON and CSV readers put such a line into a column of its own, and the
validation step sends it to the quarantine.
"""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
from pyspark.errors import AnalysisException, PySparkException
from pyspark.sql import functions as F
from pyspark.sql import types as T

from tidings.errors import InvalidInput
from tidings.spark.schema import CORRUPT

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

FILES = {".jsonl": "json", ".ndjson": "json", ".json": "json", ".csv": "csv", ".parquet": "parquet"}
KAFKA_PACKAGE = "org.apache.spark:spark-sql-kafka-0-10_2.13:VERSION"  # of this Spark
_OPTIONS = {
    "json": {"columnNameOfCorruptRecord": CORRUPT},
    "csv": {"columnNameOfCorruptRecord": CORRUPT, "header": "true"},
}


class Source(msgspec.Struct, frozen=True):
    """What identifies a source: it is recorded with the pipeline, and a restart must name the same."""

    format: str
    path: str = ""
    options: dict[str, str] = {}
    schema: str = ""  # of the events, as Spark's JSON; empty where the source knows its own

    def __str__(self) -> str:
        return f"{self.format} {self.path or self.options.get('subscribe', '')}".strip()

    @property
    def struct(self) -> T.StructType:
        return T.StructType.fromJson(json.loads(self.schema))


def source(
    spark: "SparkSession", path: str = "", format: str = "", options: dict[str, str] | None = None, schema: str = ""
) -> Source:
    """A source whose schema is known: given as DDL, told by the source, or inferred from the files that are there now."""
    format = format or _guessed(path)
    options = dict(options or {})
    if format != "kafka" and path and "://" not in path:
        if not Path(path).exists():
            raise InvalidInput(f"no source at {path}")
        path = str(Path(path).absolute())
    if schema:
        struct = _ddl(schema)
    elif format in ("json", "csv", "parquet"):
        try:
            reader = spark.read.format(format).options(**_OPTIONS.get(format, {}) | options)
            if format != "parquet":
                reader = reader.option("inferTimestamp", True).option("inferSchema", True)
            struct = reader.load(path).schema
        except (AnalysisException, PySparkException) as error:
            raise InvalidInput(f"{path}: no {format} events that we can read: {heart_of(error)}") from None
    elif format == "kafka":
        raise InvalidInput(
            "a Kafka topic does not say what its messages hold: give a schema, such as 'id string, price double'"
        )
    else:
        return Source(format, path, options)
    if format in ("json", "csv", "kafka") and CORRUPT not in struct.names:
        struct = struct.add(CORRUPT, T.StringType())
    return Source(format, path, options, struct.json())


def reading(source: Source) -> dict[str, str]:
    """The options of its reader."""
    return _OPTIONS.get(source.format, {}) | source.options


def stream(spark: "SparkSession", source: Source) -> "DataFrame":
    """The source as a streaming DataFrame of events."""
    reader = spark.readStream.format(source.format).options(**reading(source))
    return _events(reader, source)


def batch(spark: "SparkSession", source: Source, options: dict[str, str] | None = None) -> "DataFrame":
    """The source, or a part of it that options describe, as it is now."""
    given = {
        name: value for name, value in reading(source).items() if name not in ("startingOffsets", "startingOffset")
    }
    reader = spark.read.format(source.format).options(**given | (options or {}))
    return _events(reader, source)


def _events(reader: Any, source: Source) -> "DataFrame":
    try:
        if source.format == "kafka":
            value = F.from_json(
                F.col("value").cast("string"),
                source.struct,
                {"mode": "PERMISSIVE", "columnNameOfCorruptRecord": CORRUPT},
            )
            return reader.load().select(value.alias("v")).select("v.*")
        if source.schema:
            reader = reader.schema(source.struct)
        return reader.load(source.path) if source.path else reader.load()
    except (AnalysisException, PySparkException) as error:
        text = heart_of(error)
        if "kafka" in text.lower() and "DATA_SOURCE_NOT_FOUND" in str(error):
            text = f"Spark's Kafka connector is not there: start with --packages {KAFKA_PACKAGE}"
        raise InvalidInput(f"source {source}: {text}") from None


def _guessed(path: str) -> str:
    if not path:
        raise InvalidInput("say where the events come from: a folder of .jsonl, .csv or .parquet files, or a format")
    if Path(path, "schema.arrow").is_file():
        return "tidings"
    for file in sorted(Path(path).iterdir()) if Path(path).is_dir() else [Path(path)]:
        if file.suffix in FILES:
            return FILES[file.suffix]
    if not Path(path).exists():
        raise InvalidInput(f"no source at {path}")
    raise InvalidInput(f"{path}: expected .jsonl, .csv or .parquet files or an event log; or name a format")


def _ddl(text: str) -> T.StructType:
    try:
        struct = T.StructType.fromDDL(text)
    except (PySparkException, ValueError) as error:
        raise InvalidInput(f"schema {text!r}: {heart_of(error)}") from None
    return struct


def heart_of(error: BaseException) -> str:
    """The line of a Spark error that says what happened: ours if there is one."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    ours = [line.partition(": ")[2] for line in lines if line.startswith("tidings.errors.")]
    told = [line for line in lines if "Exception" in line or "Error" in line]
    return (ours or told or lines or [type(error).__name__])[0]
