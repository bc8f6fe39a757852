"""Scalar code in Python, as numba compiles it: `trace` writes it, in the words that are here."""

from __future__ import annotations

from functools import partial
from typing import Any

from netspec.backends import trace
from netspec.backends.trace import written
from netspec.graph.types import DType

WORDS = {"&": "and", "|": "or", "^": "!="}
"""Of truth values, which are not bits where this runs."""


class PythonWriter:
    """Python whose numbers have types: `float32(1.0)` is one of float32."""

    def assignment(self, name: str, dtype: DType, text: str) -> str:
        """`name = text`"""
        return f"{name} = {text}"

    def constant(self, value: Any, dtype: DType) -> str:
        """The type called with the number."""
        if dtype == DType.BOOL:
            return str(bool(value))
        return f"{dtype}({repr(float(value)) if dtype.is_float else repr(int(value))})"

    def binary(self, sign: str, dtype: DType, left: str, right: str) -> str:
        """As Python writes it; what numba widens is made narrow again."""
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
        """The type called; of a truth value 1 or 0."""
        return f"{dtype}(1) if {x} else {dtype}(0)" if before == DType.BOOL else f"{dtype}({x})"

    def chosen(self, condition: str, a: str, b: str) -> str:
        """`a if condition else b`"""
        return f"{a} if {condition} else {b}"

    def either(self, one: str, other: str) -> str:
        """`one or other`"""
        return f"{one} or {other}"

    @staticmethod
    def _narrow(dtype: DType, text: str) -> str:
        return text if dtype.is_float else f"{dtype}({text})"


WRITER = PythonWriter()
scalar_code = partial(written, WRITER)
"""Lines that compute one element, of an op and the types of its operands."""
why_untraceable = partial(trace.why_untraceable, WRITER)
"""Why there are none, or None."""
