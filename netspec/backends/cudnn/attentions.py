"""Attention and its gradient, in the library's words: tensors are (N, heads, places, numbers), however they lie."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import Any, ClassVar

from netspec.backends.cudnn.plans import MOST_WORKSPACE, Described, Operation, Tensor
from netspec.graph.ops.attention import Band
from netspec.graph.types import DType, TensorType


def by_heads(kind: TensorType, dtype: DType) -> Tensor:
    """(N, places, heads…, numbers), lying plainly."""
    n, places, *axes, numbers = kind.shape
    heads = prod(axes)
    return Tensor((n, heads, places, numbers), (places * heads * numbers, numbers, heads * numbers, 1), dtype)


@dataclass(frozen=True, kw_only=True)
class Looking(Operation):
    """Base of both: operands, and which places are looked at."""

    most_raced: ClassVar[int] = 4
    needs_driver: ClassVar[bool] = True
    q: Tensor
    k: Tensor
    v: Tensor
    band: Band
    bias_rows: int | None = None
    """How many rows (1 for all alike) what is added to scores has, float32 and the same for all heads; None: no such.

    A mask of the library's own would be one of lengths.
    """

    @property
    def dtype(self) -> DType:
        return self.q.dtype

    @property
    def y(self) -> Tensor:
        """The first result."""
        (n, heads, places, _), numbers = self.q.shape, self.v.shape[-1]
        return by_heads(TensorType((n, places, heads, numbers), self.dtype), self.dtype)

    @property
    def total(self) -> Tensor:
        """The second result: (N, heads, places, 1)."""
        n, heads, places, _ = self.q.shape
        return Tensor((n, heads, places, 1), (heads * places, places, 1, 1), DType.FLOAT32)

    @property
    def scores(self) -> int:
        """How many there are."""
        return prod(self.q.shape[:-1]) * self.k.shape[2]

    @property
    def most_workspace(self) -> int:
        """Where it is written out, scores are there in float32 at least."""
        return max(MOST_WORKSPACE, self.scores * DType.FLOAT32.itemsize)

    def options(self, to: Described) -> dict[str, Any]:
        """What is looked at. The library's diagonal is that on which the first query and the first key are."""
        found: dict[str, Any] = {}
        if self.bias_rows is not None:
            n, places = self.k.shape[0], self.k.shape[2]
            size = self.bias_rows * places
            found["bias"] = to.read(Tensor((n, 1, self.bias_rows, places), (size, size, places, 1), DType.FLOAT32))
        if self.band.causal or self.band.window:
            found["diagonal_band_right_bound"] = 0 if self.band.causal else (self.band.window or 1) - 1
        if self.band.window:
            found["diagonal_band_left_bound"] = self.band.window
        return found


@dataclass(frozen=True, kw_only=True)
class Means(Looking):
    """The results, in the order of the op's."""

    def describe(self, to: Described) -> None:
        """Operands are q, k, v, and what is added to scores."""
        q, k, v = map(to.read, (self.q, self.k, self.v))
        y, total = to.graph.sdpa(q=q, k=k, v=v, generate_stats=True, **self.options(to))
        to.written(y, self.y)
        to.written(total, self.total)


@dataclass(frozen=True, kw_only=True)
class Gradients(Looking):
    """Those of q, k and v."""

    @property
    def known_workspace(self) -> int:
        """As the frontend's package 1.23 and cuDNN 9.28 want it, but for a few hundred bytes."""
        n, heads, places, size = self.q.shape
        keys, values = self.k.shape[2], self.v.shape[-1]
        tiles = 2 * n * heads * (-(-places // 64) * 64) * (-(-keys // 128) * 128)
        shared = 2 * n * heads * keys * (size + values) if self.k.shape[1] < heads else 0
        whole = tiles if self.deterministic else 4 * n * heads * places * size
        return whole + shared + 4 * n * heads * places

    def describe(self, to: Described) -> None:
        """Operands are q, k, v, both results, the gradient of the first, and what is added to scores."""
        q, k, v, y, total, dy = map(to.read, (self.q, self.k, self.v, self.y, self.total, self.y))
        made = to.graph.sdpa_backward(
            q=q, k=k, v=v, o=y, dO=dy, stats=total, use_deterministic_algorithm=self.deterministic, **self.options(to)
        )
        for tensor, one in zip(made, (self.q, self.k, self.v), strict=True):
            to.written(tensor, one)
