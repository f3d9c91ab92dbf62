"""Workload, faults and seeds: whatever fails, every account balances, and a network at rest works as if nothing had happened."""

import os

import pytest

from tidings.sim import faults
from tidings.sim.checkers import Checkers, Violation
from tidings.sim.scenario import Setup, build
from tidings.sim.workload import Paper

# More and always new worlds for `make soak`.
SEEDS = range(1, 4) if "TIDINGS_SOAK" not in os.environ else [int.from_bytes(os.urandom(4)) for _ in range(40)]
SMALL = Paper(layers=(2, 2, 4, 8), publishers=2, subscribers=2, duration_s=300.0, rate=6.0)
CALM_S = 320.0


def world(seed: int, **setup):
    network = build(Setup(seed=seed, paper=SMALL, **setup))
    checkers = Checkers(network)
    network.watchers.append(checkers)
    return network, checkers


def plan(network, *kinds: str):
    return faults.plan(network, start_s=15.0, end_s=CALM_S, gap_s=12.0, duration_s=15.0, kinds=kinds or faults.KINDS)


def told(network) -> dict[str, dict[str, str]]:
    """What each source believes: subscription -> home."""
    return {id: dict(sorted(node.broker.overlay.homes.items())) for id, node in network.nodes.items() if id[1] == "1"}


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("routing", ["paper", "balanced"])
@pytest.mark.parametrize("scheduler", ["fcfs", "mtep", "priced"])
def test_all_faults_at_once(seed, scheduler, routing):
    network, checkers = world(seed, scheduler=scheduler, routing=routing)
    faults.inject(network, plan(network))
    network.run(CALM_S + 150.0)
    checkers.at_rest()
    total = network.totals()
    assert total.on_time > 0.1 * total.matched > 0  # one in 500 worlds is partitioned most of the time


@pytest.mark.parametrize("kind", faults.KINDS)
@pytest.mark.parametrize("seed", SEEDS)
def test_one_kind_of_fault(seed, kind):
    network, checkers = world(seed)
    faults.inject(network, plan(network, kind))
    network.run(CALM_S + 150.0)
    checkers.at_rest()
    total = network.totals()
    if kind != faults.CRASH:
        assert total.closed == total.matched, "only a crash makes pairs fall with their broker"


@pytest.mark.parametrize("seed", SEEDS)
def test_afterwards_every_source_knows_every_subscription_again(seed):
    network, _ = world(seed)
    network.run(14.0)
    before = told(network)
    assert all(len(homes) == 16 for homes in before.values())
    faults.inject(network, plan(network))
    network.run(CALM_S + 60.0)
    assert told(network) == before


@pytest.mark.parametrize("seed", SEEDS)
def test_subscribers_that_come_and_go_while_everything_fails(seed):
    network, checkers = world(seed)
    faults.inject(network, plan(network))
    subscriptions = [
        (client, wish) for node in network.nodes.values() for client, wishes in node.clients.items() for wish in wishes
    ]
    for number, (client, wish) in enumerate(subscriptions):
        network.loop.at(20.0 + 7 * number, network.unsubscribe, client, wish.id)
        network.loop.at(60.0 + 7 * number, network.subscribe, client, wish)
    network.run(CALM_S + 150.0)
    checkers.at_rest()
    assert all(len(homes) == 16 for homes in told(network).values())


def test_a_breach_tells_the_seed_and_the_last_steps():
    network, _ = world(5)
    network.run(14.0)
    network.nodes["b1.00"].broker.ledger.total.pending += 1
    with pytest.raises(Violation, match=r"does not balance(.|\n)*seed 5, step \d+(.|\n)*b1\.00"):
        network.run(60.0)
