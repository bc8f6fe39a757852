"""The largest or smallest elements along an axis, with their indices."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from netspec.graph.onnx_map import Emitter, NoOnnxForm, OnnxExpansion
from netspec.graph.op import Array, Grads, NoGradient, Op, Xp
from netspec.graph.ops import reduce
from netspec.graph.ops.shape import OneHot
from netspec.graph.types import DType, TensorType
from netspec.graph.value import Value


def _top_k_to_onnx(g: Emitter, y: Value, x: str) -> tuple[str, str]:
    assert isinstance(y.op, TopK)
    smallest = {} if y.op.largest else {"largest": 0}
    values = g.node("TopK", x, g.constant([y.op.k], "int64"), outputs=2, axis=y.op.axis, **smallest)
    return values, f"{values}:1"


@dataclass(frozen=True)
class TopK(Op):
    """The k largest elements along `axis` in descending order, and their indices as int64.

    If not `largest`, the k smallest in ascending order. Of equal elements the first ones are taken.
    """

    k: int
    axis: int
    largest: bool = True
    onnx = OnnxExpansion(_top_k_to_onnx)

    def infer(self, x: TensorType) -> tuple[TensorType, TensorType]:
        """x: (…, size, …) → twice (…, k, …)."""
        self.check(0 <= self.axis < x.rank, "TopK over an axis that the operand does not have", got=x)
        self.check(
            self.k <= x.shape[self.axis], f"there are fewer than {self.k} elements along axis {self.axis}", got=x
        )
        values = x.with_shape(*x.shape[: self.axis], self.k, *x.shape[self.axis + 1 :])
        return values, values.with_dtype(DType.INT64)

    def forward(self, xp: Xp, x: Array) -> tuple[Array, Array]:
        rows = xp.moveaxis(x, self.axis, -1)
        # Negating the smallest integer overflows, and unsigned integers have no negative; ~x = -x - 1 reverses both.
        order = rows if not self.largest else -rows if rows.dtype.kind == "f" else ~rows
        index = order.argsort(axis=-1, kind="stable")[..., : self.k]
        values = xp.take_along_axis(rows, index, axis=-1)
        return xp.moveaxis(values, -1, self.axis), xp.moveaxis(index, -1, self.axis)

    def vjp_outputs(self, ys: Sequence[Value], dys: Sequence[Value | None]) -> Grads:
        """Scatter dy to the indices of the elements."""
        x, dy = ys[0].inputs[0], dys[0]
        if dy is None:
            return (None,)
        one_hot = OneHot(x.shape[self.axis], dy.dtype, self.axis)(ys[1])
        column = reduce.reshape_to(dy, (*dy.shape[: self.axis], 1, *dy.shape[self.axis :]))
        return (reduce.ReduceSum((self.axis + 1,))(one_hot * column),)

    def flops(self, x: TensorType) -> int:
        return 0


@dataclass(frozen=True)
class InTopK(NoGradient):
    """Whether an element is among the k largest along the last axis (of equal elements the first ones), as bool."""

    k: int
    onnx = NoOnnxForm("metrics are not exported")

    def infer(self, x: TensorType) -> TensorType:
        self.check(
            x.rank >= 1 and self.k <= x.shape[-1], f"there are fewer than {self.k} elements along the last axis", got=x
        )
        return x.with_dtype(DType.BOOL)

    def forward(self, xp: Xp, x: Array) -> Array:
        rank = (-x).argsort(axis=-1, kind="stable").argsort(axis=-1, kind="stable")
        return rank < self.k
