"""Tracing: an op's `forward`, run on symbols instead of arrays, records its scalar arithmetic for one element.

Every symbol has an element type, and every line says in which type it is computed: integers do not widen, float32 never
becomes float64, and Python numbers take the type of the other operand, as in NumPy. A `CodeWriter` writes the code in
the language of a backend.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from functools import lru_cache, partialmethod
from typing import Any, Protocol

from netspec.graph.fused import Fused
from netspec.graph.op import Op
from netspec.graph.types import DType, TensorType

TRACEABLE = frozenset({DType.FLOAT64, DType.FLOAT32, DType.INT64, DType.INT32, DType.UINT8, DType.BOOL})
"""Supported element types: those in which scalar code agrees with NumPy."""
Operand = Any
"""A symbol, or a Python number."""
Code = tuple[tuple[str, ...], tuple[str, ...]]
"""Lines for one element, and the names of the results in them."""


class Untraceable(Exception):
    """The op's `forward` uses something that cannot be traced."""


class CodeWriter(Hashable, Protocol):
    """Writes scalar arithmetic in a language. Operands are names, or constants that it wrote itself.

    Functions of floats are called as `exp_float32(x)` in every language.
    """

    def assignment(self, name: str, dtype: DType, text: str) -> str:
        """A line that assigns the value of an expression to a new name."""
        ...

    def constant(self, value: Any, dtype: DType) -> str:
        """A constant of a type."""
        ...

    def binary(self, sign: str, dtype: DType, left: str, right: str) -> str:
        """`+ - * / // &   ^ << >>` of two operands of a type, without widening; for booleans `&   ^`."""
        ...

    def negative(self, dtype: DType, x: str) -> str:
        """-x"""
        ...

    def absolute(self, dtype: DType, x: str) -> str:
        """x"""
        ...

    def converted(self, x: str, before: DType, dtype: DType) -> str:
        """Conversion to a type other than bool."""
        ...

    def chosen(self, condition: str, a: str, b: str) -> str:
        """a if the condition holds, else b."""
        ...

    def either(self, left: str, right: str) -> str:
        """Whether one of two conditions holds."""
        ...


class Trace:
    """The lines recorded so far, and the constants that they use."""

    def __init__(self, writer: CodeWriter) -> None:
        self.writer = writer
        self.lines: list[str] = []

    def assign(self, dtype: DType, text: str) -> Symbol:
        """A new symbol for the value of an expression."""
        name = f"t{len(self.lines)}"
        self.lines.append(self.writer.assignment(name, dtype, text))
        return Symbol(self, name, dtype)

    def constant(self, value: Any, dtype: DType) -> Symbol:
        """A constant of a type."""
        return Symbol(self, self.writer.constant(value, dtype), dtype)


