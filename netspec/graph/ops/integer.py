"""Integer division and remainders, bit operations, and powers with two operands.

`forward` of each op uses operators and functions of `xp` only, so that a code generator can trace it (`Traits`).
Division by 0 returns 0. Divisors 0 and -1 never reach the machine's division, which would abort: -1 overflows for the
smallest integer.
"""

from __future__ import annotations

import operator
from collections.abc import Callable

from netspec.graph.onnx_map import Emitter, OnnxExpansion, OnnxMap
from netspec.graph.op import Array, Grads, NoGradient, Xp
from netspec.graph.ops.elementwise import ELEMENTWISE, Binary, Greater, Where, cast, scalar
from netspec.graph.ops.reduce import sum_to
from netspec.graph.ops.rounding import Floor
from netspec.graph.ops.unary import Abs, Log, Sign
from netspec.graph.types import DType, TensorType
from netspec.graph.value import Value


class IntegerBinary(NoGradient, Binary):
    """Base of ops on two broadcast operands of one integer type."""

    def infer(self, a: TensorType, b: TensorType) -> TensorType:
        same_integer_type = a.dtype == b.dtype and not a.dtype.is_float and a.dtype != DType.BOOL
        self.check(same_integer_type, f"{self.name} needs integers of one type", got=f"{a}, {b}")
        return super().infer(a, b)


def _floor_div_to_onnx(g: Emitter, y: Value, a: str, b: str) -> str:
    # ONNX truncates the quotient. Subtracting Mod, which has the sign of b, makes the division exact.
    return g.node("Div", g.node("Sub", a, g.node("Mod", a, b)), b)


