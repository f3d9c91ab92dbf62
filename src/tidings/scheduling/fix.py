"""fix: a fixed priority from 1 to 5 for each event (mtep's baseline; what JMS and CORBA offer).

The paper gives priorities at random. Ours follow from the event's id and a seed, so that every broker gives an event the same one
without being told, and a run can be repeated.
"""

import zlib

from tidings.scheduling.base import DEFAULT_CAPACITY, Item
from tidings.scheduling.delay import Link
from tidings.scheduling.ordered import Ordered

LEVELS = 5


class Fix(Ordered):
    name = "fix"

    def __init__(self, link: Link | None = None, capacity: int = DEFAULT_CAPACITY, *, seed: int = 0) -> None:
        super().__init__(link, capacity)
        self.seed = seed

    def rank(self, item: Item) -> float:
        return 1 + zlib.crc32(item.event.id.encode(), self.seed) % LEVELS