class Symbol:
    """One element of an array, or a value computed from such elements."""

    __slots__ = ("dtype", "name", "trace")

    def __init__(self, trace: Trace, name: str, dtype: DType) -> None:
        if dtype not in TRACEABLE:
            raise Untraceable(f"it computes in {dtype}")
        self.trace, self.name, self.dtype = trace, name, ElementType(trace, dtype)

    @property
    def kind(self) -> DType:
        """The element type."""
        return self.dtype.kind

    def like(self, other: Operand) -> Symbol:
        """`other` as a symbol: a Python number becomes a constant of this symbol's type."""
        if not isinstance(other, Symbol):
            return self.trace.constant(other, self.kind)
        if other.kind != self.kind:
            raise Untraceable(f"it mixes {self.kind} and {other.kind}")
        return other

    def _binary(self, sign: str, other: Operand, swapped: bool = False) -> Symbol:
        other = self.like(other)
        if self.kind == DType.BOOL or (sign == "/" and not self.kind.is_float):
            raise Untraceable(f"it uses {sign} on {self.kind}")
        left, right = (other, self) if swapped else (self, other)
        return self.trace.assign(self.kind, self.trace.writer.binary(sign, self.kind, left.name, right.name))

    def _compare(self, sign: str, other: Operand) -> Symbol:
        return self.trace.assign(DType.BOOL, f"{self.name} {sign} {self.like(other).name}")

    __add__, __radd__ = partialmethod(_binary, "+"), partialmethod(_binary, "+", swapped=True)
    __sub__, __rsub__ = partialmethod(_binary, "-"), partialmethod(_binary, "-", swapped=True)
    __mul__, __rmul__ = partialmethod(_binary, "*"), partialmethod(_binary, "*", swapped=True)
    __truediv__, __rtruediv__ = partialmethod(_binary, "/"), partialmethod(_binary, "/", swapped=True)

    def __pow__(self, exponent: float) -> Symbol:
        return power(self, exponent)

    def __neg__(self) -> Symbol:
        return self.trace.assign(self.kind, self.trace.writer.negative(self.kind, self.name))

    __lt__, __le__ = partialmethod(_compare, "<"), partialmethod(_compare, "<=")
    __gt__, __ge__ = partialmethod(_compare, ">"), partialmethod(_compare, ">=")

    def __eq__(self, other: object) -> Any:
        return self._compare("==", other)

    def __ne__(self, other: object) -> Any:
        return self._compare("!=", other)

    def _of_bits(self, sign: str, other: Operand) -> Symbol:
        if self.kind.is_float or (self.kind == DType.BOOL and sign in ("<<", ">>")):
            raise Untraceable(f"it uses {sign} on {self.kind}")
        return self.trace.assign(self.kind, self.trace.writer.binary(sign, self.kind, self.name, self.like(other).name))

    __and__, __or__, __xor__ = partialmethod(_of_bits, "&"), partialmethod(_of_bits, "|"), partialmethod(_of_bits, "^")
    __lshift__, __rshift__ = partialmethod(_of_bits, "<<"), partialmethod(_of_bits, ">>")

    def __invert__(self) -> Symbol:
        return self ^ self.like(-1)

    def __floordiv__(self, other: Operand) -> Symbol:
        if self.kind.is_float:
            raise Untraceable(f"it uses // on {self.kind}")
        return self._binary("//", other)

    __hash__ = None  # type: ignore[assignment]  # == makes a symbol, as it makes an array in NumPy

    def __bool__(self) -> bool:
        raise Untraceable("it decides by an element's value")

    def astype(self, dtype: str) -> Symbol:
        """Convert to another type."""
        kind = DType(dtype)
        if kind == self.kind:
            return self
        if kind == DType.BOOL:
            return self._compare("!=", 0)
        return self.trace.assign(kind, self.trace.writer.converted(self.name, self.kind, kind))


class ElementType:
    """`x.dtype` in `forward`: `x.dtype.type(0)` makes a constant of the type."""

    __slots__ = ("kind", "trace")

    def __init__(self, trace: Trace, kind: DType) -> None:
        self.trace, self.kind = trace, kind

    @property
    def itemsize(self) -> int:
        """Bytes of one element."""
        return self.kind.itemsize

    def type(self, value: float) -> Symbol:
        """A constant of this type."""
        return self.trace.constant(value, self.kind)


def power(x: Symbol, exponent: float) -> Symbol:
    """x to a constant power. Multiples of ¼ use products and roots, which are vector instructions."""
    quarters = abs(exponent) * 4
    if not x.kind.is_float:
        raise Untraceable(f"it raises {x.kind} to a power")
    if quarters != int(quarters) or not 0 < quarters <= 32:
        return x.trace.assign(x.kind, f"pow_{x.kind}({x.name}, {x.like(exponent).name})")
    factors: list[Symbol] = []
    square = x
    for bit in range(2, int(quarters).bit_length()):
        square = square * square if bit > 2 else x
        if int(quarters) >> bit & 1:
            factors.append(square)
    root = x
    for bit in (1, 0):
        if int(quarters) & (1 << (bit + 1)) - 1:
            root = _function("sqrt", root)
            if int(quarters) >> bit & 1:
                factors.append(root)
    product, *rest = factors
    for factor in rest:
        product = product * factor
    return 1 / product if exponent < 0 else product


def _function(name: str, x: Symbol) -> Symbol:
    if not x.kind.is_float:
        raise Untraceable(f"it takes {name} of {x.kind}")
    return x.trace.assign(x.kind, f"{name}_{x.kind}({x.name})")


def _of_two(name: str, a: Symbol, b: Symbol) -> Symbol:
    if not a.kind.is_float:
        raise Untraceable(f"it takes {name} of {a.kind}")
    return a.trace.assign(a.kind, f"{name}_{a.kind}({a.name}, {a.like(b).name})")


