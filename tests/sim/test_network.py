"""The simulated network carries out effects: one event at a time on a link, delays, faults."""

from itertools import pairwise

import numpy as np
import pytest

from tidings.broker.broker import Broker
from tidings.language import parse
from tidings.matching.naive import Naive
from tidings.model import message as m
from tidings.model import step as s
from tidings.model.event import checked_event
from tidings.model.subscription import Subscription
from tidings.overlay.mesh import Mesh
from tidings.scheduling.fcfs import Fcfs
from tidings.scheduling.rate import PER_KB, PER_MESSAGE
from tidings.sim.checkers import Checkers
from tidings.sim.network import Network, Rate, generator


def steady(mu: float) -> Rate:
    """A link without luck."""
    return Rate(mu, 0.0, generator(0, "nothing"))


def line(*ids: str, mu: float = 0.01) -> Network:
    """Brokers in a row; a publisher at the first, a subscriber at the last."""
    network = Network(seed=1)
    for place, id in enumerate(ids):
        upstream = ids[place - 1 : place] if place else ()

        def make(incarnation: int, id: str = id, upstream: tuple[str, ...] = upstream) -> Broker:
            return Broker(id, Naive(), Fcfs, Mesh(upstream), incarnation=incarnation)

        network.node(id, make)
    for a, b in pairwise(ids):
        network.link(a, b, steady(mu))
    network.client("publisher", ids[0])
    network.client("subscriber", ids[-1])
    network.watchers.append(Checkers(network))
    network.start()
    network.subscribe("subscriber", Subscription("s", "subscriber", parse("x > 0"), (), 60.0, 2.0, 0.5))
    network.run(5.0)
    return network


def event(id: str, size_kb: float = 50.0):
    return checked_event(id, {"x": 1}, size_kb=size_kb)


def seen(network: Network, kind: type) -> list[tuple[float, str, object]]:
    found: list[tuple[float, str, object]] = []

    def watch(node, input, effects, now):
        found.extend((now, node.id, step) for step in (input, *effects) if isinstance(step, kind))

    network.watchers.append(watch)
    return found


def test_how_long_an_event_takes():
    """Publisher's link, PD at each broker, size times rate on each link, subscriber's link."""
    network = line("a", "b", "c")
    delivered = seen(network, s.Deliver)
    acknowledged = seen(network, s.Received)
    network.publish("publisher", event("e"))
    network.run(20.0)
    ((at_s, node, deliver),) = delivered
    assert node == "c"
    assert at_s == pytest.approx(5.0 + 0.020 + 3 * 0.002 + 2 * 50 * 0.01)
    assert deliver.age_s == pytest.approx(at_s - 5.0), "the event is as old as it is, though no clocks are compared"
    acknowledgements = [now for now, _, received in acknowledged if isinstance(received.message, m.Acknowledge)]
    assert acknowledgements == [pytest.approx(at_s + 0.020)]
    total = network.totals()
    assert (total.matched, total.on_time, total.received, total.forwarded, total.earning) == (1, 1, 2, 2, 2.0)


def test_a_link_carries_one_event_at_a_time():
    network = line("a", "b")
    delivered = seen(network, s.Deliver)
    for number in range(3):
        network.publish("publisher", event(f"e{number}"))
    network.run(20.0)
    times = [at_s for at_s, _, _ in delivered]
    assert np.diff(times) == pytest.approx([0.5, 0.5])


def test_small_messages_do_not_wait_for_events():
    network = line("a", "b", mu=1.0)
    network.publish("publisher", event("e"))
    network.run(6.0)
    network.subscribe("subscriber", Subscription("t", "subscriber", parse("x > 5")))
    network.run(7.0)
    assert "t" in network.nodes["a"].broker.overlay.homes


def test_a_link_that_goes_down_loses_what_is_on_it_and_the_sender_sends_it_again():
    network = line("a", "b")
    delivered = seen(network, s.Deliver)
    network.publish("publisher", event("e"))
    network.run(5.3)
    network.cut("a", "b")
    network.run(10.0)
    assert not delivered
    assert network.nodes["a"].broker.ledger.total.pending == 1
    network.mend("a", "b")
    network.run(20.0)
    assert len(delivered) == 1
    assert network.totals().on_time == 1


def test_a_copy_that_arrived_before_the_link_went_down_is_not_sent_again():
    network = line("a", "b", "c")
    network.publish("publisher", event("e"))
    network.run(5.0 + 0.020 + 0.002 + 0.5 + 0.003)  # b has it
    network.cut("a", "b")
    network.mend("a", "b")
    network.run(20.0)
    assert network.totals().on_time == 1
    assert network.totals().received == 2


def test_a_message_that_comes_twice_counts_once():
    network = line("a", "b")
    network.nodes["a"].wires["b"].repeat = 1.0
    delivered = seen(network, s.Deliver)
    network.publish("publisher", event("e"))
    network.run(20.0)
    assert len(delivered) == 1


def test_losses_cost_time_and_nothing_else():
    network = line("a", "b")
    network.nodes["a"].wires["b"].loss = 0.9
    delivered = seen(network, s.Deliver)
    network.publish("publisher", event("e"))
    network.run(60.0)
    ((at_s, _, _),) = delivered
    assert at_s > 6.0


def test_a_crash_loses_memory_and_a_restart_brings_clients_back():
    network = line("a", "b", "c")
    network.crash("c")
    network.publish("publisher", event("e"))
    network.run(10.0)
    network.restart("c")
    network.run(20.0)
    total = network.totals()
    assert (total.matched, total.on_time) == (1, 1), "b kept it until c was back"
    assert network.nodes["c"].broker.subscriptions.keys() == {"s"}


def test_unsubscribing_while_an_event_is_under_way():
    network = line("a", "b", "c", mu=0.1)
    network.publish("publisher", event("e"))
    network.run(7.0)  # on its way to b
    network.unsubscribe("subscriber", "s")
    network.run(30.0)
    total = network.totals()
    assert (total.matched, total.undeliverable, total.pending) == (1, 1, 0)


@pytest.mark.parametrize(("sampling", "deviation"), [(PER_KB, 0.02 * 50**0.5), (PER_MESSAGE, 0.02 * 50)])
def test_rates_are_drawn_per_kb_or_per_message(sampling, deviation):
    rate = Rate(0.1, 0.02, generator(7, "rate"), sampling)
    drawn = np.array([rate.seconds(50.0) for _ in range(4000)])
    assert drawn.mean() == pytest.approx(5.0, abs=4 * deviation / 4000**0.5)
    assert drawn.std() == pytest.approx(deviation, rel=0.05)


def test_no_transmission_is_faster_than_possible():
    rate = Rate(0.01, 0.1, generator(7, "rate"), PER_MESSAGE)
    assert min(rate.seconds(50.0) for _ in range(100)) == 0.05


def test_purposes_do_not_share_their_luck():
    assert generator(1, "a", "b").random() == generator(1, "a", "b").random()
    assert (
        len({generator(seed, *purpose).random() for seed in (1, 2) for purpose in (("a", "b"), ("ab",), ("a",))}) == 6
    )
