"""Weighted means of values, the core of attention layers: one op if a kernel computes it."""

from __future__ import annotations

from collections.abc import Sequence

from netspec.graph.ops.attention import Attention, AttentionBand, AttentionGrad
from netspec.graph.value import Value
from netspec.layers.base import Builder
from netspec.layers.core.dropout import apply_dropout


def attend(
    builder: Builder,
    query: Value,
    key: Value,
    value: Value,
    rate: float,
    band: AttentionBand,
    mask: Value | None = None,
) -> Value:
    """Means of values, weighted by how well their keys match a query; `rate` is the dropout rate of the weights.

    Operands and result are those of the op `Attention`, which is used if a kernel implements it and there is no
    dropout, since a library would draw different random numbers.
    """
    op, operands = Attention(band), (query, key, value) if mask is None else (query, key, value, mask)
    if not (builder.training and rate) and _fused_attention(builder, op, operands):
        return op.call_multi(*operands)[0]
    return attend_with_scores(builder, query, key, value, rate=rate, band=band, mask=mask)[0]


def attend_with_scores(
    builder: Builder, query: Value, key: Value, value: Value, *, rate: float, band: AttentionBand,
    mask: Value | None = None, unmasked: int = 0,
) -> tuple[Value, Value]:  # fmt: skip
    """The result of `attend`, and the attention weights before dropout, (N, heads…, T, S).

    Band and mask do not cover the last `unmasked` keys, which every query may attend to.
    """
    return Attention(band).unfused(
        query, key, value, mask, dropped=lambda weights: apply_dropout(builder, weights, rate), unmasked=unmasked
    )


def _fused_attention(builder: Builder, op: Attention, operands: Sequence[Value]) -> bool:
    """Whether the backend has a kernel for the op, and for its gradient if training may need it."""
    q, k, v, *mask = types = [operand.type for operand in operands]
    y, total = op.infer(*types)
    return builder.accepts(op, types) and (
        not builder.training or builder.accepts(AttentionGrad(op.band), [q, k, v, y, total, y, *mask])
    )
