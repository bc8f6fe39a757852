"""Activation functions made of straight lines and parabolas: ReLU and its kin."""

from __future__ import annotations

from typing import ClassVar, Literal

from pydantic import Field

from netspec.graph.ops import functions as ops
from netspec.graph.ops.elementwise import LessOrEqual, Maximum, Minimum, Where, elementwise
from netspec.graph.value import Value
from netspec.layers.activations import ActivationSpec
from netspec.schema.kinds import ACTIVATIONS


def clipped(x: Value, low: float, high: float) -> Value:
    """`x` where it lies between two numbers, else the nearer one."""
    return elementwise(Minimum(), elementwise(Maximum(), x, low), high)


def rectified(x: Value, negative_slope: float, max_value: float | None, threshold: float) -> Value:
    """Keras's general rectifier: x from `threshold` to `max_value`; negative_slope · (x - threshold) below it."""
    if threshold == 0:
        y = ops.LeakyRelu(negative_slope)(x) if negative_slope else ops.Relu()(x)
    else:  # so written that what is not a number stays so
        below: Value | float = (x - threshold) * negative_slope if negative_slope else 0.0
        y = elementwise(Where(), elementwise(LessOrEqual(), x, threshold), below, x)
    return y if max_value is None else elementwise(Minimum(), y, max_value)


@ACTIVATIONS.register
class Linear(ActivationSpec):
    """x"""

    type: Literal["linear"] = "linear"

    def of(self, x: Value) -> Value:
        """The operand itself."""
        return x


@ACTIVATIONS.register
class Relu(ActivationSpec):
    """x from `threshold` to `max_value`, max_value above, negative_slope · (x - threshold) below"""

    type: Literal["relu"] = "relu"
    negative_slope: float = Field(default=0.0, ge=0)
    """slope below the threshold"""
    max_value: float | None = Field(default=None, ge=0)
    """the greatest number that comes out; default: none"""
    threshold: float = Field(default=0.0, ge=0)
    """what is not greater counts as negative"""
    samples: ClassVar = ({}, {"negative_slope": 0.1, "max_value": 5.0, "threshold": 1.0}, {"threshold": 0.5})

    def of(self, x: Value) -> Value:
        """By `rectified`."""
        return rectified(x, self.negative_slope, self.max_value, self.threshold)


@ACTIVATIONS.register
class Relu6(ActivationSpec):
    """min(max(x, 0), 6)"""

    type: Literal["relu6"] = "relu6"

    def of(self, x: Value) -> Value:
        """A rectifier with a limit."""
        return rectified(x, 0.0, 6.0, 0.0)


@ACTIVATIONS.register
class LeakyRelu(ActivationSpec):
    """x where x > 0, else negative_slope · x. Maas, Hannun and Ng 2013"""

    foreign_fields: ClassVar[dict[str, str]] = {"alpha": "here it is `negative_slope`"}

    type: Literal["leaky_relu"] = "leaky_relu"
    comes_back: ClassVar = "always"
    negative_slope: float = 0.2
    """slope of negative numbers"""
    samples: ClassVar = ({}, {"negative_slope": 0.1})

    def of(self, x: Value) -> Value:
        """One op."""
        return ops.LeakyRelu(self.negative_slope)(x)


@ACTIVATIONS.register
class HardSigmoid(ActivationSpec):
    """alpha · x + beta, within 0 and 1: x/6 + ½"""

    type: Literal["hard_sigmoid"] = "hard_sigmoid"
    samples: ClassVar = ({}, {"alpha": 0.2, "beta": 0.4})
    alpha: float = 1 / 6
    """slope of the line (in Keras 1 and 2, and as ONNX's default, 0.2)"""
    beta: float = 0.5
    """the line at 0"""

    def of(self, x: Value) -> Value:
        """A clipped line."""
        return clipped(x * self.alpha + self.beta, 0.0, 1.0)


@ACTIVATIONS.register
class SparseSigmoid(ActivationSpec):
    """(x + 1)/2, within 0 and 1"""

    type: Literal["sparse_sigmoid"] = "sparse_sigmoid"

    def of(self, x: Value) -> Value:
        """A clipped line."""
        return clipped(x * 0.5 + 0.5, 0.0, 1.0)


@ACTIVATIONS.register
class HardTanh(ActivationSpec):
    """x, within -1 and 1"""

    type: Literal["hard_tanh"] = "hard_tanh"

    def of(self, x: Value) -> Value:
        """A clipped line."""
        return clipped(x, -1.0, 1.0)


@ACTIVATIONS.register
class SparsePlus(ActivationSpec):
    """0 up to -1, (x + 1)²/4 up to 1, then x"""

    type: Literal["sparse_plus"] = "sparse_plus"

    def of(self, x: Value) -> Value:
        """The parabola of the clipped operand, and what lies above 1."""
        inside = clipped(x, -1.0, 1.0) + 1.0
        return inside * inside * 0.25 + (elementwise(Maximum(), x, 1.0) - 1.0)


@ACTIVATIONS.register
class HardSilu(ActivationSpec):
    """x · hard_sigmoid(x). Howard et al. 2019, arXiv:1905.02244"""

    type: Literal["hard_silu"] = "hard_silu"

    def of(self, x: Value) -> Value:
        """The product."""
        return x * HardSigmoid().of(x)


@ACTIVATIONS.register
class HardSwish(ActivationSpec):
    """x · hard_sigmoid(x): another name of `hard_silu`"""

    type: Literal["hard_swish"] = "hard_swish"

    def of(self, x: Value) -> Value:
        """The product."""
        return x * HardSigmoid().of(x)


@ACTIVATIONS.register
class HardShrink(ActivationSpec):
    """x where |x| > threshold, else 0"""

    type: Literal["hard_shrink"] = "hard_shrink"
    threshold: float = Field(default=0.5, ge=0)
    """what is not greater becomes 0"""
    samples: ClassVar = ({}, {"threshold": 1.0})

    def of(self, x: Value) -> Value:
        """So written that what is not a number stays so."""
        return elementwise(Where(), elementwise(LessOrEqual(), ops.Abs()(x), self.threshold), 0.0, x)


@ACTIVATIONS.register
class SoftShrink(ActivationSpec):
    """x - threshold where x is greater, x + threshold where it is less than -threshold, else 0"""

    type: Literal["soft_shrink"] = "soft_shrink"
    threshold: float = Field(default=0.5, ge=0)
    """by how much numbers come nearer to 0"""
    samples: ClassVar = ({}, {"threshold": 1.0})

    def of(self, x: Value) -> Value:
        """What lies beyond the threshold."""
        return x - clipped(x, -self.threshold, self.threshold)


@ACTIVATIONS.register
class Threshold(ActivationSpec):
    """x where x > threshold, else default_value"""

    type: Literal["threshold"] = "threshold"
    threshold: float = 0.0
    """what is not greater is replaced"""
    default_value: float = 0.0
    """what it is replaced by"""
    samples: ClassVar = ({"threshold": 0.5, "default_value": -1.0},)

    def of(self, x: Value) -> Value:
        """So written that what is not a number stays so."""
        return elementwise(Where(), elementwise(LessOrEqual(), x, self.threshold), self.default_value, x)
