"""How compiled functions are made, and the list of them for whoever wants them compiled ahead.

A kernel is called from Python: it has one signature, is compiled when first called (or by `compile_all`) and is cached on disk.
An inner function is called from kernels only. Kernels hold the interpreter's lock unless they say `nogil`, and boxtree relies on
it: what matches one event, adds or removes is one step that no other Python thread can divide.

Kernels contain the functions and constants that they use, also those of other files. Numba would take a cached one as long
as its own file is unchanged; here it is only taken if no file with kernels has changed.
"""

import hashlib
import pkgutil
import sys
from collections.abc import Callable, Iterator
from functools import cache, lru_cache
from typing import Any

import numba

SOURCES = ("matching", "scheduling")  # packages of this one
_OPTIONS: dict[str, Any] = {"boundscheck": False, "error_model": "numpy"}
_KERNELS: dict[Any, tuple[Any, ...]] = {}  # with the types of their arguments


def inner(function: Callable[..., Any]) -> Any:
    """For a function that only kernels call."""
    return numba.njit(no_cpython_wrapper=True, no_cfunc_wrapper=True, **_OPTIONS)(function)


def kernel(signature: Any, nogil: bool = False) -> Callable[[Callable[..., Any]], Any]:
    """Compile with this signature, as numba writes them: "int64(int64[::1], float64)"."""

    def decorate(function: Callable[..., Any]) -> Any:
        options = _OPTIONS | {"nogil": nogil}
        try:
            dispatcher = numba.njit(cache=True, **options)(function)
            own = dispatcher._cache._cache_file
            own._source_stamp = own._source_stamp, digest(SOURCES)
        except RuntimeError:  # no folder to cache in: neither the package's, nor the user's, nor NUMBA_CACHE_DIR
            dispatcher = numba.njit(**options)(function)
        _KERNELS[dispatcher] = numba.core.sigutils.normalize_signature(signature)[0]
        return dispatcher

    return decorate


@cache
def direct(kernel: Any) -> Any:
    """The compiled kernel itself. A call takes 0.15 us less, but nobody looks whether arrays have the right type."""
    return kernel.compile(_KERNELS[kernel])


def compile_all() -> Iterator[tuple[int, int, str]]:
    """Compile, or load from the cache, every kernel that has been imported; yields (done, of, name) before each."""
    for number, kernel in enumerate(_KERNELS):
        yield number, len(_KERNELS), kernel.__name__
        direct(kernel)


@lru_cache
def digest(packages: tuple[str, ...]) -> str:
    """Of the sources of packages inside of this one."""
    found = hashlib.sha256()
    for name in packages:
        for path in sys.modules[__package__].__path__:
            for source in _sources(f"{path}/{name}"):
                found.update(source)
    return found.hexdigest()


def _sources(folder: str) -> Iterator[bytes]:
    """Also of a package that is imported from an archive."""
    for module in pkgutil.iter_modules([folder]):
        if module.ispkg:
            yield from _sources(f"{folder}/{module.name}")
        elif (spec := module.module_finder.find_spec(module.name, None)) is not None and spec.origin:
            yield spec.loader.get_data(spec.origin)  # type: ignore[union-attr]
