"""Batch normalization: ops for training and inference, and the gradient.

Ioffe and Szegedy 2015, arXiv:1502.03167.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

from netspec.graph.onnx_map import GRADIENT, Emitter, OnnxExpansion
from netspec.graph.op import Array, Grads, Op, Traits, Xp
from netspec.graph.ops.elementwise import Pow
from netspec.graph.ops.reduce import Broadcast, ReduceSum, reshape_to
from netspec.graph.ops.unary import Sqrt
from netspec.graph.types import TensorType
from netspec.graph.value import Value


@dataclass(frozen=True)
class ChannelwiseOp(Op):
    """Base of ops that treat each channel, a slice along `axis`, separately; per-channel operands are vectors."""

    axis: int = 1
    epsilon: float = 1e-3

    def vector_type(self, x: TensorType, *vectors: TensorType) -> TensorType:
        """The type of a per-channel vector of `x`; raises `ShapeMismatch` unless `vectors` have it."""
        self.check(0 <= self.axis < x.rank, f"there is no axis {self.axis} of channels", got=x)
        vector = x.with_shape(x.shape[self.axis])
        for operand in vectors:
            self.check(
                operand == vector, "a per-channel operand has the wrong shape", expected=str(vector), got=operand
            )
        return vector

    def reduced_axes(self, rank: int) -> tuple[int, ...]:
        """All axes except the channels' axis."""
        return tuple(axis for axis in range(rank) if axis != self.axis)

    def broadcast_vector(self, x: Value, vector: Value) -> Value:
        """A per-channel vector shaped to broadcast over `x`."""
        return reshape_to(vector, tuple(n if axis == self.axis else 1 for axis, n in enumerate(x.shape)))

    def elements_per_channel(self, x: Value) -> int:
        """Number of elements of `x` in a channel."""
        return prod(x.shape) // x.shape[self.axis]

    def broadcast_array(self, x: Array, vector: Array) -> Array:
        """A per-channel array shaped to broadcast over `x`."""
        return vector.reshape((-1,) + (1,) * (x.ndim - 1 - self.axis))


def _channels_second_to_onnx(
    g: Emitter, y: Value, x: str, *vectors: str, outputs: int, **attributes: float
) -> tuple[str, ...]:
    """Add ONNX's BatchNormalization, which needs channels at axis 1: another axis is transposed there and back."""
    op = y.op
    assert isinstance(op, ChannelwiseOp)
    order = list(range(len(y.shape)))
    order[1], order[op.axis] = order[op.axis], order[1]  # swapping two axes is its own inverse
    channels_second = g.node("Transpose", x, perm=order) if op.axis != 1 else x
    normalized = g.node("BatchNormalization", channels_second, *vectors, outputs=outputs, **attributes)
    y_name = g.node("Transpose", normalized, perm=order) if op.axis != 1 else normalized
    return y_name, *(f"{normalized}:{index}" for index in range(1, outputs))


def _to_onnx(g: Emitter, y: Value, x: str, *vectors: str) -> str:
    op = y.op
    assert isinstance(op, BatchNormalization)
    return _channels_second_to_onnx(g, y, x, *vectors, outputs=1, epsilon=op.epsilon, momentum=op.momentum)[0]


@dataclass(frozen=True)
class BatchNormalization(ChannelwiseOp):
    """Inference: y = gamma · (x - mean) / √(variance + ε) + beta, with given mean and variance."""

    momentum: float = 0.99
    """Momentum of the moving averages in training: not used here, but part of exported files."""

    traits = Traits(narrowable_outputs=(0,), wide_inputs=(1, 2, 3, 4))
    onnx = OnnxExpansion(_to_onnx)

    def infer(
        self, x: TensorType, gamma: TensorType, beta: TensorType, mean: TensorType, variance: TensorType
    ) -> TensorType:
        """x: (N, C, …), the others: (C) → (N, C, …)."""
        self.vector_type(x, gamma, beta, mean, variance)
        return x

    def forward(self, xp: Xp, x: Array, gamma: Array, beta: Array, mean: Array, variance: Array) -> Array:
        scale = gamma / xp.sqrt(variance + self.epsilon)
        return (x - self.broadcast_array(x, mean)) * self.broadcast_array(x, scale) + self.broadcast_array(x, beta)

    def decompose(self, x: Value, gamma: Value, beta: Value, mean: Value, variance: Value) -> Value:
        scale = gamma * Pow(-0.5)(variance + self.epsilon)
        return (x - self.broadcast_vector(x, mean)) * self.broadcast_vector(x, scale) + self.broadcast_vector(x, beta)

    def flops(self, x: TensorType, *vectors: TensorType) -> int:
        return 3 * x.size

    def simplify(self, x: Value, gamma: Value, beta: Value, mean: Value, variance: Value) -> Value:
        # x · scale + shift with precomputed vectors: elementwise ops, which fuse into a preceding convolution.
        scale = gamma * Pow(-0.5)(variance + self.epsilon)
        shift = beta - mean * scale
        return x * self.broadcast_vector(x, scale) + self.broadcast_vector(x, shift)


