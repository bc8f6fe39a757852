"""Group normalization and its gradient; with one channel per group it is instance normalization.

Wu and He 2018, arXiv:1803.08494; Ulyanov, Vedaldi and Lempitsky 2016, arXiv:1607.08022.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

from netspec.graph.onnx_map import GRADIENT, Emitter, OnnxExpansion
from netspec.graph.op import Array, Grads, Op, Traits, Xp
from netspec.graph.ops.elementwise import Pow
from netspec.graph.ops.reduce import Broadcast, ReduceMean, ReduceSum, reshape_to
from netspec.graph.types import TensorType
from netspec.graph.value import Value


@dataclass(frozen=True)
class GroupwiseOp(Op):
    """Base of ops on each group of adjacent channels of each sample; channels are axis 1."""

    groups: int = 1
    epsilon: float = 1e-3

    def statistic_type(self, x: TensorType, *vectors: TensorType) -> TensorType:
        """The type (N, groups) of a statistic; raises `ShapeMismatch` unless `vectors` have one element per channel."""
        self.check(x.rank >= 2, "there is no axis of channels", expected="(batch, channels, …)", got=x)
        fits = x.shape[1] % self.groups == 0
        self.check(
            fits,
            f"the channels cannot be split into {self.groups} groups",
            expected=f"a multiple of {self.groups}",
            got=x,
        )
        for vector in vectors:
            self.check(
                vector == x.with_shape(x.shape[1]),
                "a factor or offset does not have one element per channel",
                got=vector,
            )
        return x.with_shape(x.shape[0], self.groups)

    def grouped_shape(self, shape: Sequence[int]) -> tuple[int, ...]:
        """The shape (N, groups, elements of a group) of an operand (N, C, …)."""
        return shape[0], self.groups, prod(shape[1:]) // self.groups

    def broadcast_channels(self, vector: Value, rank: int) -> Value:
        """A per-channel vector shaped to broadcast over (N, C, …)."""
        return reshape_to(vector, (*vector.shape, *(1,) * (rank - 2)))

    def broadcast_groups(self, statistic: Value, x: Value) -> Value:
        """A statistic (N, groups) repeated for each channel: (N, C, 1…)."""
        n, c = x.shape[:2]
        wide = Broadcast((n, self.groups, c // self.groups))(reshape_to(statistic, (*statistic.shape, 1)))
        return reshape_to(wide, (n, c, *(1,) * (len(x.shape) - 2)))


def _to_onnx(g: Emitter, y: Value, x: str, gamma: str, beta: str) -> str | tuple[str, ...]:
    normalized = _normalized_to_onnx(g, y, x, gamma, beta)
    return (normalized, *_statistics_to_onnx(g, y, x)) if any(map(g.is_read, y.node.outputs[1:])) else normalized


def _statistics_to_onnx(g: Emitter, y: Value, x: str) -> tuple[str, str]:
    """Mean and variance, which ONNX's operators do not return."""
    assert isinstance(y.op, GroupNormalization)
    rows, axis = g.node("Reshape", x, g.constant([0, y.op.groups, -1], "int64")), g.constant([2], "int64")
    mean = g.node("ReduceMean", rows, axis, keepdims=1)
    centered = g.node("Sub", rows, mean)
    variance = g.node("ReduceMean", g.node("Mul", centered, centered), axis, keepdims=0)
    return g.node("Squeeze", mean, axis), variance


def _normalized_to_onnx(g: Emitter, y: Value, x: str, gamma: str, beta: str) -> str:
    op, shape = y.op, y.shape
    assert isinstance(op, GroupNormalization)
    if op.groups == shape[1] and len(shape) > 2:
        return g.node("InstanceNormalization", x, gamma, beta, epsilon=op.epsilon)
    # InstanceNormalization with one channel per group: many ONNX readers do not support GroupNormalization yet.
    ones, zeros = (g.constant([value] * op.groups, str(y.dtype)) for value in (1.0, 0.0))
    groups = g.node("Reshape", x, g.constant([0, op.groups, -1], "int64"))
    normal = g.node("InstanceNormalization", groups, ones, zeros, epsilon=op.epsilon)
    channels = g.node("Reshape", normal, g.constant([0, *shape[1:]], "int64"))
    column = g.constant([shape[1], *(1 for _ in shape[2:])], "int64")
    scaled = g.node("Mul", channels, g.node("Reshape", gamma, column))
    return g.node("Add", scaled, g.node("Reshape", beta, column))


