"""Attention and its gradient as cuDNN graphs: tensors are (N, heads, positions, channels), with any strides."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import Any, ClassVar

from netspec.backends.cuda.cudnn.plans import MAX_WORKSPACE, GraphDescription, Operation, Tensor
from netspec.graph.ops.attention import AttentionBand
from netspec.graph.types import DType, TensorType


def by_heads(kind: TensorType, dtype: DType) -> Tensor:
    """Shape and strides of a plain array (N, positions, heads…, channels), with heads second."""
    n, length, *axes, numbers = kind.shape
    heads = prod(axes)
    return Tensor((n, heads, length, numbers), (length * heads * numbers, numbers, heads * numbers, 1), dtype)


@dataclass(frozen=True, kw_only=True)
class AttentionGraph(Operation):
    """Base class: operands, and the positions that may be attended to."""

    max_measured_plans: ClassVar[int] = 4
    needs_driver: ClassVar[bool] = True
    q: Tensor
    k: Tensor
    v: Tensor
    band: AttentionBand
    bias_rows: int | None = None
    """Number of rows (1 if all are alike) of the float32 score bias that all heads share; None without one.

    The library's own masks support only lengths.
    """

    @property
    def dtype(self) -> DType:
        return self.q.dtype

    @property
    def y(self) -> Tensor:
        """The first result."""
        (n, heads, length, _), numbers = self.q.shape, self.v.shape[-1]
        return by_heads(TensorType((n, length, heads, numbers), self.dtype), self.dtype)

    @property
    def total(self) -> Tensor:
        """The second result, logarithms of the sums: (N, heads, positions, 1)."""
        n, heads, length, _ = self.q.shape
        return Tensor((n, heads, length, 1), (heads * length, length, 1, 1), DType.FLOAT32)

    @property
    def scores(self) -> int:
        """Number of scores: pairs of a query and a key, of all heads."""
        return prod(self.q.shape[:-1]) * self.k.shape[2]

    @property
    def max_workspace(self) -> int:
        """Maximum workspace in bytes: enough for all scores in float32."""
        return max(MAX_WORKSPACE, self.scores * DType.FLOAT32.itemsize)

    def options(self, to: GraphDescription) -> dict[str, Any]:
        """Options: score bias and attended band. The library's diagonal starts at the first query and key."""
        options: dict[str, Any] = {}
        if self.bias_rows is not None:
            n, length = self.k.shape[0], self.k.shape[2]
            size = self.bias_rows * length
            options["bias"] = to.read(Tensor((n, 1, self.bias_rows, length), (size, size, length, 1), DType.FLOAT32))
        if self.band.causal or self.band.window:
            options["diagonal_band_right_bound"] = 0 if self.band.causal else (self.band.window or 1) - 1
        if self.band.window:
            options["diagonal_band_left_bound"] = self.band.window
        return options


@dataclass(frozen=True, kw_only=True)
class AttentionForwardGraph(AttentionGraph):
    """Computes the op's results, in their order."""

    def describe(self, to: GraphDescription) -> None:
        """Operands are q, k, v, and the score bias."""
        q, k, v = map(to.read, (self.q, self.k, self.v))
        y, total = to.graph.sdpa(q=q, k=k, v=v, generate_stats=True, **self.options(to))
        to.written(y, self.y)
        to.written(total, self.total)


@dataclass(frozen=True, kw_only=True)
class AttentionGradientGraph(AttentionGraph):
    """Gradients of q, k and v."""

    @property
    def known_workspace(self) -> int:
        """Workspace for frontend 1.23 and cuDNN 9.28, up to a few hundred bytes."""
        n, heads, length, size = self.q.shape
        keys, values = self.k.shape[2], self.v.shape[-1]
        tiles = 2 * n * heads * (-(-length // 64) * 64) * (-(-keys // 128) * 128)
        shared = 2 * n * heads * keys * (size + values) if self.k.shape[1] < heads else 0
        accumulator = tiles if self.deterministic else 4 * n * heads * length * size
        return accumulator + shared + 4 * n * heads * length

    def describe(self, to: GraphDescription) -> None:
        """Operands are q, k, v, both results, the gradient of the first, and the score bias."""
        q, k, v, y, total, dy = map(to.read, (self.q, self.k, self.v, self.y, self.total, self.y))
        gradients = to.graph.sdpa_backward(
            q=q, k=k, v=v, o=y, dO=dy, stats=total, use_deterministic_algorithm=self.deterministic, **self.options(to)
        )
        for tensor, operand in zip(gradients, (self.q, self.k, self.v), strict=True):
            to.written(tensor, operand)
