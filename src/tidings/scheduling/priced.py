"""priced: every link has a price for its time, and a copy goes where it earns most beyond the prices ahead (ours).

mtep values an event as if every broker ahead would send it at once. Under load that is wrong: a copy for many subscriptions
takes the time of many links, each of which could carry something else. So each link keeps a price, the worth of one mean
transmission: it rises by a step with each arriving copy that is worth more than it, and falls by a step per mean transmission
time. It settles where as many such copies arrive as the link can send, and on a link that is not crowded it is nothing. Prices
travel with the link states that flow anyway.

    V(t) = sum over targets at the next broker of (price + penalty)*success
         + sum over its links ahead of max(0, V of the subtree there - price of that link)

How we differ from mtep:
a) V instead of EE and EP: on time earns the price and saves the penalty. Subtrees not worth their link count for nothing.
b) Order is what postponing costs, V(t) - patience*V(t + LMT), per size.
c) Copies worth nothing, or less than `share` of their own link's price, are dropped.
d) At each broker ahead a copy is expected to wait `wait` of an LMT for the message that is on the link already.
e) Steps are a share of the mean worth of a copy, so that the currency does not matter.
f) Copies without any deadline lose nothing by waiting: they stay outside the market, first come first served, and go when no
   other waits. No copy that has a subscription without deadline is dropped for its price.

Cost: `ranked.py`, and per target one step for each link ahead; 16 bytes per link ahead.
"""

import math
from collections import deque
from collections.abc import Iterator

import numpy as np

from tidings.compiled import inner, kernel
from tidings.scheduling.base import DEFAULT_CAPACITY, QUEUE_FULL, Dropped, Item, without
from tidings.scheduling.delay import Link, chance
from tidings.scheduling.prices import LINK, MARK, PARENT
from tidings.scheduling.ranked import (
    AT,
    DEADLINE,
    DEVIATION,
    FIRST,
    LATEST,
    LOAD,
    MARKED,
    NO_HOPE,
    NODE,
    NODE_STOP,
    PASSED,
    RANK,
    STATE,
    STOP,
    TOO_CHEAP,
    WAITS,
    Floats,
    Integers,
    Ranked,
    check_shares,
    settle,
)
from tidings.scheduling.rate import PER_KB

GAIN = 2  # the column of rows with price + penalty; AT is the node, within its item, that the target is behind
LEAST_GAIN = 1e-9  # of a subscription that pays nothing: it is served by links that cost nothing
LEAST_LOAD = 0.01
WORTH_MEMORY = 50.0  # copies over which the mean worth is taken
FREE_STEPS = 3  # by which a price must have risen before it counts: copies come in bursts also where no link is crowded


@inner
def plant(rows: Floats, first: int, stop: int, trie: Integers, nodes: Integers, begin: int) -> int:
    """Copy the part of the trie that an item needs: (link, parent), children before parents, numbered from 0."""
    end = begin
    for row in range(first, stop):
        node = int(rows[row, AT])
        while node >= 0 and trie[node, MARK] < 0:
            trie[node, MARK] = 0
            at = end
            while at > begin and nodes[at - 1, 0] < node:  # parents have smaller numbers
                nodes[at, 0] = nodes[at - 1, 0]
                at -= 1
            nodes[at, 0] = node
            end += 1
            node = trie[node, PARENT]
    for at in range(begin, end):
        trie[nodes[at, 0], MARK] = at - begin
    for row in range(first, stop):
        if rows[row, AT] >= 0:
            rows[row, AT] = trie[int(rows[row, AT]), MARK]
    for at in range(begin, end):
        parent = trie[nodes[at, 0], PARENT]
        nodes[at, 1] = trie[parent, MARK] if parent >= 0 else -1
    for at in range(begin, end):
        node = nodes[at, 0]
        trie[node, MARK] = -1
        nodes[at, 0] = trie[node, LINK]
    return end


