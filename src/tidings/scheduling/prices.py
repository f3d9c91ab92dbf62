"""What the time of every link costs, as far as one broker has heard, and the trees along which copies pay (for `priced`).

Prices arrive by link, copies name paths. A path becomes a node of a trie whose edges are links, once; from then on a kernel
finds all links of a copy, and their prices, by numbers alone:

    paths ahead    B C E      node 0: link B-C            a copy for both subscribers pays
                   B C F      node 1: link C-E, below 0   for B-C once, for C-E and C-F each
                              node 2: link C-F, below 0

One copy goes over two links when two paths differ, even if they meet again, which is why nodes are path beginnings and not
links. At MAX_LINKS prices of further links are not kept (they count as free); at MAX_NODES the trie starts anew.
"""

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

MAX_LINKS = 65_536
MAX_NODES = 262_144
FREE = 0  # the number of all links whose price is not kept
PARENT, LINK, MARK = range(3)  # columns of the trie

Edge = tuple[str, str]
Path = tuple[str, ...]


class Prices:
    """A mapping from links (broker, next broker) to prices; an unknown link is free. Shared by the outboxes of a broker."""

    def __init__(self) -> None:
        self.values: npt.NDArray[np.float64] = np.zeros(64)  # by link number
        self.trie: npt.NDArray[np.int64] = np.full((64, 3), -1, np.int64)
        self._numbers: dict[Edge, int] = {}
        self._nodes: dict[Path, int] = {}

    def __len__(self) -> int:
        return len(self._numbers)

    def __iter__(self) -> Iterator[Edge]:
        return iter(self._numbers)

    def __getitem__(self, edge: Edge) -> float:
        return float(self.values[self._numbers.get(edge, FREE)])

    def __setitem__(self, edge: Edge, price: float) -> None:
        number = self._number(edge)
        if number != FREE:
            self.values[number] = price

    def _number(self, edge: Edge) -> int:
        number = self._numbers.get(edge)
        if number is None:
            if len(self._numbers) >= MAX_LINKS:
                return FREE
            number = self._numbers[edge] = len(self._numbers) + 1
            if number == len(self.values):
                self.values = np.concatenate([self.values, np.zeros_like(self.values)])
        return number

    def route(self, path: Path) -> int:
        """The node where a path ends; -1 if there is no link after its first broker."""
        node = self._nodes.get(path)
        return self._grow(path) if node is None else node

    def _grow(self, path: Path) -> int:
        if len(path) < 2:
            return -1
        if len(self._nodes) >= MAX_NODES:
            self._nodes.clear()
        parent = self.route(path[:-1])  # first, so that parents have smaller numbers
        node = self._nodes[path] = len(self._nodes)
        if node == len(self.trie):
            self.trie = np.concatenate([self.trie, np.full_like(self.trie, -1)])
        self.trie[node] = parent, self._number((path[-2], path[-1])), -1
        return node
