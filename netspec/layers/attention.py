"""Attention and AdditiveAttention: each place of a sequence takes a weighted mean of the places of another."""

from __future__ import annotations

from typing import Any, ClassVar, Literal

from pydantic import Field

from netspec.graph.ops.elementwise import Where, elementwise, scalar
from netspec.graph.ops.functions import Tanh
from netspec.graph.ops.linear import MatMul
from netspec.graph.ops.logic import And
from netspec.graph.ops.reduce import ReduceSum, reshape_to
from netspec.graph.ops.softmax import Softmax
from netspec.graph.ops.source import constant
from netspec.graph.value import Value
from netspec.layers.base import Builder, LayerSpec, Sample
from netspec.layers.checks import need
from netspec.layers.dropout import dropped
from netspec.layers.initializers import GlorotUniform, Ones
from netspec.layers.masking import steps_that_count
from netspec.schema.kinds import LAYERS

NEVER = -1e9
"""The score of what must not be looked at, or what is added to it: e to this power is 0, in float64 too."""


def weighted_mean(
    net: Builder,
    scores: Value,
    values: Value,
    rate: float,
    *,
    use_causal_mask: bool,
    mask: Value | None = None,
    window: int | None = None,
) -> Value:
    """Means of `values`, weighted by the softmax of `scores`; `rate` is that of the dropout of the weights.

    scores: (…, T, S), values: (…, S, V), mask: bool that broadcasts to scores, True where may be looked → (…, T, V).
    With the causal mask place t looks at the places up to t, with a window at those less than `window` away. A place
    that the masks let look nowhere gets zeros.
    """
    near = _near(scores.shape[-2], scores.shape[-1], use_causal_mask, window)
    if mask is None and near.any(axis=1).all():
        scores = scores if near.all() else scores + constant(_never_but(near, str(scores.dtype)))
        return MatMul()(dropped(net, Softmax(-1)(scores), rate), values)
    seen = constant(near) if mask is None else mask if near.all() else And()(mask, constant(near))
    zero, never = scalar(0.0, scores.dtype), scalar(NEVER, scores.dtype)
    weights = Where()(seen, Softmax(-1)(Where()(seen, scores, never)), zero)
    return MatMul()(dropped(net, weights, rate), values)


def _near(rows: int, columns: int, causal: bool, window: int | None) -> Any:
    """(T, S) bool, in NumPy: True for the places that are not too late and not too far away."""
    import numpy as np

    away = np.arange(rows)[:, None] - np.arange(columns)
    return (away >= 0 if causal else True) & (abs(away) < (window or rows + columns))


def _never_but(near: Any, dtype: str) -> Any:
    """0 where it is near, else `NEVER`."""
    import numpy as np

    return np.where(near, 0, NEVER).astype(dtype)


def values_mask(net: Builder, index: int, values: Value) -> Value | None:
    """(N, 1, S): which of the values, input number `index`, may be looked at; None for all."""
    mask = steps_that_count(net, values, index)
    return None if mask is None else reshape_to(mask, (mask.shape[0], 1, mask.shape[1]))


def queries_mask(net: Builder, query: Value) -> Value | None:
    """(N, T, 1): which of the queries, the first input, count; None for all."""
    mask = steps_that_count(net, query)
    return None if mask is None else reshape_to(mask, (*mask.shape, 1))


def need_sequences(query: Value, value: Value, key: Value) -> None:
    """Raise a located error unless there is a key for every value, all of them in sequences of vectors."""
    for what, x in (("query", query), ("value", value), ("key", key)):
        need(
            len(x.shape) == 3,
            f"the {what} is not a sequence of vectors",
            expected="(batch, places, features)",
            got=x.type,
            hint="numbers of words become vectors by an Embedding before it" if len(x.shape) == 2 else None,
        )
    need(
        key.shape[1] == value.shape[1],
        "there is not one key for each value",
        expected=f"{value.shape[1]} places, as the values have",
        got=f"{key.shape[1]} places",
    )


def _need_equal_features(query: Value, key: Value) -> None:
    need(
        query.shape[-1] == key.shape[-1],
        "query and key have vectors of different lengths",
        expected=f"{query.shape[-1]} features, as the query has",
        got=f"{key.shape[-1]} features",
        hint="a Dense layer before one of them, or MultiHeadAttention, which has its own",
    )


def _pairs(query: Value, key: Value) -> Value:
    """query: (N, T, D), key: (N, S, D) → the sum of each pair (N, T, S, D)."""
    n, t, d = query.shape
    return reshape_to(query, (n, t, 1, d)) + reshape_to(key, (n, 1, key.shape[1], d))


