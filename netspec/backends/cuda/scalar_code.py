"""Scalar code in CUDA C++: the `CodeWriter` for `common/trace.py`."""

from __future__ import annotations

from functools import partial
from math import isinf, isnan
from typing import Any

from netspec.backends.common import trace
from netspec.backends.common.trace import trace_code
from netspec.graph.types import DType

UNSIGNED = {DType.INT64: "uint64", DType.INT32: "uint32"}
"""Unsigned types of the same width, whose sums wrap around: signed overflow is undefined in C++."""


def c_type(dtype: DType) -> str:
    """The C++ type of an element in memory."""
    return "uint8" if dtype == DType.BOOL else str(dtype)


def c_number(value: float, dtype: DType) -> str:
    """An exact constant of a type."""
    if not dtype.is_float:
        return f"({dtype}){int(value)}{'LL' if dtype == DType.INT64 and value > -(2**63) else ''}"
    if isnan(value):
        return f"({dtype})NAN"
    if isinf(value):
        return f"({dtype}){'-' if value < 0 else ''}INFINITY"
    return f"({dtype}){float(value).hex()}"


class CudaWriter:
    """Writes C++ with typed names."""

    def assignment(self, name: str, dtype: DType, text: str) -> str:
        """`const type name = text;`"""
        return f"const {'bool' if dtype == DType.BOOL else dtype} {name} = {text};"

    def constant(self, value: Any, dtype: DType) -> str:
        """A hexadecimal constant, which is exact."""
        if dtype == DType.BOOL:
            return "true" if value else "false"
        return f"({c_number(value, dtype)})"

    def binary(self, sign: str, dtype: DType, left: str, right: str) -> str:
        """C++ operators, without integer promotions."""
        if dtype == DType.BOOL:
            return f"(bool)({left} {sign} {right})"
        if sign == "//":
            return f"floor_div<{dtype}>({left}, {right})"
        if dtype in UNSIGNED and sign in ("+", "-", "*", "<<"):
            wide = UNSIGNED[dtype]
            return f"({dtype})(({wide}){left} {sign} ({wide}){right})"
        return f"{left} {sign} {right}" if dtype.is_float else f"({dtype})({left} {sign} {right})"

    def negative(self, dtype: DType, x: str) -> str:
        """-x"""
        return f"-{x}" if dtype.is_float else self.binary("-", dtype, f"({dtype})0", x)

    def absolute(self, dtype: DType, x: str) -> str:
        """x"""
        if dtype.is_float:
            return f"{'fabsf' if dtype == DType.FLOAT32 else 'fabs'}({x})"
        return f"({x} < 0 ? {self.negative(dtype, x)} : {x})"

    def converted(self, x: str, before: DType, dtype: DType) -> str:
        """A cast; floats are truncated to integers."""
        return f"({dtype}){x}"

    def chosen(self, condition: str, a: str, b: str) -> str:
        """`condition ? a : b`"""
        return f"({condition} ? {a} : {b})"

    def either(self, left: str, right: str) -> str:
        """`one    other`"""
        return f"({left} || {right})"


WRITER = CudaWriter()
scalar_code = partial(trace_code, WRITER)
"""Lines that compute one element, from an op and the types of its operands."""
why_untraceable = partial(trace.why_untraceable, WRITER)
"""Reason why an op has no scalar code; None if it has."""
