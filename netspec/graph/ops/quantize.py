"""Numbers in fewer bits, and what is left of them: what is kept for the next time is never lost (error feedback)."""

from __future__ import annotations

from dataclasses import dataclass

from netspec.graph.onnx_map import NoOnnx
from netspec.graph.op import Array, NoGradient, Xp
from netspec.graph.types import TensorType

_NO_ONNX = NoOnnx("it is of a training on several workers, of which ONNX knows nothing")


@dataclass(frozen=True)
class _Split(NoGradient):
    """Base of ops that split x into q, which takes few bits, and x - q. q is sent in float32, and consists of such."""

    onnx = _NO_ONNX

    def infer(self, x: TensorType) -> tuple[TensorType, TensorType]:
        """x → q, x - q."""
        self.check(x.dtype.is_float and x.size > 0, "only floats are split", got=x)
        return x, x

    def flops(self, x: TensorType) -> int:
        return 6 * x.size


def columns_last(shape: tuple[int, ...]) -> bool:
    """Whether what belongs to one output of a layer is along the last axis: of matrices; else it is along the first."""
    return len(shape) == 2


@dataclass(frozen=True)
class OneBit(_Split):
    """Each number as one of two, by its sign: the mean of those of its column that are not negative, or of the others.

    A column is what belongs to one output of a layer. Seide et al. 2014, "1-bit stochastic gradient descent and its
    application to data-parallel distributed training of speech DNNs", Interspeech, section 3.
    """

    def forward(self, xp: Xp, x: Array) -> tuple[Array, Array]:
        last = columns_last(x.shape)
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
class Largest(_Split):
    """The `count` numbers of largest magnitude, of equal ones the first; 0 in place of the others.

    Aji and Heafield 2017, "Sparse communication for distributed gradient descent", arXiv:1704.05021.
    """

    count: int = 1

    def infer(self, x: TensorType) -> tuple[TensorType, TensorType]:
        """x → q, x - q."""
        self.check(1 <= self.count <= x.size, "so many numbers are not there", got=x)
        return super().infer(x)

    def forward(self, xp: Xp, x: Array) -> tuple[Array, Array]:
        flat = x.reshape(-1)
        # What is not finite is sent at once: all workers are to see it.
        size = xp.where(xp.isfinite(flat), abs(flat), xp.inf)
        least = xp.partition(size, x.size - self.count)[x.size - self.count]
        kept = size > least
        equal = xp.flatnonzero(size == least)
        kept[equal[: self.count - int(kept.sum())]] = True
        q = xp.where(kept, flat.astype("float32").astype(x.dtype), xp.zeros((), x.dtype)).reshape(x.shape)
        return q, x - q
