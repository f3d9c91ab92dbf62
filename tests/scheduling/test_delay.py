"""The delay model: what a link knows, and the chance to arrive in time."""

import math
from statistics import NormalDist

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidings.scheduling.delay import FAR, Link, unhindered
from tidings.scheduling.rate import PER_KB, Estimate, Known

finite = st.floats(-1e6, 1e6)


def plain(**settings: float) -> Link:
    """A link on which only the path counts."""
    return Link(processing_s=0.0, client_s=0.0, **settings)  # type: ignore[arg-type]


@given(left_s=st.floats(-20, 20), deviation_s=st.floats(0.01, 10))
def test_success_is_the_normal_distribution(left_s: float, deviation_s: float) -> None:
    found = plain().success(left_s, 0.0, 1.0, variance=deviation_s**2)
    assert found == pytest.approx(NormalDist().cdf(left_s / math.sqrt(deviation_s**2)), abs=1e-12)


@given(left_s=finite)
def test_without_variance_success_is_exact(left_s: float) -> None:
    assert plain().success(left_s, 0.0, 50.0) == (1.0 if left_s >= 0 else 0.0)


def test_a_deadline_that_is_just_met_is_met() -> None:
    link = Link(processing_s=0.25, client_s=0.5)
    # 10 = 4 used + 2 brokers of 0.25 + 0.5 to the client + 10 KB at 0.5
    assert link.success(10.0, 4.0, 10.0, hops=2, mu=0.5) == 1.0
    assert link.success(math.nextafter(10.0, 0.0), 4.0, 10.0, hops=2, mu=0.5) == 0.0


def test_an_event_without_size_varies_nothing() -> None:
    assert plain().success(0.0, 0.0, 0.0, variance=4.0) == 1.0
    assert plain().success(-1.0, 0.0, 0.0, variance=4.0) == 0.0


def test_no_deadline_is_always_met() -> None:
    assert plain().success(math.inf, 1e9, 50.0, hops=9, mu=10.0, variance=1.0) == 1.0
    assert plain().success(math.inf, 1e9, 50.0) == 1.0


def test_far_from_the_mean_nothing_is_left() -> None:
    assert plain().success(FAR, 0.0, 1.0, variance=1.0) == 1.0
    assert plain().success(-FAR, 0.0, 1.0, variance=1.0) == 0.0
    assert 0.0 < plain().success(-FAR + 0.01, 0.0, 1.0, variance=1.0) < 1e-15


@given(st.floats(-5, 5), st.floats(0.1, 5), st.floats(0, 5))
def test_more_time_never_lowers_the_chance(left_s: float, deviation_s: float, more_s: float) -> None:
    chance = plain().success
    assert chance(left_s, 0.0, 1.0, variance=deviation_s) <= chance(left_s + more_s, 0.0, 1.0, variance=deviation_s)


def test_what_varies_is_each_message_or_each_kb() -> None:
    per_message, per_kb = plain(), Link(processing_s=0.0, client_s=0.0, sampling=PER_KB)
    assert per_message.deviation_s(16.0, 0.25) == 8.0
    assert per_kb.deviation_s(16.0, 0.25) == 2.0
    assert per_message.success(8.0, 0.0, 16.0, variance=0.25) == pytest.approx(NormalDist().cdf(1))
    assert per_kb.success(8.0, 0.0, 16.0, variance=0.25) == pytest.approx(NormalDist().cdf(4))


def test_a_link_follows_the_size_of_its_events() -> None:
    link = Link(rate=Known(0.06, 0.02))
    assert link.lmt_s == 0.0
    link.observe(50.0, 3.0)
    assert link.mean_size_kb == 50.0
    assert link.lmt_s == pytest.approx(3.0)
    for _ in range(1000):
        link.observe(10.0, 0.6)
    assert link.lmt_s == pytest.approx(0.6, rel=0.01)
    assert (link.mu, link.variance) == (0.06, pytest.approx(0.0004))


def test_a_link_is_measured_through_its_rate() -> None:
    link = Link(rate=Estimate())
    link.observe(50.0, 3.0)
    assert link.mu == pytest.approx(0.06)


def test_a_link_inside_the_process_takes_no_time() -> None:
    link = unhindered()
    assert link.success(1.0, 1.0, 50.0) == 1.0
    assert link.lmt_s == 0.0