@inner
def worth(
    head: Floats, rows: Floats, nodes: Integers, prices: Floats, sums: Floats, now: float, lmt: float, epsilon: float
) -> tuple[float, float, bool, bool]:
    """V now and after one transmission; whether any target can be reached; whether one has no deadline."""
    begin, end = int(head[NODE]), int(head[NODE_STOP])
    for node in range(end - begin):
        sums[node, 0] = sums[node, 1] = 0.0
    value = later = 0.0
    hopeful = endless = False
    for row in range(int(head[FIRST]), int(head[STOP])):
        left, deviation = rows[row, LATEST] - now, rows[row, DEVIATION]
        success = chance(left, deviation)
        gain, gain_later = rows[row, GAIN] * success, rows[row, GAIN] * chance(left - lmt, deviation)
        hopeful |= success > epsilon
        endless |= left == math.inf
        at = int(rows[row, AT])
        if at < 0:
            value += gain
            later += gain_later
        else:
            sums[at, 0] += gain
            sums[at, 1] += gain_later
    for node in range(end - begin):
        price = prices[nodes[begin + node, 0]] * head[LOAD]
        parent = nodes[begin + node, 1]
        net, net_later = max(0.0, sums[node, 0] - price), max(0.0, sums[node, 1] - price)
        if parent < 0:
            value += net
            later += net_later
        else:
            sums[parent, 0] += net
            sums[parent, 1] += net_later
    return value, later, hopeful, endless


@kernel(
    "Tuple((int64, float64))(float64[:,::1], int64, float64[:,::1], int64, int64, int64[:,::1], int64[:,::1], int64,"
    " float64[::1], float64[:,::1], float64, float64, float64, float64, float64, boolean, float64, float64)"
)
def enter(
    heads: Floats,
    at: int,
    rows: Floats,
    first: int,
    stop: int,
    trie: Integers,
    nodes: Integers,
    begin: int,
    prices: Floats,
    sums: Floats,
    born_s: float,
    size_kb: float,
    client_s: float,
    processing_s: float,
    wait_s: float,
    per_kb: bool,
    load: float,
    now: float,
) -> tuple[int, float]:
    """The item's rows are written: complete them, and say how far its nodes reach and what it is worth now."""
    settle(heads, at, rows, first, stop, born_s, size_kb, client_s, processing_s, wait_s, per_kb)
    end = plant(rows, first, stop, trie, nodes, begin)
    heads[at, NODE], heads[at, NODE_STOP], heads[at, LOAD] = begin, end, load
    return end, worth(heads[at], rows, nodes, prices, sums, now, 0.0, 0.0)[0]


@kernel(
    "UniTuple(int64, 3)(float64[:,::1], int64, float64[:,::1], int64[:,::1], float64[::1], float64[:,::1],"
    " float64, float64, float64, float64, float64)"
)
def rank(
    heads: Floats,
    count: int,
    rows: Floats,
    nodes: Integers,
    prices: Floats,
    sums: Floats,
    now: float,
    lmt: float,
    patience: float,
    least: float,
    epsilon: float,
) -> tuple[int, int, int]:
    best = worst = -1
    highest, lowest = -math.inf, math.inf
    marked = 0
    for i in range(count):
        heads[i, RANK] = -math.inf
        if heads[i, STATE] != WAITS:
            continue
        value, later, hopeful, endless = worth(heads[i], rows, nodes, prices, sums, now, lmt, epsilon)
        load = heads[i, LOAD]
        state = WAITS
        if now > heads[i, DEADLINE]:
            state = PASSED
        elif not hopeful:
            state = NO_HOPE
        elif (value <= 0.0 or value < least * load) and not endless:
            state = TOO_CHEAP
        if state != WAITS:
            heads[i, STATE] = state
            heads[marked, MARKED] = i
            marked += 1
            continue
        index = heads[i, RANK] = (value - patience * later) / load
        if index > highest:
            best, highest = i, index
        if index <= lowest:
            worst, lowest = i, index
    return best, worst, marked


