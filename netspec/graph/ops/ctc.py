"""Connectionist temporal classification (CTC) loss: labels aligned with a longer sequence of frames.

Graves et al., "Connectionist Temporal Classification", ICML 2006. Labels may be separated, preceded and followed by
blanks. Each label and blank lasts one frame or more; a blank may be left out, except between equal labels.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from netspec.graph.onnx_map import GRADIENT
from netspec.graph.op import Array, Grads, Op, Xp
from netspec.graph.ops.elementwise import Greater, Maximum, Where, call_elementwise, cast, scalar
from netspec.graph.ops.linear import MatMul
from netspec.graph.ops.reduce import Broadcast, ReduceSum, reshape_to
from netspec.graph.ops.shape import Concat, OneHot, Slice
from netspec.graph.ops.source import constant
from netspec.graph.ops.unary import Exp, Log
from netspec.graph.types import DType, TensorType
from netspec.graph.value import Value

LOG_ZERO = -1e30
"""Logarithm of probability 0: adding it to other probabilities leaves them unchanged."""
LOG_ZERO_BOUND = -1e29
"""Values below this bound are sums of `LOG_ZERO` only."""


@dataclass(frozen=True)
class CTCBase(Op):
    """Base of both ops. Operands: log_prob (N, T, C), labels (N, L), lengths in frames (N), lengths in labels (N)."""

    blank: int = 0

    def check_operands(self, log_prob: TensorType, label: TensorType, frames: TensorType, lengths: TensorType) -> None:
        """Raise `ShapeMismatch` unless the operands fit."""
        batch = log_prob.shape[:1]
        shapes_match = (
            log_prob.rank == 3 and label.rank == 2 and label.shape[:1] == frames.shape == lengths.shape == batch
        )
        self.check(
            shapes_match, "frames, labels and lengths do not match", got=f"{log_prob}, {label}, {frames}, {lengths}"
        )
        self.check(not any(operand.dtype.is_float for operand in (label, frames, lengths)), "labels must be integers")

    def flops(self, log_prob: TensorType, label: TensorType, *lengths: TensorType) -> int:
        return 10 * log_prob.shape[0] * log_prob.shape[1] * (2 * label.shape[1] + 1)


class CTCLoss(CTCBase):
    """Negative log-probability of the labels, summed over all alignments; infinite if there is none."""

    onnx = GRADIENT

    def infer(self, log_prob: TensorType, label: TensorType, frames: TensorType, lengths: TensorType) -> TensorType:
        """Operands as in `CTCBase` → (N)."""
        self.check_operands(log_prob, label, frames, lengths)
        return log_prob.with_shape(log_prob.shape[0])

    def forward(self, xp: Xp, log_prob: Array, label: Array, frames: Array, lengths: Array) -> Array:
        totals = [_forward(xp, *sample)[1] for sample in _samples(xp, self.blank, log_prob, label, frames, lengths)]
        total = xp.asarray(totals, dtype=log_prob.dtype)
        return xp.where(total < LOG_ZERO_BOUND, xp.inf, -total).astype(log_prob.dtype)

    def vjp(self, y: Value, dy: Value) -> Grads:
        return CTCLossGrad(self.blank)(*y.inputs, dy), None, None, None

    def unrolled(self, log_prob: Value, label: Value, frames: Value, lengths: Value) -> Value:
        """The loss by simpler ops, several for each frame."""
        (batch, steps, count), dtype = log_prob.shape, log_prob.dtype
        size = label.shape[1]
        states = 2 * size + 1
        blanks = Broadcast((batch, size + 1, 1))(scalar(self.blank, DType.INT64))
        between, last = Slice(1, 0, size)(blanks), Slice(1, size, size + 1)(blanks)
        blanks_and_labels = Concat(2)(between, reshape_to(cast(label, DType.INT64), (batch, size, 1)))
        extended = Concat(1)(reshape_to(blanks_and_labels, (batch, 2 * size)), reshape_to(last, (batch, 1)))
        emitted = MatMul(transpose_b=True)(log_prob, OneHot(count, dtype)(extended))
        log_zero = Broadcast((batch, 1))(scalar(LOG_ZERO, dtype))
        skips = _skips(extended, dtype) if size > 1 else None

        def frame(t: int) -> Value:
            return reshape_to(Slice(1, t, t + 1)(emitted), (batch, states))

        alpha = call_elementwise(Where(), constant(_initial_states(states, bool)), frame(0), LOG_ZERO)
        for t in range(1, steps):
            predecessors = [alpha, Concat(1)(log_zero, Slice(1, 0, states - 1)(alpha))]
            if skips is not None:
                predecessors.append(Concat(1)(log_zero, log_zero, Slice(1, 0, states - 2)(alpha)) + skips)
            is_in_sequence = reshape_to(call_elementwise(Greater(), frames, t), (batch, 1))
            alpha = Where()(is_in_sequence, _logsumexp_values(predecessors) + frame(t), alpha)
        ends = [_pick_column(alpha, cast(lengths, DType.INT64) * 2 - after) for after in (0, 1)]
        return -_logsumexp_values(ends)


class CTCLossGrad(CTCBase):
    """Gradient of `CTCLoss`: -dy times the probability that a class is emitted at each frame.

    It is 0 if there is no alignment.
    """

    onnx = GRADIENT

    def infer(
        self, log_prob: TensorType, label: TensorType, frames: TensorType, lengths: TensorType, dy: TensorType
    ) -> TensorType:
        """Operands as in `CTCBase`, dy: (N) → (N, T, C)."""
        self.check_operands(log_prob, label, frames, lengths)
        self.check(dy == log_prob.with_shape(log_prob.shape[0]), "the gradient must have the loss's type", got=dy)
        return log_prob

    def forward(self, xp: Xp, log_prob: Array, label: Array, frames: Array, lengths: Array, dy: Array) -> Array:
        dx = xp.zeros_like(log_prob)
        for n, (emitted, extended) in enumerate(_samples(xp, self.blank, log_prob, label, frames, lengths)):
            alpha, total = _forward(xp, emitted, extended)
            if total < LOG_ZERO_BOUND:
                continue
            beta = _forward(xp, emitted[::-1, ::-1], extended[::-1])[0][::-1, ::-1]  # the same recursion from the end
            share = xp.exp(alpha + beta - emitted - total)
            for s, label_ in enumerate(extended):
                dx[n, : len(emitted), label_] -= dy[n] * share[:, s]
        return dx

    def decompose(self, log_prob: Value, label: Value, frames: Value, lengths: Value, dy: Value) -> Value:
        from netspec.graph.autodiff import pullback

        (dx,) = pullback((CTCLoss(self.blank).unrolled(log_prob, label, frames, lengths),), (dy,), [log_prob])
        assert dx is not None
        return dx

    def flops(self, log_prob: TensorType, label: TensorType, *lengths: TensorType) -> int:
        return 2 * super().flops(log_prob, label)


def _samples(
    xp: Xp, blank: int, log_prob: Array, label: Array, frames: Array, lengths: Array
) -> Iterator[tuple[Array, Array]]:
    """Yield for each sample the log-probabilities (frames, S) of its labels and blanks, and their classes (S)."""
    for sample, labels, end, length in zip(log_prob, label, frames, lengths, strict=True):
        extended = xp.full(2 * int(length) + 1, blank)
        extended[1::2] = labels[: int(length)]
        yield sample[: max(int(end), 1), extended], extended


def _forward(xp: Xp, emitted: Array, extended: Array) -> tuple[Array, Any]:
    """CTC's forward variables α as logarithms, (frames, S), and the log-probability of all alignments."""
    size = len(extended)
    may_skip = xp.zeros(size, bool)
    may_skip[3::2] = extended[3::2] != extended[1:-2:2]
    alpha = xp.full_like(emitted, LOG_ZERO)
    alpha[0, :2] = emitted[0, :2]
    for t in range(1, len(emitted)):
        before = xp.concatenate([xp.full(2, LOG_ZERO, emitted.dtype), alpha[t - 1]])
        skipped = xp.where(may_skip, before[:-2], xp.asarray(LOG_ZERO, emitted.dtype))
        alpha[t] = _logsumexp(xp, xp.stack([before[2:], before[1:-1], skipped])) + emitted[t]
    return alpha, _logsumexp(xp, alpha[-1, -2:])