class TracingNamespace:
    """`xp` in `forward`. All functions propagate NaN, as NumPy's do."""

    exp, expm1, log, log1p, sqrt, sin, cos, sinh, cosh, tanh, floor, ceil, rint = (
        staticmethod(lambda x, name=name: _function(name, x))
        for name in (
            "exp", "expm1", "log", "log1p", "sqrt", "sin", "cos", "sinh", "cosh", "tanh", "floor", "ceil", "rint"
        )
    )  # fmt: skip
    arcsin, arccos, arctan, arcsinh, arccosh, arctanh = (
        staticmethod(lambda x, name=name: _function(name, x))
        for name in ("asin", "acos", "atan", "asinh", "acosh", "atanh")
    )

    def __init__(self, trace: Trace) -> None:
        self.trace = trace

    def __getattr__(self, name: str) -> Any:
        raise Untraceable(f"it uses xp.{name}")

    def power(self, a: Symbol, b: Symbol) -> Symbol:
        """aᵇ"""
        return _of_two("pow", a, b)

    def fmod(self, a: Symbol, b: Symbol) -> Symbol:
        """The remainder of a / b, with the sign of a."""
        return _of_two("fmod", a, b)

    def maximum(self, a: Operand, b: Operand) -> Symbol:
        """max(a, b)"""
        return self._chosen(">", a, b)

    def minimum(self, a: Operand, b: Operand) -> Symbol:
        """min(a, b)"""
        return self._chosen("<", a, b)

    def _chosen(self, sign: str, a: Operand, b: Operand) -> Symbol:
        write = self.trace.writer
        if not isinstance(a, Symbol):
            a, b = b, a
        if not isinstance(b, Symbol) and b == b:  # noqa: PLR0124  not a NaN: one comparison is enough
            limit = a.like(b).name
            return self.trace.assign(a.kind, write.chosen(f"{limit} {sign} {a.name}", limit, a.name))
        other = a.like(b).name
        beyond = f"{a.name} {sign} {other}"
        condition = write.either(beyond, f"{a.name} != {a.name}") if a.kind.is_float else beyond
        return self.trace.assign(a.kind, write.chosen(condition, a.name, other))

    def where(self, condition: Symbol, a: Operand, b: Operand) -> Symbol:
        """a if the condition holds, else b"""
        if not isinstance(a, Symbol):
            a = b.like(a)
        return self.trace.assign(a.kind, self.trace.writer.chosen(condition.name, a.name, a.like(b).name))

    def abs(self, x: Symbol) -> Symbol:
        """x"""
        return self.trace.assign(x.kind, self.trace.writer.absolute(x.kind, x.name))

    def sign(self, x: Symbol) -> Symbol:
        """-1, 0 or 1"""
        one, zero, less = (self.trace.constant(number, x.kind).name for number in (1, 0, -1))
        write = self.trace.writer
        return self.trace.assign(
            x.kind, write.chosen(f"{x.name} > {zero}", one, write.chosen(f"{x.name} < {zero}", less, x.name))
        )

    def full(self, shape: tuple[int, ...], value: float, dtype: str) -> Symbol:
        """A constant of rank 0."""
        return self.trace.constant(value, DType(dtype))

    def broadcast_to(self, x: Symbol, shape: tuple[int, ...]) -> Symbol:
        """x itself: each element of the broadcast array is an element of x."""
        return x


@lru_cache(maxsize=8192)
def trace_code(writer: CodeWriter, op: Op, *dtypes: DType) -> Code:
    """Lines that compute one element from `a0`, `a1`, …, and the names of the results in these lines.

    Raises `Untraceable`.
    """
    trace = Trace(writer)
    symbols = [Symbol(trace, f"a{index}", dtype) for index, dtype in enumerate(dtypes)]
    xp = TracingNamespace(trace)
    results: Sequence[Any] = op.evaluate(xp, symbols) if isinstance(op, Fused) else (op.forward(xp, *symbols),)
    for result in results:
        if not isinstance(result, Symbol):
            raise Untraceable("its result does not depend on its operands")
    return tuple(trace.lines), tuple(result.name for result in results)


def why_untraceable(writer: CodeWriter, op: Op, types: Sequence[TensorType]) -> str | None:
    """Return why `trace_code` fails, or None."""
    try:
        trace_code(writer, op, *(type_.dtype for type_ in types))
    except Untraceable as reason:
        return str(reason)
    return None
