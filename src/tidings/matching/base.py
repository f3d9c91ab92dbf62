"""The contract of every matching engine.

An engine numbers its subscriptions with small integers (slots) and works in two steps: `encode` turns an event into what
its kernel reads, `find` turns that into slots. Ids come out in the order of their slots. An engine starts no thread and
opens no file: `maintenance` returns a job that the driver runs, `snapshot` a buffer that the driver writes and maps.
"""

import abc
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, ClassVar

import numpy as np

from tidings.errors import InvalidInput, UnknownName
from tidings.matching.boxes import Boxes, checked_ids
from tidings.matching.columns import attributes_of_rows
from tidings.matching.ids import Ids
from tidings.model.event import Event
from tidings.model.filter import FAILS, SATISFIES
from tidings.model.subscription import Region, Subscription
from tidings.model.value import Value

Slots = np.ndarray[tuple[int], np.dtype[np.int32]]
Job = Callable[[], None]


class Matcher(abc.ABC):
    """`missing` says what a predicate on an attribute that the event lacks does: "fails" (mtep) or "satisfies" (ceem)."""

    name: ClassVar[str]
    concurrent: ClassVar[bool] = False  # may one thread change it while others match?

    def __init__(self, missing: str = FAILS) -> None:
        if missing not in (FAILS, SATISFIES):
            raise InvalidInput(f"missing {missing!r}: expected {FAILS!r} or {SATISFIES!r}")
        self.missing = missing
        self.slots: dict[str, int] = {}  # id -> slot
        self.ids = Ids()  # slot -> id; None for a slot that is free

    def __len__(self) -> int:
        return len(self.slots)

    def __contains__(self, id: object) -> bool:
        return id in self.slots

    @abc.abstractmethod
    def add(self, subscription: Subscription) -> None:
        """Register; a subscription with the same id is replaced."""

    @abc.abstractmethod
    def remove(self, id: str) -> None:
        """Forget; UnknownName if there is no such subscription."""

    @abc.abstractmethod
    def encode(self, attributes: Mapping[str, Value]) -> Any:
        """What `find` reads; `attributes` are those of `Event.matchable`."""

    @abc.abstractmethod
    def find(self, encoded: Any) -> Slots:
        """The slots of all subscriptions that an encoded event matches, each once, in any order."""

    @abc.abstractmethod
    def match_region(self, region: Region) -> list[str]:
        """The ids of all subscriptions that share a point with the region."""

    def add_all(self, subscriptions: Iterable[Subscription]) -> None:
        """Register many; engines that can do better than one by one override this."""
        for subscription in subscriptions:
            self.add(subscription)

    def add_boxes(self, ids: Sequence[str], boxes: Boxes) -> None:
        """Register many that are columns, each id once; engines that can do better than one by one override this."""
        checked_ids(ids, boxes)
        self.add_all(boxes.subscription(box, id) for box, id in enumerate(ids))

    def match(self, event: Event) -> list[str]:
        """The ids of all subscriptions that want the event, in the order of their slots."""
        return self.names(self.find(self.encode(event.matchable())))

    def match_batch(self, columns: Mapping[str, Any]) -> tuple[np.ndarray, Slots]:
        """Many events as columns (see `columns.py`): two arrays, event index and slot, ordered by event, then slot."""
        found = [np.sort(self.find(self.encode(attributes))) for attributes in attributes_of_rows(columns)]
        counts = np.array([len(slots) for slots in found], dtype=np.int64)
        slots = np.concatenate(found) if found else np.empty(0, np.int32)
        return np.repeat(np.arange(len(found), dtype=np.int64), counts), slots

    def names(self, slots: Slots) -> list[str]:
        """The ids behind slots, in the order of the slots."""
        return self.ids.names(np.sort(slots))

    def maintenance(self) -> Job | None:
        """Work that would make matching faster, for the driver to run when and where it likes; None if there is none."""
        return None

    @abc.abstractmethod
    def snapshot(self) -> bytes | memoryview:
        """Everything the engine knows, as one buffer."""

    @classmethod
    @abc.abstractmethod
    def load(cls, buffer: bytes | memoryview) -> "Matcher":
        """The engine that `snapshot` described; SnapshotError for a damaged or foreign buffer."""

    def nbytes(self) -> int:
        """Bytes held in the engine's arrays, for the benchmarks; 0 where there are none."""
        return 0

    def indexed(self) -> float:
        """The share of the subscriptions that the index answers completely; the others are verified on its candidates."""
        return 0.0

    def slot_of(self, id: str) -> int:
        """The slot of a registered id; UnknownName if there is none."""
        slot = self.slots.get(id)
        if slot is None:
            raise UnknownName(f"subscription {id!r} is not registered")
        return slot