def _logsumexp(xp: Xp, x: Array) -> Any:
    """ln Σ eˣ along the first axis."""
    maximum = x.max(axis=0)
    return maximum + xp.log(xp.exp(x - maximum).sum(axis=0))


def _initial_states(states: int, dtype: Any) -> Any:
    """True for the states at which an alignment may begin: the first blank and the first label."""
    import numpy as np

    return (np.arange(states) < 2).astype(dtype)


def _skips(extended: Value, dtype: DType) -> Value:
    """0 if the blank before a label may be left out, else `LOG_ZERO`; (N, S)."""
    import numpy as np

    from netspec.graph.ops.elementwise import Equal

    batch, states = extended.shape
    same = Equal()(Slice(1, 2, states)(extended), Slice(1, 0, states - 2)(extended))
    odd = np.where(np.arange(2, states) % 2, 0.0, LOG_ZERO).astype(str(dtype))
    later = call_elementwise(Where(), same, LOG_ZERO, Broadcast((batch, states - 2))(constant(odd)))
    return Concat(1)(Broadcast((batch, 2))(scalar(LOG_ZERO, dtype)), later)


def _logsumexp_values(values: list[Value]) -> Value:
    """ln Σ eˣ over values of one shape."""
    maximum = values[0]
    for value in values[1:]:
        maximum = Maximum()(maximum, value)
    total = Exp()(values[0] - maximum)
    for value in values[1:]:
        total = total + Exp()(value - maximum)
    return maximum + Log()(total)


def _pick_column(alpha: Value, index: Value) -> Value:
    """The element of each row at an index; `LOG_ZERO` for index -1."""
    hot = OneHot(alpha.shape[1], alpha.dtype)(index)
    return ReduceSum((1,))(hot * alpha) + (1.0 - ReduceSum((1,))(hot)) * LOG_ZERO
