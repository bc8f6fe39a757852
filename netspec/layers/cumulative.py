"""Sums and products of all elements up to each: CumSum and CumProd."""

from __future__ import annotations

from typing import ClassVar, Literal

from netspec.graph.ops import cumulative
from netspec.graph.ops.elementwise import scalar
from netspec.graph.ops.reduce import BroadcastLike
from netspec.graph.ops.shape import Concat, Flip, Slice
from netspec.graph.value import Value
from netspec.layers.base import Builder, LayerSpec, Sample
from netspec.layers.checks import sample_axis
from netspec.schema.kinds import LAYERS


class Cumulative(LayerSpec):
    """Base of both."""

    foreign_fields: ClassVar[dict[str, str]] = {"dim": "`dim` is PyTorch's name: here it is `axis`"}

    axis: int = 1
    """the axis to go along"""
    exclusive: bool = False
    """each without itself: those before it alone"""
    reverse: bool = False
    """begin at the end"""

    def build(self, net: Builder, x: Value) -> Value:
        """x: (N, …) → (N, …)."""
        axis = sample_axis(x, self.axis, "to go along")
        (x,) = net.common([x])
        return self.cumulated(x, axis)

    def cumulated(self, x: Value, axis: int) -> Value:
        """The sums or products."""
        raise NotImplementedError  # abstract: subclasses say


@LAYERS.register
class CumSum(Cumulative):
    """The sum of all elements up to each, along an axis.

    Input and output have the same shape. int32 and int64 stay whole, others are taken as floats.
    """

    type: Literal["CumSum"] = "CumSum"

    samples: ClassVar = (
        Sample.of((2, 4, 3)),
        Sample.of((2, 3, 4), axis=-1, exclusive=True),
        Sample.of((2, 5), reverse=True, dtypes=("int32",)),
        Sample.of((2, 5), exclusive=True, reverse=True),
    )

    def cumulated(self, x: Value, axis: int) -> Value:
        return cumulative.CumSum(axis, self.exclusive, self.reverse)(x)


@LAYERS.register
class CumProd(Cumulative):
    """The product of all elements up to each, along an axis.

    Input and output have the same shape. int32 and int64 stay whole, others are taken as floats. Its gradient is right
    where elements are 0 too.
    """

    one_way: ClassVar = "it is written as a few products of parts"

    type: Literal["CumProd"] = "CumProd"

    samples: ClassVar = (
        Sample.of((2, 5, 2)),
        Sample.of((2, 4), axis=-1, exclusive=True, reverse=True),
        Sample.of((2, 1), exclusive=True),
    )

    def cumulated(self, x: Value, axis: int) -> Value:
        """Products of 2, 4, 8 … neighbours: each of two that have half as many."""
        size = x.shape[axis]
        y = Flip(axis)(x) if self.reverse else x
        if self.exclusive:
            y = _later(y, axis, 1)
        reach = 1
        while reach < size:
            y = y * _later(y, axis, reach)
            reach *= 2
        return Flip(axis)(y) if self.reverse else y


def _later(x: Value, axis: int, places: int) -> Value:
    """The elements so many places later, behind ones."""
    size = x.shape[axis]
    ones = BroadcastLike()(scalar(1, x.dtype), Slice(axis, 0, places)(x))
    return Concat(axis)(ones, Slice(axis, 0, size - places)(x)) if places < size else ones
