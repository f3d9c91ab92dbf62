"""mtep's section 3 as it is printed."""

import itertools

import numpy as np
import pytest

from tidings.sim.network import generator
from tidings.sim.workload import OFFERS, PERIODIC, POISSON, Paper, layered, times


@pytest.fixture(scope="module")
def world():
    return layered(Paper(), seed=3)


def test_128_brokers_in_6_layers(world):
    assert [len(layer) for layer in world.layers] == [4, 4, 8, 16, 32, 64]


def test_each_broker_has_its_links_to_the_layer_above(world):
    layer_of = {broker: number for number, layer in enumerate(world.layers) for broker in layer}
    above: dict[str, set[str]] = {}
    for edge in world.edges:
        assert layer_of[edge.receiver] == layer_of[edge.sender] + 1
        above.setdefault(edge.receiver, set()).add(edge.sender)
    assert all(above[broker] == set(world.layers[0]) for broker in world.layers[1])
    assert all(len(above[broker]) == 2 for layer in world.layers[2:] for broker in layer)
    assert all(0.040 <= edge.mu <= 0.080 for edge in world.edges)


def test_640_subscriptions_each_with_one_of_the_offers(world):
    assert len(world.subscriptions) == 640
    offers = {(wish.deadline_s, wish.price, wish.penalty) for _, wish in world.subscriptions}
    assert offers == set(OFFERS) == {(20, 3, 0.3), (24, 2.5, 0.25), (30, 2, 0.2), (40, 1.5, 0.15), (60, 1, 0.1)}


def test_one_event_in_sixteen_matches(world):
    """Four uniform values, each below a uniform limit: one half to the fourth, 6.25%."""
    limits = np.array([[leaf.value for leaf in wish.filter.parts] for _, wish in world.subscriptions])
    values = 10 * generator(1, "values").random((500, 1, 4))
    assert (values < limits).all(axis=2).mean() == pytest.approx(0.0625, abs=0.01)


def test_the_seed_decides():
    assert layered(Paper(), 3) == layered(Paper(), 3)
    assert layered(Paper(), 3) != layered(Paper(), 4)


@pytest.mark.parametrize("publishing", [POISSON, PERIODIC])
def test_events_per_minute(publishing):
    at_s = list(times(2.0, 10.0, 72_010.0, publishing, generator(1, "times")))
    assert 10.0 <= min(at_s) <= max(at_s) < 72_010.0
    assert len(at_s) == pytest.approx(2_400, rel=0.05)
    gaps = {round(b - a, 6) for a, b in itertools.pairwise(at_s)}
    assert (gaps == {30.0}) == (publishing == PERIODIC)
