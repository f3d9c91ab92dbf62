"""`tidings warm`: compile all kernels into their cache now, not in the middle of the first match."""

import sys

from tidings.cli.output import complain, on_terminal

HELP = """Compile the kernels of matching and scheduling into their cache.

This happens by itself when they are first used, which then takes some seconds longer. A second run finds everything compiled.
"""


def warm() -> None:
    from tidings import kernels

    kernels.warm(_progress)
    if on_terminal(sys.stderr):
        sys.stderr.write("\r\x1b[K")
        complain("tidings: all kernels are compiled")


def _progress(*what: object) -> None:
    """One line on a terminal that is written over and over; nothing in a pipe."""
    if on_terminal(sys.stderr):
        sys.stderr.write(f"\r\x1b[Kcompiling {' '.join(map(str, what))}")
        sys.stderr.flush()
