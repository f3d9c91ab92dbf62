"""The balanced tree: cooler links, no flapping, and the least mean rate when there is no load."""

import itertools
from collections import Counter

import pytest

from tidings.model.message import LinkState, State
from tidings.overlay import balance as module
from tidings.overlay.atlas import Atlas
from tidings.overlay.balance import Balance

SIZE_KB = 50.0
MU = {("s", "b"): 0.05, ("s", "c"): 0.065, ("t", "b"): 0.05, ("t", "c"): 0.065}
HOMES = [f"h{number}" for number in range(8)]
for _home in HOMES:
    MU |= {("b", _home): 0.04, ("c", _home): 0.04}


class Source:
    """A source that publishes steadily; each event goes to one of the homes, in turn."""

    def __init__(self, id: str, per_minute: float) -> None:
        self.id, self.per_minute = id, per_minute
        self.balance = Balance()
        self.tree = {home: (id, "b", home) for home in HOMES}
        self.moves: Counter[str] = Counter()
        for number in range(module.SAMPLES):
            self.balance.saw([HOMES[number % len(HOMES)]], SIZE_KB, number * 60.0 / per_minute)
        self.now = module.SAMPLES * 60.0 / per_minute

    def loads(self) -> dict[tuple[str, str], float]:
        """What its tree puts on each link."""
        busy = self.per_minute / 60.0 * SIZE_KB
        users: dict[tuple[str, str], int] = {}
        for path in self.tree.values():
            for link in itertools.pairwise(path):
                users[link] = users.get(link, 0) + 1
        return {link: MU[link] * busy * count / len(HOMES) for link, count in users.items()}

    def look(self, atlas: Atlas) -> int:
        moved = self.balance.improved(self.id, self.tree, atlas, self.now)
        self.tree |= moved
        self.moves.update(list(moved))
        self.now += 30.0
        return len(moved)


def atlas(*sources: Source) -> Atlas:
    """As if every load had just been measured and flooded."""
    by_link: dict[tuple[str, str], list[tuple[str, float]]] = {}
    for source in sources:
        for link, load in source.loads().items():
            by_link.setdefault(link, []).append((source.id, load))
    known = Atlas()
    for broker in dict.fromkeys(at for at, _ in MU):
        links = [
            LinkState(peer, mu, 0.0004, 0.0, tuple(by_link.get((at, peer), ())))
            for (at, peer), mu in MU.items()
            if at == broker
        ]
        known.learn(State(broker, 1, tuple(links)))
    return known


def busiest(*sources: Source) -> float:
    total: dict[tuple[str, str], float] = {}
    for source in sources:
        for link, load in source.loads().items():
            total[link] = total.get(link, 0.0) + load
    return max(total.values())


def test_a_busy_link_is_relieved():
    source = Source("s", per_minute=24)
    before = busiest(source)
    for _ in range(10):
        source.look(atlas(source))
    assert before > 0.99
    assert busiest(source) < 0.85 * before
    assert {path[1] for path in source.tree.values()} == {"b", "c"}


def test_a_home_that_cannot_be_reached_keeps_its_path_and_the_others_move():
    source = Source("s", per_minute=24)
    for _ in range(10):
        known = atlas(source)
        for broker in ("b", "c"):
            links = tuple(link for link in known.states[broker].links if link.peer != "h0")
            known.learn(State(broker, 2, links))
        source.look(known)
    assert source.tree["h0"] == ("s", "b", "h0")
    assert {path[1] for path in source.tree.values()} == {"b", "c"}


def test_without_load_the_least_mean_rate_wins():
    source = Source("s", per_minute=1)
    source.tree = {home: ("s", "c", home) for home in HOMES}
    for _ in range(10):
        source.look(atlas(source))
    assert {path[1] for path in source.tree.values()} == {"b"}


@pytest.mark.parametrize("per_minute", [5, 12, 24, 60])
def test_it_comes_to_rest_and_stays_there(per_minute):
    """No flapping: sources that take turns stop moving, and never start again while nothing else changes."""
    sources = [Source("s", per_minute), Source("t", per_minute)]
    moves = [source.look(atlas(*sources)) for _ in range(20) for source in sources]
    assert moves[-20:] == [0] * 20
    assert sum(moves) < 40


@pytest.mark.parametrize("per_minute", [12, 24, 60])
def test_whatever_the_others_do_no_path_moves_often(per_minute):
    """Both decide at the same time, on loads that are two minutes old: half an hour."""
    sources = [Source("s", per_minute), Source("t", per_minute)]
    history = [atlas(*sources)] * 4
    for _ in range(60):
        for source in sources:
            source.look(history[-4])
        history.append(atlas(*sources))
    assert max(max(source.moves.values(), default=0) for source in sources) <= 4


def test_few_paths_change_at_a_time(monkeypatch):
    monkeypatch.setattr(module, "MOVES", 2)
    source = Source("s", per_minute=24)
    assert source.look(atlas(source)) == 2


def test_nothing_moves_before_enough_is_known():
    young = Balance()
    for number in range(module.LEAST_SAMPLES - 1):
        young.saw(HOMES, SIZE_KB, float(number))
    assert not young.improved("s", {home: ("s", "b", home) for home in HOMES}, atlas(Source("s", 60)), 100.0)


def test_old_events_are_forgotten():
    source = Source("s", per_minute=24)
    for number in range(module.SAMPLES):
        source.balance.saw(HOMES[:1], SIZE_KB, source.now + number)
    assert source.balance.homes == {home: (1 << module.SAMPLES) - 1 if home == "h0" else 0 for home in HOMES}


def test_a_home_without_events_keeps_its_path():
    source = Source("s", per_minute=24)
    loads = atlas(source)
    source.tree["quiet"] = ("s", "b", "quiet")
    for _ in range(10):
        source.look(loads)
    assert source.tree["quiet"] == ("s", "b", "quiet")
