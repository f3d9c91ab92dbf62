"""Durable brokers crash at any moment, links break, disks refuse: nothing confirmed is lost, nothing is delivered twice."""

import math
import os
from collections import Counter

import pytest

from crash_world import Client, CrashWorld, subscriber

EVENTS = 25
SEEDS = range(25) if "TIDINGS_SOAK" not in os.environ else range(400)
CHAIN = (("a", "b"), ("b", "c"))
SQUARE = (("a", "b"), ("b", "d"), ("a", "c"), ("c", "d"))


def run(seed, links, homes, deadline_s):
    """The world after all faults, at rest again."""
    publisher = Client("publisher", "a")
    desks = [subscriber(f"desk-{home}", home, deadline_s) for home in homes]
    world = CrashWorld(seed, links, [publisher, *desks])

    def settled():
        overlay = world.nodes["a"].broker.overlay
        remote = [home for home in homes if home != "a"]
        return (
            publisher.connected
            and all(desk.subscribed for desk in desks)
            and len(overlay.homes) == len(remote)
            and overlay.atlas.least_mu("a").keys() >= set(remote)
            and not any(node.disk.waiting for node in world.nodes.values())
        )

    world.settle(settled)
    for n in range(EVENTS):
        world.publish(publisher, f"e{n}")
        for _ in range(world.chance.randrange(60)):
            world.calm_step()
            if world.chance.random() < 0.03:
                world.fault()
    world.settle(lambda: all(node.up for node in world.nodes.values()) and world.at_rest())
    return world, publisher, desks


def check(world, publisher, desks):
    assert publisher.confirmed == {f"e{n}" for n in range(EVENTS)}
    closed = Counter((record.event, record.subscription) for record in world.accounts())
    assert closed == Counter((event, desk.subscription.id) for event in publisher.confirmed for desk in desks)
    for desk in desks:
        assert len(desk.seen) == len(set(desk.seen))
        received = {r.event for r in world.accounts() if r.subscription == desk.subscription.id and not r.reason}
        assert set(desk.seen) >= received


@pytest.mark.parametrize("deadline_s", [math.inf, 2.0], ids=["patient", "hasty"])
@pytest.mark.parametrize("links", [CHAIN, SQUARE], ids=["chain", "square"])
def test_whatever_fails_everything_confirmed_has_one_account_and_arrives_once(links, deadline_s):
    for seed in SEEDS:
        try:
            world, publisher, desks = run(seed, links, ["a", "b", links[-1][1]], deadline_s)
            check(world, publisher, desks)
            if deadline_s == math.inf:
                assert all(set(desk.seen) == publisher.confirmed for desk in desks)
        except AssertionError as error:
            raise AssertionError(f"seed {seed}: {error}") from error
