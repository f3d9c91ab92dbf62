"""One broker with its gateway for all tests of a file that need no other."""

from collections.abc import Iterator

import pytest

from gateway_rig import Served, served


@pytest.fixture(scope="module")
def server() -> Iterator[Served]:
    with served() as server:
        yield server
