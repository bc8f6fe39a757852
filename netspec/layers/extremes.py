"""Places of extremes: ArgMax and ArgMin, and the greatest or least of several with their places, TopK."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal, Self

from pydantic import model_validator

from netspec.graph.onnx_map import Emitter, OnnxExpansion
from netspec.graph.op import Array, Grads, Op, Xp
from netspec.graph.ops import reduce
from netspec.graph.ops.shape import OneHot
from netspec.graph.types import DType, TensorType
from netspec.graph.value import Value
from netspec.layers.base import Builder, LayerSpec, Sample
from netspec.layers.checks import PositiveInt, need, sample_axis
from netspec.schema.kinds import LAYERS
from netspec.schema.spec import problem


def _top_k_to_onnx(g: Emitter, y: Value, x: str) -> tuple[str, str]:
    assert isinstance(y.op, Extremes)
    least = {} if y.op.largest else {"largest": 0}
    values = g.node("TopK", x, g.constant([y.op.k], "int64"), outputs=2, axis=y.op.axis, **least)
    return values, f"{values}:1"


@dataclass(frozen=True)
class Extremes(Op):
    """The k greatest numbers along `axis`, from the greatest on, and their places as int64; of equal ones the first.

    Or the least, from the least on.
    """

    k: int
    axis: int
    largest: bool = True
    onnx = OnnxExpansion(_top_k_to_onnx)

    def infer(self, x: TensorType) -> tuple[TensorType, TensorType]:
        """x: (…, size, …) → twice (…, k, …)."""
        self.check(0 <= self.axis < x.rank, "TopK over an axis that is not there", got=x)
        self.check(self.k <= x.shape[self.axis], f"there are not {self.k} numbers along axis {self.axis}", got=x)
        values = x.with_shape(*x.shape[: self.axis], self.k, *x.shape[self.axis + 1 :])
        return values, values.with_dtype(DType.INT64)

    def forward(self, xp: Xp, x: Array) -> tuple[Array, Array]:
        rows = xp.moveaxis(x, self.axis, -1)
        # Of whole numbers the least has no opposite, and those without a sign none: ~x is -x - 1 to both.
        order = rows if not self.largest else -rows if rows.dtype.kind == "f" else ~rows
        places = order.argsort(axis=-1, kind="stable")[..., : self.k]
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


class Extreme(LayerSpec):
    """Base of ArgMax and ArgMin."""

    op: ClassVar[type[reduce.ArgExtreme]]

    foreign_fields: ClassVar[dict[str, str]] = {
        "k": "here it is `top_k`",
        "dim": "`dim` is PyTorch's name: here it is `axis`",
        "keepdim": "here it is `keepdims`",
    }
    alike: ClassVar[tuple[str, ...]] = ("Reshape", "Flatten")

    axis: int = 1
    """the axis to look along; 1 is the channels"""
    keepdims: bool = False
    """keep the axis, with size 1; with `top_k` of 2 or more it is there anyway"""
    select_last_index: bool = False
    """of equal numbers the last, in place of the first"""

    def build(self, net: Builder, x: Value) -> Value | tuple[Value, ...]:
        """x: (N, …) → (N, …), int64."""
        axis = sample_axis(x, self.axis, "to look along")
        kept = (1,) if self.keepdims else ()
        return reduce.reshape_to(
            self.op(axis, self.select_last_index)(x), (*x.shape[:axis], *kept, *x.shape[axis + 1 :])
        )


@LAYERS.register
class ArgMax(Extreme):
    """The place of the greatest number along an axis, counted from 0, or of several; of equal ones the first.

    Input (N, …), output whole numbers (int64) without this axis, or with size 1 or `top_k` there. With `out_max_val`
    the numbers themselves come after, `NAME.values`. Gradients flow through these alone.
    """

    op: ClassVar = reduce.ArgMax

    type: Literal["ArgMax"] = "ArgMax"
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
        Sample.of((2, 6), select_last_index=True, dtypes=("int32",)),
    )

    @model_validator(mode="after")
    def _last_of_one(self) -> Self:
        if self.select_last_index and (self.top_k > 1 or self.out_max_val):
            raise problem(
                "of several, equal numbers come in their order", field="select_last_index",
                expected="`top_k` and `out_max_val` left out beside it",
            )  # fmt: skip
        return self

    def output_names(self) -> tuple[str, ...]:
        """The places, and the numbers there if they are asked for."""
        return ("places", "values") if self.out_max_val else ()

    def build(self, net: Builder, x: Value) -> Value | tuple[Value, ...]:
        """x: (N, …) → (N, …), int64, and the numbers."""
        axis = sample_axis(x, self.axis, "to look along")
        need_numbers(x, axis, self.top_k, "top_k")
        if self.top_k == 1 and not self.out_max_val:
            return super().build(net, x)
        kept = self.keepdims or self.top_k > 1
        shape = (*x.shape[:axis], *((self.top_k,) if kept else ()), *x.shape[axis + 1 :])
        values, places = Extremes(self.top_k, axis).many(net.floating(x))
        made = reduce.reshape_to(places, shape), reduce.reshape_to(values, shape)
        return made if self.out_max_val else made[0]


def need_numbers(x: Value, axis: int, count: int, field: str) -> None:
    """Raise unless there are so many numbers along an axis."""
    size = x.shape[axis]
    need(count <= size, f"axis {axis} has no {count} numbers", expected=f"`{field}` up to {size}", got=count)


@LAYERS.register
class ArgMin(Extreme):
    """The place of the least number along an axis, counted from 0; of equal ones the first.

    Input (N, …), output whole numbers (int64) without this axis, or with size 1 there. No gradient flows.
    """

    op: ClassVar = reduce.ArgMin

    type: Literal["ArgMin"] = "ArgMin"

    samples: ClassVar = (
        Sample.of((2, 3, 4)),
        Sample.of((2, 6), axis=-1, keepdims=True, select_last_index=True, dtypes=("int32",)),
    )


@LAYERS.register
class TopK(LayerSpec):
    """The greatest numbers along an axis, from the greatest on, and their places; or the least, from the least on.

    Input (N, …), outputs `NAME.values` and `NAME.indices` (int64), with `k` in place of the axis's size. Of equal
    numbers the first comes first. Gradients flow through the values. Whole numbers stay whole.
    """

    foreign_fields: ClassVar[dict[str, str]] = {
        "dim": "`dim` is PyTorch's name: here it is `axis`",
        "sorted": "they are always in order",
    }

    type: Literal["TopK"] = "TopK"
    k: PositiveInt
    """how many"""
    axis: int = -1
    """the axis to look along"""
    largest: bool = True
    """false: the least in place of the greatest"""

    samples: ClassVar = (
        Sample.of((2, 5), k=3),
        Sample.of((2, 4, 2), k=2, axis=1, largest=False),
        Sample.of((2, 6), k=6, dtypes=("int64",)),
    )

    def output_names(self) -> tuple[str, ...]:
        """As ONNX calls them."""
        return ("values", "indices")

    def build(self, net: Builder, x: Value) -> tuple[Value, ...]:
        """x: (N, …, size, …) → twice (N, …, k, …)."""
        axis = sample_axis(x, self.axis, "to look along")
        need_numbers(x, axis, self.k, "k")
        return Extremes(self.k, axis, self.largest).many(x)
