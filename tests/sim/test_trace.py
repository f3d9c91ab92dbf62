"""One seed, one trace: byte for byte, twice and in another process."""

import hashlib
import io
import os
import subprocess
import sys

import pytest

from tidings.sim import faults
from tidings.sim.scenario import Setup, build
from tidings.sim.trace import Trace
from tidings.sim.workload import Paper

SMALL = Paper(layers=(2, 2, 4), publishers=2, subscribers=2, duration_s=120.0, rate=6.0)


def trace(seed: int, scheduler: str = "mtep", routing: str = "paper", links: str = "known") -> str:
    setup = Setup(seed=seed, scheduler=scheduler, routing=routing, links=links, paper=SMALL)
    sink = io.StringIO()
    network = build(setup)
    network.watchers.append(Trace(sink))
    faults.inject(network, faults.plan(network, start_s=20.0, end_s=100.0, gap_s=10.0, duration_s=10.0))
    network.run(200.0)
    return sink.getvalue()


def digest(*setup: str) -> str:
    return hashlib.sha256(trace(7, *setup).encode()).hexdigest()


@pytest.mark.parametrize(
    "setup", [("mtep", "paper", "known"), ("priced", "balanced", "measured"), ("fix", "paper", "known")], ids="-".join
)
def test_the_same_seed_gives_the_same_bytes_in_every_process(setup):
    here = digest(*setup)
    assert here == digest(*setup)
    program = f"exec(open({__file__!r}).read()); print(digest(*{setup!r}))"
    for hash_seed in ("1", "2"):
        found = subprocess.run(
            [sys.executable, "-c", program],
            env={**os.environ, "PYTHONHASHSEED": hash_seed},
            capture_output=True,
            text=True,
            timeout=300,
        )
        assert found.stdout.strip() == here, found.stderr


def test_another_seed_gives_another_trace():
    assert trace(7) != trace(8)


def test_it_can_be_read():
    lines = trace(7).splitlines()
    for part in (
        " received publish p1.",
        "   send forward 1 p1.",
        "   deliver p1.",
        " on_time",
        " link ready b",
        " row b3.",
    ):
        assert any(part in line for line in lines), part
