"""Where notifications go besides their Parquet table: the console, Kafka, or whatever implements `Sink` (the brokers will).

A sink is called once for every micro-batch, after its notifications are in their table and before the batch is committed. After a
crash between the two it is called again with the same batch number and the same rows: a sink that must deliver once keeps the
number of the last batch it took, or recognises (event, subscription).
"""

from typing import TYPE_CHECKING, Protocol

import msgspec
from pyspark.sql import functions as F

from tidings.errors import InvalidInput

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


class Delivery(msgspec.Struct, frozen=True):
    """One micro-batch of notifications, in the order of sending: home by home, dearest first."""

    batch: int
    version: int
    notifications: "DataFrame"


class Sink(Protocol):
    def deliver(self, delivery: Delivery) -> None: ...


class Console:
    """Shows the first rows of each batch."""

    def __init__(self, rows: int = 20) -> None:
        self.rows = rows

    def deliver(self, delivery: Delivery) -> None:
        print(f"batch {delivery.batch}, subscriptions version {delivery.version}")
        delivery.notifications.drop("schema_version", "version", "batch").show(self.rows, truncate=False)


class Kafka:
    """One JSON message per row, keyed by the home broker. Kafka's Spark sink is at least once: repeats bear the same event,
    subscription and batch."""

    def __init__(self, servers: str, topic: str, options: dict[str, str] | None = None) -> None:
        self.options = {"kafka.bootstrap.servers": servers, "topic": topic, **(options or {})}

    def deliver(self, delivery: Delivery) -> None:
        rows = delivery.notifications.withColumn("batch", F.lit(delivery.batch))
        message = rows.select(F.col("home").alias("key"), F.to_json(F.struct("*")).alias("value"))
        message.write.format("kafka").options(**self.options).save()


class Format:
    """Any format that Spark writes, appended batch by batch: as exactly once as that format makes it."""

    def __init__(self, format: str, options: dict[str, str]) -> None:
        self.format, self.options = format, options

    def deliver(self, delivery: Delivery) -> None:
        rows = delivery.notifications.withColumn("batch", F.lit(delivery.batch))
        rows.write.format(self.format).options(**self.options).mode("append").save()


def sink(name: str, options: dict[str, str]) -> Sink | None:
    """By name; `parquet` needs none, because the notifications table is there anyway."""
    match name:
        case "parquet":
            return None
        case "console":
            return Console(int(options.get("rows", 20)))
        case "kafka":
            missing = [key for key in ("kafka.bootstrap.servers", "topic") if key not in options]
            if missing:
                raise InvalidInput(f"the Kafka sink needs the option {' and '.join(missing)}")
            rest = {key: value for key, value in options.items() if key not in ("kafka.bootstrap.servers", "topic")}
            return Kafka(options["kafka.bootstrap.servers"], options["topic"], rest)
    return Format(name, options)
