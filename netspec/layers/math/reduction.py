"""Reductions and cumulative reductions: Reduction, CumSum, CumProd."""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar, Literal, TypeAlias

from netspec.graph.ops import cumsum, norms, reduce
from netspec.graph.ops.elementwise import scalar
from netspec.graph.ops.reduce import BroadcastLike
from netspec.graph.ops.shape import Concat, Flip, Slice
from netspec.graph.ops.unary import Abs
from netspec.graph.value import Value
from netspec.layers.base import Builder, LayerSpec, Sample
from netspec.layers.checks import Axes, require, sample_axis
from netspec.schema.specs.kinds import LAYERS

Operation: TypeAlias = Literal["sum", "mean", "max", "min", "prod", "asum", "sumsq", "l2", "logsum", "logsumexp"]
_OPERATIONS: dict[str, tuple[type[reduce.Reduction], Callable[[Value], Value]]] = {
    "sum": (reduce.ReduceSum, lambda x: x),
    "mean": (reduce.ReduceMean, lambda x: x),
    "max": (reduce.ReduceMax, lambda x: x),
    "min": (reduce.ReduceMin, lambda x: x),
    "prod": (reduce.ReduceProd, lambda x: x),
    "asum": (reduce.ReduceSum, Abs()),
    "sumsq": (reduce.ReduceSum, lambda x: x * x),
    "l2": (norms.ReduceL2, lambda x: x),
    "logsum": (norms.ReduceLogSum, lambda x: x),
    "logsumexp": (norms.ReduceLogSumExp, lambda x: x),
}
"""For each operation, the elementwise function that is applied first, and the reduction."""
INTEGER_OPERATIONS = ("sum", "max", "min", "prod")
"""Operations that keep integers."""


@LAYERS.register
class Reduction(LayerSpec):
    """Reduce axes of each sample to one element: the sum, mean, maximum, ….

    Input (N, …), output without these axes; (N, 1) if none is left. `asum` sums magnitudes, `sumsq` squares, as Caffe's
    Reduction does; `l2` is the root of `sumsq`, `logsum` and `logsumexp` are logarithms of sums, of elements or of
    their exponentials. Equal maxima, or minima, share the gradient. Sums, products, maxima and minima of int32 and
    int64 stay integers, all others are floats.
    """

    foreign_fields: ClassVar[dict[str, str]] = {
        "axis": "use `axes`: Caffe's `axis: 1` is the default",
        "dim": "`dim` is PyTorch's name: use `axes`",
        "keep_dims": "use `keepdims`",
        "keepdim": "use `keepdims`",
        "coeff": "`coeff` is Caffe's name: put the layer Power with `scale` after it",
    }
    onnx_equivalents: ClassVar[tuple[str, ...]] = ("Flatten", "GlobalAveragePooling1D")

    type: Literal["Reduction"] = "Reduction"
    operation: Operation = "sum"
    """The reduction."""
    axes: Axes | None = None
    """The axes to reduce; default: all but the batch."""
    keepdims: bool = False
    """Keep the axes, with size 1."""

    samples: ClassVar = (
        Sample.of((2, 3, 4)),
        Sample.of((2, 3, 4), operation="mean", axes=[-1]),
        Sample.of((2, 3, 4), operation="max", axes=1, keepdims=True),
        Sample.of((2, 3, 4), operation="min", axes=[1, 2]),
        Sample.of((2, 5), operation="prod", ranges=((0.5, 2.0),)),
        Sample.of((2, 3, 4), operation="prod", axes=1),
        Sample.of((2, 3, 4), operation="asum", axes=2),
        Sample.of((2, 3, 4), operation="sumsq", axes=1),
        Sample.of((2, 3, 4), operation="l2", axes=[1, 2], keepdims=True),
        Sample.of((2, 5), operation="logsum", ranges=((0.5, 2.0),)),
        Sample.of((2, 3, 4), operation="logsumexp", axes=1),
        Sample.of((2, 3, 4), operation="max", axes=2, dtypes=("int32",)),
    )

    def build(self, builder: Builder, x: Value) -> Value:
        """x: (N, …) → (N, rest…)."""
        require(len(x.shape) >= 2, "the input has no axes after the batch", expected="(batch, …)", got=x.type)
        axes_field = range(1, len(x.shape)) if self.axes is None else self.axes
        axes = tuple(sorted(sample_axis(x, axis, "to reduce") for axis in axes_field))
        require(len(set(axes)) == len(axes), "an axis is repeated", expected="different axes", got=list(axes_field))
        kind, prepared = _OPERATIONS[self.operation]
        (x,) = builder.to_common_dtype([x]) if self.operation in INTEGER_OPERATIONS else [builder.floating(x)]
        y = kind(axes, self.keepdims)(prepared(x))
        return y if len(y.shape) > 1 else reduce.reshape_to(y, (*y.shape, 1))


