"""The pure parts: runs of finished events, and ages in buckets."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidings.store import delta
from tidings.store.accounts import Tally, age_bucket
from tidings.store.delta import Runs


@given(st.lists(st.integers(1, 60)))
def test_runs_are_a_set_of_places(places):
    runs = Runs()
    for place in places:
        runs.add(place)
    assert [place for first, last in runs for place in range(first, last + 1)] == sorted(set(places))
    assert all(before < after - 1 for before, after in zip(runs.lasts, runs.firsts[1:], strict=False)), (
        "runs are merged"
    )
    outside = [place for first, last in runs.gaps() for place in range(first, 70 if last is None else last + 1)]
    assert outside == sorted(set(range(70)) - set(places))


def test_at_the_bound_the_lowest_gap_is_closed(monkeypatch):
    monkeypatch.setattr(delta, "MAX_RUNS", 3)
    runs = Runs()
    for place in (1, 3, 5, 7):
        runs.add(place)
    assert list(runs) == [(1, 3), (5, 5), (7, 7)]


@given(st.floats(1e-5, 1e9))
def test_an_age_is_off_by_at_most_seven_percent(age_s):
    assert Tally(ages={age_bucket(age_s): 1}).percentile_s(0.5) == pytest.approx(age_s, rel=0.07)


def test_ages_that_cannot_be():
    assert age_bucket(0) == age_bucket(-1) == age_bucket(1e-9)
    assert Tally().percentile_s(0.5) is None
    assert Tally().mean_age_s is None
    assert Tally().success_rate == 1.0
