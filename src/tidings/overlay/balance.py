"""The tree that keeps the busiest link coolest: which path to each home, so that the loads of all links stay even?

Each source decides for its own events alone. It knows from the filters which homes its latest events went to, and so how much
work any tree would put on any link (one copy serves all homes behind it); the loads of the other sources are measured at the
links and flooded. It minimises the sum over links of (load / busiest)^4, plus a little for the mean rate of the path, so that
without load the least mean rate wins.

Stable because a path is left only for one that is cheaper by a margin: each move lowers the sum, and a sum that nobody else
changes can be lowered by that margin only finitely often. The loads of others that we see lag behind, so few paths move at
a time, and the margin of a path that has moved doubles with each move (as routers damp routes that flap): more than three
times in half an hour none moves, whatever the others do. When nothing moves, we look less often.

Cost: homes * links above them, a few milliseconds for 64 homes. Memory: a bit for each home and remembered event.
"""

from collections.abc import Iterable
from heapq import heappop, heappush
from itertools import pairwise

from tidings.overlay.atlas import Atlas, Path

Link = tuple[str, str]

SAMPLES = 256  # events that are remembered
LEAST_SAMPLES = 16  # before that many, too little is known
POWER = 4
PULL = 0.005  # what a link of mean rate costs when it is idle, against 1 for the busiest link
BUSY = 0.7  # a network whose busiest link is cooler than this is not worth longer paths
MARGIN = 0.1
CALM_S = 1_800.0  # in this time a path forgets half of its moves
MOVES = 16  # paths that may change at a time


class Balance:
    def __init__(self) -> None:
        self.homes: dict[str, int] = {}  # home -> a bit for each remembered event that went there
        self._seen = 0
        self._moves: dict[str, tuple[float, float]] = {}  # home -> moves of its path, fading, and when the last one was
        self._times_s: list[float] = []
        self._sizes_kb: list[float] = []

    def saw(self, homes: Iterable[str], size_kb: float, now: float) -> None:
        """An event was published and went to these homes."""
        slot = self._seen % SAMPLES
        if self._seen < SAMPLES:
            self._times_s.append(now)
            self._sizes_kb.append(size_kb)
        else:
            self._times_s[slot], self._sizes_kb[slot] = now, size_kb
            others = ~(1 << slot)
            for home in self.homes:
                self.homes[home] &= others
        self._seen += 1
        for home in homes:
            self.homes[home] = self.homes.get(home, 0) | 1 << slot

    def improved(self, source: str, tree: dict[str, Path], atlas: Atlas, now: float) -> dict[str, Path]:
        """The paths that should change."""
        known = len(self._times_s)
        if known < LEAST_SAMPLES:
            return {}
        kb_per_s = sum(self._sizes_kb) / max(now - min(self._times_s), 1.0)
        plan = _Plan(source, tree, self.homes, atlas, kb_per_s / known)
        moved: dict[str, Path] = {}
        for home in plan.hottest_first():
            moves, at_s = self._moves.get(home, (0.0, now))
            moves *= 0.5 ** ((now - at_s) / CALM_S)
            path = plan.better(home, MARGIN * 2**moves)
            if path is not None:
                moved[home] = path
                self._moves[home] = (moves + 1, now)
                if len(moved) == MOVES:
                    break
        return moved


class _Plan:
    """The loads of all links under a tree that is being changed path by path."""

    def __init__(
        self, source: str, tree: dict[str, Path], homes: dict[str, int], atlas: Atlas, kb_per_s: float
    ) -> None:
        self._source = source
        # A home that cannot be reached now has a path with a link that is gone: there is nothing to choose.
        self._bits = {home: bits for home, bits in homes.items() if bits and home in tree and atlas.has(tree[home])}
        self._paths = {home: tree[home] for home in self._bits}
        self._kb_per_s = kb_per_s  # of one remembered event
        self._mu: dict[Link, float] = {}
        self._others: dict[Link, float] = {}
        self._above: dict[str, list[str]] = {}
        for at, links in atlas.links.items():
            for peer, state in links.items():
                self._mu[at, peer] = state.mu
                self._others[at, peer] = sum(load for name, load in state.loads if name != source)
                self._above.setdefault(peer, []).append(at)
        self._users: dict[Link, dict[str, None]] = {link: {} for link in self._mu}
        for home, path in self._paths.items():
            for link in pairwise(path):
                self._users[link][home] = None
        self._used = {link: self._union(link) for link in self._mu}
        self._busiest = max([BUSY, *(self._load(link, self._used[link]) for link in self._mu)])
        self._pull = PULL * len(self._mu) / max(sum(self._mu.values()), 1e-9)

    def _union(self, link: Link) -> int:
        used = 0
        for home in self._users[link]:
            used |= self._bits[home]
        return used

    def _load(self, link: Link, used: int) -> float:
        return self._others[link] + self._kb_per_s * self._mu[link] * used.bit_count()

    def hottest_first(self) -> list[str]:
        """The homes, those behind the busiest links first."""

        def heat(home: str) -> float:
            path = self._paths[home]
            return max(self._load(link, self._used[link]) for link in pairwise(path))

        return sorted(self._paths, key=lambda home: (-heat(home), home))

    def better(self, home: str, margin: float) -> Path | None:
        """A path that is cheaper by the margin, which the plan then follows."""
        old = self._paths[home]
        links = list(pairwise(old))
        for link in links:
            del self._users[link][home]
            self._used[link] = self._union(link)
        bits = self._bits[home]
        cost, path = self._cheapest(home, bits)
        better = cost < (1 - margin) * sum(self._marginal(link, bits) for link in links)
        self._paths[home] = path if better else old
        for link in pairwise(self._paths[home]):
            self._users[link][home] = None
            self._used[link] |= bits
        return path if better else None

    def _marginal(self, link: Link, bits: int) -> float:
        """What it costs to send these events over a link, beyond those that use it anyway."""
        used = self._used[link]
        before = self._load(link, used)
        after = self._load(link, used | bits)
        return (after / self._busiest) ** POWER - (before / self._busiest) ** POWER + self._pull * self._mu[link]

    def _cheapest(self, home: str, bits: int) -> tuple[float, Path]:
        """Searched from the home upwards: few brokers lie above it."""
        heap: list[tuple[float, Path]] = [(0.0, (home,))]
        done: set[str] = set()
        while heap:
            cost, path = heappop(heap)
            if path[0] == self._source:
                return cost, path
            if path[0] in done:
                continue
            done.add(path[0])
            for above in self._above.get(path[0], ()):
                if above not in done:
                    heappush(heap, (cost + self._marginal((above, path[0]), bits), (above, *path)))
        return float("inf"), ()
