"""Attention as one op, which fused kernels compute without storing the scores, and its form in simpler ops."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from netspec.graph.onnx_map import GRADIENT, Decomposed
from netspec.graph.op import Array, Grads, Op, Traits, Xp
from netspec.graph.ops.elementwise import Where, scalar
from netspec.graph.ops.linear import MatMul
from netspec.graph.ops.logic import And
from netspec.graph.ops.reduce import ReduceMax, ReduceSum, reshape_to, sum_to
from netspec.graph.ops.shape import Concat, Slice, Transpose
from netspec.graph.ops.softmax import Softmax
from netspec.graph.ops.source import constant
from netspec.graph.ops.unary import Exp, Log
from netspec.graph.types import DType, TensorType
from netspec.graph.value import Value, require_precomputable

MASKED_SCORE = -1e9
"""The score of masked positions, or the term added to it: its exponential is 0, in float64 too."""


@dataclass(frozen=True)
class AttentionBand:
    """The keys that a query may attend to: none after it if `causal`, and only those less than `window` away."""

    causal: bool = False
    window: int | None = None

    def allowed(self, rows: int, columns: int) -> Any:
        """(rows, columns) bool NumPy array, True where attention is allowed."""
        import numpy as np

        require_precomputable(rows * columns, "scores of a sample")
        distance = np.arange(rows)[:, None] - np.arange(columns)
        return (distance >= 0 if self.causal else True) & (abs(distance) < (self.window or rows + columns))

    def mask_scores(self, scores: Value, mask: Value | None) -> tuple[Value, Value | None]:
        """Scores with masked ones replaced by `MASKED_SCORE`, and the mask that was applied.

        scores: (…, T, S); mask: bool that broadcasts to them, True where attention is allowed. The returned mask is
        None if every query can attend to some key.
        """
        in_band = self.allowed(*scores.shape[-2:])
        if mask is None and in_band.any(axis=1).all():
            return scores if in_band.all() else scores + constant(_additive_mask(in_band, str(scores.dtype))), None
        attended = constant(in_band) if mask is None else mask if in_band.all() else And()(mask, constant(in_band))
        return Where()(attended, scores, scalar(MASKED_SCORE, scores.dtype)), attended

    def attention_weights(self, scores: Value, mask: Value | None, unmasked: int = 0) -> Value:
        """The softmax of scores, (…, T, S), masked as in `mask_scores`; a query without any key gets zeros.

        Band and mask do not cover the last `unmasked` of the S keys, which every query may attend to.
        """
        axis, columns = len(scores.shape) - 1, scores.shape[-1] - unmasked
        maskable = Slice(axis, 0, columns)(scores) if unmasked else scores
        masked, attended = self.mask_scores(maskable, mask)
        if masked is maskable:
            return Softmax(-1)(scores)
        if not unmasked:
            return _zero_unattended(Softmax(-1)(masked), attended)
        return Softmax(-1)(Concat(axis)(masked, Slice(axis, columns, columns + unmasked)(scores)))


def _additive_mask(in_band: Any, dtype: str) -> Any:
    """0 where attention is allowed, else `MASKED_SCORE`."""
    import numpy as np

    return np.where(in_band, 0, MASKED_SCORE).astype(dtype)


def _zero_unattended(x: Value, attended: Value | None) -> Value:
    """x, with zeros for queries that attend to nothing."""
    return x if attended is None else Where()(attended, x, scalar(0.0, x.dtype))


def _move_heads_first(x: Value) -> Value:
    """(N, T, heads…, D) → (N, heads…, T, D)."""
    last = len(x.shape) - 1
    return x if last == 2 else Transpose((0, *range(2, last), 1, last))(x)


def _move_heads_last(x: Value) -> Value:
    """(N, heads…, T, D) → (N, T, heads…, D)."""
    heads = len(x.shape) - 3
    return x if heads == 0 else Transpose((0, heads + 1, *range(1, heads + 1), heads + 2))(x)


@dataclass(frozen=True)
class Attention(Op):
    """softmax(q · kᵀ) · v for each head, and the logarithm of the softmax's denominator.

    q: (N, T, heads…, D), k: (N, S, heads…, D), v: (N, S, heads…, V), and optionally a mask (N, T or 1, S), bool, True
    where attention is allowed → (N, T, heads…, V) and (N, heads…, T). There are 0, 1 or 2 axes of heads. With 2, keys
    and values have only the first one, and the heads along the second share them (grouped-query attention). A query
    that may attend to nothing gets zeros.
    """

    band: AttentionBand = AttentionBand()
    traits = Traits(is_contraction=True)
    onnx = Decomposed()

    def infer(self, q: TensorType, k: TensorType, v: TensorType, *mask: TensorType) -> tuple[TensorType, TensorType]:
        heads = q.shape[2:-1]
        shapes_match = q.rank in (3, 4, 5) and k.shape[2:] == (*heads[:1], q.shape[-1]) and v.shape[:-1] == k.shape[:-1]
        batch_and_dtype_match = q.shape[:1] == k.shape[:1] and q.dtype == k.dtype == v.dtype
        self.check(
            shapes_match and batch_and_dtype_match, "queries, keys and values do not match", got=f"{q}, {k}, {v}"
        )
        n, t, s = q.shape[0], q.shape[1], k.shape[1]
        for mask_type in mask:
            fits = mask_type.dtype == DType.BOOL and mask_type.shape in ((n, t, s), (n, 1, s))
            self.check(
                fits, "the attention mask has the wrong type", expected=f"bool [{n}, {t} or 1, {s}]", got=mask_type
            )
        return q.with_shape(*q.shape[:-1], v.shape[-1]), q.with_shape(n, *heads, t)

    def forward(self, xp: Xp, q: Array, k: Array, v: Array, mask: Array | None = None) -> tuple[Array, Array]:
        q, k, v = self._arrays(xp, q, k, v)
        scores, attended = self._scores(xp, q, k, mask)
        greatest = scores.max(axis=-1, keepdims=True)
        e = xp.exp(scores - greatest)
        total = e.sum(axis=-1, keepdims=True)
        y = xp.matmul(xp.where(attended, e / total, 0), v)
        return xp.moveaxis(y, -2, 1), (greatest + xp.log(total))[..., 0]

    def _arrays(self, xp: Xp, *arrays: Array) -> list[Array]:
        """Queries, keys, values and other arrays of these axes as (N, heads…, positions, features)."""
        grouped = arrays[0].ndim == 5
        heads_first = [xp.moveaxis(array, 1, -2) for array in arrays]
        return [array[:, :, None] if grouped and array.ndim == 4 else array for array in heads_first]

    def _scores(self, xp: Xp, q: Array, k: Array, mask: Array | None) -> tuple[Array, Array]:
        """The scores, with masked ones replaced by `MASKED_SCORE`, and the mask."""
        scores = xp.matmul(q, k.swapaxes(-1, -2))
        attended = xp.asarray(self.band.allowed(*scores.shape[-2:]))
        if mask is not None:
            attended = attended & mask.reshape(mask.shape[0], *(1,) * (scores.ndim - 3), *mask.shape[1:])
        return xp.where(attended, scores, MASKED_SCORE), attended

    def unfused(
        self, q: Value, k: Value, v: Value, mask: Value | None = None, *,
        dropped: Callable[[Value], Value] | None = None, unmasked: int = 0,
    ) -> tuple[Value, Value]:  # fmt: skip
        """The first result and the weights (N, heads…, T, S) by simpler ops; `dropped` is applied to the weights.

        Band and mask do not cover the last `unmasked` keys, which every query may attend to.
        """
        q, k, v, mask = self.heads_first(q, k, v, mask)
        weights = self.band.attention_weights(MatMul(transpose_b=True)(q, k), mask, unmasked)
        return _move_heads_last(MatMul()(weights if dropped is None else dropped(weights), v)), weights

    def heads_first(self, q: Value, k: Value, v: Value, mask: Value | None) -> tuple[Value, Value, Value, Value | None]:
        """Operands as (N, heads…, positions, features)."""
        q, k, v = map(_move_heads_first, (q, k, v))
        if len(q.shape) > len(k.shape):  # an axis for the heads that share them
            k, v = (reshape_to(x, (*x.shape[:2], 1, *x.shape[2:])) for x in (k, v))
        if mask is not None:
            mask = reshape_to(mask, (mask.shape[0], *(1,) * (len(q.shape) - 3), *mask.shape[1:]))
        return q, k, v, mask

    def decompose(self, q: Value, k: Value, v: Value, mask: Value | None = None) -> tuple[Value, Value]:
        inner, keys, _, attended = self.heads_first(q, k, v, mask)
        scores, _ = self.band.mask_scores(MatMul(transpose_b=True)(inner, keys), attended)
        greatest = ReduceMax((-1,), keepdims=True)(scores)
        total = ReduceSum((-1,), keepdims=True)(Exp()(scores - greatest))
        return self.unfused(q, k, v, mask)[0], reshape_to(Log()(total) + greatest, scores.shape[:-1])

    def vjp_outputs(self, ys: Sequence[Value], dys: Sequence[Value | None]) -> Grads:
        y, total = ys
        dy, dtotal = dys
        if dy is None or dtotal is not None:
            return super().vjp_outputs(ys, dys)
        q, k, v, *mask = y.inputs
        return *AttentionGrad(self.band).call_multi(q, k, v, y, total, dy, *mask), *(None for _ in mask)

    def flops(self, q: TensorType, k: TensorType, v: TensorType, *mask: TensorType) -> int:
        scores = q.size // q.shape[-1] * k.shape[1]
        return scores * (2 * q.shape[-1] + 2 * v.shape[-1] + 5)


@dataclass(frozen=True)
class AttentionGrad(Op):
    """Gradients of q, k and v: q, k, v, both results of `Attention`, dy of the first, mask → dq, dk, dv."""

    band: AttentionBand = AttentionBand()
    traits = Traits(is_contraction=True)
    onnx = GRADIENT

    def infer(
        self, q: TensorType, k: TensorType, v: TensorType, y: TensorType, total: TensorType, dy: TensorType,
        *mask: TensorType,
    ) -> tuple[TensorType, TensorType, TensorType]:  # fmt: skip
        fits = Attention(self.band).infer(q, k, v, *mask) == (y, total) and dy == y
        self.check(fits, "the results do not match queries, keys and values", got=f"{y}, {total}, {dy}")
        return q, k, v

    def forward(
        self, xp: Xp, q: Array, k: Array, v: Array, y: Array, total: Array, dy: Array, mask: Array | None = None
    ) -> tuple[Array, Array, Array]:
        attention, shared = Attention(self.band), q.ndim == 5
        q, k, v, y, dy = attention._arrays(xp, q, k, v, y, dy)
        scores, attended = attention._scores(xp, q, k, mask)
        weights = xp.where(attended, xp.exp(scores - total[..., None]), 0)
        ds = weights * (xp.matmul(dy, v.swapaxes(-1, -2)) - (y * dy).sum(axis=-1, keepdims=True))
        dk, dv = xp.matmul(ds.swapaxes(-1, -2), q), xp.matmul(weights.swapaxes(-1, -2), dy)
        if shared:
            dk, dv = dk.sum(axis=2), dv.sum(axis=2)
        dq, dk, dv = (xp.moveaxis(gradient, -2, 1) for gradient in (xp.matmul(ds, k), dk, dv))
        return dq, dk, dv

    def decompose(
        self, q: Value, k: Value, v: Value, y: Value, total: Value, dy: Value, mask: Value | None = None
    ) -> tuple[Value, Value, Value]:
        keys, values = k, v
        q, k, v, mask = Attention(self.band).heads_first(q, k, v, mask)
        y, dy = _move_heads_first(y), _move_heads_first(dy)
        scores, attended = self.band.mask_scores(MatMul(transpose_b=True)(q, k), mask)
        weights = _zero_unattended(Exp()(scores - reshape_to(total, (*total.shape, 1))), attended)
        ds = weights * (MatMul(transpose_b=True)(dy, v) - ReduceSum((-1,), keepdims=True)(y * dy))

        def restore_axes(gradient: Value, operand: Value, heads_first: Value) -> Value:
            """Sum over the heads that share the operand, and move its axes back."""
            shape = (heads_first.shape[0], *operand.shape[2:-1], *heads_first.shape[-2:])
            return _move_heads_last(reshape_to(sum_to(gradient, heads_first.shape), shape))

        dk, dv = MatMul(transpose_a=True)(ds, q), MatMul(transpose_a=True)(weights, dy)
        return _move_heads_last(MatMul()(ds, k)), restore_axes(dk, keys, k), restore_axes(dv, values, v)

    def flops(self, q: TensorType, k: TensorType, v: TensorType, *_: TensorType) -> int:
        scores = q.size // q.shape[-1] * k.shape[1]
        return scores * (6 * q.shape[-1] + 4 * v.shape[-1] + 5)
