"""A pipeline over an event log, as a process of its own that a test can kill: python spark_driver.py FOLDER MASTER.

After batch 1 the subscriptions change: one is added, one is changed, one is removed. TIDINGS_FAIL_AT says where the driver dies,
TIDINGS_KILL_EXECUTOR that an executor does, in the middle of batch 1.
"""

import os
import signal
import sys
import threading
from pathlib import Path
from typing import Any

import pyarrow as pa

from tidings.model.event import checked_event
from tidings.spark.journal import Commit, Identity, Journal
from tidings.spark.log import EventLog
from tidings.spark.place import Place
from tidings.spark.session import session
from tidings.spark.sources import source
from tidings.spark.stream import Options, Pipeline
from tidings.spark.versions import SubscriptionTable

EVENTS, PER_BATCH = 600, 100
NOON_S = 1_767_268_800.0


def prepare(folder: Path) -> None:
    """The same log and table every time."""
    log = EventLog.create(folder / "log")
    log.append_events(
        checked_event(f"e{n}", {"n": n, "f": n / 7, "s": "ab"[n % 2]}, "quote", timestamp_s=NOON_S + n, timeout_s=60)
        for n in range(EVENTS)
    )
    filters = [f"n >= {k * 20} AND n < {k * 20 + 90}" for k in range(20)] + [f"f > {k} AND s = 'a'" for k in range(20)]
    rows = {"id": [f"s{k}" for k in range(40)], "filter": filters, "deadline_s": [20.0, 60.0] * 20}
    SubscriptionTable.create(str(folder / "table"), pa.table({**rows, "home": [f"b{k % 3}" for k in range(40)]}))


def pipeline(spark: Any, folder: Path) -> Pipeline:
    table = SubscriptionTable(str(folder / "table"))
    journal = Journal(Place(str(folder / "out")))

    def change(_: Commit | None = None) -> None:
        if table.latest() == 1 and journal.commit(1) is not None:
            table.change(pa.table({"id": ["new", "s3"], "filter": ["n > 0", "n < 0"]}), ["s20"])

    given = source(spark, str(folder / "log"), options={"maxEventsPerTrigger": str(PER_BATCH)})
    identity = Identity(given, str(folder / "table"), "id", "type", "timestamp", "timeout_s")
    made = Pipeline(spark, identity, str(folder / "out"), Options(clock="event", engine="naive"), on_commit=change)
    change()
    return made


def executors() -> list[int]:
    """The executors on this machine that work for this process's application, or for the cluster of the test."""
    mark = os.environ["TIDINGS_KILL_EXECUTOR"]
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                command = (entry / "cmdline").read_bytes().decode(errors="replace")
            except OSError:
                continue
            if "CoarseGrainedExecutorBackend" in command and mark in command:
                found.append(int(entry.name))
    return sorted(found)


def kill_one_in_batch_one(folder: Path) -> None:
    plan, commit = (folder / "out" / part / "0000000001.json" for part in ("plans", "commits"))
    waiting = threading.Event()
    while not plan.exists():
        waiting.wait(0.01)
    assert not commit.exists()
    os.kill(executors()[0], signal.SIGKILL)
    (folder / "killed").touch()


def main() -> None:
    folder, master = Path(sys.argv[1]), sys.argv[2]
    flags = "-XX:TieredStopAtLevel=1"
    conf = {"spark.driver.extraJavaOptions": flags, "spark.executor.extraJavaOptions": flags}
    if mark := os.environ.get("TIDINGS_KILL_EXECUTOR"):
        conf |= {"spark.executor.memory": "512m", "spark.executor.extraJavaOptions": f"{flags} -Dtidings.mark={mark}"}
        threading.Thread(target=kill_one_in_batch_one, args=(folder,), daemon=True).start()
    pipeline(session("tests", master, conf), folder).run_once()


if __name__ == "__main__":
    main()
