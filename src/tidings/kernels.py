"""Compiled code: where it is kept, and how to have it ready before it is needed.

Kernels are compiled when first called, and numba keeps them: beside their sources, or in the user's cache if those cannot be
written to. Where neither can, `prepare_cache` gives it a private folder among the temporary files. The package does so when it
is imported, before any engine can be.
"""

import os
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

VARIABLE = "NUMBA_CACHE_DIR"
SOURCES = Path(__file__).parent / "matching" / "boxtree"

Progress = Callable[[int, int, str], None]


def prepare_cache() -> Path | None:
    """Where compiled code is kept, also by processes that this one starts; None if it cannot be kept."""
    if chosen := os.environ.get(VARIABLE):
        return Path(chosen)
    user_cache = os.environ.get("XDG_CACHE_HOME")
    for folder in (SOURCES / "__pycache__", Path(user_cache or Path("~/.cache").expanduser()) / "numba"):
        if _can_be_written(folder):
            return folder  # numba looks there by itself
    private = Path(tempfile.gettempdir()) / f"tidings-{os.getuid() if hasattr(os, 'getuid') else 'user'}"
    if _can_be_written(private) and _is_ours(private):
        os.environ[VARIABLE] = str(private)
        if loaded := sys.modules.get("numba"):  # it has read the environment already
            loaded.config.CACHE_DIR = str(private)
        return private
    return None


def warm(progress: Progress = lambda done, of, name: None) -> int:
    """Compile everything, or find that it is compiled; returns how many kernels there are."""
    prepare_cache()
    from tidings.compiled import compile_all
    from tidings.matching import ceem, counting, scan, tree  # noqa: F401  so that their kernels are known
    from tidings.matching.boxtree import BoxTree  # noqa: F401
    from tidings.scheduling import mtep, priced  # noqa: F401

    total = 0
    for done, total, name in compile_all():
        progress(done, total, name)
    progress(total, total, "")
    return total


def _can_be_written(folder: Path) -> bool:
    """Whether it is there to be written to, or can be made."""
    while not folder.exists() and folder != folder.parent:
        folder = folder.parent
    return folder.is_dir() and os.access(folder, os.W_OK | os.X_OK)


def _is_ours(folder: Path) -> bool:
    """Whether nobody else could have put code into it: everyone may make a folder of this name before us."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    status = folder.stat()
    return not hasattr(os, "getuid") or (status.st_uid == os.getuid() and not status.st_mode & 0o022)
