"""Scalar code in Python for numba: the `CodeWriter` for `common/trace.py`."""

from __future__ import annotations

from functools import partial
from typing import Any

from netspec.backends.common import trace
from netspec.backends.common.trace import trace_code
from netspec.graph.types import DType

WORDS = {"&": "and", "|": "or", "^": "!="}
"""Operators on booleans, which are not bits here."""


class PythonWriter:
    """Writes Python with typed constants: `float32(1.0)`."""

    def assignment(self, name: str, dtype: DType, text: str) -> str:
        """`name = text`"""
        return f"{name} = {text}"

    def constant(self, value: Any, dtype: DType) -> str:
        """The type, called with the number."""
        if dtype == DType.BOOL:
            return str(bool(value))
        return f"{dtype}({repr(float(value)) if dtype.is_float else repr(int(value))})"

    def binary(self, sign: str, dtype: DType, left: str, right: str) -> str:
        """Python operators; results that numba widens are narrowed again."""
        if dtype == DType.BOOL:
            return f"{left} {WORDS[sign]} {right}"
        return self._narrow(dtype, f"{left} {sign} {right}")

    def negative(self, dtype: DType, x: str) -> str:
        """-x"""
        return self._narrow(dtype, f"-{x}")

    def absolute(self, dtype: DType, x: str) -> str:
        """abs(x)"""
        return self._narrow(dtype, f"abs({x})")

    def converted(self, x: str, before: DType, dtype: DType) -> str:
        """The type, called with the value; 1 or 0 for a boolean."""
        return f"{dtype}(1) if {x} else {dtype}(0)" if before == DType.BOOL else f"{dtype}({x})"

    def chosen(self, condition: str, a: str, b: str) -> str:
        """`a if condition else b`"""
        return f"{a} if {condition} else {b}"

    def either(self, left: str, right: str) -> str:
        """`one or other`"""
        return f"{left} or {right}"

    @staticmethod
    def _narrow(dtype: DType, text: str) -> str:
        return text if dtype.is_float else f"{dtype}({text})"


WRITER = PythonWriter()
scalar_code = partial(trace_code, WRITER)
"""Lines that compute one element, from an op and the types of its operands."""
why_untraceable = partial(trace.why_untraceable, WRITER)
"""Reason why an op has no scalar code; None if it has."""
