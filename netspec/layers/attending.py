"""What attentions with keys do: means of values, by one op where there is a kernel for that."""

from __future__ import annotations

from collections.abc import Sequence

from netspec.graph.ops.attention import Attention, AttentionGrad, Band
from netspec.graph.value import Value
from netspec.layers.base import Builder
from netspec.layers.dropout import dropped


def attended(
    net: Builder, query: Value, key: Value, value: Value, rate: float, band: Band, mask: Value | None = None
) -> Value:
    """Means of values, weighted by how well their keys fit a query; `rate` is that of the dropout of the weights.

    Operands and the result are those of the op `Attention`, which computes it where there is a kernel for that, and no
    dropout: a library's random numbers are others.
    """
    op, operands = Attention(band), (query, key, value) if mask is None else (query, key, value, mask)
    if not (net.training and rate) and _computed_at_once(net, op, operands):
        return op.many(*operands)[0]
    return op.written_out(query, key, value, mask, lambda weights: dropped(net, weights, rate))


def _computed_at_once(net: Builder, op: Attention, operands: Sequence[Value]) -> bool:
    """Whether there is a kernel for the op, and for its gradient if that may be asked for."""
    q, k, v, *mask = types = [one.type for one in operands]
    y, total = op.infer(*types)
    return net.accepts(op, types) and (
        not net.training or net.accepts(AttentionGrad(op.band), [q, k, v, y, total, y, *mask])
    )
