"""How Hypothesis looks for counterexamples: the same examples each time in `ci`, new and many in `soak`."""

import os

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
settings.load_profile("soak" if os.environ.get("TIDINGS_SOAK") else "ci")