class AttentionSpec(LayerSpec):
    """Base of attentions without projections."""

    one_way: ClassVar = "it is written as products and a softmax, which are not put together again"
    passes_mask: ClassVar = True
    dropout: float = Field(default=0.0, ge=0, lt=1)
    """share of the weights that become 0 in training"""
    use_causal_mask: bool = False
    """place t looks at the places up to t only. An argument of the call in Keras"""

    def attended(self, net: Builder, query: Value, scores: Value, values: Value) -> Value:
        """Means of the values that count, and zeros for queries that do not."""
        mask = values_mask(net, 1, values)
        y = weighted_mean(net, scores, values, self.dropout, use_causal_mask=self.use_causal_mask, mask=mask)
        counts = queries_mask(net, query)
        return y if counts is None else elementwise(Where(), counts, y, 0.0)


@LAYERS.register
class Attention(AttentionSpec):
    """Look things up softly: for each query a mean of the values, weighted by how well their keys fit the query.

    Inputs query (N, T, D), value (N, S, V), key (N, S, D), which is the value where it is left out; output (N, T, V).
    softmax(query · keyᵀ) · value. Values that a mask leaves out are not looked at; queries that a mask leaves out get
    zeros. Luong et al. 2015, arXiv:1508.04025.
    """

    type: Literal["Attention"] = "Attention"
    use_scale: bool = False
    """multiply the scores by a learned number `scale`"""
    score_mode: Literal["dot", "concat"] = "dot"
    """how a key fits a query: by their product, or by `concat_score_weight` · Σ tanh(scale · (query + key))"""
    samples: ClassVar = (
        Sample.of((2, 3, 4), (2, 5, 4)),
        Sample.of((2, 3, 4), (2, 5, 2), (2, 5, 4), use_scale=True, dropout=0.3),
        Sample.of((2, 4, 3), (2, 4, 3), score_mode="concat", use_scale=True, use_causal_mask=True),
        Sample.of((2, 2, 3), (2, 3, 3), score_mode="concat"),
        Sample.of((3, 2, 3), (3, 4, 3), masks=[(3, 2), (3, 4)]),
    )

    def build(self, net: Builder, query: Value, value: Value, key: Value | None = None) -> Value:
        """query: (N, T, D), value: (N, S, V), key: (N, S, D) → (N, T, V)."""
        query, value, key = map(net.floating, (query, value, value if key is None else key))
        need_sequences(query, value, key)
        _need_equal_features(query, key)
        scale = net.parameter("scale", (), Ones()) if self.use_scale else None
        if self.score_mode == "dot":
            scores = MatMul(transpose_b=True)(query, key)
            scores = scores if scale is None else scores * scale
        else:
            pairs = _pairs(query, key)
            fits = ReduceSum((-1,))(Tanh()(pairs if scale is None else pairs * scale))
            scores = fits * net.parameter("concat_score_weight", (), Ones())
        return self.attended(net, query, scores, value)


@LAYERS.register
class AdditiveAttention(AttentionSpec):
    """As Attention, with scores Σ scale · tanh(query + key): a small network decides how well a key fits.

    Inputs query (N, T, D), value (N, S, V), key (N, S, D), which is the value where it is left out; output (N, T, V).
    Masks are heeded as there. Bahdanau et al. 2015, arXiv:1409.0473.
    """

    type: Literal["AdditiveAttention"] = "AdditiveAttention"
    use_scale: bool = True
    """learn how much each feature counts: `scale` (D)"""
    samples: ClassVar = (
        Sample.of((2, 3, 4), (2, 5, 4)),
        Sample.of((2, 3, 2), (2, 3, 5), (2, 3, 2), use_scale=False, use_causal_mask=True, dropout=0.2),
        Sample.of((3, 2, 3), (3, 4, 3), masks=[None, (3, 4)]),
    )

    def build(self, net: Builder, query: Value, value: Value, key: Value | None = None) -> Value:
        """query: (N, T, D), value: (N, S, V), key: (N, S, D) → (N, T, V)."""
        query, value, key = map(net.floating, (query, value, value if key is None else key))
        need_sequences(query, value, key)
        _need_equal_features(query, key)
        fits = Tanh()(_pairs(query, key))
        if self.use_scale:
            fits = fits * net.parameter("scale", (query.shape[-1],), GlorotUniform())
        return self.attended(net, query, ReduceSum((-1,))(fits), value)
