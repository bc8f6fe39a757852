"""Arithmetic that whole numbers have of their own: quotients, remainders, bits. And powers of any two numbers.

`forward` of each uses operators and functions of `xp` alone, so that a code generator can trace it (`Traits`). A
division by 0 gives 0, and is never done: it would end the process where code is compiled. Nor is one by -1, of which
the least number has no result.
"""

from __future__ import annotations

import operator
from collections.abc import Callable

from netspec.graph.onnx_map import Emitter, OnnxExpansion, OnnxMap
from netspec.graph.op import Array, Grads, NoGradient, Xp
from netspec.graph.ops.elementwise import ELEMENTWISE, Binary, Greater, Where, cast, scalar
from netspec.graph.ops.functions import Abs, Log, Sign
from netspec.graph.ops.reduce import sum_to
from netspec.graph.ops.rounding import Floor
from netspec.graph.types import DType, TensorType
from netspec.graph.value import Value


class OfWhole(NoGradient, Binary):
    """Base of ops on two broadcast operands of one type of whole numbers."""

    def infer(self, a: TensorType, b: TensorType) -> TensorType:
        whole = a.dtype == b.dtype and not a.dtype.is_float and a.dtype != DType.BOOL
        self.check(whole, f"{self.name} of other than whole numbers of one type", got=f"{a}, {b}")
        return super().infer(a, b)


def _floor_div_to_onnx(g: Emitter, y: Value, a: str, b: str) -> str:
    # ONNX cuts the fraction off. What Mod leaves, which has the sign of b, is taken away before: then there is none.
    return g.node("Div", g.node("Sub", a, g.node("Mod", a, b)), b)


