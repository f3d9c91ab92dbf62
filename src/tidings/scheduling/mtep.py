"""mtep: maximum total earning priority (mtep, 2.3 and 2.4).

For each event that waits, over its subscriptions downstream, with the success of eq. 7 now and, primed, after one transmission:

    EE = sum price*success       EP = sum penalty*(1 - success)                       (eq. 2, 3, 10, 11)
    PC = EE - EP - (EE' - EP')   what postponing it by one transmission costs         (eq. 12)
    priority = weight*EE + (1 - weight)*(PC + EP)                                     (eq. 13)

It is expired, and dropped, if it timed out or success <= epsilon for all of them (eq. 14).

How we differ: a) an event whose every deadline has passed is dropped too, for a very uncertain link eq. 14 alone would keep it;
b) `figure5=True` is the pseudo code of Fig. 5 instead of the equations: a success below epsilon adds nothing to EE, EP, EE' or
EP', one that falls below epsilon by postponement nothing to EE' or EP', and an event is expired if EE = 0.

Cost: `ranked.py`.
"""

import math
from itertools import chain
from operator import attrgetter
from typing import NamedTuple

from tidings.compiled import inner, kernel
from tidings.scheduling.base import DEFAULT_CAPACITY, Item
from tidings.scheduling.delay import Link, chance
from tidings.scheduling.ranked import (
    DEADLINE,
    DEVIATION,
    FIRST,
    LATEST,
    MARKED,
    NO_HOPE,
    PASSED,
    PENALTY,
    PRICE,
    RANK,
    STATE,
    STOP,
    WAITS,
    Floats,
    Ranked,
    check_shares,
    settle,
)
from tidings.scheduling.rate import PER_KB


@kernel(
    "none(float64[:,::1], int64, float64[:,::1], int64, int64, float64, float64, float64, float64, boolean)",
)
def enter(
    heads: Floats,
    at: int,
    rows: Floats,
    first: int,
    stop: int,
    born_s: float,
    size_kb: float,
    client_s: float,
    processing_s: float,
    per_kb: bool,
) -> None:
    settle(heads, at, rows, first, stop, born_s, size_kb, client_s, processing_s, 0.0, per_kb)


@inner
def sums(
    rows: Floats, first: int, stop: int, now: float, lmt_s: float, epsilon: float, figure5: bool
) -> tuple[float, float, float, float, bool]:
    """EE, EP, EE', EP' and whether success <= epsilon for all."""
    ee = ep = ee_later = ep_later = 0.0
    hopeless = True
    for row in range(first, stop):
        left_s, deviation_s = rows[row, LATEST] - now, rows[row, DEVIATION]
        success = chance(left_s, deviation_s)
        later = chance(left_s - lmt_s, deviation_s)  # eq. 9
        if success > epsilon:
            hopeless = False
        if not (figure5 and success < epsilon):
            ee += rows[row, PRICE] * success
            ep += rows[row, PENALTY] * (1.0 - success)
            if not (figure5 and later < epsilon):
                ee_later += rows[row, PRICE] * later
                ep_later += rows[row, PENALTY] * (1.0 - later)
    return ee, ep, ee_later, ep_later, hopeless


@inner
def priority(ee: float, ep: float, ee_later: float, ep_later: float, weight: float) -> float:
    pc = ee - ep - (ee_later - ep_later)  # eq. 12
    return weight * ee + (1.0 - weight) * (pc + ep)  # eq. 13


