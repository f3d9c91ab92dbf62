"""The stores of several brokers as one stream of events, `spark.readStream.format("tidings-network")`, and their subscriptions.

Option `stores`: a JSON object, broker -> its store (`stores.py`). Besides the columns of an event log each event has `$broker`
and `$offset`: where it was published, and its place in that store (no filter can name them). A stream has one offset for each
store, so that a micro-batch that Spark repeats holds the same events; copies of events that were published elsewhere are left
out. Options `maxEventsPerTrigger` and `partitions`, of each
store.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader, InputPartition
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow
from pyspark.sql.types import StructType

from tidings.errors import InvalidInput
from tidings.model.step import SubscriptionRecord, UnsubscriptionRecord
from tidings.model.subscription import Subscription
from tidings.spark.log import OPEN_SCHEMA, even_ranges, table_of_events
from tidings.spark.sources import Source
from tidings.spark.stores import StoreLog
from tidings.store import open_reader

FORMAT = "tidings-network"
BROKER, OFFSET = "$broker", "$offset"
SCHEMA = OPEN_SCHEMA.append(pa.field(BROKER, pa.string())).append(pa.field(OFFSET, pa.int64()))
_PAGE = 10_000


def network_source(stores: Mapping[str, str], limit: int | None = None) -> Source:
    """What a pipeline reads (`stream.py`)."""
    options = {"stores": json.dumps(dict(stores), sort_keys=True)}
    return Source(FORMAT, "", options | ({} if limit is None else {"maxEventsPerTrigger": str(limit)}))


def subscriptions(stores: Mapping[str, str]) -> pa.Table:
    """The live subscriptions of all these brokers, each with its home, as a table of `subscriptions.py`."""
    rows = []
    for home, where in stores.items():
        with open_reader(where) as store:
            rows += [_row(known.subscription, home) for known in store.restore().subscriptions]
    return pa.Table.from_pylist(rows, _ROWS)


class Followed:
    """The subscriptions of all these brokers and, read off the ends of their journals, what becomes of them."""

    def __init__(self, stores: Mapping[str, str]) -> None:
        self._stores = stores
        self._at: dict[str, int] = {}
        for home, where in stores.items():
            with open_reader(where) as store:
                self._at[home] = store.next_record  # what comes between here and the next line is read twice: no harm
        self.rows = subscriptions(stores)

    def news(self) -> tuple[pa.Table, list[str]]:
        """Rows that are new or different, and ids that are gone, since the last call."""
        latest: dict[str, dict[str, Any] | None] = {}
        for home, where in self._stores.items():
            with open_reader(where) as store:
                while page := store.read_journal(self._at[home], _PAGE):
                    self._at[home] = page[-1].offset + 1
                    for _, record in page:
                        if isinstance(record, SubscriptionRecord):
                            latest[record.subscription.id] = _row(record.subscription, home)
                        elif isinstance(record, UnsubscriptionRecord):
                            latest[record.id] = None
        put = [row for row in latest.values() if row is not None]
        return pa.Table.from_pylist(put, _ROWS), [id for id, row in latest.items() if row is None]


def _row(subscription: Subscription, home: str) -> dict[str, Any]:
    return {
        "id": subscription.id,
        "types": list(subscription.types),
        "filter": str(subscription.filter),
        "deadline_s": subscription.deadline_s,
        "price": subscription.price,
        "penalty": subscription.penalty,
        "subscriber": subscription.subscriber,
        "home": home,
    }


_ROWS = pa.schema(
    [
        ("id", pa.string()),
        ("types", pa.list_(pa.string())),
        ("filter", pa.string()),
        ("deadline_s", pa.float64()),
        ("price", pa.float64()),
        ("penalty", pa.float64()),
        ("subscriber", pa.string()),
        ("home", pa.string()),
    ]
)


class Stretch(InputPartition):  # type: ignore[misc]
    """Events of one store from one offset to another."""

    def __init__(self, broker: str, start: int, end: int) -> None:
        self.broker, self.start, self.end = broker, start, end


class NetworkSource(DataSource):  # type: ignore[misc]
    @classmethod
    def name(cls) -> str:
        return FORMAT

    def schema(self) -> StructType:
        return from_arrow_schema(SCHEMA)

    def reader(self, schema: StructType) -> DataSourceReader:
        return NetworkReader(dict(self.options))

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802
        return NetworkStreamReader(dict(self.options))


class _Stores:
    def __init__(self, options: Mapping[str, str]) -> None:
        try:
            self.stores: dict[str, str] = json.loads(options.get("stores", ""))
        except ValueError:
            raise InvalidInput(f"format {FORMAT}: option stores: expected a JSON object, broker -> store") from None
        self.parts = int(options.get("partitions", 1))
        limit = options.get("maxEventsPerTrigger", options.get("maxeventspertrigger"))
        self.limit = int(limit) if limit else None

    def ends(self) -> dict[str, int]:
        return {broker: StoreLog(where).end() for broker, where in self.stores.items()}

    def firsts(self) -> dict[str, int]:
        return {broker: StoreLog(where).first() for broker, where in self.stores.items()}

    def between(self, start: Mapping[str, int], end: Mapping[str, int]) -> list[Stretch]:
        return [
            Stretch(broker, *bounds)
            for broker in self.stores
            for bounds in even_ranges(start[broker], end[broker], self.parts)
        ]

    def read(self, partition: Any) -> Iterator[pa.RecordBatch]:
        at = partition.start
        with open_reader(self.stores[partition.broker]) as store:
            while at < partition.end:
                entries = store.read(at, min(_PAGE, partition.end - at))
                entries = [entry for entry in entries if entry.offset < partition.end]
                if not entries:
                    return
                at = entries[-1].offset + 1
                entries = [entry for entry in entries if not entry.copied]
                table = table_of_events(entry.event for entry in entries)
                table = table.append_column(
                    SCHEMA.field(BROKER), pa.array([partition.broker] * len(entries), pa.string())
                )
                offsets = pa.array([entry.offset for entry in entries], pa.int64())
                yield from table.append_column(SCHEMA.field(OFFSET), offsets).to_batches()


class NetworkReader(_Stores, DataSourceReader):  # type: ignore[misc]
    def partitions(self) -> Sequence[InputPartition]:
        return self.between(self.firsts(), self.ends())


class NetworkStreamReader(_Stores, DataSourceStreamReader, SupportsTriggerAvailableNow):  # type: ignore[misc]
    target: dict[str, int] | None = None  # with availableNow: where to stop

    def initialOffset(self) -> dict[str, int]:  # noqa: N802
        return self.firsts()

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        self.target = self.ends()

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        return ReadAllAvailable() if self.limit is None else ReadMaxRows(self.limit)

    def latestOffset(self, start: dict[str, int], limit: ReadLimit) -> dict[str, int]:  # noqa: N802
        ends = self.ends() if self.target is None else self.target
        for broker, offset in start.items():
            if ends.get(broker, 0) < offset:
                raise InvalidInput(
                    f"the store of {broker} ends at offset {ends.get(broker, 0)}, but {offset} was read before: another store?"
                )
        most = limit.max_rows if isinstance(limit, ReadMaxRows) else None
        return {b: end if most is None else min(end, start[b] + most) for b, end in ends.items()}

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> Sequence[InputPartition]:
        return self.between(start, end)