class FloorDiv(OfWhole):
    """⌊a / b⌋"""

    onnx = OnnxExpansion(_floor_div_to_onnx)

    def forward(self, xp: Xp, a: Array, b: Array) -> Array:
        return xp.where(b == 0, a * 0, xp.where(_minus_one(b), a * b, a // _divisor(xp, b)))


class Quotient(OfWhole):
    """a / b, its fraction cut off"""

    onnx = OnnxMap("Div")

    def forward(self, xp: Xp, a: Array, b: Array) -> Array:
        safe = _divisor(xp, b)
        least = a // safe
        up = (a - least * safe != 0) & ((a < 0) != (safe < 0))
        return xp.where(b == 0, a * 0, xp.where(_minus_one(b), a * b, xp.where(up, least + 1, least)))


class Mod(OfWhole):
    """a - b · ⌊a / b⌋, which has the sign of b"""

    onnx = OnnxMap("Mod")

    def forward(self, xp: Xp, a: Array, b: Array) -> Array:
        safe = _divisor(xp, b)
        return xp.where((b == 0) | _minus_one(b), a * 0, a - a // safe * safe)


def _divisor(xp: Xp, b: Array) -> Array:
    """b, or 1 where it is 0 or -1."""
    return xp.where((b == 0) | _minus_one(b), b * 0 + 1, b)


def _minus_one(b: Array) -> Array:
    """Whether b is -1, of any type: numbers without a sign never are."""
    return (b < 0) & (b + 1 == 0)


class Fmod(Binary):
    """What is left of a where b is taken away as often as it goes: it has the sign of a"""

    onnx = OnnxMap("Mod", fixed={"fmod": 1})

    def infer(self, a: TensorType, b: TensorType) -> TensorType:
        made = super().infer(a, b)
        self.check(a.dtype.is_float, "Fmod of whole numbers", expected="float operands", got=a)
        return made

    def forward(self, xp: Xp, a: Array, b: Array) -> Array:
        return xp.fmod(a, b)

    def vjp(self, y: Value, dy: Value) -> Grads:
        a, b = y.inputs
        ratio = a / b
        times = Sign()(ratio) * Floor()(Abs()(ratio))
        return sum_to(dy, a.shape), -sum_to(dy * times, b.shape)


def modulo(a: Value, b: Value) -> Value:
    """What is left of a, with the sign of b, of floats too."""
    if not a.dtype.is_float:
        return Mod()(a, b)
    rest, zero = Fmod()(a, b), scalar(0.0, a.dtype)
    return Where()(Greater()(zero, rest * b), rest + b, rest)


def remainder(a: Value, b: Value) -> Value:
    """What is left of a, with the sign of a."""
    return Fmod()(a, b) if a.dtype.is_float else a - Quotient()(a, b) * b


def floor_div(a: Value, b: Value) -> Value:
    """⌊a / b⌋"""
    return Floor()(a / b) if a.dtype.is_float else FloorDiv()(a, b)


class Raised(Binary):
    """a to the power of b, floats; a must be positive where b is not whole"""

    onnx = OnnxMap("Pow")

    def infer(self, a: TensorType, b: TensorType) -> TensorType:
        made = super().infer(a, b)
        self.check(a.dtype.is_float, "Raised of whole numbers", expected="float operands", got=a)
        return made

    def forward(self, xp: Xp, a: Array, b: Array) -> Array:
        return xp.power(a, b)

    def vjp(self, y: Value, dy: Value) -> Grads:
        a, b = y.inputs
        positive = Greater()(a, scalar(0.0, a.dtype))
        logarithm = Log()(Where()(positive, a, scalar(1.0, a.dtype)))  # elsewhere there is no derivative, or it is 0
        return sum_to(dy * b * Raised()(a, b - 1.0), a.shape), sum_to(dy * y * logarithm, b.shape)


def raised(a: Value, b: Value) -> Value:
    """a to the power of b, in the type of a; whole numbers by way of float64, which holds them up to 2⁵³."""
    if a.dtype.is_float:
        return Raised()(a, cast(b, a.dtype))
    return cast(Raised()(cast(a, DType.FLOAT64), cast(b, DType.FLOAT64)), a.dtype)


class BitAnd(OfWhole):
    """The bits that both have"""

    onnx = OnnxMap("BitwiseAnd")

    def forward(self, xp: Xp, a: Array, b: Array) -> Array:
        return a & b


class BitOr(OfWhole):
    """The bits that either has"""

    onnx = OnnxMap("BitwiseOr")

    def forward(self, xp: Xp, a: Array, b: Array) -> Array:
        return a | b


class BitXor(OfWhole):
    """The bits that one of both has"""

    onnx = OnnxMap("BitwiseXor")

    def forward(self, xp: Xp, a: Array, b: Array) -> Array:
        return a ^ b


class BitNot(NoGradient):
    """All other bits"""

    traits = ELEMENTWISE
    onnx = OnnxMap("BitwiseNot")

    def infer(self, a: TensorType) -> TensorType:
        self.check(not a.dtype.is_float and a.dtype != DType.BOOL, "BitNot of other than whole numbers", got=a)
        return a

    def forward(self, xp: Xp, a: Array) -> Array:
        return ~a


def _shifted(xp: Xp, function: Callable[[Array, Array], Array], a: Array, b: Array) -> Array:
    """By fewer bits than 0, or as many as there are, no bit is left of those that were there."""
    last = a * 0 + (8 * a.dtype.itemsize - 1)
    inside = (b >= 0) & (b <= last)
    return xp.where(inside, function(a, xp.where(inside, b, last)), function(function(a, last), a * 0 + 1))


class ShiftLeft(OfWhole):
    """a · 2ᵇ, as far as there are bits for it"""

    onnx = OnnxMap("BitShift", fixed={"direction": "LEFT"})

    def forward(self, xp: Xp, a: Array, b: Array) -> Array:
        return _shifted(xp, operator.lshift, a, b)


class ShiftRight(OfWhole):
    """⌊a / 2ᵇ⌋"""

    onnx = OnnxMap("BitShift", fixed={"direction": "RIGHT"})

    def forward(self, xp: Xp, a: Array, b: Array) -> Array:
        return _shifted(xp, operator.rshift, a, b)
