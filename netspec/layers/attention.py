"""Attention and AdditiveAttention: each place of a sequence takes a weighted mean of the places of another."""

from __future__ import annotations

from typing import ClassVar, Literal

from pydantic import Field

from netspec.graph.ops.attention import Band
from netspec.graph.ops.elementwise import Where, elementwise
from netspec.graph.ops.functions import Tanh
from netspec.graph.ops.linear import MatMul
from netspec.graph.ops.reduce import ReduceSum, reshape_to
from netspec.graph.value import Value
from netspec.layers.attending import attended
from netspec.layers.base import Builder, LayerSpec, Sample
from netspec.layers.checks import need
from netspec.layers.dropout import dropped
from netspec.layers.initializers import GlorotUniform, Ones
from netspec.layers.masking import steps_that_count
from netspec.schema.kinds import LAYERS


def values_mask(net: Builder, index: int, values: Value) -> Value | None:
    """(N, 1, S): which of the values, input number `index`, may be looked at; None for all."""
    mask = steps_that_count(net, values, index)
    return None if mask is None else reshape_to(mask, (mask.shape[0], 1, mask.shape[1]))


def queries_mask(net: Builder, query: Value) -> Value | None:
    """(N, T, 1): which of the queries, the first input, count; None for all."""
    mask = steps_that_count(net, query)
    return None if mask is None else reshape_to(mask, (*mask.shape, 1))


def _counting(net: Builder, query: Value, y: Value) -> Value:
    """y: (N, T, V), with zeros for queries that do not count."""
    counts = queries_mask(net, query)
    return y if counts is None else elementwise(Where(), counts, y, 0.0)


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

    @property
    def band(self) -> Band:
        """Where each place looks."""
        return Band(self.use_causal_mask)

    def weighted(self, net: Builder, query: Value, scores: Value, values: Value) -> Value:
        """Means of the values that count, and zeros for queries that do not."""
        weights = dropped(net, self.band.weights(scores, values_mask(net, 1, values)), self.dropout)
        return _counting(net, query, MatMul()(weights, values))


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
        if self.score_mode == "dot" and scale is None:
            y = attended(net, query, key, value, self.dropout, self.band, values_mask(net, 1, value))
            return _counting(net, query, y)
        if self.score_mode == "dot":
            assert scale is not None
            scores = MatMul(transpose_b=True)(query, key) * scale
        else:
            pairs = _pairs(query, key)
            fits = ReduceSum((-1,))(Tanh()(pairs if scale is None else pairs * scale))
            scores = fits * net.parameter("concat_score_weight", (), Ones())
        return self.weighted(net, query, scores, value)


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
        return self.weighted(net, query, ReduceSum((-1,))(fits), value)
