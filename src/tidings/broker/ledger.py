"""The ledger: every matched (event, subscription) pair ends in exactly one account, and earning is read off them.

Always matched = on_time + late + expired + undeliverable + pending. In time earns the price; late, expired and undeliverable
cost the penalty; pending costs nothing (mtep: TotalEarning = sum price * na - sum penalty * (ni - na)).

Memory: pending pairs, one tally per live subscription, one counter per reason. Closed pairs are folded into the tallies.
"""

import enum
from collections import Counter
from typing import NamedTuple

import msgspec

from tidings.model.step import AccountRecord
from tidings.scheduling.base import Target


class Account(enum.StrEnum):
    ON_TIME = "on_time"
    LATE = "late"
    EXPIRED = "expired"
    UNDELIVERABLE = "undeliverable"


class Tally(msgspec.Struct):
    """How many pairs there were, where they ended, and what they earned."""

    matched: int = 0
    on_time: int = 0
    late: int = 0
    expired: int = 0
    undeliverable: int = 0
    pending: int = 0
    earning: float = 0.0

    @property
    def balanced(self) -> bool:
        return self.matched == self.closed + self.pending

    @property
    def closed(self) -> int:
        return self.on_time + self.late + self.expired + self.undeliverable

    @property
    def success_rate(self) -> float:
        """Of the pairs that have ended, the share that was in time; 1 where none has."""
        return self.on_time / self.closed if self.closed else 1.0


class _Open(NamedTuple):
    target: Target
    born_s: float


class Ledger:
    def __init__(self, broker: str) -> None:
        self.broker = broker
        self.total = Tally()
        self.by_subscription: dict[str, Tally] = {}
        self.reasons: Counter[str] = Counter()  # why pairs expired or were undeliverable
        self._pending: dict[str, dict[str, _Open]] = {}  # subscription -> event -> what it waits for

    def open(self, event: str, targets: tuple[Target, ...], born_s: float) -> None:
        """The event matched these subscriptions."""
        for target in targets:
            self._pending.setdefault(target.subscription, {})[event] = _Open(target, born_s)
            for tally in self._tallies(target.subscription):
                tally.matched += 1
                tally.pending += 1

    def received(self, event: str, subscription: str, now: float) -> list[AccountRecord]:
        """The subscriber has it: in time or late. Nothing if the pair was not open (an acknowledgement that came twice)."""
        waiting = self._pending.get(subscription, {}).get(event)
        if waiting is None:
            return []
        age_s = now - waiting.born_s
        account = Account.ON_TIME if age_s <= waiting.target.deadline_s else Account.LATE
        return [self._close(event, waiting.target, account, "", age_s)]

    def expire(self, event: str, targets: tuple[Target, ...], reason: str, age_s: float) -> list[AccountRecord]:
        """It cannot arrive in time any more."""
        return self._close_all(event, targets, Account.EXPIRED, reason, age_s)

    def give_up(self, event: str, targets: tuple[Target, ...], reason: str, age_s: float) -> list[AccountRecord]:
        """There is nobody to deliver to."""
        return self._close_all(event, targets, Account.UNDELIVERABLE, reason, age_s)

    def abandon(self, subscription: str, reason: str, now: float) -> list[AccountRecord]:
        """A subscription is gone: its pending pairs are undeliverable, and its own tally is forgotten."""
        records = [
            self._close(event, waiting.target, Account.UNDELIVERABLE, reason, now - waiting.born_s)
            for event, waiting in list(self._pending.get(subscription, {}).items())
        ]
        self.by_subscription.pop(subscription, None)
        return records

    def _close_all(
        self, event: str, targets: tuple[Target, ...], account: Account, reason: str, age_s: float
    ) -> list[AccountRecord]:
        return [
            self._close(event, target, account, reason, age_s)
            for target in targets
            if event in self._pending.get(target.subscription, {})
        ]

    def _close(self, event: str, target: Target, account: Account, reason: str, age_s: float) -> AccountRecord:
        waiting = self._pending[target.subscription]
        del waiting[event]
        if not waiting:
            del self._pending[target.subscription]
        earning = target.price if account is Account.ON_TIME else -target.penalty
        for tally in self._tallies(target.subscription):
            tally.pending -= 1
            tally.earning += earning
            setattr(tally, account, getattr(tally, account) + 1)
        if reason:
            self.reasons[reason] += 1
        return AccountRecord(event, target.subscription, account, reason, self.broker, age_s, earning)

    def _tallies(self, subscription: str) -> tuple[Tally, Tally]:
        return self.total, self.by_subscription.setdefault(subscription, Tally())
