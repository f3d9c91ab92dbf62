"""What a pipeline promised and what it did: one plan and one commit per micro-batch, and who the folder belongs to.

    out/pipeline.json            source, subscriptions and shape; a restart must name the same
    out/plans/0000000012.json    written before batch 12 begins: version of the subscriptions, time, watermark
    out/commits/0000000012.json  written after its output is in place: counts
    out/checkpoint/              Spark's own: which input belongs to which batch

Spark repeats an uncommitted batch with the same input; the plan makes the rest of it the same.
"""

import time
from typing import TypeVar

import msgspec

from tidings.errors import InvalidInput
from tidings.spark.place import Place
from tidings.spark.sources import Source

FORMAT = 1  # of the folder
_IDENTITY = "pipeline.json"
PLANS, COMMITS = "plans", "commits"
OWN_TABLE = "subscriptions"  # the versioned table of a pipeline that was given a file

Record = TypeVar("Record", bound=msgspec.Struct)


class Identity(msgspec.Struct, frozen=True):
    """What may not change between two runs over one folder."""

    source: Source
    subscriptions: str
    id: str
    type: str | None = None
    timestamp: str | None = None
    timeout_s: str | None = None
    keep: tuple[str, ...] = ()
    compact: bool = False
    format: int = FORMAT


class Plan(msgspec.Struct, frozen=True):
    batch: int
    version: int  # of the subscriptions
    now_us: int
    watermark_us: int | None = None  # older events are late
    links: str = ""  # name of the links table that the schedule uses


class Commit(msgspec.Struct, frozen=True):
    batch: int
    version: int
    now_us: int
    events: int = 0
    quarantined: int = 0
    matched: int = 0
    sent: int = 0
    expired: int = 0
    newest_us: int | None = None  # the newest event time so far
    delivered_us: int | None = None  # when the notifications were handed over; None: judged by event time
    seconds: float = 0.0
    problems: tuple[str, ...] = ()  # of a change that came with this batch
    replay: bool = False


class Journal:
    def __init__(self, out: Place) -> None:
        self.out = out

    def identity(self) -> Identity | None:
        content = self.out.read(_IDENTITY)
        if content is None:
            return None
        try:
            return msgspec.json.decode(content, type=Identity)
        except msgspec.DecodeError as error:
            raise InvalidInput(f"{self.out}/{_IDENTITY}: {error}") from None

    def claim(self, identity: Identity) -> None:
        """Write who the folder belongs to, unless it says so already."""
        if self.identity() is None:
            self.out.write(_IDENTITY, msgspec.json.format(msgspec.json.encode(identity)))

    def check(self, identity: Identity) -> None:
        """Nothing, or InvalidInput: the folder is another pipeline's, or holds something else."""
        there = self.identity()
        if there is None:
            foreign = [name for name in self.out.names() if not name.startswith(".") and name != OWN_TABLE]
            if foreign:
                raise InvalidInput(f"{self.out} is no pipeline's folder: it holds {', '.join(foreign[:5])}")
            return
        for name in Identity.__struct_fields__:
            old, new = getattr(there, name), getattr(identity, name)
            if old != new:
                raise InvalidInput(
                    f"{self.out} belongs to another pipeline: its {name} is {_shown(old)}, not {_shown(new)}"
                )

    def plan(self, batch: int) -> Plan | None:
        return self._read(PLANS, batch, Plan)

    def commit(self, batch: int) -> Commit | None:
        return self._read(COMMITS, batch, Commit)

    def write(self, record: Plan | Commit) -> None:
        folder = PLANS if isinstance(record, Plan) else COMMITS
        self.out.write(f"{folder}/{record.batch:010d}.json", msgspec.json.encode(record))

    def last(self, folder: str) -> int:
        """The newest batch of the stream that has a record; -1 if there is none."""
        return max((int(name[:-5]) for name in self._names(folder) if not name.startswith("-")), default=-1)

    def commits(self) -> list[Commit]:
        """All, in order; replays have negative numbers and come first."""
        numbers = sorted(int(name[:-5]) for name in self._names(COMMITS))
        return [commit for number in numbers if (commit := self.commit(number)) is not None]

    def _names(self, folder: str) -> list[str]:
        return [name for name in self.out.names(folder) if name.endswith(".json") and not name.startswith(".")]

    def _read(self, folder: str, batch: int, kind: type[Record]) -> Record | None:
        content = self.out.read(f"{folder}/{batch:010d}.json")
        return None if content is None else msgspec.json.decode(content, type=kind)


def now_us() -> int:
    return time.time_ns() // 1_000


def _shown(value: object) -> str:
    return str(value) if isinstance(value, Source) else repr(value)
