"""Intrinsics that numba lacks for code over raw memory: pointers from addresses, bits of floats, maxima.

Imported only when something is compiled.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from llvmlite import ir
from numba import extending, types

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