class Priced(Ranked):
    """At capacity the copies without deadline are dropped first, the newest before the others."""

    name = "priced"
    kernels = (enter, rank)

    def __init__(
        self,
        link: Link | None = None,
        capacity: int = DEFAULT_CAPACITY,
        *,
        patience: float = 0.7,
        share: float = 0.5,
        step: float = 0.02,
        wait: float = 0.2,
        epsilon: float = 0.04,
    ) -> None:
        super().__init__(link, capacity)
        check_shares(patience=patience, share=share, step=step, wait=wait, epsilon=epsilon)
        self.patience, self.share, self.epsilon = float(patience), float(share), float(epsilon)
        self.step, self.wait = step, wait
        self._endless: deque[Item] = deque()
        self._sums: Floats = np.zeros((len(self._nodes), 2))
        self._level = 0.0
        self._level_at_s = 0.0
        self._mean_worth = 0.0

    def __len__(self) -> int:
        return self._waiting + len(self._endless)

    def __iter__(self) -> Iterator[Item]:
        yield from super().__iter__()
        yield from self._endless

    def price(self, now: float) -> float:
        return max(0.0, self._level_now(now) - FREE_STEPS * self.step * self._mean_worth)

    def _level_now(self, now: float) -> float:
        lmt_s = self.link.lmt_s
        if lmt_s <= 0.0:
            return 0.0  # a link that takes no time is never crowded
        return max(0.0, self._level - self.step * self._mean_worth * (now - self._level_at_s) / lmt_s)

    def push(self, item: Item, now: float) -> None:
        if item.targets[0].deadline_s == math.inf and all(target.deadline_s == math.inf for target in item.targets):
            self._endless.append(item)
        else:
            self._bid(self._enter(item, now), now)
        if len(self) > self.capacity:
            self._make_room(now)

    def pop(self, now: float) -> Item | None:
        item = super().pop(now)
        return self._endless.popleft() if item is None and self._endless else item

    def withdraw(self, subscription: str) -> None:
        super().withdraw(subscription)
        rest = (without(item, subscription) for item in self._endless)
        self._endless = deque(item for item in rest if item is not None)

    def _bid(self, worth: float, now: float) -> None:
        """A copy has come that is worth more than the link's price, or not."""
        level = self._level_now(now)
        wanted = worth > self.price(now)
        self._mean_worth += (worth - self._mean_worth) / (WORTH_MEMORY if self._mean_worth else 1.0)
        self._level = level + self.step * self._mean_worth if wanted else level
        self._level_at_s = now

    def _append(self, item: Item) -> None:
        self._enter(item, item.born_s)

    def _enter(self, item: Item, now: float) -> float:
        """Pack it; what is it worth now, per mean transmission?"""
        link, size_kb = self.link, item.event.size_kb
        prices = link.prices
        path: tuple[str, ...] = ()
        node = -1
        most = self._node_end  # nodes, if no link ahead is shared
        values: list[float] = []
        for target in item.targets:
            if target.path is not path:
                path = target.path
                node = prices.route(path)
                most += len(path)
            gain = target.price + target.penalty or LEAST_GAIN
            values += (target.deadline_s, target.variance, gain, 0.0, node, target.hops, target.mu)
        while most > len(self._nodes):
            self._nodes = np.concatenate([self._nodes, np.zeros_like(self._nodes)])
            self._sums = np.zeros((len(self._nodes), 2))
        load = max(size_kb / link.mean_size_kb, LEAST_LOAD) if link.mean_size_kb > 0.0 else 1.0
        first, at = self._end, self._write(item, values)
        self._node_end, worth = self._pack(
            self._heads,
            at,
            self._rows,
            first,
            self._end,
            prices.trie,
            self._nodes,
            self._node_end,
            prices.values,
            self._sums,
            float(item.born_s),
            float(size_kb),
            float(link.client_s),
            float(link.processing_s),
            float(self.wait * link.lmt_s),
            link.sampling == PER_KB,
            load,
            float(now),
        )
        return float(worth) / load

    def _rank(self, now: float, first: int = 0) -> tuple[int, int, int]:
        return self._rank_all(  # type: ignore[no-any-return]
            self._heads[first:] if first else self._heads,
            len(self._items) - first,
            self._rows,
            self._nodes,
            self.link.prices.values,
            self._sums,
            float(now),
            float(self.link.lmt_s),
            self.patience,
            self.share * self.price(now),
            self.epsilon,
        )

    def _make_room(self, now: float) -> None:
        if self._endless:
            self._dropped.append(Dropped(self._endless.pop(), QUEUE_FULL))
        else:
            super()._make_room(now)
