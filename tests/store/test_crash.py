"""kill -9 at any moment: all that was acknowledged is there, in order, and at most whole tickets more."""

import random
import signal
import subprocess
import sys

import store_appender as appender
from store_rig import Oracle
from tidings.store import open_reader, open_store


def acknowledged_before_the_kill(where: str, lines: int) -> int:
    """Let an appender run until it has printed so many lines, kill it, and return the last ticket that it had an answer for."""
    process = subprocess.Popen([sys.executable, appender.__file__, where], stdout=subprocess.PIPE, text=True)
    assert process.stdout
    printed = []
    for line in process.stdout:
        printed.append(line)
        if len(printed) == lines:
            process.send_signal(signal.SIGKILL)  # what it had answered by then is still read
    process.wait()
    process.stdout.close()
    assert process.returncode == -signal.SIGKILL, printed[-1:]
    answers = [int(line) for line in printed[1:] if line.endswith("\n")]
    assert answers == sorted(answers)
    return answers[-1] if answers else 0


def test_killed_again_and_again(where):
    rng = random.Random(6)
    known = 0
    for _ in range(6):
        known = max(known, acknowledged_before_the_kill(where, rng.choice([1, 2, rng.randrange(3, 300)])))
        with open_reader(where) as reader:
            stored = reader.next_offset - 1
            assert stored >= known, "what was acknowledged is there"
            known = stored
            oracle = Oracle(record for n in range(1, stored + 1) for record in appender.ticket(n))
            oracle.check(reader)
    with open_store(where, lambda tickets: None, lambda tickets, reason: None) as store:
        oracle.check(store)
        assert not oracle.matched - {entry.event.id for entry in store.read(0, 1_000_000)}
