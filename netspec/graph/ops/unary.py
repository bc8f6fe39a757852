"""Functions of one float operand, including the activation functions that are ops.

`forward` of each op uses operators and functions of `xp` only, so that a code generator can trace it (`Traits`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from netspec.graph.onnx_map import Emitter, OnnxExpansion, OnnxMap, floating
from netspec.graph.op import Array, Grads, NoGradient, Op, Traits, Xp
from netspec.graph.ops.elementwise import ELEMENTWISE, Binary, Greater, Minimum, Where, scalar
from netspec.graph.ops.reduce import sum_to
from netspec.graph.types import TensorType
from netspec.graph.value import Value


class Unary(Op):
    """Base of functions of one float operand."""

    function: ClassVar[str]
    """Name of the function in array libraries, if they have it."""
    traits = ELEMENTWISE

    def infer(self, x: TensorType) -> TensorType:
        self.check(x.dtype.is_float, f"{self.name} needs floats", expected="a float operand", got=x)
        return x

    def forward(self, xp: Xp, x: Array) -> Array:
        return getattr(xp, self.function)(x)


class Exp(Unary):
    """eˣ"""

    onnx = OnnxMap("Exp")
    function = "exp"

    def vjp(self, y: Value, dy: Value) -> Grads:
        return (dy * y,)


def _expm1_to_onnx(g: Emitter, y: Value, x: str) -> str:
    half, one = g.constant(0.5, str(y.dtype)), g.constant(1.0, str(y.dtype))
    return g.node("Mul", g.node("Tanh", g.node("Mul", x, half)), g.node("Add", g.node("Exp", x), one))


class Expm1(Unary):
    """eˣ - 1, accurate near 0 too. ONNX has no such operator: exported as tanh(x/2)·(eˣ + 1), which is equal"""

    onnx = OnnxExpansion(_expm1_to_onnx)
    function = "expm1"

    def vjp(self, y: Value, dy: Value) -> Grads:
        return (dy * (y + 1.0),)


class Log(Unary):
    """ln x"""

    onnx = OnnxMap("Log")
    function = "log"

    def vjp(self, y: Value, dy: Value) -> Grads:
        return (dy / y.inputs[0],)


class Sqrt(Unary):
    """√x"""

    onnx = OnnxMap("Sqrt")
    function = "sqrt"

    def vjp(self, y: Value, dy: Value) -> Grads:
        return (dy * 0.5 / y,)


class Sign(NoGradient):
    """The sign of x: -1, 0 or 1"""

    traits = ELEMENTWISE
    onnx = OnnxMap("Sign")

    def infer(self, x: TensorType) -> TensorType:
        return x

    def forward(self, xp: Xp, x: Array) -> Array:
        return xp.sign(x)


class Abs(Unary):
    """|x|; the gradient at 0 is 0"""

    onnx = OnnxMap("Abs")
    function = "abs"

    def vjp(self, y: Value, dy: Value) -> Grads:
        return (dy * Sign()(y.inputs[0]),)


class Relu(Unary):
    """max(x, 0); the gradient depends only on the output, and is 0 at 0"""

    traits = Traits(elementwise=True, inplace=True, clamp=True)
    onnx = OnnxMap("Relu")

    def forward(self, xp: Xp, x: Array) -> Array:
        return xp.maximum(x, 0)

    def vjp(self, y: Value, dy: Value) -> Grads:
        zero = scalar(0.0, y.dtype)
        return (Where()(Greater()(y, zero), dy, zero),)


class Sigmoid(Unary):
    """1 / (1 + e⁻ˣ), without overflow for large |x|"""

    onnx = OnnxMap("Sigmoid")

    def forward(self, xp: Xp, x: Array) -> Array:
        exp_neg_abs = xp.exp(-xp.abs(x))
        return xp.where(x >= 0, 1, exp_neg_abs) / (1 + exp_neg_abs)

    def vjp(self, y: Value, dy: Value) -> Grads:
        return (dy * y * (1.0 - y),)


class Tanh(Unary):
    """tanh x"""

    onnx = OnnxMap("Tanh")
    function = "tanh"

    def vjp(self, y: Value, dy: Value) -> Grads:
        return (dy * (1.0 - y * y),)


class Softplus(Unary):
    """ln(1 + eˣ), without overflow for large x"""

    onnx = OnnxMap("Softplus")

    def forward(self, xp: Xp, x: Array) -> Array:
        return xp.maximum(x, 0) + xp.log1p(xp.exp(-xp.abs(x)))

    def vjp(self, y: Value, dy: Value) -> Grads:
        return (dy * Sigmoid()(y.inputs[0]),)


@dataclass(frozen=True)
class Elu(Unary):
    """x where x > 0, else α(eˣ - 1). Clevert et al. 2015, arXiv:1511.07289"""

    alpha: float = 1.0
    onnx = OnnxMap("Elu", alpha=floating("alpha"))

    def forward(self, xp: Xp, x: Array) -> Array:
        return xp.where(x > 0, x, self.alpha * xp.expm1(xp.minimum(x, 0)))

    def vjp(self, y: Value, dy: Value) -> Grads:
        (x,) = y.inputs
        zero = scalar(0.0, x.dtype)
        return (dy * Where()(Greater()(x, zero), scalar(1.0, x.dtype), self.alpha * Exp()(Minimum()(x, zero))),)


@dataclass(frozen=True)
class LeakyRelu(Unary):
    """x where x > 0, else α · x. Maas, Hannun and Ng 2013"""

    alpha: float = 0.2
    onnx = OnnxMap("LeakyRelu", alpha=floating("alpha"))

    def forward(self, xp: Xp, x: Array) -> Array:
        return xp.where(x > 0, x, x * self.alpha)

    def vjp(self, y: Value, dy: Value) -> Grads:
        (x,) = y.inputs
        return (Where()(Greater()(x, scalar(0.0, x.dtype)), dy, dy * self.alpha),)


class PRelu(Binary):
    """x where x > 0, else slope · x; the slope broadcasts to x"""

    onnx = OnnxMap("PRelu")

    def infer(self, x: TensorType, slope: TensorType) -> TensorType:
        result = super().infer(x, slope)
        self.check(result == x, "the slopes do not broadcast to the operand", expected=str(x), got=slope)
        return result

    def forward(self, xp: Xp, x: Array, slope: Array) -> Array:
        return xp.where(x > 0, x, x * slope)

    def vjp(self, y: Value, dy: Value) -> Grads:
        x, slope = y.inputs
        zero = scalar(0.0, dy.dtype)
        positive = Greater()(x, zero)
        return Where()(positive, dy, dy * slope), sum_to(Where()(positive, zero, dy * x), slope.shape)
