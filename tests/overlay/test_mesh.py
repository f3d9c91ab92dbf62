"""The mesh as a pure protocol: machines wired together by hand, without a network."""

import pytest

from tidings.errors import InvalidInput
from tidings.language import parse
from tidings.model import message as m
from tidings.model import step as s
from tidings.model.event import checked_event
from tidings.model.subscription import Subscription
from tidings.overlay.mesh import FLOOD, Mesh

EVENT = checked_event("e", {"x": 1}, size_kb=1)


def wish(id: str, deadline_s: float = 20.0, filter: str = "x > 0") -> Subscription:
    return Subscription(id, f"client of {id}", parse(filter), (), deadline_s, 3.0, 0.3)


class Link:
    def __init__(self, peer: str, mu: float) -> None:
        self.peer, self.mu, self.loads = peer, mu, ()

    def state(self, now: float) -> m.LinkState:
        return m.LinkState(self.peer, self.mu, self.mu / 100, 0.0, self.loads)


class World:
    """Machines and the messages between them, which arrive in the order they were sent."""

    def __init__(self, links: dict[tuple[str, str], float], *, layered: bool = False, routing: str = "paper") -> None:
        self.links = links
        self.layered, self.routing = layered, routing
        self.now = 0.0
        self.machines: dict[str, Mesh] = {}
        self.tables: dict[str, dict[str, Link]] = {}
        self.mail: list[tuple[str, str, m.Message]] = []
        self.sent: list[tuple[str, str, m.Message]] = []
        for id in dict.fromkeys(end for link in links for end in link):
            self.start(id)
        for a, b in links:
            self.connect(a, b)
        self.settle()

    def start(self, id: str, incarnation: int = 0) -> None:
        up = [a for a, b in self.links if b == id]
        both = {(a, b): mu for (a, b), mu in self.links.items()}
        if not self.layered:
            both |= {(b, a): mu for (a, b), mu in self.links.items()}
        self.tables[id] = {b: Link(b, mu) for (a, b), mu in both.items() if a == id}
        machine = self.machines[id] = Mesh(up if self.layered else None, self.routing)
        machine.join(id, self.tables[id], incarnation)

    def do(self, id: str, effects: list[s.Effect]) -> None:
        for effect in effects:
            if isinstance(effect, s.Send):
                self.mail.append((id, effect.peer, effect.message))
                self.sent.append(self.mail[-1])

    def connect(self, a: str, b: str) -> None:
        self.do(a, self.machines[a].connected(b, self.now))
        self.do(b, self.machines[b].connected(a, self.now))

    def cut(self, a: str, b: str) -> None:
        self.do(a, self.machines[a].disconnected(b, self.now))
        self.do(b, self.machines[b].disconnected(a, self.now))

    def deliver(self) -> None:
        while self.mail:
            source, target, message = self.mail.pop(0)
            self.do(target, self.machines[target].received(source, message, self.now))

    def settle(self) -> None:
        """Everybody tells news until there is none."""
        for _ in range(len(self.machines) + 1):
            self.deliver()
            self.now += 10
            for id, machine in self.machines.items():
                self.do(id, machine.woke(FLOOD, self.now))
        self.deliver()

    def subscribe(self, id: str, subscription: Subscription) -> None:
        self.do(id, self.machines[id].subscribed(subscription, self.now))
        self.deliver()

    def spread(self, id: str, *subscriptions: str, event=EVENT):
        return self.machines[id].spread(event, list(subscriptions), self.now)


# Two ways from a to d: b is faster.
DIAMOND = {("a", "b"): 1.0, ("a", "c"): 2.0, ("b", "d"): 1.0, ("c", "d"): 2.0}


@pytest.fixture(params=[True, False], ids=["layered", "linked at will"])
def diamond(request) -> World:
    world = World(DIAMOND, layered=request.param)
    world.subscribe("d", wish("s"))
    return world


