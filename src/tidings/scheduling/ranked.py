"""Schedulers that rank all that waits anew whenever the link is free, in one call of a kernel over packed arrays.

    items   [ A        , gone, B   , C         ]         in the order of their arrival
    heads   [ 0-3, ... , gone, 4-5 , 5-7, ...  ]         where an item's rows are, when its last deadline is, its state
    rows    [ a a a    , .   , b   , c c       ]         one for each target

A push appends, a pop only marks its item as gone; when more is gone than waits, all three are closed up. Beyond DEEP items one
ranking serves for several pops, one in DEPTH of what waits, so that a long queue costs no more per pop than a short one.

Cost per pop: O(targets that wait), at most those of DEEP items. Memory: 56 bytes per target and 72 per item, at most twice over.
"""

import abc
import math
from collections.abc import Callable, Iterable, Iterator
from functools import lru_cache
from struct import Struct
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from tidings.compiled import direct, inner, kernel
from tidings.errors import InvalidInput
from tidings.scheduling.base import (
    DEADLINE_PASSED,
    DEFAULT_CAPACITY,
    HOPELESS,
    QUEUE_FULL,
    WORTH_LESS,
    Dropped,
    Item,
    Scheduler,
    without,
)
from tidings.scheduling.delay import Link

Floats = npt.NDArray[np.float64]
Integers = npt.NDArray[np.int64]

# Columns of heads. The nodes are those of `priced`: links ahead that a copy pays for. MARKED is a list by itself: of the items
# that a ranking found to be dropped. RANK is -inf for those that do not wait.
FIRST, STOP, DEADLINE, STATE, NODE, NODE_STOP, LOAD, MARKED, RANK = range(9)
WAITS, GONE, PASSED, NO_HOPE, TOO_CHEAP = 0.0, 1.0, 2.0, 3.0, 4.0  # states
REASONS = {NO_HOPE: HOPELESS, TOO_CHEAP: WORTH_LESS}

# Columns of rows as they are written; `settle` turns the first two into what the ranks need.
DEADLINE_S, VARIANCE, PRICE, PENALTY, AT, HOPS, MU = range(7)
LATEST, DEVIATION = range(2)
ROW_BYTES = 7 * 8

SPARE = 16  # items that may be gone before closing up is worth the while
DEEP, DEPTH = 1000, 250


@lru_cache(maxsize=1024)
def _rows(count: int) -> Struct:
    return Struct(f"{7 * count}d")


@inner
def settle(
    heads: Floats,
    at: int,
    rows: Floats,
    first: int,
    stop: int,
    born_s: float,
    size_kb: float,
    client_s: float,
    processing_s: float,
    wait_s: float,
    per_kb: bool,
) -> None:
    """Eq. 7 as far as it does not depend on the time: when sending must begin to be in time on average, and the deviation."""
    width = math.sqrt(size_kb) if per_kb else size_kb
    last_s = -math.inf
    for row in range(first, stop):
        deadline_s, hops = rows[row, DEADLINE_S], rows[row, HOPS]
        last_s = max(last_s, deadline_s)
        latest_s = born_s + deadline_s - hops * processing_s - client_s - rows[row, MU] * size_kb
        rows[row, DEVIATION] = width * math.sqrt(rows[row, VARIANCE])
        rows[row, LATEST] = latest_s - max(0.0, hops - 1.0) * wait_s
    heads[at, FIRST], heads[at, STOP] = first, stop
    heads[at, DEADLINE], heads[at, STATE] = born_s + last_s, WAITS
    heads[at, NODE] = heads[at, NODE_STOP] = 0.0


@kernel("UniTuple(int64, 2)(float64[:,::1], int64, float64[:,::1], int64[:,::1])")
def close_up(heads: Floats, count: int, rows: Floats, nodes: Integers) -> tuple[int, int]:
    """Move what still waits to the front; how many rows and nodes that is."""
    kept = end = node_end = 0
    for i in range(count):
        if heads[i, STATE] != WAITS:
            continue
        first, stop, node, node_stop = heads[i, FIRST], heads[i, STOP], heads[i, NODE], heads[i, NODE_STOP]
        heads[kept, DEADLINE], heads[kept, STATE], heads[kept, LOAD] = heads[i, DEADLINE], WAITS, heads[i, LOAD]
        heads[kept, FIRST], heads[kept, NODE] = end, node_end
        for row in range(int(first), int(stop)):
            for column in range(rows.shape[1]):
                rows[end, column] = rows[row, column]
            end += 1
        for row in range(int(node), int(node_stop)):
            nodes[node_end, 0], nodes[node_end, 1] = nodes[row, 0], nodes[row, 1]
            node_end += 1
        heads[kept, STOP], heads[kept, NODE_STOP] = end, node_end
        kept += 1
    return end, node_end


