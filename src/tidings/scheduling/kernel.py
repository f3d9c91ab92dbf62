"""How the compiled functions of the schedulers are made, and the list of them for whoever wants them compiled ahead.

A kernel is called from Python: it has one signature, is compiled when first called (or by `compile_all`) and is cached on disk.
Callers must pass floats where the signature says float64: an integer there would compile a second version.
"""

from collections.abc import Callable, Iterator
from typing import Any, TypeVar

import numba

Function = TypeVar("Function", bound=Callable[..., Any])

_OPTIONS: dict[str, Any] = {"nogil": True, "error_model": "numpy"}
_KERNELS: list[tuple[Any, tuple[Any, ...]]] = []


def inner(function: Function) -> Function:
    """For a function that only kernels call."""
    return numba.njit(**_OPTIONS)(function)  # type: ignore[no-any-return]


def kernel(signature: str) -> Callable[[Function], Function]:
    """Compile with this signature, as numba writes them: "int64(int64[::1], float64)"."""

    def decorate(function: Function) -> Function:
        try:
            dispatcher = numba.njit(cache=True, **_OPTIONS)(function)
        except RuntimeError:  # no folder to cache in: neither the package's, nor the user's, nor NUMBA_CACHE_DIR
            dispatcher = numba.njit(**_OPTIONS)(function)
        _KERNELS.append((dispatcher, numba.core.sigutils.normalize_signature(signature)[0]))
        return dispatcher  # type: ignore[no-any-return]

    return decorate


def compile_all() -> Iterator[tuple[int, int, str]]:
    """Compile, or load from the cache, every kernel that has been imported; yields (done, of, name) before each."""
    for number, (dispatcher, arguments) in enumerate(_KERNELS):
        yield number, len(_KERNELS), dispatcher.__name__
        dispatcher.compile(arguments)
