"""`tidings warm`: compile the matching kernels into their cache now, not in the middle of the first match."""

import importlib
import sys

from tidings.cli.output import complain, on_terminal

HELP = """Compile the matching kernels into their cache.

This happens by itself at the first match, which then takes some seconds longer. A second run finds everything compiled.
"""


def warm() -> None:
    try:
        kernels = importlib.import_module("tidings.kernels")
    except ModuleNotFoundError as error:
        if error.name != "tidings.kernels":
            raise
        complain("tidings: no engine of this version has kernels to compile")
        return
    kernels.warm(_progress)
    if on_terminal(sys.stderr):
        sys.stderr.write("\r\x1b[K")
        complain("tidings: the matching kernels are compiled")


def _progress(*what: object) -> None:
    """One line on a terminal that is written over and over; nothing in a pipe."""
    if on_terminal(sys.stderr):
        sys.stderr.write(f"\r\x1b[Kcompiling {' '.join(map(str, what))}")
        sys.stderr.flush()
