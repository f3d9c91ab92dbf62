"""The event log as a Spark source and sink: `spark.readStream.format("tidings").load(path)`, `writeStream.format("tidings")`.

A broker's store is read like a log. Options: `path`; reading: `startingOffset` (an offset, `earliest` or `latest`),
`maxEventsPerTrigger`, `partitions`; writing: `writer`, a name that makes what a query writes recognisable, so that a micro-batch
that Spark repeats after a crash is in the log once. Batches travel as Arrow in both directions.
"""

import secrets
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import (
    DataSource,
    DataSourceArrowWriter,
    DataSourceReader,
    DataSourceStreamArrowWriter,
    DataSourceStreamReader,
    InputPartition,
    WriterCommitMessage,
)
from pyspark.sql.pandas.types import from_arrow_schema, to_arrow_schema
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)
from pyspark.sql.types import StructType

from tidings.errors import InvalidInput
from tidings.spark.log import EventLog
from tidings.spark.stores import open_log

DEFAULT_PARTITIONS = 2
_STAGED = ".staged"


class Range(InputPartition):  # type: ignore[misc]
    def __init__(self, start: int, end: int) -> None:
        self.start, self.end = start, end


class Staged(WriterCommitMessage):  # type: ignore[misc]
    """Where a task left its rows for the commit."""

    def __init__(self, path: str | None) -> None:
        self.path = path


class EventLogSource(DataSource):  # type: ignore[misc]
    @classmethod
    def name(cls) -> str:
        return "tidings"

    @property
    def path(self) -> str:
        if not self.options.get("path"):
            raise InvalidInput("format tidings: say where the event log is, .load(path) or .option('path', ...)")
        return str(self.options["path"])

    def schema(self) -> StructType:
        return from_arrow_schema(open_log(self.path).schema)

    def reader(self, schema: StructType) -> DataSourceReader:
        return LogReader(self.path, dict(self.options))

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802
        return LogStreamReader(self.path, dict(self.options))

    def writer(self, schema: StructType, overwrite: bool) -> "LogWriter":
        if overwrite:
            raise InvalidInput("an event log only grows: use mode('append')")
        return LogWriter(self.path, schema, self.options.get("writer", secrets.token_hex(4)))

    def streamWriter(self, schema: StructType, overwrite: bool) -> "LogStreamWriter":  # noqa: N802
        if not self.options.get("writer"):
            raise InvalidInput(
                "writeStream to an event log needs .option('writer', NAME): by it a repeated batch is recognised"
            )
        return LogStreamWriter(self.path, schema, self.options["writer"])


class LogReader(DataSourceReader):  # type: ignore[misc]
    def __init__(self, path: str, options: dict[str, str]) -> None:
        self.path = path
        self.parts = int(options.get("partitions", DEFAULT_PARTITIONS))
        self.start, self.end = int(options.get("start", 0)), options.get("end")
        open_log(path)

    def partitions(self) -> Sequence[InputPartition]:
        log = open_log(self.path)
        end = log.end() if self.end is None else int(self.end)
        return [Range(*bounds) for bounds in log.ranges(self.start, end, self.parts)]

    def read(self, partition: Any) -> Iterator[pa.RecordBatch]:
        return open_log(self.path).read(partition.start, partition.end)


class LogStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):  # type: ignore[misc]
    def __init__(self, path: str, options: dict[str, str]) -> None:
        self.log = open_log(path)
        self.path = path
        self.parts = int(options.get("partitions", DEFAULT_PARTITIONS))
        self.first = options.get("startingOffset", options.get("startingoffset", "earliest"))
        limit = options.get("maxEventsPerTrigger", options.get("maxeventspertrigger"))
        self.limit = int(limit) if limit else None
        self.target: int | None = None  # with availableNow: where to stop

    def initialOffset(self) -> dict[str, int]:  # noqa: N802
        if self.first == "latest":
            return {"offset": self.log.end()}
        earliest = self.log.first()
        return {"offset": earliest if self.first == "earliest" else max(int(self.first), earliest)}

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        self.target = self.log.end()

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        return ReadAllAvailable() if self.limit is None else ReadMaxRows(self.limit)

    def latestOffset(self, start: dict[str, int], limit: ReadLimit) -> dict[str, int]:  # noqa: N802
        end = self.log.end()
        if end < start["offset"]:
            raise InvalidInput(
                f"the event log at {self.path} ends at offset {end}, but {start['offset']} was read before: another log?"
            )
        if self.target is not None:
            end = max(start["offset"], min(end, self.target))
        if isinstance(limit, ReadMaxRows):
            end = min(end, start["offset"] + limit.max_rows)
        return {"offset": end}

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> Sequence[InputPartition]:
        return [Range(*bounds) for bounds in self.log.ranges(start["offset"], end["offset"], self.parts)]

    def read(self, partition: Any) -> Iterator[pa.RecordBatch]:
        return open_log(self.path).read(partition.start, partition.end)


class _Staging:
    """Tasks write aside; the commit makes one segment of it."""

    def __init__(self, path: str, schema: StructType, writer: str) -> None:
        self.path, self.writer_name = path, writer
        self.schema = to_arrow_schema(schema, timezone="UTC")
        EventLog.create(path, self.schema)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Staged:
        table = pa.Table.from_batches(list(iterator), None)
        folder = Path(self.path, _STAGED)
        folder.mkdir(exist_ok=True)
        path = folder / f"{secrets.token_hex(8)}.arrow"
        with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_file(sink, table.schema) as file:
            file.write_table(table)
        return Staged(str(path))

    def publish(self, messages: Sequence[Any], name: str) -> None:
        paths = [message.path for message in messages if message is not None and message.path]
        tables = [pa.ipc.open_file(pa.memory_map(path)).read_all() for path in paths]
        if tables:
            EventLog(self.path).append(pa.concat_tables(tables), name)
        self.forget(messages)

    def forget(self, messages: Sequence[Any]) -> None:
        for message in messages:
            if message is not None and message.path:
                Path(message.path).unlink(missing_ok=True)


class LogWriter(_Staging, DataSourceArrowWriter):  # type: ignore[misc]
    def commit(self, messages: Sequence[Any]) -> None:
        self.publish(messages, self.writer_name)

    def abort(self, messages: Sequence[Any]) -> None:
        self.forget(messages)


class LogStreamWriter(_Staging, DataSourceStreamArrowWriter):  # type: ignore[misc]
    def commit(self, messages: Sequence[Any], batchId: int) -> None:  # noqa: N803
        self.publish(messages, f"{self.writer_name}.{batchId}")

    def abort(self, messages: Sequence[Any], batchId: int) -> None:  # noqa: N803
        self.forget(messages)
