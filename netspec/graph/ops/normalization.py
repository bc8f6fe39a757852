"""Batch normalization: the op for training with its gradient, and the op for inference.

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
from netspec.graph.ops.functions import Sqrt
from netspec.graph.ops.reduce import Broadcast, ReduceSum, reshape_to
from netspec.graph.types import TensorType
from netspec.graph.value import Value


@dataclass(frozen=True)
class OverChannels(Op):
    """Base of ops that treat each element along `axis`, a channel, on its own; per-channel operands are vectors."""

    axis: int = 1
    epsilon: float = 1e-3
    traits = Traits(rounds=(0,))

    def channels(self, x: TensorType, *vectors: TensorType) -> TensorType:
        """The type of a per-channel vector of `x`; raises unless `vectors` are of that type."""
        self.check(0 <= self.axis < x.rank, f"there is no axis {self.axis} of channels", got=x)
        vector = x.with_shape(x.shape[self.axis])
        for one in vectors:
            self.check(one == vector, "a per-channel operand does not fit", expected=str(vector), got=one)
        return vector

    def others(self, rank: int) -> tuple[int, ...]:
        """All axes but that of the channels."""
        return tuple(axis for axis in range(rank) if axis != self.axis)

    def column(self, x: Value, vector: Value) -> Value:
        """A per-channel vector shaped to broadcast over `x`."""
        return reshape_to(vector, tuple(n if axis == self.axis else 1 for axis, n in enumerate(x.shape)))

    def per_channel(self, x: Value) -> int:
        """How many numbers of `x` a channel holds."""
        return prod(x.shape) // x.shape[self.axis]

    def beside(self, x: Array, vector: Array) -> Array:
        """As `column`, for arrays."""
        return vector.reshape((-1,) + (1,) * (x.ndim - 1 - self.axis))


def _around_channels(g: Emitter, y: Value, x: str, *vectors: str, outputs: int, **attributes: float) -> tuple[str, ...]:
    """ONNX's BatchNormalization, with its results; the channels, which are axis 1 there, are turned there and back."""
    op = y.op
    assert isinstance(op, OverChannels)
    order = list(range(len(y.shape)))
    order[1], order[op.axis] = order[op.axis], order[1]  # swapping two axes is its own inverse
    turned = g.node("Transpose", x, perm=order) if op.axis != 1 else x
    made = g.node("BatchNormalization", turned, *vectors, outputs=outputs, **attributes)
    y_name = g.node("Transpose", made, perm=order) if op.axis != 1 else made
    return y_name, *(f"{made}:{index}" for index in range(1, outputs))


def _to_onnx(g: Emitter, y: Value, x: str, *vectors: str) -> str:
    op = y.op
    assert isinstance(op, BatchNormalization)
    return _around_channels(g, y, x, *vectors, outputs=1, epsilon=op.epsilon, momentum=op.momentum)[0]


@dataclass(frozen=True)
class BatchNormalization(OverChannels):
    """y = gamma · (x - mean) / √(variance + ε) + beta, with mean and variance given: the form for inference."""

    momentum: float = 0.99
    """Of the moving averages in training: nothing is computed with it, but files say it."""

    onnx = OnnxExpansion(_to_onnx)

    def infer(
        self, x: TensorType, gamma: TensorType, beta: TensorType, mean: TensorType, variance: TensorType
    ) -> TensorType:
        """x: (N, C, …), the others: (C) → (N, C, …)."""
        self.channels(x, gamma, beta, mean, variance)
        return x

    def forward(self, xp: Xp, x: Array, gamma: Array, beta: Array, mean: Array, variance: Array) -> Array:
        scale = gamma / xp.sqrt(variance + self.epsilon)
        return (x - self.beside(x, mean)) * self.beside(x, scale) + self.beside(x, beta)

    def decompose(self, x: Value, gamma: Value, beta: Value, mean: Value, variance: Value) -> Value:
        scale = gamma * Pow(-0.5)(variance + self.epsilon)
        return (x - self.column(x, mean)) * self.column(x, scale) + self.column(x, beta)

    def flops(self, x: TensorType, *vectors: TensorType) -> int:
        return 3 * x.size

    def simplified(self, x: Value, gamma: Value, beta: Value, mean: Value, variance: Value) -> Value:
        # x · scale + shift, the two vectors made once: elementwise, so that it moves into the convolution before it.
        scale = gamma * Pow(-0.5)(variance + self.epsilon)
        shift = beta - mean * scale
        return x * self.column(x, scale) + self.column(x, shift)


