"""How fast a link is, in seconds per KB: known, or measured while it runs.

mtep, 2.1.2: the time that a link takes for one KB is normal, TR ~ N(mu, sigma^2). What varies is either each KB by itself, so
that a message of n KB deviates by sqrt(n) * sigma (PER_KB), or the rate of each message, so that it deviates by n * sigma
(PER_MESSAGE, as eq. 7 is printed).

The paper measures "with network tools" and leaves it there. `Estimate` forgets exponentially, which follows slow change, and
runs two cumulative sums (Page's CUSUM), one for slower and one for faster: when one passes its limit the link has changed, and
the estimate starts anew from the messages since that sum was last zero.

Cost per message: O(1). Memory: three sets of six sums.
"""

import math
from typing import Literal, Protocol

from tidings.errors import InvalidInput

Sampling = Literal["per_message", "per_kb"]
PER_MESSAGE: Sampling = "per_message"
PER_KB: Sampling = "per_kb"

LEAST_KB = 0.001  # what a message without content counts as

# The CUSUM: a sum grows by what a message deviates beyond DRIFT deviations, at most by OUTLIER, and tells at LIMIT. Three
# messages in a row that are far too slow tell; from mere noise a false alarm comes once in some 400,000 messages.
DRIFT, OUTLIER, LIMIT = 1.0, 4.0, 6.0
LEAST_DEVIATION = 0.05  # of the expected time: less is no deviation, however steady the link has been
SETTLED = 8  # messages before deviations from their mean mean anything


class Rate(Protocol):
    @property
    def mu(self) -> float: ...

    @property
    def sigma(self) -> float: ...

    def observe(self, size_kb: float, seconds: float) -> None:
        """The link took this long for a message of this size."""


class Known:
    """The true values, for experiments; or zero, for a link that takes no time."""

    def __init__(self, mu: float = 0.0, sigma: float = 0.0) -> None:
        self.mu, self.sigma = mu, sigma

    def observe(self, size_kb: float, seconds: float) -> None:
        pass


class _Sums:
    """Sums over messages of k KB that took s seconds."""

    __slots__ = ("k", "kk", "ks", "n", "s", "ss")

    def __init__(self) -> None:
        self.n = self.k = self.s = self.kk = self.ks = self.ss = 0.0

    def add(self, k: float, s: float, keep: float = 1.0) -> None:
        self.n = self.n * keep + 1.0
        self.k = self.k * keep + k
        self.s = self.s * keep + s
        self.kk = self.kk * keep + k * k
        self.ks = self.ks * keep + k * s
        self.ss = self.ss * keep + s * s


class Estimate:
    """`mu` and `sigma` are what to believe before the first message; they weigh as much as two messages."""

    def __init__(
        self, mu: float = 0.0, sigma: float = 0.0, *, sampling: Sampling = PER_MESSAGE, memory: float = 64.0
    ) -> None:
        if sampling not in (PER_MESSAGE, PER_KB):
            raise InvalidInput(f"sampling {sampling!r}: expected {PER_MESSAGE!r} or {PER_KB!r}")
        self.mu, self.sigma = mu, sigma
        self.changes = 0  # how often the link was found changed
        self._per_kb = sampling == PER_KB
        self._keep = 1.0 - 1.0 / memory
        self._sums = _Sums()
        self._restart_watch()

    def observe(self, size_kb: float, seconds: float) -> None:
        k = max(size_kb, LEAST_KB)
        if self._sums.n == 0.0 and self.mu > 0.0:
            self._believe(self._sums, k)
        self._sums.add(k, seconds, self._keep)
        if self._sums.n > SETTLED:
            self._watch(k, seconds)
        self._renew()

    def _believe(self, sums: _Sums, k: float) -> None:
        """Two messages that have the present mean and deviation."""
        deviation = self._deviation(k)
        sums.add(k, self.mu * k + deviation)
        sums.add(k, self.mu * k - deviation)

    def _deviation(self, k: float) -> float:
        return self.sigma * (math.sqrt(k) if self._per_kb else k)

    def _watch(self, k: float, s: float) -> None:
        expected = self.mu * k
        deviation = max(self._deviation(k), LEAST_DEVIATION * expected)
        z = (s - expected) / deviation if deviation else 0.0
        for side, slower in enumerate((z, -z)):
            level = max(0.0, self._levels[side] + min(slower, OUTLIER) - DRIFT)
            if level == 0.0:
                if self._levels[side] > 0.0:
                    self._since[side] = _Sums()
            else:
                self._since[side].add(k, s)
            self._levels[side] = level
            if level > LIMIT:
                self._changed(self._since[side], k)
                return

    def _changed(self, since: _Sums, k: float) -> None:
        """The messages since the change tell the new mean; they are too few to tell a deviation, so the old one counts too."""
        self.changes += 1
        self.mu = since.s / since.k
        self._believe(since, k)
        self._sums = since
        self._restart_watch()

    def _restart_watch(self) -> None:
        self._levels = [0.0, 0.0]  # of the cumulative sums: slower, faster
        self._since = [_Sums(), _Sums()]  # the messages since they were zero

    def _renew(self) -> None:
        sums = self._sums
        self.mu = mu = sums.s / sums.k
        if sums.n > 1.5:
            residual = max(0.0, sums.ss - 2.0 * mu * sums.ks + mu * mu * sums.kk) * sums.n / (sums.n - 1.0)
            self.sigma = math.sqrt(residual / (sums.k if self._per_kb else sums.kk))
