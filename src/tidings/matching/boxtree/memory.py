"""Memory that kernels find by address: a kernel reads one table of addresses instead of being passed forty arrays.

Passing an array to a kernel costs 0.1 us, how many segments there are is not known when it is compiled, and inside of kernels
an array costs: its references are counted, and negative indices are looked for. So kernels turn addresses into pointers,
which are indexed like arrays and are nothing but an address. Whoever builds a table keeps the arrays behind it alive.
"""

import operator
from typing import Any

import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.core.typing.templates import AbstractTemplate, infer_global
from numba.extending import intrinsic, lower_builtin, models, register_model

LINE = 64  # bytes of a cache line

# The head of the table that describes an index; its segments follow, then its deltas.
SERIAL, SEGMENTS, DELTAS, KNOWN_DIMS, KNOWN_SLOTS, KNOWN_LANES, MOST_LEAVES, HAS_MULTI = range(8)
HEAD_WORDS = 8

Array = np.ndarray[Any, np.dtype[Any]]
Floats = np.ndarray[Any, np.dtype[np.float64]]
Longs = np.ndarray[Any, np.dtype[np.int64]]
Ints = np.ndarray[Any, np.dtype[np.int32]]
Shorts = np.ndarray[Any, np.dtype[np.int16]]
Words = np.ndarray[Any, np.dtype[np.uint64]]  # 64 lanes, a bit each
Bytes = np.ndarray[Any, np.dtype[np.uint8]]


def aligned(count: int, dtype: Any) -> Array:
    """Zeros that begin at a cache line; memory is only taken where it is written to."""
    size = np.dtype(dtype).itemsize
    raw = np.zeros(count * size + LINE, np.uint8)
    start = -raw.ctypes.data % LINE
    return raw[start : start + count * size].view(dtype)


def address(array: Array) -> int:
    return int(array.ctypes.data)


class Pointer(types.Type):  # type: ignore[misc]
    """To numba: the address of elements of one type."""

    def __init__(self, dtype: Any) -> None:
        self.dtype = dtype
        super().__init__(name=f"Pointer({dtype})")


@register_model(Pointer)
class _PointerModel(models.PrimitiveModel):  # type: ignore[misc]
    def __init__(self, manager: Any, kind: Pointer) -> None:
        super().__init__(manager, kind, manager.lookup(kind.dtype).get_data_type().as_pointer())


@infer_global(operator.getitem)
class _GetItem(AbstractTemplate):  # type: ignore[misc]
    def generic(self, args: Any, kws: Any) -> Any:
        return args[0].dtype(args[0], types.int64) if isinstance(args[0], Pointer) else None


@infer_global(operator.setitem)
class _SetItem(AbstractTemplate):  # type: ignore[misc]
    def generic(self, args: Any, kws: Any) -> Any:
        return types.void(args[0], types.int64, args[0].dtype) if isinstance(args[0], Pointer) else None


@lower_builtin(operator.getitem, Pointer, types.int64)
def _load(context: Any, builder: Any, signature: Any, args: Any) -> Any:
    return builder.load(builder.gep(args[0], [args[1]]))


@lower_builtin(operator.setitem, Pointer, types.int64, types.Number)
def _store(context: Any, builder: Any, signature: Any, args: Any) -> Any:
    builder.store(args[2], builder.gep(args[0], [args[1]]))
    return context.get_dummy_value()


def _pointers_to(dtype: Any) -> Any:
    def at_address(typingctx: Any, where: Any) -> Any:
        def build(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            return builder.inttoptr(args[0], context.get_value_type(signature.return_type))

        return Pointer(dtype)(types.int64), build

    return intrinsic(at_address)


floats = _pointers_to(types.float64)  # (address): a pointer
longs = _pointers_to(types.int64)
ints = _pointers_to(types.int32)
shorts = _pointers_to(types.int16)
words = _pointers_to(types.uint64)
octets = _pointers_to(types.uint8)


BYTES = types.Bytes(types.uint8, 1, "C")  # a Python bytes object, as it is passed to a kernel


@intrinsic
def start_of(typingctx: Any, buffer: Any) -> Any:
    """The address at which the contents of a bytes object begin."""

    def build(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        data = cgutils.create_struct_proxy(signature.args[0])(context, builder, args[0]).data
        return builder.ptrtoint(data, ir.IntType(64))

    return types.int64(buffer), build


@intrinsic
def prefetch(typingctx: Any, pointer: Any, index: Any) -> Any:
    """Ask for the cache line of pointer[index], which may be anywhere."""

    def build(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        byte, number = ir.IntType(8).as_pointer(), ir.IntType(32)
        function = builder.module.declare_intrinsic(
            "llvm.prefetch", [byte], ir.FunctionType(ir.VoidType(), [byte, number, number, number])
        )
        line = builder.bitcast(builder.gep(args[0], [args[1]]), byte)
        builder.call(function, [line, number(0), number(3), number(1)])
        return context.get_dummy_value()

    return types.void(pointer, types.int64), build
