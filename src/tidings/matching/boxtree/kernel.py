"""How the compiled functions of this folder are made, and the list of them for whoever wants them compiled ahead.

A kernel is called from Python: it has one signature, is compiled when first called (or by `compile_all`) and is cached on disk.
An inner function is called from kernels only. Kernels hold the interpreter's lock unless they say `nogil`, and the engine
relies on it: what matches one event, adds or removes is one step that no other Python thread can divide.
"""

from collections.abc import Callable, Iterator
from typing import Any

import numba

_OPTIONS: dict[str, Any] = {"boundscheck": False, "error_model": "numpy"}
_KERNELS: list[tuple[Any, tuple[Any, ...]]] = []

inner = numba.njit(no_cpython_wrapper=True, no_cfunc_wrapper=True, **_OPTIONS)


def kernel(signature: Any, nogil: bool = False) -> Callable[[Callable[..., Any]], Any]:
    """Compile with this signature, as numba writes them: "int64(int64[::1], float64)"."""

    def decorate(function: Callable[..., Any]) -> Any:
        options = _OPTIONS | {"nogil": nogil}
        try:
            dispatcher = numba.njit(cache=True, **options)(function)
        except RuntimeError:  # no folder to cache in: neither the package's, nor the user's, nor NUMBA_CACHE_DIR
            dispatcher = numba.njit(**options)(function)
        _KERNELS.append((dispatcher, numba.core.sigutils.normalize_signature(signature)[0]))
        return dispatcher

    return decorate


def compile_all() -> Iterator[tuple[int, int, str]]:
    """Compile, or load from the cache, every kernel that has been imported; yields (done, of, name) before each."""
    for number, (dispatcher, arguments) in enumerate(_KERNELS):
        yield number, len(_KERNELS), dispatcher.__name__
        dispatcher.compile(arguments)
