"""One run of mtep's experiment: a topology, a workload, a scheduler, a routing, and what came of it.

    outcome = simulate(Setup(seed=7, scheduler="mtep"))
    print(outcome.earning, outcome.success_rate)

Topology, subscriptions, events and the luck of each link depend on the seed alone, so that two schedulers can be compared on the
very same world. The experiment drains before it accounts.
"""

import contextlib
import gc
import time
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import msgspec

from tidings.broker import catalog
from tidings.broker.broker import Broker
from tidings.overlay.mesh import PAPER, Mesh
from tidings.scheduling.base import Scheduler
from tidings.scheduling.delay import Link
from tidings.scheduling.rate import PER_KB, PER_MESSAGE, Estimate, Known, Sampling
from tidings.sim.checkers import Checkers
from tidings.sim.network import Network, Rate, generator
from tidings.sim.workload import Layered, Paper, Publisher, layered, times

KNOWN, MEASURED, ASSUMED = "known", "measured", "assumed"
SETTLE_S = 10.0  # subscriptions have spread before the first event
DRAIN_S = 120.0  # after the last event: twice the longest deadline


class Slowdown(msgspec.Struct, frozen=True):
    """Some of the links become slower in the middle of the run."""

    at_s: float
    share: float = 0.2
    factor: float = 3.0


class Setup(msgspec.Struct, frozen=True, kw_only=True):
    """`links`: brokers know the true parameters of their links at all times, measure them, or assume the first ones."""

    seed: int
    scheduler: str = "mtep"
    options: dict[str, Any] = {}  # of the scheduler
    routing: str = PAPER
    links: str = KNOWN
    paper: Paper = Paper()
    drawn: Sampling = PER_KB  # how the time of a transmission is drawn
    believed: Sampling = PER_MESSAGE  # how schedulers take it to deviate: eq. 7 as printed
    slowdown: Slowdown | None = None
    engine: str = catalog.DEFAULT_MATCHER
    checked: bool = False


class Outcome(msgspec.Struct, frozen=True):
    matched: int
    on_time: int
    earning: float
    earned_after: float  # the slowdown, if there was one
    reasons: dict[str, int]  # why pairs expired
    busiest: float  # the greatest share of time that a link was carrying events
    switches: int  # paths that balanced routing has changed
    steps: int  # inputs that brokers handled
    cpu_s: float

    @property
    def success_rate(self) -> float:
        return self.on_time / self.matched


def simulate(setup: Setup) -> Outcome:
    began_s = time.process_time()
    network = build(setup)
    checkers = Checkers(network) if setup.checked else None
    if checkers is not None:
        network.watchers.append(checkers)
    end_s = SETTLE_S + setup.paper.duration_s + DRAIN_S
    earned_before = 0.0
    with _little_garbage():
        if setup.slowdown is not None:
            network.run(SETTLE_S + setup.slowdown.at_s)
            earned_before = network.totals().earning
        network.run(end_s)
    if checkers is not None:
        checkers.at_rest()
    total = network.totals()
    brokers = [node.broker for node in network.nodes.values()]
    reasons: Counter[str] = Counter()
    for broker in brokers:
        reasons.update(broker.ledger.reasons)
    return Outcome(
        total.matched,
        total.on_time,
        total.earning,
        total.earning - earned_before,
        dict(sorted(reasons.items())),
        max(wire.busy_s for node in network.nodes.values() for wire in node.wires.values()) / end_s,
        sum(broker.overlay.switches for broker in brokers if isinstance(broker.overlay, Mesh)),
        network.handled,
        time.process_time() - began_s,
    )


def cell(seed: int, rate: float = 1.0, hours: float = 2.0, **setup: Any) -> dict[str, float]:
    """The same as a function of plain parameters, one cell of a grid: what a sweep on Spark takes."""
    outcome = simulate(Setup(seed=seed, paper=Paper(rate=rate, duration_s=3600 * hours), **setup))
    numbers = {name: getattr(outcome, name) for name in outcome.__struct_fields__ if name != "reasons"}
    return {**numbers, "success_rate": outcome.success_rate}