def test_a_row_has_all_that_the_paper_asks_for(diamond):
    """2.4: (subId, filter, deadline, price, penalty, nb, nodenum), and the path's mean and variance."""
    assert diamond.machines["a"].changes()[-1].subscription == wish("s")
    ((peer, (target,)),) = diamond.spread("a", "s").onward
    assert (peer, target.subscription, target.deadline_s, target.price, target.penalty) == ("b", "s", 20, 3.0, 0.3)
    assert (target.hops, target.mu, target.variance, target.path) == (2, 2.0, 0.02, ("b", "d"))


def test_each_broker_on_the_way_knows_how_far_it_is(diamond):
    """nodenum: the brokers still ahead, 0 at the subscriber's own."""
    ((_, (target,)),) = diamond.machines["b"].relay(EVENT, (m.Route(("b", "d"), ("s",)),), ("a",), 0).onward
    assert (target.hops, target.mu, target.path) == (1, 1.0, ("d",))
    assert diamond.machines["d"].relay(EVENT, (m.Route(("d",), ("s",)),), ("a", "b"), 0).here == ["s"]


def test_the_timeout_binds_like_a_deadline(diamond):
    """Eq. 5: dl = min(timeout, deadline)."""
    ((_, (target,)),) = diamond.spread("a", "s", event=checked_event("e", {"x": 1}, timeout_s=5)).onward
    assert target.deadline_s == 5


def test_one_copy_for_each_neighbour():
    world = World({("a", "b"): 1.0, ("b", "c"): 1.0, ("b", "d"): 1.0, ("a", "e"): 1.0}, layered=True)
    for home, id in (("c", "s1"), ("d", "s2"), ("e", "s3"), ("c", "s4")):
        world.subscribe(home, wish(id))
    copies = world.spread("a", "s1", "s2", "s3", "s4").onward
    assert [(peer, [target.subscription for target in targets]) for peer, targets in copies] == [
        ("b", ["s1", "s4", "s2"]),
        ("e", ["s3"]),
    ]


def test_in_layers_subscriptions_travel_upstream_only():
    world = World({("a", "b"): 1.0, ("b", "c"): 1.0}, layered=True)
    world.subscribe("b", wish("s"))
    assert world.machines["a"].homes == {"s": "b"}
    assert world.machines["c"].homes == {}


def test_a_row_is_passed_on_once_however_often_it_comes(diamond):
    before = len(diamond.sent)
    row = next(message for _, _, message in diamond.sent if isinstance(message, m.Row))
    diamond.do("a", diamond.machines["a"].received("b", row, 0))
    assert len(diamond.sent) == before


def test_unsubscribing_removes_the_row_everywhere(diamond):
    diamond.subscribe("d", wish("other"))
    for machine in diamond.machines.values():
        machine.changes()
    diamond.do("d", diamond.machines["d"].unsubscribed("s", 0))
    diamond.deliver()
    for id in "abc":
        assert diamond.machines[id].homes == {"other": "d"}
        assert diamond.machines[id].changes() == [("s", None)]


def test_a_subscription_that_changes_is_told_as_new(diamond):
    diamond.machines["a"].changes()
    diamond.subscribe("d", wish("s", deadline_s=5))
    assert diamond.machines["a"].changes() == [("s", wish("s", deadline_s=5))]
    ((_, (target,)),) = diamond.spread("a", "s").onward
    assert target.deadline_s == 5


def test_a_link_that_goes_sends_events_the_other_way_and_back_when_it_returns(diamond):
    diamond.cut("b", "d")
    diamond.settle()
    ((peer, (target,)),) = diamond.spread("a", "s").onward
    assert (peer, target.mu) == ("c", 4.0)
    diamond.connect("b", "d")
    diamond.settle()
    assert diamond.spread("a", "s").onward[0][0] == "b"


def test_a_copy_that_meets_a_broken_link_makes_a_detour():
    world = World(DIAMOND | {("b", "c"): 1.0}, layered=True)
    world.subscribe("d", wish("s"))
    world.cut("b", "d")
    ((peer, (target,)),) = world.machines["b"].relay(EVENT, (m.Route(("b", "d"), ("s",)),), ("a",), 0).onward
    assert (peer, target.path, target.mu) == ("c", ("c", "d"), 3.0)


