"""Prices by link, and paths as nodes of a trie."""

import pytest

from tidings.scheduling import prices as module
from tidings.scheduling.prices import LINK, PARENT, Prices


def test_an_unknown_link_is_free() -> None:
    prices = Prices()
    assert prices["A", "B"] == 0.0
    prices["A", "B"] = 1.5
    prices["B", "A"] = 2.5
    prices["A", "B"] = 0.5
    assert (prices["A", "B"], prices["B", "A"], len(prices)) == (0.5, 2.5, 2)
    assert list(prices) == [("A", "B"), ("B", "A")]


def test_a_path_without_link_has_no_node() -> None:
    assert Prices().route(()) == -1
    assert Prices().route(("B",)) == -1


def test_paths_share_their_beginnings() -> None:
    prices = Prices()
    e, f = prices.route(("B", "C", "E")), prices.route(("B", "C", "F"))
    c = prices.route(("B", "C"))
    assert prices.trie[e, PARENT] == prices.trie[f, PARENT] == c
    assert prices.trie[c, PARENT] == -1
    assert c < min(e, f), "parents have smaller numbers"
    assert prices.route(("B", "C", "E")) == e


def test_two_ways_to_one_broker_are_two_nodes_with_their_own_links() -> None:
    prices = Prices()
    prices["C", "F"] = 1.0
    prices["D", "F"] = 2.0
    ends = [prices.route(("B", middle, "F")) for middle in "CD"]
    assert prices.values[prices.trie[ends, LINK]].tolist() == [1.0, 2.0]


def test_a_price_that_comes_after_the_path_counts() -> None:
    prices = Prices()
    node = prices.route(("B", "C"))
    prices["B", "C"] = 3.0
    assert prices.values[prices.trie[node, LINK]] == 3.0


def test_many_links_and_paths() -> None:
    prices = Prices()
    for number in range(500):
        prices["B", f"C{number}"] = float(number)
    nodes = [prices.route(("B", f"C{number}", "E")) for number in range(500)]
    parents = prices.trie[nodes, PARENT]
    assert prices.values[prices.trie[parents, LINK]].tolist() == list(range(500))


def test_beyond_the_bound_links_are_free_and_paths_are_learnt_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_LINKS", 2)
    monkeypatch.setattr(module, "MAX_NODES", 3)
    prices = Prices()
    for number in range(4):
        prices["B", f"C{number}"] = 1.0 + number
    assert [prices["B", f"C{number}"] for number in range(4)] == [1.0, 2.0, 0.0, 0.0]
    for number in range(10):
        node = prices.route(("B", f"C{number}"))
        assert 0 <= node < 4
        assert prices.values[prices.trie[node, LINK]] == (1.0 + number if number < 2 else 0.0)
