"""Workloads: the layered mesh of mtep's section 3, its subscriptions, and publishers that publish at a rate.

128 brokers in 6 layers; layer 2 is linked to every broker of layer 1, each broker further down to two random brokers of the
layer above. Publishers sit on the first layer, subscribers on the last. Subscriptions are four `a_i < c_i`; all values are
uniform in 0..10.
"""

import math
from collections.abc import Iterator
from itertools import pairwise
from typing import NamedTuple

import msgspec
import numpy as np

from tidings.model.event import Event
from tidings.model.filter import And, Op, Predicate
from tidings.model.subscription import Subscription
from tidings.sim.network import Network, generator

ATTRIBUTES = ("a1", "a2", "a3", "a4")
LARGEST = 10.0
POISSON, PERIODIC = "poisson", "periodic"


class Offer(NamedTuple):
    """A deadline that subscribers may choose, and what it costs."""

    deadline_s: float
    price: float
    penalty: float


OFFERS = (Offer(20, 3, 0.3), Offer(24, 2.5, 0.25), Offer(30, 2, 0.2), Offer(40, 1.5, 0.15), Offer(60, 1, 0.1))


class Edge(NamedTuple):
    sender: str
    receiver: str
    mu: float  # seconds per KB


class Paper(msgspec.Struct, frozen=True):
    """The parameters of section 3, as printed; times in seconds."""

    layers: tuple[int, ...] = (4, 4, 8, 16, 32, 64)
    publishers: int = 10  # on each broker of the first layer
    subscribers: int = 10  # on each broker of the last layer
    mu_least: float = 0.040
    mu_most: float = 0.080
    sigma: float = 0.020
    processing_s: float = 0.002
    client_s: float = 0.020
    epsilon: float = 0.04
    size_kb: float = 50.0
    duration_s: float = 7200.0
    rate: float = 1.0  # events per minute and publisher
    publishing: str = POISSON
    timeout_s: float = math.inf


class Layered(NamedTuple):
    """One drawn topology with its subscriptions."""

    layers: tuple[tuple[str, ...], ...]
    edges: tuple[Edge, ...]
    subscriptions: tuple[tuple[str, Subscription], ...]  # with the broker that each lives at


def layered(paper: Paper, seed: int) -> Layered:
    random = generator(seed, "topology")
    layers = tuple(
        tuple(f"b{layer}.{number:02}" for number in range(count)) for layer, count in enumerate(paper.layers, start=1)
    )
    edges: list[Edge] = []

    def join(sender: str, receiver: str) -> None:
        edges.append(Edge(sender, receiver, float(random.uniform(paper.mu_least, paper.mu_most))))

    for receiver in layers[1]:
        for sender in layers[0]:
            join(sender, receiver)
    for above, below in pairwise(layers[1:]):
        for receiver in below:
            for number in random.choice(len(above), size=2, replace=False):
                join(above[number], receiver)
    wishes = []
    for broker in layers[-1]:
        for number in range(paper.subscribers):
            id = f"s{broker[1:]}.{number}"
            limits = (LARGEST * random.random(len(ATTRIBUTES))).tolist()
            filter = And(tuple(Predicate(name, Op.LT, limit) for name, limit in zip(ATTRIBUTES, limits, strict=True)))
            offer = OFFERS[int(random.integers(len(OFFERS)))]
            wishes.append((broker, Subscription(id, f"c{id}", filter, (), *offer)))
    return Layered(layers, tuple(edges), tuple(wishes))


class Publisher:
    """One publisher: an event at each of its times, then the next."""

    def __init__(
        self, network: Network, client: str, times_s: Iterator[float], paper: Paper, random: np.random.Generator
    ) -> None:
        self._network, self._client, self._times, self._paper, self._random = network, client, times_s, paper, random
        self._count = 0
        self._plan()

    def _plan(self) -> None:
        at_s = next(self._times, None)
        if at_s is not None:
            self._network.loop.at(at_s, self._publish)

    def _publish(self) -> None:
        self._count += 1
        values = (LARGEST * self._random.random(len(ATTRIBUTES))).tolist()
        attributes = dict(zip(ATTRIBUTES, values, strict=True))
        id = f"{self._client}:{self._count}"
        event = Event(id, "", attributes, timeout_s=self._paper.timeout_s, size_kb=self._paper.size_kb)
        self._network.publish(self._client, event)
        self._plan()


def times(rate: float, start_s: float, end_s: float, publishing: str, random: np.random.Generator) -> Iterator[float]:
    """When to publish, `rate` times per minute on average."""
    gap_s = 60.0 / rate
    at_s = start_s + (random.exponential(gap_s) if publishing == POISSON else gap_s * random.random())
    while at_s < end_s:
        yield float(at_s)
        at_s += random.exponential(gap_s) if publishing == POISSON else gap_s
