"""Boxes and events as plain Python, the obvious way: what the numeric core of boxtree is compared with."""

import math
import random
import struct
from typing import NamedTuple

from tidings.matching.boxtree.rows import HI_OPEN, LO_OPEN, NE, UPPER_FOLLOWS


class Range(NamedTuple):
    """What a box demands of a dimension, or what an event has there."""

    low: float
    high: float
    open_low: bool = False
    open_high: bool = False
    excluded: tuple[float, ...] = ()


Box = dict[int, Range]  # by dimension
EVERYTHING = Range(-math.inf, math.inf)


def point(number: float) -> Range:
    return Range(number, number)


def share_a_number(a: Range, b: Range) -> bool:
    low, high = max(a.low, b.low), min(a.high, b.high)
    if low < high:
        return True  # numbers are dense
    closed = not any((r.open_low and r.low == low) or (r.open_high and r.high == high) for r in (a, b))
    return low == high and closed and low not in a.excluded + b.excluded


def meets(box: Box, event: Box, absent: Range | None) -> bool:
    """`absent` is what an event has in a dimension that it does not mention; None = nothing."""
    return all(
        (there := event.get(dim, absent)) is not None and share_a_number(wanted, there) for dim, wanted in box.items()
    )


def rows(box: Box) -> list[tuple[float, float, int]]:
    """A box as the core takes it."""
    found = []
    for dim, r in box.items():
        if r[:4] != EVERYTHING[:4] or not r.excluded:
            found.append((r.low, r.high, dim << 8 | (LO_OPEN if r.open_low else 0) | (HI_OPEN if r.open_high else 0)))
        found += [(number, number, dim << 8 | NE) for number in r.excluded]
    return found


def pairs(event: Box) -> bytes:
    """An event as the core takes it."""
    words: list[tuple[int, float]] = []
    for dim, r in event.items():
        flags = (LO_OPEN if r.open_low else 0) | (HI_OPEN if r.open_high else 0)
        if r.low == r.high:
            words.append((dim << 8, r.low))
        else:
            words += [(dim << 8 | flags | UPPER_FOLLOWS, r.low), (0, r.high)]
    return b"".join(struct.pack("=qd", *word) for word in words)


class World:
    """Random boxes and events on a few numbers, so that bounds are hit exactly."""

    def __init__(self, seed: int, dims: int, numbers: list[float] | None = None, rows: int = 4) -> None:
        self.random = random.Random(seed)
        self.dims, self.rows = dims, rows
        self.numbers = numbers or [
            -math.inf,
            -1e300,
            -2.5,
            -1.0,
            -0.0,
            0.0,
            5e-324,
            0.5,
            1.0,
            math.nextafter(1, 2),
            2.0,
            3.5,
            7.0,
            1e300,
            math.inf,
        ]

    def range(self) -> Range:
        draw = self.random
        low, high = sorted(draw.choices(self.numbers, k=2))
        match draw.randrange(6):
            case 0:
                return point(low)
            case 1:
                return Range(-math.inf, high, False, high > -math.inf and draw.random() < 0.5)
            case 2:
                return Range(low, math.inf, low < math.inf and draw.random() < 0.5, False)
            case 3:
                return EVERYTHING._replace(excluded=tuple(draw.choices(self.numbers, k=draw.randrange(1, 3))))
        if low == high:
            return point(low)
        excluded = tuple(draw.choices(self.numbers, k=1)) if draw.random() < 0.2 else ()
        return Range(low, high, draw.random() < 0.5, draw.random() < 0.5, excluded)

    def box(self) -> Box:
        dims = self.random.sample(range(self.dims), min(self.dims, self.random.randint(0, self.rows)))
        return {dim: self.range() for dim in dims}

    def event(self, share: float = 0.8) -> Box:
        return {
            dim: point(self.random.choice(self.numbers)) for dim in range(self.dims) if self.random.random() < share
        }

    def region(self, share: float = 0.5) -> Box:
        found = {}
        for dim in range(self.dims):
            if self.random.random() < share:
                found[dim] = self.range()._replace(excluded=())
        return found
