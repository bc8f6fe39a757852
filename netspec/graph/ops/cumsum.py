"""Cumulative sums."""

from __future__ import annotations

from dataclasses import dataclass

from netspec.graph.onnx_map import OnnxExpansion
from netspec.graph.op import Array, Grads, Op, Xp
from netspec.graph.types import TensorType
from netspec.graph.value import Value


@dataclass(frozen=True)
class CumSum(Op):
    """Cumulative sum along `axis`: without the element itself if `exclusive`, from the end if `reverse`."""

    axis: int
    exclusive: bool = False
    reverse: bool = False
    onnx = OnnxExpansion(
        lambda g, y, x: g.node(
            "CumSum", x, g.constant(y.op.axis, "int64"), exclusive=int(y.op.exclusive), reverse=int(y.op.reverse)
        )
    )

    def infer(self, x: TensorType) -> TensorType:
        self.check(0 <= self.axis < x.rank, f"there is no axis {self.axis} to sum along", got=x)
        return x

    def forward(self, xp: Xp, x: Array) -> Array:
        rows = xp.flip(x, self.axis) if self.reverse else x
        sums = xp.cumsum(rows, axis=self.axis, dtype=x.dtype)
        if self.exclusive:
            part = (slice(None),) * self.axis
            sums = xp.concatenate([xp.zeros_like(x[(*part, slice(1))]), sums[(*part, slice(-1))]], axis=self.axis)
        return xp.flip(sums, self.axis) if self.reverse else sums

    def vjp(self, y: Value, dy: Value) -> Grads:
        return (CumSum(self.axis, self.exclusive, not self.reverse)(dy),)
