"""mtep's sentences about the network (section 1.3, 2.1, 2.2, 2.4 and 3), one test for each."""

import itertools
from collections import Counter

import pytest

from tidings.broker.broker import Broker
from tidings.language import parse
from tidings.matching.naive import Naive
from tidings.model import message as m
from tidings.model import step as s
from tidings.model.event import checked_event
from tidings.model.filter import matches
from tidings.model.subscription import Subscription
from tidings.overlay.mesh import Mesh
from tidings.scheduling.delay import Link
from tidings.scheduling.mtep import Mtep
from tidings.scheduling.rate import Known
from tidings.sim.network import Network, Rate, generator
from tidings.sim.scenario import Setup, build, simulate
from tidings.sim.workload import Paper, layered

SMALL = Paper(layers=(2, 2, 4, 8), publishers=4, subscribers=4, duration_s=300.0, rate=3.0)


class Record:
    """Everything that happened in a run."""

    def __init__(self, network: Network) -> None:
        self.steps: list[tuple[str, s.Input | s.Effect, float]] = []
        network.watchers.append(self)

    def __call__(self, node, input, effects, now):
        self.steps += [(node.id, step, now) for step in (input, *effects)]

    def sent(self, kind: type) -> list[tuple[str, str, object, float]]:
        return [
            (at, step.peer, step.message, now)
            for at, step, now in self.steps
            if isinstance(step, s.Send) and isinstance(step.message, kind)
        ]

    def of(self, kind: type) -> list[tuple[str, object]]:
        return [(at, step) for at, step, _ in self.steps if isinstance(step, kind)]


@pytest.fixture(scope="module")
def played() -> tuple[Network, Record]:
    """A small world under load, from the first subscription to rest."""
    network = build(Setup(seed=4, paper=SMALL))
    record = Record(network)
    network.run(450.0)
    return network, record


@pytest.fixture(scope="module")
def world():
    return layered(SMALL, 4)


def test_subscriptions_go_step_by_step_up_to_the_publishers_edge(played, world):
    """1.3: 'a subscription is forwarded from the subscriber's edge broker, step by step, to the upstream publisher's edge.'"""
    network, record = played
    layer_of = {broker: number for number, layer in enumerate(world.layers) for broker in layer}
    rows = record.sent(m.Row)
    assert rows
    assert all(layer_of[peer] == layer_of[at] - 1 for at, peer, _, _ in rows)
    for edge in world.layers[0]:
        assert len(network.nodes[edge].broker.overlay.homes) == len(world.subscriptions)


def test_only_one_path_from_publisher_to_subscriber_the_one_with_the_least_mean_rate(played, world):
    """1.3: 'the system chooses only one path; the criterion is the least total mean rate of the path.'"""
    _, record = played
    mu = {(edge.sender, edge.receiver): edge.mu for edge in world.edges}
    home_of = {wish.id: broker for broker, wish in world.subscriptions}
    every = [path for path in itertools.product(*world.layers) if all(link in mu for link in itertools.pairwise(path))]
    best: dict[tuple[str, str], tuple[str, ...]] = {}
    for path in sorted(every, key=lambda path: sum(mu[link] for link in itertools.pairwise(path)), reverse=True):
        best[path[0], path[-1]] = path
    arrived = [
        step.message for at, step in record.of(s.Received) if isinstance(step.message, m.Forward) and at[1] == "4"
    ]
    assert len(arrived) > 100
    for forward in arrived:
        for route in forward.routes:
            for id in route.subscriptions:
                assert (*forward.via, *route.path) == best[forward.via[0], home_of[id]]


def test_events_go_only_where_they_are_wanted_and_never_back(played, world):
    """1.3: 'an event is forwarded only to neighbours in matching rows, except the broker that it came from.'"""
    _, record = played
    filters = {wish.id: wish.filter for _, wish in world.subscriptions}
    for _, peer, forward, _ in record.sent(m.Forward):
        assert peer not in forward.via
        attributes = forward.event.matchable()
        ids = [id for route in forward.routes for id in route.subscriptions]
        assert ids
        assert all(matches(filters[id], attributes) for id in ids)


def test_one_copy_for_each_neighbour(played):
    _, record = played
    copies = Counter((at, peer, forward.event.id) for at, peer, forward, _ in record.sent(m.Forward))
    assert set(copies.values()) == {1}


def test_a_link_carries_one_event_at_a_time(played):
    """2.1.1: one output queue for each downstream neighbour."""
    _, record = played
    busy: set[tuple[str, str]] = set()
    for at, step, _ in record.steps:
        if isinstance(step, s.LinkReady):
            busy.discard((at, step.peer))
        elif isinstance(step, s.Send) and isinstance(step.message, m.Forward):
            assert (at, step.peer) not in busy
            busy.add((at, step.peer))


def test_equation_1_is_what_the_ledger_says(played, world):
    """TotalEarning = sum price * na - sum penalty * (ni - na), counted from what was published and received."""
    network, record = played
    published = {
        step.message.event.id: step.message.event.matchable()
        for _, step in record.of(s.Received)
        if isinstance(step.message, m.Publish)
    }
    ni: Counter[str] = Counter()
    for attributes in published.values():
        ni.update(wish.id for _, wish in world.subscriptions if matches(wish.filter, attributes))
    na = Counter(
        record.subscription
        for _, step in record.of(s.Store)
        for record in step.records
        if isinstance(record, s.AccountRecord) and record.account == "on_time"
    )
    earning = sum(
        wish.price * na[wish.id] - wish.penalty * (ni[wish.id] - na[wish.id]) for _, wish in world.subscriptions
    )
    total = network.totals()
    assert total.matched == sum(ni.values()) > 300
    assert total.earning == pytest.approx(earning)
    assert total.pending == 0
    assert total.received == total.forwarded


