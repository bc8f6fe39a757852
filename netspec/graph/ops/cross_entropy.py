"""Softmax cross-entropy of scores (logits) and class indices as one op."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from netspec.graph.onnx_map import Emitter, OnnxExpansion
from netspec.graph.op import Array, Grads, Op, Xp
from netspec.graph.ops.reduce import ReduceSum, reshape_to
from netspec.graph.ops.shape import OneHot
from netspec.graph.ops.unary import Exp
from netspec.graph.types import DType, TensorType
from netspec.graph.value import Value


def _to_onnx(g: Emitter, y: Value, x: str, label: str) -> tuple[str, str]:
    op, (scores, labels) = y.op, y.inputs
    assert isinstance(op, SoftmaxCrossEntropyLoss)
    if labels.dtype not in (DType.INT32, DType.INT64):
        label = g.node("Cast", label, to=DType.INT64)
    other_axes = [axis for axis in range(len(scores.shape)) if axis != op.axis]  # ONNX's classes are axis 1
    order = [other_axes[0], op.axis, *other_axes[1:]]
    classes_second = g.node("Transpose", x, perm=order) if op.axis != 1 else x
    loss = g.node("SoftmaxCrossEntropyLoss", classes_second, label, outputs=2, reduction="none")
    inverse = sorted(range(len(order)), key=order.__getitem__)
    return loss, f"{loss}:1" if op.axis == 1 else g.node("Transpose", f"{loss}:1", perm=inverse)


@dataclass(frozen=True)
class SoftmaxCrossEntropyLoss(Op):
    """loss = -log_prob[label], where log_prob = x - ln Σ eˣ along `axis`.

    Results: the loss of each vector, and log_prob, from which the gradient e^log_prob - one_hot(label) is computed.
    A label out of range belongs to no class: its loss is 0.
    """

    axis: int = 1
    onnx = OnnxExpansion(_to_onnx)

    def infer(self, x: TensorType, label: TensorType) -> tuple[TensorType, TensorType]:
        """x: (N, …, C, …), label: (N, …) → (N, …), (N, …, C, …)."""
        fits = 0 <= self.axis < x.rank and label.shape == x.shape[: self.axis] + x.shape[self.axis + 1 :]
        self.check(fits, "the labels do not match the scores", got=f"{x}, {label}")
        self.check(not label.dtype.is_float, "labels must be integers", got=label)
        return x.with_shape(*label.shape), x

    def forward(self, xp: Xp, x: Array, label: Array) -> tuple[Array, Array]:
        shifted = x - x.max(axis=self.axis, keepdims=True)
        log_prob = shifted - xp.log(xp.exp(shifted).sum(axis=self.axis, keepdims=True))
        classes = xp.arange(x.shape[self.axis]).reshape((-1,) + (1,) * (x.ndim - 1 - self.axis))
        chosen = xp.where(xp.expand_dims(label, self.axis) == classes, log_prob, x.dtype.type(0))
        return -chosen.sum(axis=self.axis), log_prob

    def vjp_outputs(self, ys: Sequence[Value], dys: Sequence[Value | None]) -> Grads:
        _, log_prob = ys
        x, label = log_prob.inputs
        shape = (*x.shape[: self.axis], 1, *x.shape[self.axis + 1 :])
        probability = Exp()(log_prob)
        dx: Value | None = None
        if dys[0] is not None:
            one_hot = OneHot(x.shape[self.axis], x.dtype, self.axis)(label)
            dx = (probability - one_hot) * reshape_to(dys[0], shape)
        if dys[1] is not None:
            dx_part = dys[1] - probability * ReduceSum((self.axis,), keepdims=True)(dys[1])
            dx = dx_part if dx is None else dx + dx_part
        return dx, None

    def flops(self, x: TensorType, label: TensorType) -> int:
        return 5 * x.size
