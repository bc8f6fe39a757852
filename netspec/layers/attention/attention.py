"""Attention and AdditiveAttention: weighted means of the steps of one sequence for each step of another."""

from __future__ import annotations

from typing import ClassVar, Literal

from pydantic import Field

from netspec.graph.ops.attention import AttentionBand
from netspec.graph.ops.elementwise import Where, call_elementwise
from netspec.graph.ops.linear import MatMul
from netspec.graph.ops.reduce import ReduceSum, reshape_to
from netspec.graph.ops.unary import Tanh
from netspec.graph.value import Value
from netspec.layers.attention.core import attend
from netspec.layers.base import Builder, LayerSpec, Sample
from netspec.layers.checks import require
from netspec.layers.core.dropout import apply_dropout
from netspec.layers.core.masking import step_mask
from netspec.layers.initializers.base import Ones
from netspec.layers.initializers.variance_scaling import GlorotUniform
from netspec.schema.specs.kinds import LAYERS


def values_mask(builder: Builder, index: int, values: Value) -> Value | None:
    """Mask (N, 1, S) of the values that may be attended to, from input `index`; None if all may."""
    mask = step_mask(builder, values, index)
    return None if mask is None else reshape_to(mask, (mask.shape[0], 1, mask.shape[1]))


def queries_mask(builder: Builder, query: Value) -> Value | None:
    """Mask (N, T, 1) of the queries, the first input; None if none is masked."""
    mask = step_mask(builder, query)
    return None if mask is None else reshape_to(mask, (*mask.shape, 1))


def _mask_unattended(builder: Builder, query: Value, y: Value) -> Value:
    """y: (N, T, V), with zeros for masked queries."""
    mask = queries_mask(builder, query)
    return y if mask is None else call_elementwise(Where(), mask, y, 0.0)


def require_sequences(query: Value, value: Value, key: Value) -> None:
    """Raise a located error unless the inputs are sequences of vectors with one key per value."""
    for noun, x in (("query", query), ("value", value), ("key", key)):
        require(
            len(x.shape) == 3,
            f"the {noun} is not a sequence of vectors",
            expected="(batch, steps, features)",
            got=x.type,
            hint="put an Embedding before it to turn integers into vectors" if len(x.shape) == 2 else None,
        )
    require(
        key.shape[1] == value.shape[1],
        "keys and values have different numbers of steps",
        expected=f"{value.shape[1]} steps, as the value has",
        got=f"{key.shape[1]} steps",
    )


def _require_equal_features(query: Value, key: Value) -> None:
    require(
        query.shape[-1] == key.shape[-1],
        "query and key have vectors of different lengths",
        expected=f"{query.shape[-1]} features, as the query has",
        got=f"{key.shape[-1]} features",
        hint="put a Dense layer before one of them, or use MultiHeadAttention, which projects both",
    )


def _all_pairs(query: Value, key: Value) -> Value:
    """query: (N, T, D), key: (N, S, D) → the sum of each pair (N, T, S, D)."""
    n, t, d = query.shape
    return reshape_to(query, (n, t, 1, d)) + reshape_to(key, (n, 1, key.shape[1], d))


class AttentionSpec(LayerSpec):
    """Base of attentions without projections."""

    onnx_roundtrip_blocker: ClassVar = "it is exported as products and a softmax"
    passes_mask: ClassVar = True
    dropout: float = Field(default=0.0, ge=0, lt=1)
    """Share of the weights that become 0 in training."""
    use_causal_mask: bool = False
    """Step t attends to steps up to t only. In Keras, an argument of the call."""

    @property
    def band(self) -> AttentionBand:
        """The band of steps that each step may attend to."""
        return AttentionBand(self.use_causal_mask)

    def weighted_mean(self, builder: Builder, query: Value, scores: Value, values: Value) -> Value:
        """Weighted means of the values; zeros for masked queries."""
        weights = apply_dropout(
            builder, self.band.attention_weights(scores, values_mask(builder, 1, values)), self.dropout
        )
        return _mask_unattended(builder, query, MatMul()(weights, values))


