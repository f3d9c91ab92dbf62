"""Rates that are measured: they find the truth, follow change, and are not led astray by one bad message."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidings.errors import InvalidInput
from tidings.scheduling.rate import PER_KB, PER_MESSAGE, Estimate, Known, Sampling

SAMPLINGS = [PER_MESSAGE, PER_KB]
each_sampling = pytest.mark.parametrize("sampling", SAMPLINGS)


def feed(
    rate: Estimate, count: int, mu: float, sigma: float, sampling: Sampling, seed: int = 0, kb: float = 50
) -> None:
    draw = random.Random(seed)
    for _ in range(count):
        size_kb = kb * draw.uniform(0.5, 1.5)
        width = size_kb if sampling == PER_MESSAGE else size_kb**0.5
        rate.observe(size_kb, max(0.001 * size_kb, draw.gauss(mu * size_kb, sigma * width)))


def test_known_stays() -> None:
    rate = Known(0.06, 0.02)
    rate.observe(50.0, 100.0)
    assert (rate.mu, rate.sigma) == (0.06, 0.02)


def test_before_the_first_message_one_believes_what_one_was_told() -> None:
    rate = Estimate(0.06, 0.02)
    assert (rate.mu, rate.sigma) == (0.06, 0.02)
    rate.observe(50.0, 3.0)
    assert rate.mu == pytest.approx(0.06)
    assert rate.sigma == pytest.approx(0.02, rel=0.3)


def test_told_nothing_the_first_message_tells_all() -> None:
    rate = Estimate()
    assert (rate.mu, rate.sigma) == (0.0, 0.0)
    rate.observe(10.0, 1.0)
    assert (rate.mu, rate.sigma) == (0.1, 0.0)


@each_sampling
def test_a_steady_link_is_known_exactly(sampling: Sampling) -> None:
    rate = Estimate(sampling=sampling)
    for size_kb in (50.0, 10.0, 1.0, 200.0) * 10:
        rate.observe(size_kb, 0.0625 * size_kb)
    assert rate.mu == pytest.approx(0.0625)
    assert rate.sigma == pytest.approx(0.0, abs=1e-6)
    assert rate.changes == 0


@each_sampling
@pytest.mark.parametrize("seed", range(5))
def test_it_finds_mean_and_deviation(sampling: Sampling, seed: int) -> None:
    rate = Estimate(0.03, 0.01, sampling=sampling)
    feed(rate, 500, 0.06, 0.02, sampling, seed)
    assert rate.mu == pytest.approx(0.06, rel=0.15)
    assert rate.sigma == pytest.approx(0.02, rel=0.4)


@each_sampling
@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("factor", [3.0, 1 / 3])
def test_an_abrupt_change_is_followed_within_ten_messages(sampling: Sampling, seed: int, factor: float) -> None:
    rate = Estimate(sampling=sampling)
    feed(rate, 300, 0.06, 0.012, sampling, seed)
    feed(rate, 10, 0.06 * factor, 0.012 * factor, sampling, seed + 100)
    assert rate.mu == pytest.approx(0.06 * factor, rel=0.25)


@each_sampling
def test_a_slow_change_is_followed(sampling: Sampling) -> None:
    rate = Estimate(sampling=sampling)
    feed(rate, 300, 0.060, 0.02, sampling)
    feed(rate, 300, 0.072, 0.02, sampling)
    assert rate.mu == pytest.approx(0.072, rel=0.1)


@each_sampling
def test_noise_is_no_change(sampling: Sampling) -> None:
    rate = Estimate(sampling=sampling)
    feed(rate, 5000, 0.06, 0.01, sampling)
    assert rate.changes == 0


def test_two_bad_messages_are_no_change_but_three_are() -> None:
    rate = Estimate()
    for _ in range(100):
        rate.observe(50.0, 3.0)
    for _ in range(2):
        rate.observe(50.0, 60.0)
    assert rate.changes == 0
    assert rate.mu < 0.11
    rate.observe(50.0, 60.0)
    assert rate.changes == 1
    assert rate.mu == pytest.approx(1.2)


@given(st.lists(st.tuples(st.floats(0, 1000), st.floats(0, 1000)), max_size=60), st.sampled_from(SAMPLINGS))
def test_whatever_comes_the_rate_stays_a_rate(messages: list[tuple[float, float]], sampling: Sampling) -> None:
    rate = Estimate(0.06, 0.02, sampling=sampling)
    for size_kb, seconds in messages:
        rate.observe(size_kb, seconds)
        assert 0.0 <= rate.mu < float("inf")
        assert 0.0 <= rate.sigma < float("inf")


def test_unknown_sampling_is_refused() -> None:
    with pytest.raises(InvalidInput, match="per_message"):
        Estimate(sampling="per_mile")  # type: ignore[arg-type]
