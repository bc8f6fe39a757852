"""Activation functions made of straight lines and parabolas: ReLU and its variants."""

from __future__ import annotations

from typing import ClassVar, Literal

from pydantic import Field

from netspec.graph.ops import unary as ops
from netspec.graph.ops.elementwise import LessOrEqual, Maximum, Minimum, Where, call_elementwise
from netspec.graph.value import Value
from netspec.layers.activation.base import ActivationSpec
from netspec.schema.specs.kinds import ACTIVATIONS


def clip(x: Value, low: float, high: float) -> Value:
    """`x` limited to the range from `low` to `high`."""
    return call_elementwise(Minimum(), call_elementwise(Maximum(), x, low), high)


def rectify(x: Value, negative_slope: float, max_value: float | None, threshold: float) -> Value:
    """Keras's general ReLU: x from `threshold` to `max_value`; negative_slope · (x - threshold) below the threshold."""
    if threshold == 0:
        y = ops.LeakyRelu(negative_slope)(x) if negative_slope else ops.Relu()(x)
    else:  # written so that NaN stays NaN
        below: Value | float = (x - threshold) * negative_slope if negative_slope else 0.0
        y = call_elementwise(Where(), call_elementwise(LessOrEqual(), x, threshold), below, x)
    return y if max_value is None else call_elementwise(Minimum(), y, max_value)


@ACTIVATIONS.register
class Linear(ActivationSpec):
    """x"""

    type: Literal["linear"] = "linear"

    def apply(self, x: Value) -> Value:
        return x


@ACTIVATIONS.register
class Relu(ActivationSpec):
    """x from `threshold` to `max_value`, max_value above, negative_slope · (x - threshold) below"""

    type: Literal["relu"] = "relu"
    negative_slope: float = Field(default=0.0, ge=0)
    """Slope below the threshold."""
    max_value: float | None = Field(default=None, ge=0)
    """Greatest output; default: no limit."""
    threshold: float = Field(default=0.0, ge=0)
    """Elements that are not greater count as negative."""
    samples: ClassVar = ({}, {"negative_slope": 0.1, "max_value": 5.0, "threshold": 1.0}, {"threshold": 0.5})

    def apply(self, x: Value) -> Value:
        return rectify(x, self.negative_slope, self.max_value, self.threshold)


@ACTIVATIONS.register
class Relu6(ActivationSpec):
    """min(max(x, 0), 6)"""

    type: Literal["relu6"] = "relu6"

    def apply(self, x: Value) -> Value:
        return rectify(x, 0.0, 6.0, 0.0)


@ACTIVATIONS.register
class LeakyRelu(ActivationSpec):
    """x if x > 0, else negative_slope · x. Maas, Hannun and Ng 2013"""

    foreign_fields: ClassVar[dict[str, str]] = {"alpha": "use `negative_slope`"}

    type: Literal["leaky_relu"] = "leaky_relu"
    onnx_roundtrip: ClassVar = "always"
    negative_slope: float = 0.2
    """Slope for negative elements."""
    samples: ClassVar = ({}, {"negative_slope": 0.1})

    def apply(self, x: Value) -> Value:
        return ops.LeakyRelu(self.negative_slope)(x)


@ACTIVATIONS.register
class HardSigmoid(ActivationSpec):
    """alpha · x + beta, within 0 and 1: x/6 + ½"""

    type: Literal["hard_sigmoid"] = "hard_sigmoid"
    samples: ClassVar = ({}, {"alpha": 0.2, "beta": 0.4})
    alpha: float = 1 / 6
    """Slope of the line (in Keras 1 and 2, and as ONNX's default, 0.2)."""
    beta: float = 0.5
    """Value of the line at 0."""

    def apply(self, x: Value) -> Value:
        return clip(x * self.alpha + self.beta, 0.0, 1.0)


@ACTIVATIONS.register
class SparseSigmoid(ActivationSpec):
    """(x + 1)/2, within 0 and 1"""

    type: Literal["sparse_sigmoid"] = "sparse_sigmoid"

    def apply(self, x: Value) -> Value:
        return clip(x * 0.5 + 0.5, 0.0, 1.0)


@ACTIVATIONS.register
class HardTanh(ActivationSpec):
    """x, within -1 and 1"""

    type: Literal["hard_tanh"] = "hard_tanh"

    def apply(self, x: Value) -> Value:
        return clip(x, -1.0, 1.0)


@ACTIVATIONS.register
class SparsePlus(ActivationSpec):
    """0 up to -1, (x + 1)²/4 up to 1, then x"""

    type: Literal["sparse_plus"] = "sparse_plus"

    def apply(self, x: Value) -> Value:
        """A parabola of the clipped operand, plus the part above 1."""
        inside = clip(x, -1.0, 1.0) + 1.0
        return inside * inside * 0.25 + (call_elementwise(Maximum(), x, 1.0) - 1.0)


@ACTIVATIONS.register
class HardSilu(ActivationSpec):
    """x · hard_sigmoid(x). Howard et al. 2019, arXiv:1905.02244"""

    type: Literal["hard_silu"] = "hard_silu"

    def apply(self, x: Value) -> Value:
        return x * HardSigmoid().apply(x)


@ACTIVATIONS.register
class HardSwish(ActivationSpec):
    """x · hard_sigmoid(x): another name of `hard_silu`"""

    type: Literal["hard_swish"] = "hard_swish"

    def apply(self, x: Value) -> Value:
        return x * HardSigmoid().apply(x)


@ACTIVATIONS.register
class HardShrink(ActivationSpec):
    """x if |x| > threshold, else 0"""

    type: Literal["hard_shrink"] = "hard_shrink"
    threshold: float = Field(default=0.5, ge=0)
    """Elements whose magnitude is not greater become 0."""
    samples: ClassVar = ({}, {"threshold": 1.0})

    def apply(self, x: Value) -> Value:
        """Written so that NaN stays NaN."""
        return call_elementwise(Where(), call_elementwise(LessOrEqual(), ops.Abs()(x), self.threshold), 0.0, x)


@ACTIVATIONS.register
class SoftShrink(ActivationSpec):
    """x - threshold if x > threshold, x + threshold if x < -threshold, else 0"""

    type: Literal["soft_shrink"] = "soft_shrink"
    threshold: float = Field(default=0.5, ge=0)
    """Amount by which elements are moved towards 0."""
    samples: ClassVar = ({}, {"threshold": 1.0})

    def apply(self, x: Value) -> Value:
        """The part of `x` beyond the threshold."""
        return x - clip(x, -self.threshold, self.threshold)


@ACTIVATIONS.register
class ThresholdActivation(ActivationSpec):
    """x if x > threshold, else default_value"""

    type: Literal["threshold"] = "threshold"
    threshold: float = 0.0
    """Elements that are not greater are replaced."""
    default_value: float = 0.0
    """The replacement."""
    samples: ClassVar = ({"threshold": 0.5, "default_value": -1.0},)

    def apply(self, x: Value) -> Value:
        """Written so that NaN stays NaN."""
        return call_elementwise(Where(), call_elementwise(LessOrEqual(), x, self.threshold), self.default_value, x)