@kernel("UniTuple(int64, 3)(float64[:,::1], int64, float64[:,::1], float64, float64, float64, float64, boolean)")
def rank(
    heads: Floats, count: int, rows: Floats, now: float, lmt_s: float, weight: float, epsilon: float, figure5: bool
) -> tuple[int, int, int]:
    best = worst = -1
    highest, lowest = -math.inf, math.inf
    marked = 0
    for i in range(count):
        heads[i, RANK] = -math.inf
        if heads[i, STATE] != WAITS:
            continue
        ee, ep, ee_later, ep_later, hopeless = sums(
            rows, int(heads[i, FIRST]), int(heads[i, STOP]), now, lmt_s, epsilon, figure5
        )
        passed = now > heads[i, DEADLINE]
        if passed or (ee == 0.0 if figure5 else hopeless):
            heads[i, STATE] = PASSED if passed else NO_HOPE
            heads[marked, MARKED] = i
            marked += 1
            continue
        its = heads[i, RANK] = priority(ee, ep, ee_later, ep_later, weight)
        if its > highest:
            best, highest = i, its
        if its <= lowest:
            worst, lowest = i, its
    return best, worst, marked


@kernel("UniTuple(float64, 5)(float64[:,::1], int64, float64, float64, float64, float64, boolean)")
def figures_of(
    rows: Floats, count: int, now: float, lmt_s: float, weight: float, epsilon: float, figure5: bool
) -> tuple[float, float, float, float, float]:
    ee, ep, ee_later, ep_later, _ = sums(rows, 0, count, now, lmt_s, epsilon, figure5)
    return ee, ep, ee_later, ep_later, priority(ee, ep, ee_later, ep_later, weight)


# The columns of a row, in order; AT is of no use here.
_ROW = attrgetter("deadline_s", "variance", "price", "penalty", "hops", "hops", "mu")


class Figures(NamedTuple):
    """What mtep thinks of an event; primes are after one transmission."""

    expected_earning: float  # EE
    expected_penalty: float  # EP
    later_earning: float  # EE'
    later_penalty: float  # EP'
    priority: float

    @property
    def postponement_cost(self) -> float:
        """PC, eq. 12."""
        return self.expected_earning - self.expected_penalty - (self.later_earning - self.later_penalty)


class Mtep(Ranked):
    name = "mtep"
    kernels = (enter, rank)

    def __init__(
        self,
        link: Link | None = None,
        capacity: int = DEFAULT_CAPACITY,
        *,
        weight: float = 0.4,
        epsilon: float = 0.04,
        figure5: bool = False,
    ) -> None:
        super().__init__(link, capacity)
        check_shares(weight=weight, epsilon=epsilon)
        self.weight, self.epsilon, self.figure5 = float(weight), float(epsilon), figure5

    def figures(self, item: Item, now: float) -> Figures:
        """The terms of its priority, whether it waits here or not."""
        alone = Mtep(self.link)
        alone._append(item)
        return Figures(
            *figures_of(
                alone._rows,
                len(item.targets),
                float(now),
                float(self.link.lmt_s),
                self.weight,
                self.epsilon,
                self.figure5,
            )
        )

    def passes(self, item: Item, now: float) -> bool:
        """If any subscription is reached in time on average, its success is at least 1/2."""
        link, size_kb = self.link, item.event.size_kb
        if self.epsilon >= 0.5 or self.figure5:
            return False
        for target in item.targets:
            latest_s = item.born_s + target.deadline_s - target.hops * link.processing_s - link.client_s
            if now <= latest_s - target.mu * size_kb:
                return True
        return False

    def _append(self, item: Item) -> None:
        first, at, link = self._end, self._write(item, chain.from_iterable(map(_ROW, item.targets))), self.link
        self._pack(
            self._heads,
            at,
            self._rows,
            first,
            self._end,
            float(item.born_s),
            float(item.event.size_kb),
            float(link.client_s),
            float(link.processing_s),
            link.sampling == PER_KB,
        )

    def _rank(self, now: float, first: int = 0) -> tuple[int, int, int]:
        return self._rank_all(  # type: ignore[no-any-return]
            self._heads[first:] if first else self._heads,
            len(self._items) - first,
            self._rows,
            float(now),
            float(self.link.lmt_s),
            self.weight,
            self.epsilon,
            self.figure5,
        )