def test_after_its_deadline_no_subscriber_is_notified(played, world):
    """1.2: 'a subscriber is notified when the event satisfies the content and the time constraint.'"""
    _, record = played
    deadlines = {wish.id: wish.deadline_s for _, wish in world.subscriptions}
    for _, deliver in record.of(s.Deliver):
        assert all(deliver.age_s <= deadlines[id] for id in deliver.subscriptions)


# Definition 2, by hand: a link of 1 second per KB, an event of 10 KB, nothing varies, PD = SBD = 0. The subscriber is two links
# away, so it takes 20 seconds: with a deadline of 25 the event may wait 5 seconds at the first broker and not 6.


def chain(deadline_s: float) -> tuple[Network, Record]:
    network = Network(seed=1, processing_s=0.0, client_s=0.0, control_s=0.0)
    brokers = ("a", "b", "c")
    for place, id in enumerate(brokers):

        def make(incarnation: int, id: str = id, place: int = place) -> Broker:
            def link(peer: str, role: str) -> Link:
                return Link(rate=Known(1.0 if role == m.BROKER else 0.0), processing_s=0.0, client_s=0.0)

            return Broker(id, Naive(), Mtep, Mesh(brokers[place - 1 : place] if place else ()), links=link)

        network.node(id, make)
    for a, b in itertools.pairwise(brokers):
        network.link(a, b, Rate(1.0, 0.0, generator(0, "nothing")))
    network.client("publisher", "a")
    network.client("subscriber", "c")
    record = Record(network)
    network.start()
    network.subscribe("subscriber", Subscription("s", "subscriber", parse("x > 0"), (), deadline_s, 3.0, 0.3))
    network.run(1.0)
    network.publish("publisher", checked_event("warm-up", {"x": 1}, size_kb=10))  # mean size 10 KB: LMT = 10 s
    network.run(30.0)
    record.steps.clear()
    return network, record


@pytest.mark.parametrize(("wait_s", "forwarded"), [(5.0, True), (6.0, False)])
def test_definition_2_an_event_goes_on_only_while_its_chance_exceeds_epsilon(wait_s, forwarded):
    network, record = chain(deadline_s=25.0)
    network.cut("a", "b")
    network.publish("publisher", checked_event("e", {"x": 1}, size_kb=10))
    network.run(30.0 + wait_s)
    network.mend("a", "b")
    network.run(90.0)
    assert bool(record.sent(m.Forward)) == forwarded
    total = network.totals()
    assert (total.on_time, total.expired) == ((2, 0) if forwarded else (1, 1))
    if not forwarded:
        assert network.nodes["a"].broker.ledger.reasons == {"hopeless": 1}


def test_figure_6_the_greatest_priority_goes_first():
    """Two events wait; the urgent one overtakes the other though it came later."""
    network, record = chain(deadline_s=25.0)
    network.subscribe("subscriber", Subscription("calm", "subscriber", parse("x < 0"), (), 500.0, 3.0, 0.3))
    network.run(31.0)
    network.publish("publisher", checked_event("first", {"x": 1}, size_kb=10))
    network.run(31.5)
    network.publish("publisher", checked_event("calm", {"x": -1}, size_kb=10))
    network.publish("publisher", checked_event("urgent", {"x": 1}, size_kb=4))
    network.run(200.0)
    order = [forward.event.id for at, _, forward, _ in record.sent(m.Forward) if at == "a"]
    assert order == ["first", "urgent", "calm"]


# Section 3, in small: the paper's claims as directions, on a network that is loaded as its own is.

LIGHT, HEAVY = 0.5, 15.0
CROWDED = Paper(layers=(2, 2, 4, 8), publishers=4, subscribers=8, duration_s=600.0)


@pytest.fixture(scope="module")
def figure8() -> dict[tuple[str, float], tuple[float, float]]:
    outcomes = {}
    for scheduler, rate in itertools.product(("mtep", "fix", "lrt", "fcfs"), (LIGHT, HEAVY)):
        paper = Paper(**{field: getattr(CROWDED, field) for field in CROWDED.__struct_fields__} | {"rate": rate})
        outcome = simulate(Setup(seed=1, scheduler=scheduler, paper=paper))
        outcomes[scheduler, rate] = (outcome.earning, outcome.success_rate)
    return outcomes


def test_figure_7_mtep_earns_most_then_fix(figure8):
    earning = {name: earned for (name, rate), (earned, _) in figure8.items() if rate == HEAVY}
    assert earning["mtep"] > earning["fix"] > max(earning["lrt"], earning["fcfs"])
    success = {name: share for (name, rate), (_, share) in figure8.items() if rate == HEAVY}
    assert success["mtep"] > success["fix"] > max(success["lrt"], success["fcfs"])


def test_figure_8_under_light_load_all_are_alike(figure8):
    earning = [earned for (_, rate), (earned, _) in figure8.items() if rate == LIGHT]
    assert min(earning) > 0.98 * max(earning)


def test_figure_8_under_load_mtep_earns_more_while_its_success_rate_falls(figure8):
    assert figure8["mtep", HEAVY][0] > figure8["mtep", LIGHT][0]
    assert figure8["mtep", HEAVY][1] < figure8["mtep", LIGHT][1]