def test_a_detour_avoids_every_broker_that_has_seen_the_copy():
    """Never back where it came from: with links in both directions, b could only send it back to a."""
    world = World(DIAMOND)
    world.subscribe("d", wish("s"))
    world.cut("b", "d")
    ((peer, _),) = world.machines["b"].relay(EVENT, (m.Route(("b", "d"), ("s",)),), ("a",), 0).onward
    assert peer == "d", "it waits for the link instead"


def test_what_cannot_be_reached_waits_on_its_last_path(diamond):
    diamond.spread("a", "s")
    diamond.cut("b", "d")
    diamond.cut("c", "d")
    diamond.settle()
    ((_, (target,)),) = diamond.spread("a", "s").onward
    assert target.path[-1] == "d"


def test_what_never_could_be_reached_is_lost():
    world = World({("a", "b"): 1.0}, layered=True)
    machine = world.machines["a"]
    machine.received("b", m.Row("nowhere", 1, "s", wish("s")), 0)
    relayed = world.spread("a", "s")
    assert not relayed.onward
    assert [(target.subscription, target.penalty) for target in relayed.lost] == [("s", 0.3)]


def test_a_copy_that_overtakes_the_news_of_its_subscription_goes_on(diamond):
    ((peer, (target,)),) = diamond.machines["b"].relay(EVENT, (m.Route(("b", "d"), ("new",)),), ("a",), 0).onward
    assert (peer, target.subscription) == ("d", "new")


def test_a_broker_that_missed_changes_asks_for_the_table():
    world = World({("a", "b"): 1.0}, layered=True)
    for number in range(3):
        world.do("b", world.machines["b"].subscribed(wish(f"s{number}"), 0))
    del world.mail[:2]  # lost
    world.deliver()
    assert list(world.machines["a"].homes) == ["s0", "s1", "s2"]
    assert any(isinstance(message, m.Ask) for _, _, message in world.sent)


def test_a_lost_last_change_is_found_with_the_next_news():
    world = World({("a", "b"): 1.0, ("b", "c"): 1.0}, layered=True)
    world.do("b", world.machines["b"].subscribed(wish("s"), 0))
    world.mail.clear()
    world.settle()
    assert world.machines["a"].homes == {"s": "b"}


def test_messages_may_come_twice_and_in_any_order():
    world = World({("a", "b"): 1.0}, layered=True)
    machine = world.machines["b"]
    rows = [machine.subscribed(wish("s"), 0), machine.unsubscribed("s", 0), machine.subscribed(wish("t"), 0)]
    messages = [effect.message for effects in rows for effect in effects if isinstance(effect, s.Send)]
    for message in (messages[2], messages[0], messages[1], messages[2], messages[0], messages[1]):
        world.do("a", world.machines["a"].received("b", message, 0))
    world.deliver()
    assert list(world.machines["a"].homes) == ["t"]


def test_a_broker_that_restarts_is_believed_again():
    world = World(DIAMOND, layered=True)
    world.subscribe("d", wish("old"))
    for peer in "bc":
        world.do(peer, world.machines[peer].disconnected("d", world.now))
    world.start("d", incarnation=1)
    world.do("d", world.machines["d"].subscribed(wish("new"), world.now))
    for peer in "bc":
        world.connect(peer, "d")
    world.settle()
    assert world.machines["a"].homes == {"new": "d"}
    assert world.spread("a", "new").onward[0][0] == "b"


def test_a_slower_link_is_told_and_small_changes_are_not():
    world = World(DIAMOND, layered=True)
    world.subscribe("d", wish("s"))
    world.settle()
    world.tables["b"]["d"].mu = 1.01
    before = len(world.sent)
    world.settle()
    assert len(world.sent) == before
    world.tables["b"]["d"].mu = 9.0
    world.settle()
    assert world.spread("a", "s").onward[0][0] == "c"


def test_prices_travel_with_the_states_of_links():
    world = World(DIAMOND, layered=True)
    link = world.tables["b"]["d"]
    link.state = lambda now: m.LinkState("d", 1.0, 0.01, price=7.0)
    world.settle()
    assert world.machines["a"].prices["b", "d"] == 7.0


def test_an_unknown_routing_is_refused():
    with pytest.raises(InvalidInput, match="paper"):
        Mesh(routing="fastest")
