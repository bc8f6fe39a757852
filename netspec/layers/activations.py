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
from netspec.graph.ops.functions import Abs, Elu, Exp, Relu, Sigmoid, Softplus, Tanh
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


ActivationName: TypeAlias = Literal[
    "linear", "relu", "relu6", "leaky_relu", "elu", "selu", "gelu", "sigmoid", "hard_sigmoid", "tanh", "softplus",
    "softsign", "silu", "swish", "mish", "exponential", "softmax", "log_softmax",
]  # fmt: skip

ACTIVATIONS: dict[str, Callable[[Value], Value]] = {
    "linear": lambda x: x,
    "relu": Relu(),
    "relu6": lambda x: elementwise(Minimum(), Relu()(x), 6.0),
    "leaky_relu": lambda x: _leaky_relu(x, 0.2),
    "elu": Elu(),
    "selu": _selu,
    "gelu": Gelu(),
    "sigmoid": Sigmoid(),
    "hard_sigmoid": lambda x: elementwise(Minimum(), elementwise(Maximum(), x * (1 / 6) + 0.5, 0.0), 1.0),
    "tanh": Tanh(),
    "softplus": Softplus(),
    "softsign": lambda x: x / (Abs()(x) + 1.0),
    "silu": lambda x: x * Sigmoid()(x),
    "swish": lambda x: x * Sigmoid()(x),
    "mish": lambda x: x * Tanh()(Softplus()(x)),
    "exponential": Exp(),
}
"""Formulas are Keras's (`leaky_relu` has slope 0.2, `hard_sigmoid` is clip(x/6 + ½, 0, 1))."""

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
