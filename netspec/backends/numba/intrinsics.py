"""Intrinsics that numba lacks for code over raw memory: pointers from addresses, bits of floats, calls by address.

Imported only when something is compiled. A kernel is called with one argument, an array of 64-bit words: `words[0]` and
`words[1]` are the addresses of OpenMP's `omp_get_thread_num` and `omp_get_num_threads` (0 without OpenMP), `words[2]`
the number of units of work; then come addresses, whole numbers, and bits of floats.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from llvmlite import ir
from numba import extending, types

WORD = ir.IntType(64)
# the results are called in compiled code, with other arguments than declared
intrinsic: Callable[[Callable[..., Any]], Any] = extending.intrinsic


@intrinsic
def pointer(typing_context: Any, address: Any, dtype: Any) -> Any:
    """A pointer to elements of `dtype` (a numba type) from an address."""
    make: Any = types.CPointer
    target = make(dtype.dtype)

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.inttoptr(args[0], context.get_value_type(target))

    return target(types.int64, dtype), generate


@intrinsic
def double(typing_context: Any, word: Any) -> Any:
    """The float64 with the bits `word`."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.bitcast(args[0], ir.DoubleType())

    return types.float64(types.int64), generate


@intrinsic
def bits(typing_context: Any, x: Any) -> Any:
    """The bits of a float32, as int32."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.bitcast(args[0], ir.IntType(32))

    return types.int32(types.float32), generate


@intrinsic
def from_bits(typing_context: Any, word: Any) -> Any:
    """The float32 with these bits, an int32."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.bitcast(args[0], ir.FloatType())

    return types.float32(types.int32), generate


@intrinsic
def maximum(typing_context: Any, a: Any, b: Any) -> Any:
    """Maximum of two floats of one type, NaN if one is; vectorizes in loops."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        kind = args[0].type
        function = builder.module.declare_intrinsic(
            f"llvm.maximum.f{64 if kind == ir.DoubleType() else 32}", (), ir.FunctionType(kind, [kind, kind])
        )
        return builder.call(function, args)

    return a(a, a), generate


@intrinsic
def call(typing_context: Any, address: Any) -> Any:
    """Call the C function `int f(void)` at an address."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        function = builder.inttoptr(args[0], ir.FunctionType(ir.IntType(32), []).as_pointer())
        return builder.sext(builder.call(function, []), WORD)

    return types.int64(types.int64), generate
