"""Many numbers made one: Reduction, over any axes of a sample."""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar, Literal, TypeAlias

from netspec.graph.ops import lengths, reduce
from netspec.graph.ops.functions import Abs
from netspec.graph.value import Value
from netspec.layers.base import Builder, LayerSpec, Sample
from netspec.layers.checks import Axes, need, sample_axis
from netspec.schema.kinds import LAYERS

Operation: TypeAlias = Literal["sum", "mean", "max", "min", "prod", "asum", "sumsq", "l2", "logsum", "logsumexp"]

_OPERATIONS: dict[str, tuple[type[reduce.Reduction], Callable[[Value], Value]]] = {
    "sum": (reduce.ReduceSum, lambda x: x),
    "mean": (reduce.ReduceMean, lambda x: x),
    "max": (reduce.ReduceMax, lambda x: x),
    "min": (reduce.ReduceMin, lambda x: x),
    "prod": (reduce.ReduceProd, lambda x: x),
    "asum": (reduce.ReduceSum, Abs()),
    "sumsq": (reduce.ReduceSum, lambda x: x * x),
    "l2": (lengths.ReduceL2, lambda x: x),
    "logsum": (lengths.ReduceLogSum, lambda x: x),
    "logsumexp": (lengths.ReduceLogSumExp, lambda x: x),
}
"""How each is done: what is done with the elements first, and the reduction."""
WHOLE = ("sum", "max", "min", "prod")
"""Those of which whole numbers make whole numbers."""


@LAYERS.register
class Reduction(LayerSpec):
    """Make one number of all along some axes of each sample: their sum, mean, maximum …

    Input (N, …), output without these axes; (N, 1) where none is left. `asum` adds up magnitudes, `sumsq` squares, as
    Caffe's Reduction does; `l2` is the root of that, `logsum` and `logsumexp` are logarithms of sums, of numbers or
    of their exponentials. Equal maxima, or minima, share the gradient. Sums, products, maxima and minima of int32 and
    int64 are whole, all others floats.
    """

    foreign_fields: ClassVar[dict[str, str]] = {
        "axis": "here it is `axes`: Caffe's `axis: 1` is the default",
        "dim": "`dim` is PyTorch's name: here it is `axes`",
        "keep_dims": "here it is `keepdims`",
        "keepdim": "here it is `keepdims`",
        "coeff": "`coeff` is Caffe's name: put the layer Power with `scale` behind it",
    }
    alike: ClassVar[tuple[str, ...]] = ("Flatten", "GlobalAveragePooling1D")

    type: Literal["Reduction"] = "Reduction"
    operation: Operation = "sum"
    """what is made of the numbers"""
    axes: Axes | None = None
    """the axes that go; default: all but the batch"""
    keepdims: bool = False
    """keep the axes, with size 1"""

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

    def build(self, net: Builder, x: Value) -> Value:
        """x: (N, …) → (N, rest…)."""
        need(len(x.shape) >= 2, "the input has no axes besides the batch", expected="(batch, …)", got=x.type)
        given = range(1, len(x.shape)) if self.axes is None else self.axes
        axes = tuple(sorted(sample_axis(x, axis, "to reduce") for axis in given))
        need(len(set(axes)) == len(axes), "an axis is given twice", expected="different axes", got=list(given))
        kind, prepared = _OPERATIONS[self.operation]
        (x,) = net.common([x]) if self.operation in WHOLE else [net.floating(x)]
        y = kind(axes, self.keepdims)(prepared(x))
        return y if len(y.shape) > 1 else reduce.reshape_to(y, (*y.shape, 1))
