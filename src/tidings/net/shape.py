"""A shaped link: one that takes its time, so that deadlines bind on a machine whose own network is too fast for that.

One event at a time: it occupies the link for its size in KB times a rate drawn from N(mu, sigma^2) per KB, and arrives
`delay_s` later; small messages are only delayed. The connection below is reliable, so a transmission that gets lost takes its
time once more.
"""

import asyncio
import random
from collections.abc import Callable

import msgspec

FASTEST_S = 0.000_001  # per KB


class Shape(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    s_per_kb: float = 0.0
    sigma_s_per_kb: float = 0.0
    delay_s: float = 0.0
    loss: float = 0.0  # the share of transmissions that get lost

    def __bool__(self) -> bool:
        return self != Shape()

    @property
    def belief(self) -> tuple[float, float]:
        """Mean and deviation of the seconds per KB, repetitions included on average."""
        return self.s_per_kb / (1 - self.loss), self.sigma_s_per_kb

    def seconds(self, size_kb: float, chance: random.Random) -> float:
        """How long the link is occupied by an event."""
        deviation_s = self.sigma_s_per_kb * size_kb**0.5  # of a sum of independent KBs
        once_s = max(FASTEST_S * size_kb, chance.gauss(self.s_per_kb * size_kb, deviation_s))
        total_s = once_s
        while chance.random() < self.loss:
            total_s += once_s
        return total_s


class ShapedLine:
    """One direction of a link. What is put on it comes out through the function that was passed with it, in order of time."""

    def __init__(self, shape: Shape, seed: str = "") -> None:
        self.shape = shape
        self._chance = random.Random(seed)
        self._loop = asyncio.get_running_loop()
        self._free_s = 0.0
        self._pending: set[asyncio.TimerHandle] = set()

    def occupy(self, size_kb: float, arrive: Callable[[float], None]) -> None:
        """`arrive` is told how long it took."""
        now = self._loop.time()
        self._free_s = max(now, self._free_s) + self.shape.seconds(size_kb, self._chance)
        self._at(self._free_s + self.shape.delay_s, lambda: arrive(self._loop.time() - now))

    def delay(self, arrive: Callable[[], None]) -> None:
        """For what is too small to occupy the link."""
        if self.shape.delay_s:
            self._at(self._loop.time() + self.shape.delay_s, arrive)
        else:
            arrive()

    def cut(self) -> None:
        """What is under way never arrives."""
        for timer in self._pending:
            timer.cancel()
        self._pending.clear()

    def _at(self, time_s: float, arrive: Callable[[], None]) -> None:
        def fire() -> None:
            self._pending.discard(timer)
            arrive()

        timer = self._loop.call_at(time_s, fire)
        self._pending.add(timer)
