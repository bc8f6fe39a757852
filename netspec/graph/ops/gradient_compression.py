"""Gradient compression with error feedback: ops that split a value into a compressible part and a residual."""

from __future__ import annotations

from dataclasses import dataclass

from netspec.graph.onnx_map import NoOnnxForm
from netspec.graph.op import Array, NoGradient, Xp
from netspec.graph.types import TensorType

_NO_ONNX = NoOnnxForm("communication between workers has no ONNX operator")


@dataclass(frozen=True)
class _Split(NoGradient):
    """Base of ops that split x into q, which can be encoded in few bits, and x - q. q is stored as float32."""

    onnx = _NO_ONNX

    def infer(self, x: TensorType) -> tuple[TensorType, TensorType]:
        """x → q, x - q."""
        self.check(x.dtype.is_float and x.size > 0, "only non-empty float values can be split", got=x)
        return x, x

    def flops(self, x: TensorType) -> int:
        return 6 * x.size


def is_output_axis_last(shape: tuple[int, ...]) -> bool:
    """Whether output channels of a layer are the last axis (matrices) or the first one (all others)."""
    return len(shape) == 2


@dataclass(frozen=True)
class OneBitQuantize(_Split):
    """1-bit quantization: each element becomes the mean of the elements of its column that have the same sign.

    A column holds the elements of one output channel; zero counts as positive. Seide et al. 2014, "1-bit stochastic
    gradient descent and its application to data-parallel distributed training of speech DNNs", Interspeech, section 3.
    """

    def forward(self, xp: Xp, x: Array) -> tuple[Array, Array]:
        last = is_output_axis_last(x.shape)
        flat = x if last else x.reshape(x.shape[0] if x.ndim else 1, -1)
        axis = 0 if last else 1
        positive = flat >= 0
        count = positive.sum(axis, keepdims=True)
        zero = xp.zeros((), x.dtype)
        high = xp.where(positive, flat, zero).sum(axis, keepdims=True) / xp.maximum(count, 1)
        low = xp.where(positive, zero, flat).sum(axis, keepdims=True) / xp.maximum(flat.shape[axis] - count, 1)
        high, low = high.astype("float32").astype(x.dtype), low.astype("float32").astype(x.dtype)
        q = xp.where(positive, high, low).reshape(x.shape)
        return q, x - q


@dataclass(frozen=True)
class TopKSparsify(_Split):
    """Top-k sparsification: the `count` elements of largest magnitude, and 0 elsewhere.

    Among elements of equal magnitude the first ones are kept. Aji and Heafield 2017, "Sparse communication for
    distributed gradient descent", arXiv:1704.05021.
    """

    count: int = 1

    def infer(self, x: TensorType) -> tuple[TensorType, TensorType]:
        """x → q, x - q."""
        self.check(
            1 <= self.count <= x.size, f"`count` must be between 1 and the number of elements, got {self.count}", got=x
        )
        return super().infer(x)

    def forward(self, xp: Xp, x: Array) -> tuple[Array, Array]:
        flat = x.reshape(-1)
        # Non-finite elements are sent at once, so that all workers see them.
        magnitude = xp.where(xp.isfinite(flat), abs(flat), xp.inf)
        threshold = xp.partition(magnitude, x.size - self.count)[x.size - self.count]
        is_kept = magnitude > threshold
        ties = xp.flatnonzero(magnitude == threshold)
        is_kept[ties[: self.count - int(is_kept.sum())]] = True
        q = xp.where(is_kept, flat.astype("float32").astype(x.dtype), xp.zeros((), x.dtype)).reshape(x.shape)
        return q, x - q
