"""Compiled code: where it is kept, and how to have it ready before it is needed.

Kernels are compiled when first called and kept in a folder, by numba. `prepare_cache` chooses the folder: inside of the package
where that can be written, else in the user's cache, else in a private folder for temporary files. Its name contains a digest of
the sources, because numba looks for changes only in the file of a kernel and not in those that it calls. It has to run before
numba reads its settings, that is before any engine is imported; an environment that sets NUMBA_CACHE_DIR is left alone.
"""

import hashlib
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

VARIABLE = "NUMBA_CACHE_DIR"
PACKAGE = Path(__file__).parent
_PREFIX = "kernels-"
_KEPT = 3  # folders of other versions

Progress = Callable[[int, int, str], None]


def prepare_cache() -> Path | None:
    """The folder that compiled code is kept in from now on, also by processes that this one starts; None if there is none."""
    if chosen := os.environ.get(VARIABLE):
        return Path(chosen)
    name = _PREFIX + _digest()
    for base in _bases():
        folder = base / name
        if _is_ours(folder):
            os.environ[VARIABLE] = str(folder)
            _forget_others(base, folder)
            return folder
    return None


def warm(progress: Progress = lambda done, of, name: None) -> int:
    """Compile everything, or find that it is compiled; returns how many kernels there are."""
    prepare_cache()
    from tidings.matching import ceem, counting, scan, tree  # noqa: F401  compiled by being imported
    from tidings.matching.boxtree import BoxTree  # noqa: F401
    from tidings.matching.boxtree.kernel import compile_all

    total = 0
    for done, total, name in compile_all():
        progress(done, total, name)
    progress(total, total, "")
    return total


def _bases() -> Iterator[Path]:
    yield PACKAGE / "__pycache__"
    cache = os.environ.get("XDG_CACHE_HOME")
    yield (Path(cache) if cache else Path("~/.cache").expanduser()) / "tidings"
    yield Path(tempfile.gettempdir()) / f"tidings-{os.getuid() if hasattr(os, 'getuid') else 'user'}"


def _digest() -> str:
    digest = hashlib.sha256()
    for path in sorted((PACKAGE / "matching").rglob("*.py")):
        digest.update(path.read_bytes())
    return digest.hexdigest()[:16]


def _is_ours(folder: Path) -> bool:
    """Whether the folder exists, or can be made, and nobody else could have put code into it."""
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            pass
        for place in (folder, folder.parent):
            status = place.stat()
            if hasattr(os, "getuid") and (status.st_uid not in (os.getuid(), 0) or status.st_mode & 0o002):
                return False
    except OSError:
        return False
    return True


def _forget_others(base: Path, folder: Path) -> None:
    others = [path for path in base.glob(_PREFIX + "*") if path != folder and path.is_dir()]
    others.sort(key=lambda path: path.stat().st_mtime, reverse=True)
    for path in others[_KEPT:]:
        shutil.rmtree(path, ignore_errors=True)
