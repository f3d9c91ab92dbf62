"""The ledger: every matched (event, subscription) pair ends in exactly one account, and earning is read off them.

Always matched + received = on_time + late + expired + undeliverable + forwarded + pending. In time earns the price; late,
expired and undeliverable cost the penalty; pending costs nothing (mtep: TotalEarning = sum price * na - sum penalty * (ni - na)).

In a network a pair is matched at its source and moves along with the copy that names it: forwarded by one broker, received by
the next, closed where it ends. So the sums over all brokers are the accounts of the network, and there forwarded =
received as soon as nothing is under way.

Memory: pairs that wait for local clients, one tally for each of their subscriptions, one counter for each reason. Closed pairs
are folded into the tallies; pairs that only pass through are counted, and stand in the outboxes.
"""

import enum
from collections import Counter

import msgspec

from tidings.model.message import Hop
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
    received: int = 0  # from other brokers
    forwarded: int = 0  # to other brokers, and taken by them

    @property
    def balanced(self) -> bool:
        return self.matched + self.received == self.closed + self.forwarded + self.pending

    @property
    def closed(self) -> int:
        return self.on_time + self.late + self.expired + self.undeliverable

    @property
    def success_rate(self) -> float:
        """Of the pairs that have ended, the share that was in time; 1 where none has."""
        return self.on_time / self.closed if self.closed else 1.0

    def __add__(self, other: "Tally") -> "Tally":
        return Tally(*(getattr(self, name) + getattr(other, name) for name in self.__struct_fields__))


class _Open:
    """A pair that waits for a local client. Its ages, when it came here and when it was handed out, are for the record."""

    __slots__ = ("born_s", "event_type", "hops", "received_s", "sent_s", "target")

    def __init__(
        self, target: Target, born_s: float, event_type: str, received_s: float, hops: tuple[Hop, ...]
    ) -> None:
        self.target, self.born_s, self.event_type = target, born_s, event_type
        self.received_s, self.sent_s, self.hops = received_s, -1.0, hops


class Ledger:
    """With `hops`, the records of closed pairs tell which brokers they passed, and when."""

    def __init__(self, broker: str, *, hops: bool = False) -> None:
        self.broker = broker
        self._hops = hops
        self.total = Tally()
        self.by_subscription: dict[str, Tally] = {}
        self.reasons: Counter[str] = Counter()  # why pairs expired or were undeliverable
        self.pending: dict[str, dict[str, _Open]] = {}  # subscription -> event -> what it waits for

    def open(
        self,
        event: str,
        targets: tuple[Target, ...],
        born_s: float,
        event_type: str = "",
        *,
        received: bool = False,
        received_s: float = 0.0,
        hops: tuple[Hop, ...] = (),
    ) -> None:
        """The event matched these subscriptions of local clients, here or at the broker that it was received from."""
        pending, tallies = self.pending, self.by_subscription
        for target in targets:
            id = target.subscription
            events = pending.get(id)
            if events is None:
                events = pending[id] = {}
            events[event] = _Open(target, born_s, event_type, received_s, hops)
            tally = tallies.get(id)
            if tally is None:
                tally = tallies[id] = Tally()
            tally.pending += 1
            if received:
                tally.received += 1
            else:
                tally.matched += 1
        self.carry(len(targets), received=received)

    def carry(self, count: int, *, received: bool = False) -> None:
        """That many pairs are on their way through this broker."""
        total = self.total
        total.pending += count
        if received:
            total.received += count
        else:
            total.matched += count

    def hand_over(self, count: int) -> None:
        """That many pairs are in the hands of another broker."""
        self.total.pending -= count
        self.total.forwarded += count

    def sent(self, event: str, subscriptions: tuple[str, ...], age_s: float) -> None:
        """It was handed to a client of ours at this age."""
        for id in subscriptions:
            events = self.pending.get(id)
            if events is not None and event in events:
                events[event].sent_s = age_s

    def still_open(self, event: str, targets: tuple[Target, ...]) -> tuple[Target, ...]:
        return tuple(target for target in targets if event in self.pending.get(target.subscription, ()))

    def received(self, event: str, subscription: str, now: float) -> AccountRecord | None:
        """The subscriber has it: in time or late. None if the pair was not open (an acknowledgement that came twice)."""
        events = self.pending.get(subscription)
        waiting = None if events is None else events.get(event)
        if waiting is None:
            return None
        age_s = now - waiting.born_s
        account = Account.ON_TIME if age_s <= waiting.target.deadline_s else Account.LATE
        return self._close(event, waiting.target, account, "", age_s)

    def expire(self, event: str, targets: tuple[Target, ...], reason: str, age_s: float) -> list[AccountRecord]:
        """They cannot be served in time any more; targets that lie behind other brokers are those with a path."""
        return self._close_all(event, targets, Account.EXPIRED, reason, age_s)

    def give_up(self, event: str, targets: tuple[Target, ...], reason: str, age_s: float) -> list[AccountRecord]:
        """There is nobody to deliver to."""
        return self._close_all(event, targets, Account.UNDELIVERABLE, reason, age_s)

    def abandon(self, subscription: str, reason: str, now: float) -> list[AccountRecord]:
        """A local subscription is gone: its pending pairs are undeliverable, and its own tally is forgotten."""
        records = [
            self._close(event, waiting.target, Account.UNDELIVERABLE, reason, now - waiting.born_s)
            for event, waiting in list(self.pending.get(subscription, {}).items())
        ]
        self.by_subscription.pop(subscription, None)
        return records

    def close_carried(
        self,
        event: str,
        targets: tuple[Target, ...],
        account: Account,
        reason: str,
        age_s: float,
        hops: tuple[Hop, ...] = (),
    ) -> list[AccountRecord]:
        """Pairs that were carried end here."""
        total = self.total
        total.pending -= len(targets)
        setattr(total, account, getattr(total, account) + len(targets))
        total.earning -= sum(target.penalty for target in targets)
        self.reasons[reason] += len(targets)
        return [
            AccountRecord(event, target.subscription, account, reason, self.broker, age_s, -target.penalty, "", hops)
            for target in targets
        ]

    def _close_all(
        self, event: str, targets: tuple[Target, ...], account: Account, reason: str, age_s: float
    ) -> list[AccountRecord]:
        return [
            self._close(event, target, account, reason, age_s)
            for target in targets
            if event in self.pending.get(target.subscription, {})
        ]

    def _close(self, event: str, target: Target, account: Account, reason: str, age_s: float) -> AccountRecord:
        id = target.subscription
        waiting = self.pending[id]
        closed = waiting.pop(event)
        if not waiting:
            del self.pending[id]
        tally, total = self.by_subscription.get(id), self.total
        if tally is None:
            tally = self.by_subscription[id] = Tally()
        if account is Account.ON_TIME:
            earning = target.price
            tally.on_time += 1
            total.on_time += 1
        else:
            earning = -target.penalty
            for each in (tally, total):
                setattr(each, account, getattr(each, account) + 1)
        tally.pending -= 1
        total.pending -= 1
        tally.earning += earning
        total.earning += earning
        if reason:
            self.reasons[reason] += 1
        hops = (*closed.hops, Hop(self.broker, closed.received_s, closed.sent_s)) if self._hops else ()
        return AccountRecord(event, id, account, reason, self.broker, age_s, earning, closed.event_type, hops)
