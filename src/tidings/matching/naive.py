"""naive: every filter is evaluated on every event. The oracle that all other engines are compared with.

Cost: O(subscriptions) per event, O(1) per change.
"""

from collections.abc import Mapping

import msgspec
import numpy as np

from tidings.matching.base import Matcher, Slots
from tidings.matching.ids import Ids
from tidings.matching.seal import sealed, unsealed
from tidings.model.domain import overlaps
from tidings.model.filter import FAILS, Filter, conjunction, matches
from tidings.model.subscription import Region, Subscription
from tidings.model.value import Value


class Naive(Matcher):
    name = "naive"

    def __init__(self, missing: str = FAILS) -> None:
        super().__init__(missing)
        self._conditions: list[Filter | None] = []  # by slot

    def add(self, subscription: Subscription) -> None:
        if subscription.id in self.slots:
            self.remove(subscription.id)
        self.slots[subscription.id] = len(self.ids)
        self.ids.append(subscription.id)
        self._conditions.append(subscription.condition)

    def remove(self, id: str) -> None:
        slot = self.slot_of(id)
        del self.slots[id]
        self.ids[slot] = self._conditions[slot] = None
        if len(self.ids) > 2 * len(self.slots) + 16:
            self._compact()

    def _compact(self) -> None:
        """Close the gaps; the order of the remaining ids stays."""
        kept = [(id, condition) for id, condition in zip(self.ids, self._conditions, strict=True) if id is not None]
        self.ids = Ids([id for id, _ in kept])
        self._conditions = [condition for _, condition in kept]
        self.slots = {id: slot for slot, (id, _) in enumerate(kept)}

    def encode(self, attributes: Mapping[str, Value]) -> Mapping[str, Value]:
        return attributes

    def find(self, encoded: Mapping[str, Value]) -> Slots:
        found = [
            slot
            for slot, condition in enumerate(self._conditions)
            if condition is not None and matches(condition, encoded, self.missing)
        ]
        return np.array(found, dtype=np.int32)

    def match_region(self, region: Region) -> list[str]:
        wanted = conjunction(region.predicates)
        return [
            id
            for id, condition in zip(self.ids, self._conditions, strict=True)
            if id is not None and condition is not None and overlaps(wanted, condition)
        ]

    def snapshot(self) -> bytes:
        pairs = [(id, condition) for id, condition in zip(self.ids, self._conditions, strict=True) if id is not None]
        return sealed(self.name, msgspec.msgpack.encode((self.missing, pairs)))

    @classmethod
    def load(cls, buffer: bytes | memoryview) -> "Naive":
        payload = unsealed(cls.name, buffer)
        missing, pairs = msgspec.msgpack.decode(payload, type=tuple[str, list[tuple[str, Filter]]])
        engine = cls(missing)
        engine.ids = Ids([id for id, _ in pairs])
        engine._conditions = [condition for _, condition in pairs]
        engine.slots = {id: slot for slot, (id, _) in enumerate(pairs)}
        return engine