class Ranked(Scheduler):
    """At capacity the item of least rank is dropped, be it the newcomer; of equals the one that came last."""

    kernels: ClassVar[tuple[Callable[..., Any], Callable[..., Any]]]  # to pack an item, and to rank all

    def __init__(self, link: Link | None = None, capacity: int = DEFAULT_CAPACITY) -> None:
        super().__init__(link, capacity)
        # Compiled now: no event has to wait for that.
        self._pack, self._rank_all = map(direct, self.kernels)
        self._close_up = direct(close_up)
        self._items: list[Item | None] = []
        self._waiting = 0
        self._heads: Floats = np.zeros((16, 9))
        self._rows: Floats = np.zeros((64, 7))
        self._end = 0
        self._nodes: Integers = np.zeros((16, 2), np.int64)
        self._node_end = 0
        self._front: list[int] = []  # the best of a deep queue when it was last ranked, the very best at the end
        self._back: list[int] = []  # and the worst

    @abc.abstractmethod
    def _append(self, item: Item) -> None:
        """Pack an item at the end of the arrays."""

    @abc.abstractmethod
    def _rank(self, now: float, first: int = 0) -> tuple[int, int, int]:
        """From the first on, where the best and the worst item are, -1 if none is, and how many are marked to be dropped."""

    def __len__(self) -> int:
        return self._waiting

    def __iter__(self) -> Iterator[Item]:
        return (item for item in self._items if item is not None)

    def push(self, item: Item, now: float) -> None:
        self._append(item)
        if self._waiting > self.capacity:
            self._make_room(now)

    def pop(self, now: float) -> Item | None:
        if self._waiting > DEEP:
            return self._pop_deep(now)
        if not self._waiting:
            return None
        best, _, marked = self._rank(now)
        if marked:
            self._drop_marked(marked, now)
        item = None
        if best >= 0:
            item = self._items[best]
            self._remove(best)
        self._tidy()
        return item

    def sweep(self, now: float) -> None:
        if self._waiting:
            _, _, marked = self._rank(now)
            self._drop_marked(marked, now)
            self._tidy()

    def withdraw(self, subscription: str) -> None:
        items = [item for item in self._items if item is not None]
        rest = [without(item, subscription) for item in items]
        if any(new is not old for new, old in zip(rest, items, strict=True)):
            self._clear()
            for item in rest:
                if item is not None:
                    self._append(item)

    def _write(self, item: Item, values: Iterable[float]) -> int:
        """Put an item at the end, with the values of its rows; where it is."""
        first, at = self._end, len(self._items)
        self._end = first + len(item.targets)
        while self._end > len(self._rows):
            self._rows = np.concatenate([self._rows, np.zeros_like(self._rows)])
        if at == len(self._heads):
            self._heads = np.concatenate([self._heads, np.zeros_like(self._heads)])
        _rows(len(item.targets)).pack_into(self._rows, first * ROW_BYTES, *values)  # type: ignore[arg-type]
        self._items.append(item)
        self._waiting += 1
        return at

    def _make_room(self, now: float) -> None:
        if self._waiting > DEEP:
            self._make_room_deep(now)
        else:
            _, worst, marked = self._rank(now)
            if marked:
                self._drop_marked(marked, now)
            else:
                self._drop(worst, QUEUE_FULL)
        self._tidy()

    def _make_room_deep(self, now: float) -> None:
        newest = len(self._items) - 1
        while self._waiting > self.capacity:
            while self._back and self._items[self._back[-1]] is None:
                self._back.pop()
            if not self._back:
                self._survey(now)
                continue
            _, _, marked = self._rank(now, newest)
            ranks = self._heads[:, RANK]
            if marked:
                self._drop_marked(marked, now, newest)
            elif ranks[newest] <= ranks[self._back[-1]]:
                self._drop(newest, QUEUE_FULL)
            else:
                self._drop(self._back.pop(), QUEUE_FULL)

    def _pop_deep(self, now: float) -> Item | None:
        item = None
        while item is None and self._waiting:
            if not self._front:
                self._survey(now)
                continue
            at = self._front.pop()
            item = self._items[at]
            if item is not None and (reason := item.why_worthless(now)) is not None:
                self._drop(at, reason)
                item = None
            elif item is not None:
                self._remove(at)
        self._tidy()
        return item

    def _survey(self, now: float) -> None:
        """Rank a deep queue, and keep its best and its worst for a while."""
        _, _, marked = self._rank(now)
        self._drop_marked(marked, now)
        order = np.argsort(-self._heads[: len(self._items), RANK], kind="stable")[: self._waiting]
        many = max(1, self._waiting // DEPTH)
        self._front = order[:many][::-1].tolist()
        self._back = order[-many:].tolist()

    def _drop_marked(self, marked: int, now: float, first: int = 0) -> None:
        for place in self._heads[first : first + marked, MARKED].tolist():
            at = first + int(place)
            self._drop(at, REASONS.get(float(self._heads[at, STATE])), now)

    def _drop(self, at: int, reason: str | None, now: float = math.inf) -> None:
        item = self._items[at]
        assert item is not None
        self._dropped.append(Dropped(item, reason or item.why_worthless(now) or DEADLINE_PASSED))
        self._remove(at)

    def _remove(self, at: int) -> None:
        self._items[at] = None
        self._heads[at, STATE] = GONE
        self._waiting -= 1

    def _tidy(self) -> None:
        if not self._waiting:
            self._clear()
        elif len(self._items) > 2 * self._waiting + SPARE:
            self._end, self._node_end = self._close_up(self._heads, len(self._items), self._rows, self._nodes)
            self._items = [item for item in self._items if item is not None]
            self._front, self._back = [], []

    def _clear(self) -> None:
        self._items.clear()
        self._front, self._back = [], []
        self._waiting = self._end = self._node_end = 0


def check_shares(**settings: float) -> None:
    for what, value in settings.items():
        if not 0.0 <= value <= 1.0:
            raise InvalidInput(f"{what} {value!r}: expected a number from 0 to 1")