class FloorDiv(IntegerBinary):
    """⌊a / b⌋"""

    onnx = OnnxExpansion(_floor_div_to_onnx)

    def forward(self, xp: Xp, a: Array, b: Array) -> Array:
        return xp.where(b == 0, a * 0, xp.where(_minus_one(b), a * b, a // _divisor(xp, b)))


class TruncDiv(IntegerBinary):
    """a / b, truncated toward 0"""

    onnx = OnnxMap("Div")

    def forward(self, xp: Xp, a: Array, b: Array) -> Array:
        safe = _divisor(xp, b)
        floor = a // safe
        round_up = (a - floor * safe != 0) & ((a < 0) != (safe < 0))
        return xp.where(b == 0, a * 0, xp.where(_minus_one(b), a * b, xp.where(round_up, floor + 1, floor)))


class Mod(IntegerBinary):
    """a - b · ⌊a / b⌋, which has the sign of b"""

    onnx = OnnxMap("Mod")

    def forward(self, xp: Xp, a: Array, b: Array) -> Array:
        safe = _divisor(xp, b)
        return xp.where((b == 0) | _minus_one(b), a * 0, a - a // safe * safe)


def _divisor(xp: Xp, b: Array) -> Array:
    """b, or 1 if it is 0 or -1."""
    return xp.where((b == 0) | _minus_one(b), b * 0 + 1, b)


def _minus_one(b: Array) -> Array:
    """Whether b is -1; unsigned integers never are."""
    return (b < 0) & (b + 1 == 0)


class Fmod(Binary):
    """Remainder of truncated division, which has the sign of a."""

    onnx = OnnxMap("Mod", fixed={"fmod": 1})

    def infer(self, a: TensorType, b: TensorType) -> TensorType:
        result = super().infer(a, b)
        self.check(a.dtype.is_float, "Fmod needs floats", expected="float operands", got=a)
        return result

    def forward(self, xp: Xp, a: Array, b: Array) -> Array:
        return xp.fmod(a, b)

    def vjp(self, y: Value, dy: Value) -> Grads:
        a, b = y.inputs
        ratio = a / b
        quotient = Sign()(ratio) * Floor()(Abs()(ratio))
        return sum_to(dy, a.shape), -sum_to(dy * quotient, b.shape)


def floor_mod(a: Value, b: Value) -> Value:
    """Remainder with the sign of b, for integers and floats."""
    if not a.dtype.is_float:
        return Mod()(a, b)
    remainder, zero = Fmod()(a, b), scalar(0.0, a.dtype)
    return Where()(Greater()(zero, remainder * b), remainder + b, remainder)


def trunc_mod(a: Value, b: Value) -> Value:
    """Remainder with the sign of a, for integers and floats."""
    return Fmod()(a, b) if a.dtype.is_float else a - TruncDiv()(a, b) * b


def floor_div(a: Value, b: Value) -> Value:
    """⌊a / b⌋"""
    return Floor()(a / b) if a.dtype.is_float else FloorDiv()(a, b)


class BinaryPow(Binary):
    """a to the power of b, for floats; a must be positive if b is not an integer"""

    onnx = OnnxMap("Pow")

    def infer(self, a: TensorType, b: TensorType) -> TensorType:
        result = super().infer(a, b)
        self.check(a.dtype.is_float, "BinaryPow needs floats", expected="float operands", got=a)
        return result

    def forward(self, xp: Xp, a: Array, b: Array) -> Array:
        return xp.power(a, b)

    def vjp(self, y: Value, dy: Value) -> Grads:
        a, b = y.inputs
        positive = Greater()(a, scalar(0.0, a.dtype))
        logarithm = Log()(Where()(positive, a, scalar(1.0, a.dtype)))  # elsewhere the derivative does not exist or is 0
        return sum_to(dy * b * BinaryPow()(a, b - 1.0), a.shape), sum_to(dy * y * logarithm, b.shape)


def power(a: Value, b: Value) -> Value:
    """a to the power of b, in the type of a; integers are computed in float64, which is exact up to 2⁵³."""
    if a.dtype.is_float:
        return BinaryPow()(a, cast(b, a.dtype))
    return cast(BinaryPow()(cast(a, DType.FLOAT64), cast(b, DType.FLOAT64)), a.dtype)


class BitAnd(IntegerBinary):
    """Bitwise and"""

    onnx = OnnxMap("BitwiseAnd")

    def forward(self, xp: Xp, a: Array, b: Array) -> Array:
        return a & b


class BitOr(IntegerBinary):
    """Bitwise or"""

    onnx = OnnxMap("BitwiseOr")

    def forward(self, xp: Xp, a: Array, b: Array) -> Array:
        return a | b


class BitXor(IntegerBinary):
    """Bitwise exclusive or"""

    onnx = OnnxMap("BitwiseXor")

    def forward(self, xp: Xp, a: Array, b: Array) -> Array:
        return a ^ b


class BitNot(NoGradient):
    """Bitwise not"""

    traits = ELEMENTWISE
    onnx = OnnxMap("BitwiseNot")

    def infer(self, a: TensorType) -> TensorType:
        self.check(not a.dtype.is_float and a.dtype != DType.BOOL, "BitNot needs integers", got=a)
        return a

    def forward(self, xp: Xp, a: Array) -> Array:
        return ~a


def _shift(xp: Xp, function: Callable[[Array, Array], Array], a: Array, b: Array) -> Array:
    """Shift; the result is 0 or -1 if b is negative, or at least the number of bits."""
    max_shift = a * 0 + (8 * a.dtype.itemsize - 1)
    in_range = (b >= 0) & (b <= max_shift)
    return xp.where(
        in_range, function(a, xp.where(in_range, b, max_shift)), function(function(a, max_shift), a * 0 + 1)
    )


class ShiftLeft(IntegerBinary):
    """a · 2ᵇ, without the bits that overflow"""

    onnx = OnnxMap("BitShift", fixed={"direction": "LEFT"})

    def forward(self, xp: Xp, a: Array, b: Array) -> Array:
        return _shift(xp, operator.lshift, a, b)


class ShiftRight(IntegerBinary):
    """⌊a / 2ᵇ⌋"""

    onnx = OnnxMap("BitShift", fixed={"direction": "RIGHT"})

    def forward(self, xp: Xp, a: Array, b: Array) -> Array:
        return _shift(xp, operator.rshift, a, b)
