"""The market of the demo, from one seed: who subscribes to what on which terms, what is quoted where, how fast the links are.

Deadlines, prices, penalties and link rates are those of mtep, section 5, with time running SPEED times faster; quotes are smaller
than the paper's events, so that more of them fit into a minute.
"""

import random
from collections.abc import Iterator
from typing import Any, NamedTuple

from tidings.cli.demo import SYMBOLS, TERMS, TIMEOUT_S, Terms

SPEED = 10
SIZE_KB = 2.5
READERS = 8  # connections at each broker
RATE_MS_PER_KB, DEVIATION_MS_PER_KB = (40, 80), 20  # mtep, section 5
SLOW_READER_S = 0.2  # the longest line between a broker and a reader


class Wish(NamedTuple):
    """A subscription and where it lives."""

    id: str
    home: str
    reader: int
    filter: str
    terms: Terms


class Quote(NamedTuple):
    id: str
    broker: str  # where it is published
    attributes: dict[str, Any]


class Link(NamedTuple):
    between: tuple[str, str]
    s_per_kb: float


class World(NamedTuple):
    seed: int
    brokers: tuple[str, ...]
    subscriptions: int
    quotes: int

    def wishes(self) -> list[Wish]:
        chance = self._chance("wishes")
        return [
            Wish(
                f"s{number:05d}",
                chance.choice(self.brokers),
                chance.randrange(READERS),
                _filter(chance),
                _scaled(TERMS[number % len(TERMS)]),
            )
            for number in range(self.subscriptions)
        ]

    def feed(self) -> Iterator[Quote]:
        """Every stock walks at random; `change` is in percent."""
        chance = self._chance("feed")
        prices = dict.fromkeys(SYMBOLS, 100.0)
        for number in range(self.quotes):
            symbol, change = chance.choice(SYMBOLS), round(chance.gauss(0, 1.2), 2)
            prices[symbol] = min(180.0, max(60.0, round(prices[symbol] * (1 + change / 100), 2)))
            attributes = {"symbol": symbol, "change": change, "price": prices[symbol]}
            attributes["volume"] = chance.randrange(1, 1_000) * 100
            yield Quote(f"q{number:07d}", chance.choice(self.brokers), attributes)

    def links(self) -> list[Link]:
        """Each broker is linked with the next two."""
        chance, count = self._chance("links"), len(self.brokers)
        pairs = {frozenset((at, (at + step) % count)) for at in range(count) for step in (1, 2) if step < count}
        return [
            Link((self.brokers[low], self.brokers[high]), chance.uniform(*RATE_MS_PER_KB) / 1000 / SPEED)
            for low, high in sorted(sorted(pair) for pair in pairs if len(pair) == 2)
        ]

    def lines_s(self) -> list[float]:
        """How long an event takes from a broker to its readers; most are near, the last are slow."""
        return [SLOW_READER_S * (number / (READERS - 1)) ** 3 for number in range(READERS)]

    def _chance(self, what: str) -> random.Random:
        return random.Random(f"{self.seed} {what}")


QUOTE_TIMEOUT_S = TIMEOUT_S / SPEED


def _scaled(terms: Terms) -> Terms:
    return terms._replace(deadline_s=terms.deadline_s / SPEED)


def _filter(chance: random.Random) -> str:
    """One symbol or two and narrow ranges, so that a quote is wanted by one in two hundred; one in twenty needs arithmetic."""
    symbol, other = chance.sample(SYMBOLS, 2)
    volume, price, change = chance.randrange(960) * 100, chance.randrange(70, 150), round(chance.gauss(0, 1.2), 1)
    if chance.random() < 0.05:
        return f"symbol = '{symbol}' AND change > 2 AND price * volume > {chance.randrange(5, 9) * 1_000_000}"
    return chance.choice(
        [
            f"symbol = '{symbol}' AND change > {abs(change) + 2:.1f}",
            f"symbol IN ('{symbol}', '{other}') AND volume BETWEEN {volume} AND {volume + 2_000}",
            f"symbol STARTS WITH '{symbol[:2]}' AND change BETWEEN {change:.1f} AND {change + 0.1:.1f}",
            f"symbol <> '{symbol}' AND price BETWEEN {price} AND {price + 1} AND volume > {50_000 + volume // 2}",
        ]
    )