@contextlib.contextmanager
def _little_garbage() -> Iterator[None]:
    """Steps make no reference cycles: looking for them all the time would take a fifth of the run."""
    usual = gc.get_threshold()
    gc.set_threshold(100_000, 50, 50)
    try:
        yield
    finally:
        gc.set_threshold(*usual)


def build(setup: Setup) -> Network:
    """The network with its clients, subscriptions and publishers, ready to run."""
    paper, seed = setup.paper, setup.seed
    world = layered(paper, seed)
    network = Network(seed, processing_s=paper.processing_s, client_s=paper.client_s)
    rates = {
        (edge.sender, edge.receiver): Rate(
            edge.mu, paper.sigma, generator(seed, "rate", edge.sender, edge.receiver), setup.drawn
        )
        for edge in world.edges
    }
    upstream: dict[str, list[str]] = {}
    for edge in world.edges:
        upstream.setdefault(edge.receiver, []).append(edge.sender)
    for layer in world.layers:
        for id in layer:
            network.node(id, _maker(setup, id, upstream.get(id, []), rates))
    for (sender, receiver), rate in rates.items():
        network.link(sender, receiver, rate)
    _populate(network, world, paper, seed)
    if setup.slowdown is not None:
        network.loop.at(SETTLE_S + setup.slowdown.at_s, _slow_down, setup.slowdown, rates, seed)
    return network


def _maker(setup: Setup, id: str, upstream: list[str], rates: dict[tuple[str, str], Rate]) -> Callable[[int], Broker]:
    matcher, scheduler = catalog.matcher(setup.engine), catalog.scheduler(setup.scheduler)
    paper = setup.paper

    def make(incarnation: int) -> Broker:
        overlay = Mesh(upstream, setup.routing)

        def link(peer: str, role: str) -> Link:
            return Link(
                source=id,
                peer=peer,
                rate=_belief(setup, rates[id, peer]) if (id, peer) in rates else Known(),
                processing_s=paper.processing_s,
                client_s=paper.client_s,
                sampling=setup.believed,
                prices=overlay.prices,
            )

        def schedule(link: Link) -> Scheduler:
            return scheduler(link, **setup.options)

        probing = setup.links == MEASURED
        return Broker(id, matcher(), schedule, overlay, links=link, incarnation=incarnation, probing=probing)

    return make


def _belief(setup: Setup, truth: Rate) -> Rate | Estimate | Known:
    match setup.links:
        case "known":
            return truth
        case "measured":
            paper = setup.paper
            return Estimate((paper.mu_least + paper.mu_most) / 2, paper.sigma, sampling=setup.believed)
        case _:
            return Known(truth.mu, truth.sigma)


def _populate(network: Network, world: Layered, paper: Paper, seed: int) -> None:
    publishers = [f"p{broker[1:]}.{number}" for broker in world.layers[0] for number in range(paper.publishers)]
    for broker, subscription in world.subscriptions:
        network.client(subscription.subscriber, broker)
    for number, publisher in enumerate(publishers):
        network.client(publisher, world.layers[0][number // paper.publishers])
    network.start()
    for _, subscription in world.subscriptions:
        network.subscribe(subscription.subscriber, subscription)
    for publisher in publishers:
        when = times(
            paper.rate,
            SETTLE_S,
            SETTLE_S + paper.duration_s,
            paper.publishing,
            generator(seed, "times", publisher),
        )
        Publisher(network, publisher, when, paper, generator(seed, "values", publisher))


def _slow_down(slowdown: Slowdown, rates: dict[tuple[str, str], Rate], seed: int) -> None:
    """The true rates change; nobody is told."""
    chosen = generator(seed, "slowdown").permutation(len(rates))[: round(slowdown.share * len(rates))]
    links = list(rates.values())
    for number in sorted(chosen.tolist()):
        links[number].mu *= slowdown.factor
        links[number].sigma *= slowdown.factor
