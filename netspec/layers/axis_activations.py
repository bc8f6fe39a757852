"""Activation functions of all numbers along an axis: softmax and its kin."""

from __future__ import annotations

from typing import ClassVar, Literal

from netspec.graph.ops import functions as ops
from netspec.graph.ops import softmax
from netspec.graph.ops.shape import Slice
from netspec.graph.value import Value
from netspec.layers.activations import OverAxis
from netspec.layers.checks import need
from netspec.schema.kinds import ACTIVATIONS


@ACTIVATIONS.register
class Softmax(OverAxis):
    """eˣ / Σ eˣ along an axis"""

    type: Literal["softmax"] = "softmax"
    comes_back: ClassVar = "always"
    samples: ClassVar = ({}, {"axis": 1})

    def along(self, x: Value, axis: int) -> Value:
        """One op."""
        return softmax.Softmax(axis)(x)


@ACTIVATIONS.register
class LogSoftmax(OverAxis):
    """x - ln Σ eˣ along an axis"""

    type: Literal["log_softmax"] = "log_softmax"
    comes_back: ClassVar = "always"

    def along(self, x: Value, axis: int) -> Value:
        """One op."""
        return softmax.LogSoftmax(axis)(x)


@ACTIVATIONS.register
class Sparsemax(OverAxis):
    """The nearest numbers that are not negative and sum to 1 along an axis. Martins and Astudillo 2016"""

    type: Literal["sparsemax"] = "sparsemax"
    comes_back: ClassVar = "never"
    samples: ClassVar = ({}, {"axis": 1})

    def along(self, x: Value, axis: int) -> Value:
        """One op."""
        return softmax.Sparsemax(axis)(x)


@ACTIVATIONS.register
class Glu(OverAxis):
    """The first half of the features times the sigmoid of the second, so half as many. Dauphin et al. 2016"""

    type: Literal["glu"] = "glu"
    comes_back: ClassVar = "never"
    verb: ClassVar = "to halve"

    def along(self, x: Value, axis: int) -> Value:
        """Two slices, of which one opens the other."""
        size = x.shape[axis]
        need(size % 2 == 0, "`glu` can't halve an odd number of features", expected="an even number", got=size)
        return Slice(axis, 0, size // 2)(x) * ops.Sigmoid()(Slice(axis, size // 2, size)(x))