class BatchNormalizationTraining(OverChannels):
    """y = gamma · (x - mean) / √(variance + ε) + beta, with mean and variance those of the batch, per channel.

    Results: y, mean, variance. The variance is the biased one, Σ(x - mean)² / m.
    """

    traits = Traits(anchor=True, rounds=(0,))
    onnx = GRADIENT

    def infer(self, x: TensorType, gamma: TensorType, beta: TensorType) -> tuple[TensorType, TensorType, TensorType]:
        """x: (N, C, …), gamma, beta: (C) → (N, C, …), (C), (C)."""
        vector = self.channels(x, gamma, beta)
        return x, vector, vector

    def forward(self, xp: Xp, x: Array, gamma: Array, beta: Array) -> tuple[Array, Array, Array]:
        axes = self.others(x.ndim)
        mean = x.mean(axis=axes)
        centered = x - self.beside(x, mean)
        variance = (centered * centered).mean(axis=axes)
        scale = gamma / xp.sqrt(variance + self.epsilon)
        return centered * self.beside(x, scale) + self.beside(x, beta), mean, variance

    def vjp_outputs(self, ys: Sequence[Value], dys: Sequence[Value | None]) -> Grads:
        """Mean and variance depend on x too: their gradients, which double backward asks for, flow on to it."""
        y, mean, variance = ys
        x, gamma, _ = y.inputs
        m = self.per_channel(x)
        dx = dgamma = dbeta = None
        if dys[0] is not None:
            dx, dgamma, dbeta = BatchNormalizationGrad(self.axis, self.epsilon).many(x, gamma, mean, variance, dys[0])
        if dys[1] is not None:
            flow = Broadcast(x.shape)(self.column(x, dys[1] * (1 / m)))
            dx = flow if dx is None else dx + flow
        if dys[2] is not None:
            flow = (x - self.column(x, mean)) * self.column(x, dys[2] * (2 / m))
            dx = flow if dx is None else dx + flow
        return dx, dgamma, dbeta

    def again(self, inputs: Sequence[Value], results: Sequence[Value]) -> Value:
        (x, gamma, beta), (_, mean, variance) = inputs, results
        scale = gamma / Sqrt()(variance + self.epsilon)
        return (x - self.column(x, mean)) * self.column(x, scale) + self.column(x, beta)

    def flops(self, x: TensorType, *vectors: TensorType) -> int:
        return 7 * x.size


def _updating_to_onnx(g: Emitter, y: Value, x: str, *vectors: str) -> tuple[str, ...]:
    op = y.op
    assert isinstance(op, BatchNormalizationUpdating)
    attributes = {"epsilon": op.epsilon, "momentum": op.momentum, "training_mode": 1}
    return _around_channels(g, y, x, *vectors, outputs=3, **attributes)


