"""How Hypothesis looks for counterexamples: the same examples each time in `ci`, new and many in `soak`."""

import os

import pytest
from hypothesis import HealthCheck, settings

# No deadlines: a test asserts no times, and the first call of a kernel compiles it.
settings.register_profile("ci", derandomize=True, max_examples=100, deadline=None, print_blob=True)
settings.register_profile(
    "soak",
    max_examples=5_000,
    deadline=None,
    print_blob=True,
    suppress_health_check=[HealthCheck.too_slow],
)
SOAK = bool(os.environ.get("TIDINGS_SOAK"))
settings.load_profile("soak" if SOAK else "ci")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """What takes minutes runs in `make soak` only; `make test` has a sample of it."""
    long = [item for item in items if item.get_closest_marker("soak")]
    if long and not SOAK:
        items[:] = [item for item in items if item not in long]
        config.hook.pytest_deselected(items=long)
