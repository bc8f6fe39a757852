"""Activation functions of all elements along an axis, such as softmax."""

from __future__ import annotations

from typing import ClassVar, Literal

from netspec.graph.ops import softmax
from netspec.graph.ops import unary as ops
from netspec.graph.ops.shape import Slice
from netspec.graph.value import Value
from netspec.layers.activation.base import OverAxis
from netspec.layers.checks import require
from netspec.schema.specs.kinds import ACTIVATIONS


@ACTIVATIONS.register
class SoftmaxActivation(OverAxis):
    """eˣ / Σ eˣ along an axis"""

    type: Literal["softmax"] = "softmax"
    onnx_roundtrip: ClassVar = "always"
    samples: ClassVar = ({}, {"axis": 1})

    def apply_along(self, x: Value, axis: int) -> Value:
        return softmax.Softmax(axis)(x)


@ACTIVATIONS.register
class LogSoftmax(OverAxis):
    """x - ln Σ eˣ along an axis"""

    type: Literal["log_softmax"] = "log_softmax"
    onnx_roundtrip: ClassVar = "always"

    def apply_along(self, x: Value, axis: int) -> Value:
        return softmax.LogSoftmax(axis)(x)


@ACTIVATIONS.register
class Sparsemax(OverAxis):
    """The nearest vector without negative elements that sums to 1, along an axis. Martins and Astudillo 2016"""

    type: Literal["sparsemax"] = "sparsemax"
    onnx_roundtrip: ClassVar = "never"
    samples: ClassVar = ({}, {"axis": 1})

    def apply_along(self, x: Value, axis: int) -> Value:
        return softmax.Sparsemax(axis)(x)


@ACTIVATIONS.register
class Glu(OverAxis):
    """The first half of the features times the sigmoid of the other half: half as many features. Dauphin et al. 2016"""

    type: Literal["glu"] = "glu"
    onnx_roundtrip: ClassVar = "never"
    verb: ClassVar = "to split in half"

    def apply_along(self, x: Value, axis: int) -> Value:
        """The product of the first half and the sigmoid of the second."""
        size = x.shape[axis]
        require(size % 2 == 0, "`glu` needs an even number of features", expected="an even number", got=size)
        return Slice(axis, 0, size // 2)(x) * ops.Sigmoid()(Slice(axis, size // 2, size)(x))
