"""The delay model (mtep, 2.1 and 2.3.1): what a scheduler knows of its link, and the chance of an event to arrive in time.

What is still ahead of an event takes ft = nodenum*PD + size*TR + SBD (eq. 4), where TR, the path's time per KB, is the sum of its
links' and so normal with the sums of their means and variances; brokers ahead are assumed to send it at once. With dl =
min(timeout, deadline) (eq. 5) and the time pt that it has used, it arrives in time with the probability

    success = P(pt + ft <= dl) = Phi((dl - pt - nodenum*PD - SBD - mu*size) / (size*sigma))        (eq. 6 and 7)

Schedulers split the numerator into `latest_s`, the time at which sending must begin to arrive in time on average, fixed when an
item is queued, and the time now. Where nothing varies success is exactly 0 or 1, and 1 if the deadline is just met.

How we differ: `sampling="per_kb"` takes the deviation sqrt(size)*sigma, which holds where every KB varies by itself.
"""

import math

import msgspec

from tidings.compiled import inner, kernel
from tidings.scheduling.prices import Prices
from tidings.scheduling.rate import PER_KB, PER_MESSAGE, Known, Rate, Sampling

FAR = 8.3  # deviations from the mean beyond which the normal distribution is 0 or 1 in double precision
SQRT2 = math.sqrt(2.0)
SIZE_MEMORY = 100.0  # messages over which the mean size is taken


@inner
def chance(left_s: float, deviation_s: float) -> float:
    """P(X <= left_s) for X ~ N(0, deviation_s^2)."""
    if left_s >= FAR * deviation_s:
        return 1.0
    if left_s <= -FAR * deviation_s:
        return 0.0
    return 0.5 * math.erfc(-left_s / (deviation_s * SQRT2))


@kernel("float64(float64, float64)")
def _chance(left_s: float, deviation_s: float) -> float:
    return chance(left_s, deviation_s)  # type: ignore[no-any-return]


class Link(msgspec.Struct, kw_only=True):
    """What a scheduler knows of its link. It is told each transmission; prices are shared, and kept by the overlay."""

    source: str = ""  # the broker that the link starts at
    peer: str = ""
    rate: Rate = msgspec.field(default_factory=Known)
    mean_size_kb: float = 0.0  # of the events that it carries, followed from here on
    processing_s: float = 0.002  # PD: what each broker ahead takes for an event
    client_s: float = 0.020  # SBD: what the subscriber's own link takes
    sampling: Sampling = PER_MESSAGE
    prices: Prices = msgspec.field(default_factory=Prices)

    @property
    def mu(self) -> float:
        return self.rate.mu

    @property
    def variance(self) -> float:
        return self.rate.sigma**2

    @property
    def lmt_s(self) -> float:
        """LMT: by how long an event is postponed that lets another one go first (2.3.2)."""
        return self.mean_size_kb * self.rate.mu

    def observe(self, size_kb: float, seconds: float) -> None:
        """The link took this long for an event of this size."""
        if self.mean_size_kb == 0.0:
            self.mean_size_kb = size_kb
        else:
            self.mean_size_kb += (size_kb - self.mean_size_kb) / SIZE_MEMORY
        self.rate.observe(size_kb, seconds)

    def deviation_s(self, size_kb: float, variance: float) -> float:
        return math.sqrt(size_kb * variance) if self.sampling == PER_KB else size_kb * math.sqrt(variance)

    def success(
        self, dl_s: float, used_s: float, size_kb: float, hops: int = 0, mu: float = 0.0, variance: float = 0.0
    ) -> float:
        """Eq. 7, for a path with this mean and variance and `hops` brokers on it."""
        left_s = dl_s - used_s - hops * self.processing_s - self.client_s - mu * size_kb
        return float(_chance(left_s, self.deviation_s(size_kb, variance)))


def unhindered() -> Link:
    """A link inside the process: it takes no time."""
    return Link(processing_s=0.0, client_s=0.0)
