"""elsewhere: matches nothing, because somebody else does: the engine of a broker whose events are matched on Spark.

It knows who is registered and no more. Cost: O(1) for everything.
"""

from collections.abc import Mapping

import numpy as np

from tidings.errors import InvalidInput
from tidings.matching.base import Matcher, Slots
from tidings.model.subscription import Region, Subscription
from tidings.model.value import Value


class Elsewhere(Matcher):
    name = "elsewhere"

    def add(self, subscription: Subscription) -> None:
        self.slots[subscription.id] = 0

    def remove(self, id: str) -> None:
        self.slot_of(id)
        del self.slots[id]

    def encode(self, attributes: Mapping[str, Value]) -> None:
        return None

    def find(self, encoded: None) -> Slots:
        return np.empty(0, np.int32)

    def match_region(self, region: Region) -> list[str]:
        return []

    def snapshot(self) -> bytes:
        raise InvalidInput("what is matched elsewhere has no snapshot here")

    @classmethod
    def load(cls, buffer: bytes | memoryview) -> "Elsewhere":
        raise InvalidInput("what is matched elsewhere has no snapshot here")