@LAYERS.register
class Attention(AttentionSpec):
    """Dot-product attention: for each query the mean of the values, weighted by how well their keys match the query.

    Inputs query (N, T, D), value (N, S, V) and key (N, S, D), which defaults to the value; output (N, T, V):
    softmax(query · keyᵀ) · value. Masked values get no weight; masked queries give zeros. Luong et al. 2015,
    arXiv:1508.04025.
    """

    type: Literal["Attention"] = "Attention"
    use_scale: bool = False
    """Multiply the scores by a learned factor `scale`."""
    score_mode: Literal["dot", "concat"] = "dot"
    """The score of a key for a query: their product, or `concat_score_weight` · Σ tanh(scale · (query + key))."""
    samples: ClassVar = (
        Sample.of((2, 3, 4), (2, 5, 4)),
        Sample.of((2, 3, 4), (2, 5, 2), (2, 5, 4), use_scale=True, dropout=0.3),
        Sample.of((2, 4, 3), (2, 4, 3), score_mode="concat", use_scale=True, use_causal_mask=True),
        Sample.of((2, 2, 3), (2, 3, 3), score_mode="concat"),
        Sample.of((3, 2, 3), (3, 4, 3), masks=[(3, 2), (3, 4)]),
    )

    def build(self, builder: Builder, query: Value, value: Value, key: Value | None = None) -> Value:
        """query: (N, T, D), value: (N, S, V), key: (N, S, D) → (N, T, V)."""
        query, value, key = map(builder.floating, (query, value, value if key is None else key))
        require_sequences(query, value, key)
        _require_equal_features(query, key)
        scale = builder.parameter("scale", (), Ones()) if self.use_scale else None
        if self.score_mode == "dot" and scale is None:
            y = attend(builder, query, key, value, self.dropout, self.band, values_mask(builder, 1, value))
            return _mask_unattended(builder, query, y)
        if self.score_mode == "dot":
            assert scale is not None
            scores = MatMul(transpose_b=True)(query, key) * scale
        else:
            query_key_pairs = _all_pairs(query, key)
            match_scores = ReduceSum((-1,))(Tanh()(query_key_pairs if scale is None else query_key_pairs * scale))
            scores = match_scores * builder.parameter("concat_score_weight", (), Ones())
        return self.weighted_mean(builder, query, scores, value)


@LAYERS.register
class AdditiveAttention(AttentionSpec):
    """Additive attention: as Attention, with scores Σ scale · tanh(query + key).

    Inputs query (N, T, D), value (N, S, V) and key (N, S, D), which defaults to the value; output (N, T, V). Masks are
    applied as in Attention. Bahdanau et al. 2015, arXiv:1409.0473.
    """

    type: Literal["AdditiveAttention"] = "AdditiveAttention"
    use_scale: bool = True
    """Learn how much each feature counts: `scale` (D)."""
    samples: ClassVar = (
        Sample.of((2, 3, 4), (2, 5, 4)),
        Sample.of((2, 3, 2), (2, 3, 5), (2, 3, 2), use_scale=False, use_causal_mask=True, dropout=0.2),
        Sample.of((3, 2, 3), (3, 4, 3), masks=[None, (3, 4)]),
    )

    def build(self, builder: Builder, query: Value, value: Value, key: Value | None = None) -> Value:
        """query: (N, T, D), value: (N, S, V), key: (N, S, D) → (N, T, V)."""
        query, value, key = map(builder.floating, (query, value, value if key is None else key))
        require_sequences(query, value, key)
        _require_equal_features(query, key)
        features = Tanh()(_all_pairs(query, key))
        if self.use_scale:
            features = features * builder.parameter("scale", (query.shape[-1],), GlorotUniform())
        return self.weighted_mean(builder, query, ReduceSum((-1,))(features), value)