class GroupNormalization(GroupwiseOp):
    """y = gamma · (x - mean) / √(variance + ε) + beta, with the mean and variance of each group of each sample.

    Results: y, mean, variance. The variance is biased.
    """

    traits = Traits(narrowable_outputs=(0,), wide_inputs=(1, 2))
    onnx = OnnxExpansion(_to_onnx)

    def infer(self, x: TensorType, gamma: TensorType, beta: TensorType) -> tuple[TensorType, TensorType, TensorType]:
        """x: (N, C, …), gamma, beta: (C) → (N, C, …), twice (N, groups)."""
        statistic = self.statistic_type(x, gamma, beta)
        return x, statistic, statistic

    def forward(self, xp: Xp, x: Array, gamma: Array, beta: Array) -> tuple[Array, Array, Array]:
        rows = x.reshape(self.grouped_shape(x.shape))
        mean = rows.mean(axis=2)
        centered = rows - mean[:, :, None]
        variance = (centered * centered).mean(axis=2)
        x_hat = (centered * (1 / xp.sqrt(variance + self.epsilon))[:, :, None]).reshape(x.shape)
        column = (-1, *(1,) * (x.ndim - 2))
        return x_hat * gamma.reshape(column) + beta.reshape(column), mean, variance

    def vjp_outputs(self, ys: Sequence[Value], dys: Sequence[Value | None]) -> Grads:
        """Mean and variance depend on x too; second-order gradients include their gradients."""
        y, mean, variance = ys
        x, gamma, _ = y.inputs
        share = 1 / self.grouped_shape(x.shape)[2]
        dx = dgamma = dbeta = None
        if dys[0] is not None:
            grad = GroupNormalizationGrad(self.groups, self.epsilon)
            dx, dgamma, dbeta = grad.call_multi(x, gamma, mean, variance, dys[0])
        if dys[1] is not None:
            dx_part = Broadcast(x.shape)(self.broadcast_groups(dys[1] * share, x))
            dx = dx_part if dx is None else dx + dx_part
        if dys[2] is not None:
            dx_part = (x - self.broadcast_groups(mean, x)) * self.broadcast_groups(dys[2] * (2 * share), x)
            dx = dx_part if dx is None else dx + dx_part
        return dx, dgamma, dbeta

    def flops(self, x: TensorType, *vectors: TensorType) -> int:
        return 7 * x.size


class GroupNormalizationGrad(GroupwiseOp):
    """Gradients of `GroupNormalization`: x, gamma, mean, variance, dy → dx, dgamma, dbeta.

    dx = (g - mean(g) - x̂ · mean(g · x̂)) / √(variance + ε) with g = gamma · dy and means over each group of each sample;
    dgamma = Σ dy · x̂ and dbeta = Σ dy over all but the channels.
    """

    traits = Traits(narrowable_outputs=(0,), wide_inputs=(1, 2, 3))
    onnx = GRADIENT

    def infer(
        self, x: TensorType, gamma: TensorType, mean: TensorType, variance: TensorType, dy: TensorType
    ) -> tuple[TensorType, TensorType, TensorType]:
        """x, dy: (N, C, …), gamma: (C), the others: (N, groups) → (N, C, …), twice (C)."""
        statistic = self.statistic_type(x, gamma)
        self.check_types(mean=(mean, statistic), variance=(variance, statistic), dy=(dy, x))
        return x, gamma, gamma

    def forward(
        self, xp: Xp, x: Array, gamma: Array, mean: Array, variance: Array, dy: Array
    ) -> tuple[Array, Array, Array]:
        grouped = self.grouped_shape(x.shape)
        inverse_deviation = (1 / xp.sqrt(variance + self.epsilon))[:, :, None]
        x_hat = (x.reshape(grouped) - mean[:, :, None]) * inverse_deviation
        g = (dy * gamma.reshape(-1, *(1,) * (x.ndim - 2))).reshape(grouped)
        mean_g, mean_gx = (x.mean(axis=2, keepdims=True) for x in (g, g * x_hat))
        others = (0, *range(2, x.ndim))
        dgamma, dbeta = (dy * x_hat.reshape(x.shape)).sum(axis=others), dy.sum(axis=others)
        return (inverse_deviation * (g - mean_g - x_hat * mean_gx)).reshape(x.shape), dgamma, dbeta

    def decompose(self, x: Value, gamma: Value, mean: Value, variance: Value, dy: Value) -> tuple[Value, Value, Value]:
        rank = len(x.shape)
        total = ReduceSum((0, *range(2, rank)))

        def average(y: Value) -> Value:
            return self.broadcast_groups(ReduceMean((2,))(reshape_to(y, self.grouped_shape(x.shape))), x)

        inverse_deviation = self.broadcast_groups(Pow(-0.5)(variance + self.epsilon), x)
        x_hat, g = (x - self.broadcast_groups(mean, x)) * inverse_deviation, dy * self.broadcast_channels(gamma, rank)
        return (g - average(g) - x_hat * average(g * x_hat)) * inverse_deviation, total(dy * x_hat), total(dy)

    def flops(self, x: TensorType, *others: TensorType) -> int:
        return 13 * x.size
