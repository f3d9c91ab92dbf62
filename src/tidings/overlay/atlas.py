"""An atlas: what one broker knows of the network's links, from the newest State that it has heard of every broker.

`least_mu` gives the paths of mtep's section 1.3, one for each destination, with the least total mean rate. Ties go to the path
with fewer brokers, then to the smaller id, so that the same knowledge gives the same paths everywhere.

Cost: O(links * log brokers) for all paths from one broker.
"""

from collections.abc import Collection
from heapq import heappop, heappush
from itertools import pairwise

from tidings.model.message import LinkState, State

Path = tuple[str, ...]


class Atlas:
    def __init__(self) -> None:
        self.states: dict[str, State] = {}
        self.links: dict[str, dict[str, LinkState]] = {}  # from -> to -> what is known
        self._rates: dict[tuple[str, str], tuple[float, float]] = {}  # of all links, those that are gone included
        self.edition = 0  # counts the changes that matter to paths: links that come or go or become faster or slower

    def learn(self, state: State) -> bool:
        """Whether this was news."""
        known = self.states.get(state.broker)
        if known is not None and known.version >= state.version:
            return False
        links = {link.peer: link for link in state.links}
        if _rates(links) != _rates(self.links.get(state.broker, {})):
            self.edition += 1
            self._rates.update({(state.broker, peer): (link.mu, link.variance) for peer, link in links.items()})
        self.states[state.broker] = state
        self.links[state.broker] = links
        return True

    def has(self, path: Path) -> bool:
        """Whether every link of the path is there."""
        return all(peer in self.links.get(at, ()) for at, peer in pairwise(path))

    def least_mu(self, source: str, avoid: Collection[str] = ()) -> dict[str, Path]:
        """From a broker to every other that can be reached without the avoided ones."""
        paths: dict[str, Path] = {}
        heap: list[tuple[float, int, str, Path]] = [(0.0, 0, source, (source,))]
        while heap:
            mu, hops, broker, path = heappop(heap)
            if broker in paths:
                continue
            paths[broker] = path
            for peer, link in self.links.get(broker, {}).items():
                if peer not in paths and peer not in avoid:
                    heappush(heap, (mu + link.mu, hops + 1, peer, (*path, peer)))
        return paths

    def rate(self, path: Path) -> tuple[float, float]:
        """Mean and variance of the time per KB along a path: links are independent, so both add up (mtep, 2.1.2).

        A link that is gone counts as it was: it will be needed again before a copy that waits for it can go.
        """
        rates = [self._rates.get(link, (0.0, 0.0)) for link in pairwise(path)]
        return sum(mu for mu, _ in rates), sum(variance for _, variance in rates)


def _rates(links: dict[str, LinkState]) -> dict[str, tuple[float, float]]:
    return {peer: (link.mu, link.variance) for peer, link in links.items()}
