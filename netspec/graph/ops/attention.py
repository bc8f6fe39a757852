"""Attention as one op, for libraries that need not write the scores down; and written out as products and a softmax."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from netspec.graph.onnx_map import GRADIENT, Decomposed
from netspec.graph.op import Array, Grads, Op, Traits, Xp
from netspec.graph.ops.elementwise import Where, scalar
from netspec.graph.ops.functions import Exp, Log
from netspec.graph.ops.linear import MatMul
from netspec.graph.ops.logic import And
from netspec.graph.ops.reduce import ReduceMax, ReduceSum, reshape_to, sum_to
from netspec.graph.ops.shape import Transpose
from netspec.graph.ops.softmax import Softmax
from netspec.graph.ops.source import constant
from netspec.graph.types import DType, TensorType
from netspec.graph.value import Value

NEVER = -1e9
"""The score of what must not be looked at, or what is added to it: e to this power is 0, in float64 too."""


@dataclass(frozen=True)
class Band:
    """Which places are near: with `causal` none that comes later, with a `window` those less than that away."""

    causal: bool = False
    window: int | None = None

    def near(self, rows: int, columns: int) -> Any:
        """(rows, columns) bool, in NumPy."""
        import numpy as np

        away = np.arange(rows)[:, None] - np.arange(columns)
        return (away >= 0 if self.causal else True) & (abs(away) < (self.window or rows + columns))

    def masked(self, scores: Value, mask: Value | None) -> tuple[Value, Value | None]:
        """Scores of which those that must not be looked at are `NEVER`, about; and which are seen.

        scores: (…, T, S), mask: bool that broadcasts to them, True where may be looked. None where every place sees
        some for sure.
        """
        near = self.near(*scores.shape[-2:])
        if mask is None and near.any(axis=1).all():
            return scores if near.all() else scores + constant(_never_but(near, str(scores.dtype))), None
        seen = constant(near) if mask is None else mask if near.all() else And()(mask, constant(near))
        return Where()(seen, scores, scalar(NEVER, scores.dtype)), seen

    def weights(self, scores: Value, mask: Value | None) -> Value:
        """The softmax of scores, (…, T, S); a place that may look nowhere gets zeros. The mask is as in `masked`."""
        masked, seen = self.masked(scores, mask)
        return _seen_alone(Softmax(-1)(masked), seen)


def _never_but(near: Any, dtype: str) -> Any:
    """0 where it is near, else `NEVER`."""
    import numpy as np

    return np.where(near, 0, NEVER).astype(dtype)


def _seen_alone(x: Value, seen: Value | None) -> Value:
    """x, with zeros where nothing is seen."""
    return x if seen is None else Where()(seen, x, scalar(0.0, x.dtype))


def _inner(x: Value) -> Value:
    """(N, T, heads…, D) → (N, heads…, T, D)."""
    last = len(x.shape) - 1
    return x if last == 2 else Transpose((0, *range(2, last), 1, last))(x)


def _outer(x: Value) -> Value:
    """(N, heads…, T, D) → (N, T, heads…, D)."""
    places = len(x.shape) - 2
    return x if places == 1 else Transpose((0, places, *range(1, places), places + 1))(x)


@dataclass(frozen=True)
class Attention(Op):
    """softmax(q · kᵀ) · v for each head, and the logarithm of the sum that the softmax divides by.

    q: (N, T, heads…, D), k: (N, S, heads…, D), v: (N, S, heads…, V), and a mask (N, T or 1, S), bool, True where
    may be looked → (N, T, heads…, V) and (N, heads…, T). There is no axis for heads, or one; where q has two, heads
    along the second share their keys and values, which have the first one alone. A place that may look nowhere gets
    zeros.
    """

    band: Band = Band()
    traits = Traits(contracts=True)
    onnx = Decomposed()

    def infer(self, q: TensorType, k: TensorType, v: TensorType, *mask: TensorType) -> tuple[TensorType, TensorType]:
        heads = q.shape[2:-1]
        fits = q.rank in (3, 4, 5) and k.shape[2:] == (*heads[:1], q.shape[-1]) and v.shape[:-1] == k.shape[:-1]
        alike = q.shape[:1] == k.shape[:1] and q.dtype == k.dtype == v.dtype
        self.check(fits and alike, "queries, keys and values do not fit", got=f"{q}, {k}, {v}")
        n, t, s = q.shape[0], q.shape[1], k.shape[1]
        for one in mask:
            fits = one.dtype == DType.BOOL and one.shape in ((n, t, s), (n, 1, s))
            self.check(fits, "the mask does not fit", expected=f"bool [{n}, {t} or 1, {s}]", got=one)
        return q.with_shape(*q.shape[:-1], v.shape[-1]), q.with_shape(n, *heads, t)

    def forward(self, xp: Xp, q: Array, k: Array, v: Array, mask: Array | None = None) -> tuple[Array, Array]:
        q, k, v = self._arrays(xp, q, k, v)
        scores, seen = self._scores(xp, q, k, mask)
        greatest = scores.max(axis=-1, keepdims=True)
        e = xp.exp(scores - greatest)
        total = e.sum(axis=-1, keepdims=True)
        y = xp.matmul(xp.where(seen, e / total, 0), v)
        return xp.moveaxis(y, -2, 1), (greatest + xp.log(total))[..., 0]

    def _arrays(self, xp: Xp, *arrays: Array) -> list[Array]:
        """Queries, keys, values, and what else has their form, as (N, heads…, places, numbers)."""
        grouped = arrays[0].ndim == 5
        turned = [xp.moveaxis(one, 1, -2) for one in arrays]
        return [one[:, :, None] if grouped and one.ndim == 4 else one for one in turned]

    def _scores(self, xp: Xp, q: Array, k: Array, mask: Array | None) -> tuple[Array, Array]:
        """Those that must not be looked at are `NEVER`; and which are seen."""
        scores = xp.matmul(q, k.swapaxes(-1, -2))
        seen = xp.asarray(self.band.near(*scores.shape[-2:]))
        if mask is not None:
            seen = seen & mask.reshape(mask.shape[0], *(1,) * (scores.ndim - 3), *mask.shape[1:])
        return xp.where(seen, scores, NEVER), seen

    def written_out(
        self, q: Value, k: Value, v: Value, mask: Value | None = None, dropped: Callable[[Value], Value] | None = None
    ) -> Value:
        """The first result by simpler ops; `dropped` is what is made of the weights before they are used."""
        q, k, v, mask = self.heads_first(q, k, v, mask)
        weights = self.band.weights(MatMul(transpose_b=True)(q, k), mask)
        return _outer(MatMul()(weights if dropped is None else dropped(weights), v))

    def heads_first(self, q: Value, k: Value, v: Value, mask: Value | None) -> tuple[Value, Value, Value, Value | None]:
        """Operands as (N, heads…, places, numbers)."""
        q, k, v = map(_inner, (q, k, v))
        if len(q.shape) > len(k.shape):  # an axis for the heads that share them
            k, v = (reshape_to(x, (*x.shape[:2], 1, *x.shape[2:])) for x in (k, v))
        if mask is not None:
            mask = reshape_to(mask, (mask.shape[0], *(1,) * (len(q.shape) - 3), *mask.shape[1:]))
        return q, k, v, mask

    def decompose(self, q: Value, k: Value, v: Value, mask: Value | None = None) -> tuple[Value, Value]:
        inner, keys, _, seen = self.heads_first(q, k, v, mask)
        scores, _ = self.band.masked(MatMul(transpose_b=True)(inner, keys), seen)
        greatest = ReduceMax((-1,), keepdims=True)(scores)
        total = ReduceSum((-1,), keepdims=True)(Exp()(scores - greatest))
        return self.written_out(q, k, v, mask), reshape_to(Log()(total) + greatest, scores.shape[:-1])

    def vjp_outputs(self, ys: Sequence[Value], dys: Sequence[Value | None]) -> Grads:
        y, total = ys
        dy, of_total = dys
        if dy is None or of_total is not None:
            return super().vjp_outputs(ys, dys)
        q, k, v, *mask = y.inputs
        return *AttentionGrad(self.band).many(q, k, v, y, total, dy, *mask), *(None for _ in mask)

    def flops(self, q: TensorType, k: TensorType, v: TensorType, *mask: TensorType) -> int:
        scores = q.size // q.shape[-1] * k.shape[1]
        return scores * (2 * q.shape[-1] + 2 * v.shape[-1] + 5)


@dataclass(frozen=True)
class AttentionGrad(Op):
    """Gradients of q, k and v from those, both results of `Attention`, the gradient of the first, and the mask."""

    band: Band = Band()
    traits = Traits(contracts=True)
    onnx = GRADIENT

    def infer(
        self, q: TensorType, k: TensorType, v: TensorType, y: TensorType, total: TensorType, dy: TensorType,
        *mask: TensorType,
    ) -> tuple[TensorType, TensorType, TensorType]:  # fmt: skip
        fits = Attention(self.band).infer(q, k, v, *mask) == (y, total) and dy == y
        self.check(fits, "the results do not fit queries, keys and values", got=f"{y}, {total}, {dy}")
        return q, k, v

    def forward(
        self, xp: Xp, q: Array, k: Array, v: Array, y: Array, total: Array, dy: Array, mask: Array | None = None
    ) -> tuple[Array, Array, Array]:
        of, shared = Attention(self.band), q.ndim == 5
        q, k, v, y, dy = of._arrays(xp, q, k, v, y, dy)
        scores, seen = of._scores(xp, q, k, mask)
        weights = xp.where(seen, xp.exp(scores - total[..., None]), 0)
        ds = weights * (xp.matmul(dy, v.swapaxes(-1, -2)) - (y * dy).sum(axis=-1, keepdims=True))
        dk, dv = xp.matmul(ds.swapaxes(-1, -2), q), xp.matmul(weights.swapaxes(-1, -2), dy)
        if shared:
            dk, dv = dk.sum(axis=2), dv.sum(axis=2)
        dq, dk, dv = (xp.moveaxis(one, -2, 1) for one in (xp.matmul(ds, k), dk, dv))
        return dq, dk, dv

    def decompose(
        self, q: Value, k: Value, v: Value, y: Value, total: Value, dy: Value, mask: Value | None = None
    ) -> tuple[Value, Value, Value]:
        keys, values = k, v
        q, k, v, mask = Attention(self.band).heads_first(q, k, v, mask)
        y, dy = _inner(y), _inner(dy)
        scores, seen = self.band.masked(MatMul(transpose_b=True)(q, k), mask)
        weights = _seen_alone(Exp()(scores - reshape_to(total, (*total.shape, 1))), seen)
        ds = weights * (MatMul(transpose_b=True)(dy, v) - ReduceSum((-1,), keepdims=True)(y * dy))

        def of(one: Value, inner: Value, made: Value) -> Value:
            places = (inner.shape[0], *one.shape[2:-1], *inner.shape[-2:])
            return _outer(reshape_to(sum_to(made, inner.shape), places))

        dk, dv = MatMul(transpose_a=True)(ds, q), MatMul(transpose_a=True)(weights, dy)
        return _outer(MatMul()(ds, k)), of(keys, k, dk), of(values, v, dv)

    def flops(self, q: TensorType, k: TensorType, v: TensorType, *_: TensorType) -> int:
        scores = q.size // q.shape[-1] * k.shape[1]
        return scores * (6 * q.shape[-1] + 4 * v.shape[-1] + 5)
