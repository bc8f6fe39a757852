"""Many numbers made one: Reduction, over any axes of a sample, and ArgMax."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal, TypeAlias

from netspec.graph.onnx_map import Emitter, OnnxExpansion
from netspec.graph.op import Array, Grads, Op, Xp
from netspec.graph.ops import reduce
from netspec.graph.ops.functions import Abs
from netspec.graph.ops.shape import OneHot
from netspec.graph.types import DType, TensorType
from netspec.graph.value import Value
from netspec.layers.base import Axes, Builder, LayerSpec, PositiveInt, Sample, need, sample_axis
from netspec.schema.kinds import LAYERS

Operation: TypeAlias = Literal["sum", "mean", "max", "min", "prod", "asum", "sumsq"]

_OPERATIONS: dict[str, tuple[type[reduce.Reduction], Callable[[Value], Value]]] = {
    "sum": (reduce.ReduceSum, lambda x: x),
    "mean": (reduce.ReduceMean, lambda x: x),
    "max": (reduce.ReduceMax, lambda x: x),
    "min": (reduce.ReduceMin, lambda x: x),
    "prod": (reduce.ReduceProd, lambda x: x),
    "asum": (reduce.ReduceSum, Abs()),
    "sumsq": (reduce.ReduceSum, lambda x: x * x),
}
"""How each is done: what is done with the elements first, and the reduction."""


@LAYERS.register
class Reduction(LayerSpec):
    """Make one number of all along some axes of each sample: their sum, mean, maximum …

    Input (N, …), output without these axes; (N, 1) where none is left. `asum` adds up magnitudes, `sumsq` squares, as
    Caffe's Reduction does. Equal maxima, or minima, share the gradient.
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
    )

    def build(self, net: Builder, x: Value) -> Value:
        """x: (N, …) → (N, rest…)."""
        need(len(x.shape) >= 2, "the input has no axes besides the batch", expected="(batch, …)", got=x.type)
        given = range(1, len(x.shape)) if self.axes is None else self.axes
        axes = tuple(sorted(sample_axis(x, axis, "to reduce") for axis in given))
        need(len(set(axes)) == len(axes), "an axis is given twice", expected="different axes", got=list(given))
        kind, prepared = _OPERATIONS[self.operation]
        y = kind(axes, self.keepdims)(prepared(net.floating(x)))
        return y if len(y.shape) > 1 else reduce.reshape_to(y, (*y.shape, 1))


def _top_k_to_onnx(g: Emitter, y: Value, x: str) -> tuple[str, str]:
    assert isinstance(y.op, TopK)
    values = g.node("TopK", x, g.constant([y.op.k], "int64"), outputs=2, axis=y.op.axis)
    return values, f"{values}:1"


@dataclass(frozen=True)
class TopK(Op):
    """The k greatest numbers along `axis`, from the greatest on, and their places as int64; of equal ones the first."""

    k: int
    axis: int
    onnx = OnnxExpansion(_top_k_to_onnx)

    def infer(self, x: TensorType) -> tuple[TensorType, TensorType]:
        """x: (…, size, …) → twice (…, k, …)."""
        self.check(0 <= self.axis < x.rank, "TopK over an axis that is not there", got=x)
        self.check(self.k <= x.shape[self.axis], f"there are not {self.k} numbers along axis {self.axis}", got=x)
        values = x.with_shape(*x.shape[: self.axis], self.k, *x.shape[self.axis + 1 :])
        return values, values.with_dtype(DType.INT64)

    def forward(self, xp: Xp, x: Array) -> tuple[Array, Array]:
        rows = xp.moveaxis(x, self.axis, -1)
        places = (-rows).argsort(axis=-1, kind="stable")[..., : self.k]
        values = xp.take_along_axis(rows, places, axis=-1)
        return xp.moveaxis(values, -1, self.axis), xp.moveaxis(places, -1, self.axis)

    def vjp_outputs(self, ys: Sequence[Value], dys: Sequence[Value | None]) -> Grads:
        """Each number's gradient goes to its place."""
        x, dy = ys[0].inputs[0], dys[0]
        if dy is None:
            return (None,)
        there = OneHot(x.shape[self.axis], dy.dtype, self.axis)(ys[1])
        given = reduce.reshape_to(dy, (*dy.shape[: self.axis], 1, *dy.shape[self.axis :]))
        return (reduce.ReduceSum((self.axis + 1,))(there * given),)

    def flops(self, x: TensorType) -> int:
        return 0


@LAYERS.register
class ArgMax(LayerSpec):
    """The place of the greatest number along an axis, counted from 0, or of several; of equal ones the first.

    Input (N, …), output whole numbers (int64) without this axis, or with size 1 or `top_k` there. With `out_max_val`
    the numbers themselves come after, `NAME.values`. Gradients flow through these alone.
    """

    foreign_fields: ClassVar[dict[str, str]] = {
        "k": "here it is `top_k`",
        "dim": "`dim` is PyTorch's name: here it is `axis`",
        "keepdim": "here it is `keepdims`",
    }
    alike: ClassVar[tuple[str, ...]] = ("Reshape",)

    type: Literal["ArgMax"] = "ArgMax"
    axis: int = 1
    """the axis to look along; 1 is the channels"""
    keepdims: bool = False
    """keep the axis, with size 1; with `top_k` of 2 or more it is there anyway"""
    top_k: PositiveInt = 1
    """how many places, from that of the greatest number on"""
    out_max_val: bool = False
    """give the numbers too: the outputs are `NAME.places` and `NAME.values`"""

    samples: ClassVar = (
        Sample.of((2, 3, 4)),
        Sample.of((2, 5), axis=-1),
        Sample.of((2, 3, 4), axis=2, keepdims=True),
        Sample.of((2, 5, 2), top_k=3, one_way=True),
        Sample.of((2, 3, 4), axis=-1, out_max_val=True, one_way=True),
    )

    def output_names(self) -> tuple[str, ...]:
        """The places, and the numbers there if they are asked for."""
        return ("places", "values") if self.out_max_val else ()

    def build(self, net: Builder, x: Value) -> Value | tuple[Value, ...]:
        """x: (N, …) → (N, …), int64, and the numbers."""
        axis = sample_axis(x, self.axis, "to look along")
        need(
            self.top_k <= x.shape[axis],
            f"axis {axis} has no {self.top_k} numbers",
            expected=f"`top_k` up to {x.shape[axis]}",
            got=self.top_k,
        )
        kept = self.keepdims or self.top_k > 1
        shape = (*x.shape[:axis], *((self.top_k,) if kept else ()), *x.shape[axis + 1 :])
        if self.top_k == 1 and not self.out_max_val:
            return reduce.reshape_to(reduce.ArgMax(axis)(x), shape)
        values, places = TopK(self.top_k, axis).many(net.floating(x))
        made = reduce.reshape_to(places, shape), reduce.reshape_to(values, shape)
        return made if self.out_max_val else made[0]