class BatchNormalizationTraining(ChannelwiseOp):
    """Training: y = gamma · (x - mean) / √(variance + ε) + beta, with the mean and variance of each channel.

    Results: y, mean, variance. The variance is biased: Σ(x - mean)² / m.
    """

    traits = Traits(anchor=True, narrowable_outputs=(0,), wide_inputs=(1, 2))
    onnx = GRADIENT

    def infer(self, x: TensorType, gamma: TensorType, beta: TensorType) -> tuple[TensorType, TensorType, TensorType]:
        """x: (N, C, …), gamma, beta: (C) → (N, C, …), (C), (C)."""
        vector = self.vector_type(x, gamma, beta)
        return x, vector, vector

    def forward(self, xp: Xp, x: Array, gamma: Array, beta: Array) -> tuple[Array, Array, Array]:
        axes = self.reduced_axes(x.ndim)
        mean = x.mean(axis=axes)
        centered = x - self.broadcast_array(x, mean)
        variance = (centered * centered).mean(axis=axes)
        scale = gamma / xp.sqrt(variance + self.epsilon)
        return centered * self.broadcast_array(x, scale) + self.broadcast_array(x, beta), mean, variance

    def vjp_outputs(self, ys: Sequence[Value], dys: Sequence[Value | None]) -> Grads:
        """Mean and variance depend on x too; second-order gradients include their gradients."""
        y, mean, variance = ys
        x, gamma, _ = y.inputs
        m = self.elements_per_channel(x)
        dx = dgamma = dbeta = None
        if dys[0] is not None:
            dx, dgamma, dbeta = BatchNormalizationGrad(self.axis, self.epsilon).call_multi(
                x, gamma, mean, variance, dys[0]
            )
        if dys[1] is not None:
            dx_part = Broadcast(x.shape)(self.broadcast_vector(x, dys[1] * (1 / m)))
            dx = dx_part if dx is None else dx + dx_part
        if dys[2] is not None:
            dx_part = (x - self.broadcast_vector(x, mean)) * self.broadcast_vector(x, dys[2] * (2 / m))
            dx = dx_part if dx is None else dx + dx_part
        return dx, dgamma, dbeta

    def recompute(self, inputs: Sequence[Value], results: Sequence[Value]) -> Value:
        (x, gamma, beta), (_, mean, variance) = inputs, results
        scale = gamma / Sqrt()(variance + self.epsilon)
        return (x - self.broadcast_vector(x, mean)) * self.broadcast_vector(x, scale) + self.broadcast_vector(x, beta)

    def flops(self, x: TensorType, *vectors: TensorType) -> int:
        return 7 * x.size


def _moving_average_to_onnx(g: Emitter, y: Value, x: str, *vectors: str) -> tuple[str, ...]:
    op = y.op
    assert isinstance(op, BatchNormalizationMovingAverage)
    attributes = {"epsilon": op.epsilon, "momentum": op.momentum, "training_mode": 1}
    return _channels_second_to_onnx(g, y, x, *vectors, outputs=3, **attributes)


