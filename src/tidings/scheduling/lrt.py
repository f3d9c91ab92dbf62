"""lrt: least remaining time first, the mean over the event's subscriptions downstream (mtep's baseline).

Remaining time is deadline minus time used. Time is used equally by all that wait, so the order does not change while they do.
"""

from tidings.scheduling.base import Item
from tidings.scheduling.ordered import Ordered


class Lrt(Ordered):
    name = "lrt"

    def rank(self, item: Item) -> float:
        return -(item.born_s + sum([target.deadline_s for target in item.targets]) / len(item.targets))
