"""Kafka as source and sink, against a real broker in KRaft mode: `make test-kafka`.

Not named test_*: `make test` leaves it out, because its jars (TIDINGS_KAFKA_JARS) have to be downloaded first.
"""

import json
import os
import signal
import socket
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from tidings.spark.journal import Identity
from tidings.spark.replay import replay
from tidings.spark.session import session
from tidings.spark.sink import Kafka
from tidings.spark.sources import source
from tidings.spark.stream import Options, Pipeline, committed
from tidings.spark.versions import SubscriptionTable

JARS = Path(os.environ.get("TIDINGS_KAFKA_JARS", "build/kafka"))
PATIENCE_S = 120
SCHEMA = "id string, timestamp timestamp, timeout_s double, symbol string, change double"
CONFIG = """
process.roles=broker,controller
node.id=1
controller.quorum.voters=1@127.0.0.1:{controller}
listeners=PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller}
advertised.listeners=PLAINTEXT://127.0.0.1:{port}
controller.listener.names=CONTROLLER
listener.security.protocol.map=CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT
log.dirs={folder}
num.partitions=2
offsets.topic.replication.factor=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
"""


def free_ports(count: int) -> list[int]:
    servers = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [server.getsockname()[1] for server in servers]
    for server in servers:
        server.close()
    return ports


@pytest.fixture(scope="module")
def spark() -> Iterator[Any]:
    jars = ",".join(str(path.absolute()) for path in sorted((JARS / "connector").glob("*.jar")))
    made = session(
        "kafka", "local[2]", {"spark.jars": jars, "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1"}
    )
    yield made
    made.stop()


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    folder = tmp_path_factory.mktemp("kafka")
    port, controller = free_ports(2)
    config = folder / "server.properties"
    config.write_text(CONFIG.format(port=port, controller=controller, folder=folder / "data"))
    java = ["java", "-Xmx512m", "-XX:TieredStopAtLevel=1", "-cp", f"{(JARS / 'broker').absolute()}/*"]
    format = ["kafka.tools.StorageTool", "format", "-t", "MkU3OEVBNTcwNTJENDM2Qk", "-c", str(config)]
    subprocess.run([*java, *format], check=True, capture_output=True, timeout=PATIENCE_S)
    with open(folder / "log", "wb") as log:
        broker = subprocess.Popen([*java, "kafka.Kafka", str(config)], stdout=log, stderr=log)
    try:
        pause = threading.Event()
        for _ in range(PATIENCE_S * 10):
            with socket.socket() as probe:
                if probe.connect_ex(("127.0.0.1", port)) == 0:
                    break
            assert broker.poll() is None, (folder / "log").read_text()[-2000:]
            pause.wait(0.1)
        yield f"127.0.0.1:{port}"
    finally:
        broker.send_signal(signal.SIGTERM)
        broker.wait(60)


def send(spark: Any, servers: str, topic: str, values: list[str]) -> None:
    rows = spark.createDataFrame([(value,) for value in values], "value string")
    rows.write.format("kafka").option("kafka.bootstrap.servers", servers).option("topic", topic).save()


def quote(number: int) -> str:
    row = {"id": f"e{number}", "timestamp": "2026-01-01T12:00:00Z", "timeout_s": 60, "symbol": "A", "change": number}
    return json.dumps(row)


def test_source_sink_quarantine_and_replay(spark: Any, servers: str, tmp_path: Path) -> None:
    send(spark, servers, "quotes", [*map(quote, range(20)), "no json {"])
    rows = pa.table({"id": ["s0", "s1"], "filter": ["change > 4", "change < 0"], "home": ["west", "east"]})
    SubscriptionTable.create(str(tmp_path / "table"), rows)
    options = {"kafka.bootstrap.servers": servers, "subscribe": "quotes", "startingOffsets": "earliest"}
    given = source(spark, format="kafka", options=options, schema=SCHEMA)
    identity = Identity(given, str(tmp_path / "table"), "id", None, "timestamp", "timeout_s")
    out = str(tmp_path / "out")

    def run() -> list[Any]:
        return Pipeline(spark, identity, out, Options(clock="event"), Kafka(servers, "notifications")).run_once()

    (first,) = run()
    assert (first.events, first.quarantined, first.sent) == (21, 1, 15)
    (bad,) = committed(spark, out, "quarantine").toArrow().to_pylist()
    assert bad["original"] == "no json {"
    late = replay(spark, out, pa.table({"id": ["late"], "filter": ["change >= 18"]}), history=True)
    assert late.sent == 2
    send(spark, servers, "quotes", list(map(quote, range(20, 25))))
    (second,) = run()
    assert (second.version, second.sent) == (2, 10)

    found = committed(spark, out).select("event", "subscription").toArrow().to_pylist()
    pairs = sorted((row["event"], row["subscription"]) for row in found)
    expected = [(f"e{n}", "s0") for n in range(5, 25)] + [(f"e{n}", "late") for n in range(18, 25)]
    assert pairs == sorted(expected)

    reader = spark.read.format("kafka").option("kafka.bootstrap.servers", servers).option("subscribe", "notifications")
    sent = [
        (row["key"], json.loads(row["value"]))
        for row in reader.load().selectExpr("CAST(key AS STRING)", "CAST(value AS STRING)").toArrow().to_pylist()
    ]
    assert {key for key, _ in sent} == {"west", ""}
    live = sorted((row["event"], row["subscription"]) for _, row in sent)
    assert live == sorted(pair for pair in expected if pair not in [("e18", "late"), ("e19", "late")])