@dataclass(frozen=True)
class BatchNormalizationMovingAverage(ChannelwiseOp):
    """Training with moving averages of the statistics: old · momentum + batch · (1 - momentum).

    Results: y of `BatchNormalizationTraining`, and the new moving mean and variance, as in ONNX's training mode.
    """

    momentum: float = 0.99
    traits = Traits(narrowable_outputs=(0,), wide_inputs=(1, 2, 3, 4))
    onnx = OnnxExpansion(_moving_average_to_onnx)

    def infer(
        self, x: TensorType, gamma: TensorType, beta: TensorType, mean: TensorType, variance: TensorType
    ) -> tuple[TensorType, TensorType, TensorType]:
        """x: (N, C, …), the others: (C) → (N, C, …), (C), (C)."""
        vector = self.vector_type(x, gamma, beta, mean, variance)
        return x, vector, vector

    def forward(
        self, xp: Xp, x: Array, gamma: Array, beta: Array, mean: Array, variance: Array
    ) -> tuple[Array, Array, Array]:
        batch_results = BatchNormalizationTraining(self.axis, self.epsilon).forward(xp, x, gamma, beta)
        return self._update_averages(batch_results, mean, variance)

    def decompose(
        self, x: Value, gamma: Value, beta: Value, mean: Value, variance: Value
    ) -> tuple[Value, Value, Value]:
        batch_results = BatchNormalizationTraining(self.axis, self.epsilon).call_multi(x, gamma, beta)
        return self._update_averages(batch_results, mean, variance)

    def _update_averages(self, batch_results: Sequence[Any], mean: Any, variance: Any) -> tuple[Any, Any, Any]:
        """Return y and the new moving averages, as arrays or values.

        `batch_results` are y and the mean and variance of the batch.
        """
        y, batch_mean, batch_variance = batch_results
        old, new = self.momentum, 1 - self.momentum
        return y, mean * old + batch_mean * new, variance * old + batch_variance * new

    def simplify(self, *inputs: Value) -> tuple[Value, Value, Value]:
        return self.decompose(*inputs)  # the op that kernels implement

    def flops(self, x: TensorType, *vectors: TensorType) -> int:
        return 7 * x.size


class BatchNormalizationGrad(ChannelwiseOp):
    """Gradients of `BatchNormalizationTraining`: x, gamma, the batch's mean and variance, dy → dx, dgamma, dbeta.

    dx = gamma / √(variance + ε) · (dy - dbeta / m - x̂ · dgamma / m), dgamma = Σ dy · x̂, dbeta = Σ dy.
    """

    traits = Traits(fusable_inputs=(4,), narrowable_outputs=(0,), wide_inputs=(1, 2, 3))
    onnx = GRADIENT

    def infer(
        self, x: TensorType, gamma: TensorType, mean: TensorType, variance: TensorType, dy: TensorType
    ) -> tuple[TensorType, TensorType, TensorType]:
        """x, dy: (N, C, …), the others: (C) → (N, C, …), (C), (C)."""
        vector = self.vector_type(x, gamma, mean, variance)
        self.check(dy == x, "the gradient must have the operand's type", expected=str(x), got=dy)
        return x, vector, vector

    def forward(
        self, xp: Xp, x: Array, gamma: Array, mean: Array, variance: Array, dy: Array
    ) -> tuple[Array, Array, Array]:
        axes, m = self.reduced_axes(x.ndim), x.size // x.shape[self.axis]
        inverse_deviation = 1 / xp.sqrt(variance + self.epsilon)
        x_hat = (x - self.broadcast_array(x, mean)) * self.broadcast_array(x, inverse_deviation)
        dgamma, dbeta = (dy * x_hat).sum(axis=axes), dy.sum(axis=axes)
        dx = self.broadcast_array(x, gamma * inverse_deviation) * (
            dy - self.broadcast_array(x, dbeta / m) - x_hat * self.broadcast_array(x, dgamma / m)
        )
        return dx, dgamma, dbeta

    def decompose(self, x: Value, gamma: Value, mean: Value, variance: Value, dy: Value) -> tuple[Value, Value, Value]:
        total, m = ReduceSum(self.reduced_axes(len(x.shape))), self.elements_per_channel(x)
        inverse_deviation = Pow(-0.5)(variance + self.epsilon)
        x_hat = (x - self.broadcast_vector(x, mean)) * self.broadcast_vector(x, inverse_deviation)
        dgamma, dbeta = total(dy * x_hat), total(dy)
        inner = dy - self.broadcast_vector(x, dbeta * (1 / m)) - x_hat * self.broadcast_vector(x, dgamma * (1 / m))
        return inner * self.broadcast_vector(x, gamma * inverse_deviation), dgamma, dbeta

    def inplace_operands(self, result: int, inputs: Sequence[Value]) -> Sequence[Value]:
        dy = inputs[4]  # dy is read for its sums before it is overwritten element by element
        return [dy] if result == 0 and inputs.count(dy) == 1 else []

    def flops(self, x: TensorType, *others: TensorType) -> int:
        return 11 * x.size
