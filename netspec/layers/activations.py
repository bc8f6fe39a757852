"""Activation functions by name, as other layers use them, and the layer Activation.

Each is a function of graph values: what it is made of decides its gradient, its fusion and its ONNX form.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, TypeAlias, get_args

from netspec.graph.onnx_map import GRADIENT, OnnxMap, integer
from netspec.graph.op import Array, Grads, Op, Xp
from netspec.graph.ops.elementwise import Greater, Maximum, Minimum, Where, elementwise
from netspec.graph.ops.functions import Abs, Elu, Exp, Relu, Sigmoid, Softplus, Sqrt, Tanh
from netspec.graph.ops.reduce import ReduceSum
from netspec.graph.ops.special import Gelu
from netspec.graph.types import TensorType
from netspec.graph.value import Value
from netspec.layers.base import Builder, LayerSpec, Sample, sample_axis
from netspec.schema.kinds import LAYERS


@dataclass(frozen=True)
class Softmax(Op):
    """eˣ / Σ eˣ along `axis`, shifted by the maximum so that nothing overflows"""

    axis: int = -1
    onnx = OnnxMap("Softmax", axis=integer("axis"))

    def infer(self, x: TensorType) -> TensorType:
        self.check(-x.rank <= self.axis < x.rank, f"there is no axis {self.axis} to normalize over", got=x)
        return x

    def forward(self, xp: Xp, x: Array) -> Array:
        e = xp.exp(x - x.max(axis=self.axis, keepdims=True))
        return e / e.sum(axis=self.axis, keepdims=True)

    def vjp(self, y: Value, dy: Value) -> Grads:
        return (SoftmaxGrad(self.axis)(y, dy),)

    def flops(self, x: TensorType) -> int:
        return 5 * x.size


@dataclass(frozen=True)
class SoftmaxGrad(Op):
    """The gradient of `Softmax` from its result y and dy: y · (dy - Σ y · dy), the sum along `axis`."""

    axis: int = -1
    onnx = GRADIENT

    def infer(self, y: TensorType, dy: TensorType) -> TensorType:
        self.check(dy == y, "the gradient is not of the result's type", expected=str(y), got=dy)
        return y

    def forward(self, xp: Xp, y: Array, dy: Array) -> Array:
        return y * (dy - (y * dy).sum(axis=self.axis, keepdims=True))

    def decompose(self, y: Value, dy: Value) -> Value:
        return y * (dy - ReduceSum((self.axis,), keepdims=True)(y * dy))

    def flops(self, y: TensorType, dy: TensorType) -> int:
        return 4 * y.size


@dataclass(frozen=True)
class LogSoftmax(Op):
    """x - ln Σ eˣ along `axis`, shifted by the maximum so that nothing overflows"""

    axis: int = -1
    onnx = OnnxMap("LogSoftmax", axis=integer("axis"))

    def infer(self, x: TensorType) -> TensorType:
        self.check(-x.rank <= self.axis < x.rank, f"there is no axis {self.axis} to normalize over", got=x)
        return x

    def forward(self, xp: Xp, x: Array) -> Array:
        shifted = x - x.max(axis=self.axis, keepdims=True)
        return shifted - xp.log(xp.exp(shifted).sum(axis=self.axis, keepdims=True))

    def vjp(self, y: Value, dy: Value) -> Grads:
        return (dy - Exp()(y) * ReduceSum((self.axis,), keepdims=True)(dy),)

    def flops(self, x: TensorType) -> int:
        return 5 * x.size


def _leaky_relu(x: Value, slope: float) -> Value:
    return elementwise(Where(), elementwise(Greater(), x, 0.0), x, x * slope)


def _selu(x: Value) -> Value:
    scale, alpha = 1.0507009873554805, 1.6732632423543772  # Klambauer et al. 2017, arXiv:1706.02515
    return Elu(alpha)(x) * scale


def _hard_sigmoid(x: Value) -> Value:
    return elementwise(Minimum(), elementwise(Maximum(), x * (1 / 6) + 0.5, 0.0), 1.0)


def _clipped(x: Value, low: float, high: float) -> Value:
    return elementwise(Minimum(), elementwise(Maximum(), x, low), high)


def _soft_shrink(x: Value, threshold: float) -> Value:
    return x - _clipped(x, -threshold, threshold)


def _hard_shrink(x: Value, threshold: float) -> Value:
    return elementwise(Where(), elementwise(Greater(), Abs()(x), threshold), x, 0.0)


def _sparse_plus(x: Value) -> Value:  # 0 below -1, (x + 1)²/4 up to 1, then x
    inside = _clipped(x, -1.0, 1.0) + 1.0
    return inside * inside * 0.25 + (elementwise(Maximum(), x, 1.0) - 1.0)


ActivationName: TypeAlias = Literal[
    "linear", "relu", "relu6", "leaky_relu", "elu", "celu", "selu", "gelu", "sigmoid", "hard_sigmoid", "log_sigmoid",
    "sparse_sigmoid", "tanh", "hard_tanh", "tanh_shrink", "softplus", "sparse_plus", "squareplus", "softsign", "silu",
    "swish", "hard_silu", "hard_swish", "mish", "hard_shrink", "soft_shrink", "exponential", "softmax", "log_softmax",
]  # fmt: skip

ACTIVATIONS: dict[str, Callable[[Value], Value]] = {
    "linear": lambda x: x,
    "relu": Relu(),
    "relu6": lambda x: elementwise(Minimum(), Relu()(x), 6.0),
    "leaky_relu": lambda x: _leaky_relu(x, 0.2),
    "elu": Elu(),
    "celu": Elu(),
    "selu": _selu,
    "gelu": Gelu(),
    "sigmoid": Sigmoid(),
    "hard_sigmoid": _hard_sigmoid,
    "log_sigmoid": lambda x: -Softplus()(-x),
    "sparse_sigmoid": lambda x: _clipped(x * 0.5 + 0.5, 0.0, 1.0),
    "tanh": Tanh(),
    "hard_tanh": lambda x: _clipped(x, -1.0, 1.0),
    "tanh_shrink": lambda x: x - Tanh()(x),
    "softplus": Softplus(),
    "sparse_plus": _sparse_plus,
    "squareplus": lambda x: (x + Sqrt()(x * x + 4.0)) * 0.5,
    "softsign": lambda x: x / (Abs()(x) + 1.0),
    "silu": lambda x: x * Sigmoid()(x),
    "swish": lambda x: x * Sigmoid()(x),
    "hard_silu": lambda x: x * _hard_sigmoid(x),
    "hard_swish": lambda x: x * _hard_sigmoid(x),
    "mish": lambda x: x * Tanh()(Softplus()(x)),
    "hard_shrink": lambda x: _hard_shrink(x, 0.5),
    "soft_shrink": lambda x: _soft_shrink(x, 0.5),
    "exponential": Exp(),
}
"""Formulas are Keras's: `leaky_relu` has slope 0.2, `hard_sigmoid` is clip(x/6 + ½, 0, 1), shrinking begins at ½."""

ALONG_AXIS: dict[str, type[Softmax | LogSoftmax]] = {"softmax": Softmax, "log_softmax": LogSoftmax}


def activate(name: str | None, x: Value, axis: int = -1) -> Value:
    """The activation called `name` of `x`; `x` itself for None. Those over an axis run over `axis`."""
    if name is None:
        return x
    if name in ALONG_AXIS:
        return ALONG_AXIS[name](axis)(x)
    return ACTIVATIONS[name](x)


@LAYERS.register
class Activation(LayerSpec):
    """Apply an activation function to each element (softmax: along the last axis).

    Input and output have the same shape.
    """

    type: Literal["Activation"] = "Activation"
    activation: ActivationName
    """the function"""
    axis: int = -1
    """the axis that `softmax` and `log_softmax` run over"""

    samples: ClassVar[Any] = tuple(
        Sample.of((2, 3, 4), activation=name, ranges=((-7.0, 7.0),)) for name in get_args(ActivationName)
    )

    def build(self, net: Builder, x: Value) -> Value:
        """x → function of x, same shape."""
        axis = sample_axis(x, self.axis, "to normalize over") if self.activation in ALONG_AXIS else -1
        return activate(self.activation, net.floating(x), axis)
