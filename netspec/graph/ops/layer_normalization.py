"""Layer normalization and RMS normalization, and their gradients.

Ba, Kiros and Hinton 2016, arXiv:1607.06450; Zhang and Sennrich 2019, arXiv:1910.07467.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

from netspec.graph.onnx_map import GRADIENT, Emitter, OnnxExpansion, OnnxMap, floating, integer
from netspec.graph.op import Array, Grads, Op, Traits, Xp
from netspec.graph.ops.elementwise import Pow
from netspec.graph.ops.reduce import Broadcast, ReduceMean, ReduceSum
from netspec.graph.types import TensorType
from netspec.graph.value import Value


@dataclass(frozen=True)
class RowwiseOp(Op):
    """Base of ops on each row: the elements along the axes from `axis` on."""

    axis: int = -1
    epsilon: float = 1e-3

    def statistic_type(self, x: TensorType, *vectors: TensorType) -> TensorType:
        """The type of a statistic, one element per row with kept axes.

        Raises `ShapeMismatch` unless `vectors` are rows of `x`.
        """
        self.check(-x.rank <= self.axis < x.rank, f"there is no axis {self.axis} to normalize from", got=x)
        first = self.axis % x.rank
        row = x.with_shape(*x.shape[first:])
        for vector in vectors:
            self.check(vector == row, "a factor or offset has the wrong shape", expected=str(row), got=vector)
        return x.with_shape(*x.shape[:first], *(1 for _ in x.shape[first:]))

    def row_axes(self, rank: int) -> tuple[int, ...]:
        """The axes of a row."""
        return tuple(range(self.axis % rank, rank))

    def outer_axes(self, rank: int) -> tuple[int, ...]:
        """The axes across rows."""
        return tuple(range(self.axis % rank))

    def row_length(self, shape: tuple[int, ...]) -> int:
        """Number of elements of a row."""
        return prod(shape[self.axis % len(shape) :])


class LayerNormalization(RowwiseOp):
    """y = gamma · (x - mean) / √(variance + ε) + beta, with the mean and variance of each row.

    Results: y, mean, variance. The variance is biased: Σ(x - mean)² / length. ONNX's third result is 1 / √(variance +
    ε) instead; exported graphs do not read it.
    """

    traits = Traits(narrowable_outputs=(0,), wide_inputs=(1, 2))
    onnx = OnnxMap("LayerNormalization", axis=integer("axis"), epsilon=floating("epsilon"))

    def infer(self, x: TensorType, gamma: TensorType, beta: TensorType) -> tuple[TensorType, TensorType, TensorType]:
        """x: (…, row…), gamma, beta: (row…) → (…, row…), twice (…, 1…)."""
        statistic = self.statistic_type(x, gamma, beta)
        return x, statistic, statistic

    def forward(self, xp: Xp, x: Array, gamma: Array, beta: Array) -> tuple[Array, Array, Array]:
        axes = self.row_axes(x.ndim)
        mean = x.mean(axis=axes, keepdims=True)
        centered = x - mean
        variance = (centered * centered).mean(axis=axes, keepdims=True)
        return centered * (1 / xp.sqrt(variance + self.epsilon)) * gamma + beta, mean, variance

    def vjp_outputs(self, ys: Sequence[Value], dys: Sequence[Value | None]) -> Grads:
        """Mean and variance depend on x too; second-order gradients include their gradients."""
        y, mean, variance = ys
        x, gamma, _ = y.inputs
        share = 1 / self.row_length(x.shape)
        dx = dgamma = dbeta = None
        if dys[0] is not None:
            dx, dgamma, dbeta = LayerNormalizationGrad(self.axis, self.epsilon).call_multi(
                x, gamma, mean, variance, dys[0]
            )
        if dys[1] is not None:
            dx_part = Broadcast(x.shape)(dys[1] * share)
            dx = dx_part if dx is None else dx + dx_part
        if dys[2] is not None:
            dx_part = (x - mean) * (dys[2] * (2 * share))
            dx = dx_part if dx is None else dx + dx_part
        return dx, dgamma, dbeta

    def flops(self, x: TensorType, *vectors: TensorType) -> int:
        return 7 * x.size


class LayerNormalizationGrad(RowwiseOp):
    """Gradients of `LayerNormalization`: x, gamma, mean, variance, dy → dx, dgamma, dbeta.

    dx = (g - mean(g) - x̂ · mean(g · x̂)) / √(variance + ε) with g = gamma · dy and means over each row;
    dgamma = Σ dy · x̂ and dbeta = Σ dy over all rows.
    """

    traits = Traits(narrowable_outputs=(0,), wide_inputs=(1, 2, 3))
    onnx = GRADIENT

    def infer(
        self, x: TensorType, gamma: TensorType, mean: TensorType, variance: TensorType, dy: TensorType
    ) -> tuple[TensorType, TensorType, TensorType]:
        """x, dy: (…, row…), gamma: (row…), the others: (…, 1…) → (…, row…), twice (row…)."""
        statistic = self.statistic_type(x, gamma)
        self.check_types(mean=(mean, statistic), variance=(variance, statistic), dy=(dy, x))
        return x, gamma, gamma

    def forward(
        self, xp: Xp, x: Array, gamma: Array, mean: Array, variance: Array, dy: Array
    ) -> tuple[Array, Array, Array]:
        along, across = self.row_axes(x.ndim), self.outer_axes(x.ndim)
        inverse_deviation = 1 / xp.sqrt(variance + self.epsilon)
        x_hat, g = (x - mean) * inverse_deviation, dy * gamma
        mean_g, mean_gx = (x.mean(axis=along, keepdims=True) for x in (g, g * x_hat))
        return inverse_deviation * (g - mean_g - x_hat * mean_gx), (dy * x_hat).sum(axis=across), dy.sum(axis=across)

    def decompose(self, x: Value, gamma: Value, mean: Value, variance: Value, dy: Value) -> tuple[Value, Value, Value]:
        rank = len(x.shape)
        average, total = ReduceMean(self.row_axes(rank), keepdims=True), ReduceSum(self.outer_axes(rank))
        inverse_deviation = Pow(-0.5)(variance + self.epsilon)
        x_hat, g = (x - mean) * inverse_deviation, dy * gamma
        return (g - average(g) - x_hat * average(g * x_hat)) * inverse_deviation, total(dy * x_hat), total(dy)

    def flops(self, x: TensorType, *others: TensorType) -> int:
        return 13 * x.size


def _rms_to_onnx(g: Emitter, y: Value, x: str, gamma: str) -> str:
    op, dtype = y.op, str(y.dtype)
    assert isinstance(op, RMSNormalization)
    axes = g.constant(list(op.row_axes(len(y.shape))), "int64")
    square = g.node("ReduceMean", g.node("Mul", x, x), axes, keepdims=1)
    root = g.node("Sqrt", g.node("Add", square, g.constant(op.epsilon, dtype)))
    return g.node("Mul", g.node("Div", x, root), gamma)


class RMSNormalization(RowwiseOp):
    """y = gamma · x / √(mean square + ε), with the mean square of each row. Results: y, mean square."""

    traits = Traits(narrowable_outputs=(0,), wide_inputs=(1,))
    onnx = OnnxExpansion(_rms_to_onnx)

    def infer(self, x: TensorType, gamma: TensorType) -> tuple[TensorType, TensorType]:
        """x: (…, row…), gamma: (row…) → (…, row…), (…, 1…)."""
        return x, self.statistic_type(x, gamma)

    def forward(self, xp: Xp, x: Array, gamma: Array) -> tuple[Array, Array]:
        square = (x * x).mean(axis=self.row_axes(x.ndim), keepdims=True)
        return x * (1 / xp.sqrt(square + self.epsilon)) * gamma, square

    def vjp_outputs(self, ys: Sequence[Value], dys: Sequence[Value | None]) -> Grads:
        """The mean square depends on x too; second-order gradients include its gradient."""
        y, square = ys
        x, gamma = y.inputs
        dx = dgamma = None
        if dys[0] is not None:
            dx, dgamma = RMSNormalizationGrad(self.axis, self.epsilon).call_multi(x, gamma, square, dys[0])
        if dys[1] is not None:
            dx_part = x * (dys[1] * (2 / self.row_length(x.shape)))
            dx = dx_part if dx is None else dx + dx_part
        return dx, dgamma

    def flops(self, x: TensorType, *vectors: TensorType) -> int:
        return 4 * x.size


class RMSNormalizationGrad(RowwiseOp):
    """Gradients of `RMSNormalization`: x, gamma, mean square, dy → dx, dgamma.

    dx = (g - x̂ · mean(g · x̂)) / √(mean square + ε) with g = gamma · dy and means over each row; dgamma = Σ dy · x̂.
    """

    traits = Traits(narrowable_outputs=(0,), wide_inputs=(1, 2))
    onnx = GRADIENT

    def infer(
        self, x: TensorType, gamma: TensorType, square: TensorType, dy: TensorType
    ) -> tuple[TensorType, TensorType]:
        """x, dy: (…, row…), gamma: (row…), square: (…, 1…) → (…, row…), (row…)."""
        self.check_types(square=(square, self.statistic_type(x, gamma)), dy=(dy, x))
        return x, gamma

    def forward(self, xp: Xp, x: Array, gamma: Array, square: Array, dy: Array) -> tuple[Array, Array]:
        inverse_deviation = 1 / xp.sqrt(square + self.epsilon)
        x_hat, g = x * inverse_deviation, dy * gamma
        mean_gx = (g * x_hat).mean(axis=self.row_axes(x.ndim), keepdims=True)
        return inverse_deviation * (g - x_hat * mean_gx), (dy * x_hat).sum(axis=self.outer_axes(x.ndim))

    def decompose(self, x: Value, gamma: Value, square: Value, dy: Value) -> tuple[Value, Value]:
        rank = len(x.shape)
        inverse_deviation = Pow(-0.5)(square + self.epsilon)
        x_hat, g = x * inverse_deviation, dy * gamma
        mean_gx = ReduceMean(self.row_axes(rank), keepdims=True)(g * x_hat)
        return (g - x_hat * mean_gx) * inverse_deviation, ReduceSum(self.outer_axes(rank))(dy * x_hat)

    def flops(self, x: TensorType, *others: TensorType) -> int:
        return 9 * x.size