class Cumulative(LayerSpec):
    """Base of CumSum and CumProd."""

    foreign_fields: ClassVar[dict[str, str]] = {"dim": "`dim` is PyTorch's name: use `axis`"}

    axis: int = 1
    """The axis to accumulate along."""
    exclusive: bool = False
    """Leave out the element itself: reduce the elements before it."""
    reverse: bool = False
    """Start from the end."""

    def build(self, builder: Builder, x: Value) -> Value:
        """x: (N, …) → (N, …)."""
        axis = sample_axis(x, self.axis, "to accumulate along")
        (x,) = builder.to_common_dtype([x])
        return self.cumulated(x, axis)

    def cumulated(self, x: Value, axis: int) -> Value:
        """The sums or products."""
        raise NotImplementedError  # subclasses implement it


@LAYERS.register
class CumSum(Cumulative):
    """The sum of all elements up to each, along an axis.

    Input and output have the same shape. int32 and int64 stay integers, others are converted to floats.
    """

    type: Literal["CumSum"] = "CumSum"

    samples: ClassVar = (
        Sample.of((2, 4, 3)),
        Sample.of((2, 3, 4), axis=-1, exclusive=True),
        Sample.of((2, 5), reverse=True, dtypes=("int32",)),
        Sample.of((2, 5), exclusive=True, reverse=True),
    )

    def cumulated(self, x: Value, axis: int) -> Value:
        return cumsum.CumSum(axis, self.exclusive, self.reverse)(x)


@LAYERS.register
class CumProd(Cumulative):
    """The product of all elements up to each, along an axis.

    Input and output have the same shape. int32 and int64 stay integers, others are converted to floats. The gradient is
    also right if elements are 0.
    """

    onnx_roundtrip_blocker: ClassVar = "it is written as a few products of parts"

    type: Literal["CumProd"] = "CumProd"

    samples: ClassVar = (
        Sample.of((2, 5, 2)),
        Sample.of((2, 4), axis=-1, exclusive=True, reverse=True),
        Sample.of((2, 1), exclusive=True),
    )

    def cumulated(self, x: Value, axis: int) -> Value:
        """Products of 2, 4, 8 … neighbors, each computed from two products of half as many."""
        size = x.shape[axis]
        y = Flip(axis)(x) if self.reverse else x
        if self.exclusive:
            y = _shift(y, axis, 1)
        reach = 1
        while reach < size:
            y = y * _shift(y, axis, reach)
            reach *= 2
        return Flip(axis)(y) if self.reverse else y


def _shift(x: Value, axis: int, steps: int) -> Value:
    """Shift the elements by `steps` along an axis, preceded by ones."""
    size = x.shape[axis]
    ones = BroadcastLike()(scalar(1, x.dtype), Slice(axis, 0, steps)(x))
    return Concat(axis)(ones, Slice(axis, 0, size - steps)(x)) if steps < size else ones
