"""What a broker knows of the network: newer states win, and paths have the least total mean rate."""

import itertools

from hypothesis import given
from hypothesis import strategies as st

from tidings.model.message import LinkState, State
from tidings.overlay.atlas import Atlas


def atlas(links: dict[str, dict[str, float]]) -> Atlas:
    known = Atlas()
    for broker, peers in links.items():
        known.learn(State(broker, 1, tuple(LinkState(peer, mu, mu / 100) for peer, mu in peers.items())))
    return known


def test_the_path_of_least_total_mean_rate():
    known = atlas({"a": {"b": 5, "c": 1}, "c": {"b": 3}, "b": {"d": 1}})
    assert known.least_mu("a") == {"a": ("a",), "c": ("a", "c"), "b": ("a", "c", "b"), "d": ("a", "c", "b", "d")}


def test_ties_go_to_fewer_brokers_then_to_the_smaller_id():
    assert atlas({"a": {"c": 2, "b": 1}, "b": {"c": 1}}).least_mu("a")["c"] == ("a", "c")
    assert atlas({"a": {"c": 1, "b": 1}, "b": {"d": 1}, "c": {"d": 1}}).least_mu("a")["d"] == ("a", "b", "d")


def test_a_path_around_brokers():
    known = atlas({"a": {"b": 1, "c": 5}, "b": {"d": 1}, "c": {"d": 5}})
    assert known.least_mu("a", avoid=["b"])["d"] == ("a", "c", "d")
    assert "d" not in known.least_mu("a", avoid=["b", "c"])


def test_means_and_variances_add_up():
    assert atlas({"a": {"b": 5}, "b": {"c": 3}}).rate(("a", "b", "c")) == (8, 0.08)


def test_a_newer_state_replaces_an_older_one_and_never_the_reverse():
    known = atlas({"a": {"b": 5}})
    assert not known.learn(State("a", 1, ()))
    assert known.learn(State("a", 2, (LinkState("b", 7, 0.05),)))
    assert not known.learn(State("a", 1, (LinkState("b", 5, 0.05),)))
    assert known.rate(("a", "b")) == (7, 0.05)


def test_only_what_matters_to_paths_makes_a_new_edition():
    known = atlas({"a": {"b": 5}})
    edition = known.edition
    known.learn(State("a", 2, (LinkState("b", 5, 0.05, price=3.0, loads=(("s", 0.5),)),)))
    assert known.edition == edition
    known.learn(State("a", 3, ()))
    assert known.edition == edition + 1
    assert not known.has(("a", "b"))


@given(st.dictionaries(st.tuples(*[st.sampled_from("abcdef")] * 2), st.integers(1, 9)))
def test_no_path_is_better_than_the_least(links):
    nested: dict[str, dict[str, float]] = {}
    for (start, end), mu in links.items():
        nested.setdefault(start, {})[end] = mu
    known = atlas(nested)
    found = known.least_mu("a")
    for length in range(1, 5):
        for between in itertools.permutations("bcdef", length):
            path = ("a", *between)
            if known.has(path):
                assert known.rate(found[path[-1]])[0] <= known.rate(path)[0]
