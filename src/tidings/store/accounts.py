"""The ledger as it is kept on disk: tallies by subscription, type, broker and reason, with the ages at which events arrived.

Ages are counted in buckets, eight to each doubling, so a percentile is off by at most 7% and a tally needs a few numbers,
however many deliveries it has seen. Subscriptions, of which there are many, know their mean age only.
"""

import math

import msgspec

TOTAL, SUBSCRIPTION, TYPE, BROKER, REASON = KINDS = "total", "subscription", "type", "broker", "reason"
COLUMNS = "matched", "on_time", "late", "expired", "undeliverable", "earning", "age_s"
ACCOUNTS = {account: COLUMNS.index(account) for account in ("on_time", "late", "expired", "undeliverable")}
RECEIVED = {"on_time", "late"}

_PER_DOUBLING = 8
_LEAST_S = 1e-6


def age_bucket(age_s: float) -> int:
    mantissa, exponent = math.frexp(age_s if age_s > _LEAST_S else _LEAST_S)  # 0.5 <= mantissa < 1
    return exponent * _PER_DOUBLING + int(mantissa * 2 * _PER_DOUBLING) - _PER_DOUBLING


def _middle_s(bucket: int) -> float:
    exponent, step = divmod(bucket, _PER_DOUBLING)
    return math.ldexp((step + 0.5) / _PER_DOUBLING + 1, exponent - 1)


class Tally(msgspec.Struct):
    """How many pairs there were, where they ended, what they earned, how old the events were on arrival."""

    matched: int = 0
    on_time: int = 0
    late: int = 0
    expired: int = 0
    undeliverable: int = 0
    earning: float = 0.0
    age_s: float = 0.0  # of all received events together
    ages: dict[int, int] = msgspec.field(default_factory=dict)

    @property
    def closed(self) -> int:
        return self.on_time + self.late + self.expired + self.undeliverable

    @property
    def pending(self) -> int:
        return self.matched - self.closed

    @property
    def success_rate(self) -> float:
        """Of the pairs that have ended, the share that was in time; 1 where none has."""
        return self.on_time / self.closed if self.closed else 1.0

    @property
    def mean_age_s(self) -> float | None:
        received = self.on_time + self.late
        return self.age_s / received if received else None

    def percentile_s(self, share: float) -> float | None:
        """The age that this share (0.99 for p99) of the received events did not exceed; None where ages are not known."""
        left = share * sum(self.ages.values())
        for bucket, count in sorted(self.ages.items()):
            left -= count
            if left <= 0:
                return _middle_s(bucket)
        return None


class Accounts(msgspec.Struct):
    """All tallies. By broker and by reason only pairs that have ended are known: there matched = closed."""

    total: Tally = msgspec.field(default_factory=Tally)
    by_subscription: dict[str, Tally] = msgspec.field(default_factory=dict)
    by_type: dict[str, Tally] = msgspec.field(default_factory=dict)
    by_broker: dict[str, Tally] = msgspec.field(default_factory=dict)
    by_reason: dict[str, Tally] = msgspec.field(default_factory=dict)

    def tally(self, kind: str, key: str) -> Tally:
        if kind == TOTAL:
            return self.total
        tallies: dict[str, Tally] = getattr(self, f"by_{kind}")
        if key not in tallies:
            tallies[key] = Tally()
        return tallies[key]