@dataclass(frozen=True)
class BatchNormalizationUpdating(OverChannels):
    """As `BatchNormalizationTraining`, with moving averages: new = old · momentum + of the batch · (1 - momentum).

    Results: y, the new moving mean and variance. This is what ONNX calls the training mode of its operator.
    """

    momentum: float = 0.99
    onnx = OnnxExpansion(_updating_to_onnx)

    def infer(
        self, x: TensorType, gamma: TensorType, beta: TensorType, mean: TensorType, variance: TensorType
    ) -> tuple[TensorType, TensorType, TensorType]:
        """x: (N, C, …), the others: (C) → (N, C, …), (C), (C)."""
        vector = self.channels(x, gamma, beta, mean, variance)
        return x, vector, vector

    def forward(
        self, xp: Xp, x: Array, gamma: Array, beta: Array, mean: Array, variance: Array
    ) -> tuple[Array, Array, Array]:
        made = BatchNormalizationTraining(self.axis, self.epsilon).forward(xp, x, gamma, beta)
        return self._updated(made, mean, variance)

    def decompose(
        self, x: Value, gamma: Value, beta: Value, mean: Value, variance: Value
    ) -> tuple[Value, Value, Value]:
        made = BatchNormalizationTraining(self.axis, self.epsilon).many(x, gamma, beta)
        return self._updated(made, mean, variance)

    def _updated(self, made: Sequence[Any], mean: Any, variance: Any) -> tuple[Any, Any, Any]:
        """The averages moved on, of arrays or values; `made` is y, and mean and variance of the batch."""
        y, seen_mean, seen_variance = made
        old, new = self.momentum, 1 - self.momentum
        return y, mean * old + seen_mean * new, variance * old + seen_variance * new

    def simplified(self, *inputs: Value) -> tuple[Value, Value, Value]:
        return self.decompose(*inputs)  # what there are kernels for

    def flops(self, x: TensorType, *vectors: TensorType) -> int:
        return 7 * x.size


class BatchNormalizationGrad(OverChannels):
    """Gradients of `BatchNormalizationTraining`: x, gamma, the batch's mean and variance, dy → dx, dgamma, dbeta.

    dx = gamma / √(variance + ε) · (dy - dbeta / m - x̂ · dgamma / m), dgamma = Σ dy · x̂, dbeta = Σ dy.
    """

    traits = Traits(feeds=(4,), rounds=(0,))
    onnx = GRADIENT

    def infer(
        self, x: TensorType, gamma: TensorType, mean: TensorType, variance: TensorType, dy: TensorType
    ) -> tuple[TensorType, TensorType, TensorType]:
        """x, dy: (N, C, …), the others: (C) → (N, C, …), (C), (C)."""
        vector = self.channels(x, gamma, mean, variance)
        self.check(dy == x, "the gradient is not of the operand's type", expected=str(x), got=dy)
        return x, vector, vector

    def forward(
        self, xp: Xp, x: Array, gamma: Array, mean: Array, variance: Array, dy: Array
    ) -> tuple[Array, Array, Array]:
        axes, m = self.others(x.ndim), x.size // x.shape[self.axis]
        r = 1 / xp.sqrt(variance + self.epsilon)
        normal = (x - self.beside(x, mean)) * self.beside(x, r)
        dgamma, dbeta = (dy * normal).sum(axis=axes), dy.sum(axis=axes)
        dx = self.beside(x, gamma * r) * (dy - self.beside(x, dbeta / m) - normal * self.beside(x, dgamma / m))
        return dx, dgamma, dbeta

    def decompose(self, x: Value, gamma: Value, mean: Value, variance: Value, dy: Value) -> tuple[Value, Value, Value]:
        total, m = ReduceSum(self.others(len(x.shape))), self.per_channel(x)
        r = Pow(-0.5)(variance + self.epsilon)
        normal = (x - self.column(x, mean)) * self.column(x, r)
        dgamma, dbeta = total(dy * normal), total(dy)
        inner = dy - self.column(x, dbeta * (1 / m)) - normal * self.column(x, dgamma * (1 / m))
        return inner * self.column(x, gamma * r), dgamma, dbeta

    def overwritable(self, result: int, inputs: Sequence[Value]) -> Sequence[Value]:
        dy = inputs[4]  # read for its sums first, and then element by element
        return [dy] if result == 0 and inputs.count(dy) == 1 else []

    def flops(self, x: TensorType, *others: TensorType) -> int:
        return 11 * x.size
