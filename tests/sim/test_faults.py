"""Faults come from the seed, end in time, and leave a network that works."""

import pytest

from tidings.sim import faults
from tidings.sim.scenario import Setup, build
from tidings.sim.workload import Paper

SMALL = Paper(layers=(2, 2, 4), publishers=1, subscribers=1, duration_s=60.0)
TIMES = {"start_s": 20.0, "end_s": 220.0, "gap_s": 5.0, "duration_s": 15.0}


def test_the_plan_follows_from_the_seed():
    plans = [faults.plan(build(Setup(seed=seed, paper=SMALL)), **TIMES) for seed in (1, 1, 2)]
    assert plans[0] == plans[1] != plans[2]
    assert {fault.kind for fault in plans[0]} == set(faults.KINDS)
    assert all(20.0 <= fault.at_s <= fault.until_s <= 220.0 for fault in plans[0])


@pytest.mark.parametrize("seed", range(3))
def test_in_the_end_everything_works_again(seed):
    network = build(Setup(seed=seed, paper=SMALL))
    faults.inject(network, faults.plan(network, **TIMES))
    network.run(120.0)
    network.run(221.0)
    assert all(node.up for node in network.nodes.values())
    wires = [wire for node in network.nodes.values() for wire in node.wires.values()]
    assert all(wire.up and not wire.cut and not (wire.loss or wire.delay_s or wire.repeat) for wire in wires)


def test_a_link_that_two_faults_hold_comes_back_with_the_last():
    network = build(Setup(seed=1, paper=SMALL))
    network.run(5.0)
    wire = network.nodes["b1.00"].wires["b2.00"]
    both = ("b1.00", "b2.00")
    faults.inject(network, [faults.Fault(10.0, 20.0, faults.CUT, both), faults.Fault(15.0, 30.0, faults.CUT, both)])
    for until_s, up in ((9.0, True), (12.0, False), (22.0, False), (31.0, True)):
        network.run(until_s)
        assert wire.up is up


def test_the_spared_do_not_crash():
    network = build(Setup(seed=1, paper=SMALL))
    spared = [broker for broker in network.nodes if broker != "b2.01"]
    planned = faults.plan(network, **TIMES, kinds=[faults.CRASH], spare=spared)
    assert planned
    assert {fault.brokers for fault in planned} == {("b2.01",)}
