"""Named moments at which a test may kill the driver: TIDINGS_FAIL_AT="published:3" ends it at the third passage."""

import os
import signal
from collections import Counter

# Where the stream can be interrupted between two of its promises.
POINTS = ("planned", "written", "published", "delivered", "committed", "changing", "changed")
_passed: Counter[str] = Counter()


def fail_point(name: str) -> None:
    """Nothing, unless the environment names this point: then the process dies at once, as by `kill -9`."""
    wanted, _, times = os.environ.get("TIDINGS_FAIL_AT", "").partition(":")
    if wanted != name:
        return
    _passed[name] += 1
    if _passed[name] == int(times or 1):
        os.kill(os.getpid(), signal.SIGKILL)
