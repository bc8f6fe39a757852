"""onnxruntime's attention operators (com.microsoft), split into projections, heads, masks and matrix products."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from math import sqrt

import numpy as np

from netspec.exchange.lift.context import LiftContext
from netspec.exchange.lift.nodes import Expansion
from netspec.exchange.lift.registry import rule
from netspec.exchange.lift.rules.attention import HEADS_FIRST, merge_heads, split_heads
from netspec.exchange.lift.rules.contrib import MICROSOFT
from netspec.exchange.operator_graph.graph import OperatorNode
from netspec.exchange.unsupported import UnsupportedFeature

MASKED = -10000.0
"""Default value that is added to the score of a masked key."""
MASKED_LATER = -1e9
"""Value that is added to the score of a key after the query, in causal attention."""


@rule("Attention", domain=MICROSOFT, uses_all_results=True)
def attention(ctx: LiftContext, node: OperatorNode) -> None:
    """Self-attention of a sequence (N, T, in), with all projections in one matrix (in, query + key + value)."""
    steps, x = Expansion(ctx, node), node.inputs[0]
    need_no_state(ctx, node, past=(4, 6))
    if node.attributes.get("do_rotary"):
        raise UnsupportedFeature("rotary embedding within the attention (`do_rotary`) is not supported")
    weights = ctx.tensors.constant(node.inputs[1], "matrix of projections")
    bias = ctx.tensors.constant(node.inputs[2], "bias of projections") if node.operand(2) else None
    widths = node.attributes.get("qkv_hidden_sizes") or [weights.shape[1] // 3] * 3
    ends = [0, widths[0], widths[0] + widths[1], sum(widths)]
    projected = []
    for begin, end in pairwise(ends):
        result = steps.node("MatMul", x, steps.constant(weights[:, begin:end]))
        projected.append(result if bias is None else steps.node("Add", result, steps.constant(bias[begin:end])))
    attend(ctx, steps, node, projected, query_width=widths[0], mask=node.operand(3), bias=node.operand(5))
    steps.lift()


def attend(
    ctx: LiftContext, steps: Expansion, node: OperatorNode, projected: Sequence[str], *, query_width: int, mask: str,
    bias: str,
) -> None:  # fmt: skip
    """Attention of projections (N, T, heads · D). `mask` and `bias`, which is added to the scores, may be empty."""
    count = node.attributes["num_heads"]
    query, key, value = (split_heads(steps, tensor, count) for tensor in projected)
    length = ctx.tensors.shape(node.inputs[0])[1]
    added = [_mask(ctx, steps, node, mask, (length, length)), bias]
    _attend_heads(steps, node, (query, key, value), (query_width // count, length, length), added)


@rule("MultiHeadAttention", domain=MICROSOFT, uses_all_results=True)
def multi_head_attention(ctx: LiftContext, node: OperatorNode) -> None:
    """Attention of a query (N, T, heads · D) to key and value (N, S, heads · D) or (N, heads, S, D).

    A key without a value contains both (N, S, heads, 2, D); a single operand contains all three (N, T, heads, 3, D).
    """
    steps, count = Expansion(ctx, node), node.attributes["num_heads"]
    need_no_state(ctx, node, past=(6, 7, 8, 9))
    tensors = [name for name in node.inputs[:3] if name]
    packed = tensors[-1]
    if ctx.tensors.rank(packed) == 5:
        parts = ctx.tensors.shape(packed)[3]
        split = [steps.node("Gather", packed, steps.integers(part), axis=3) for part in range(parts)]
        heads = [steps.node("Transpose", tensor, perm=HEADS_FIRST) for tensor in split]
        heads = [split_heads(steps, name, count) for name in tensors[:-1]] + heads
        features, length = ctx.tensors.shape(packed)[4], ctx.tensors.shape(packed)[1]
    else:
        names = [*tensors, tensors[-1]][:3]
        length = ctx.tensors.shape(names[1])[2 if ctx.tensors.rank(names[1]) == 4 else 1]
        features = ctx.tensors.shape(names[0])[-1] // count
        biased = _biased(ctx, steps, node, names)
        heads = [
            split_heads(steps, tensor, count) if ctx.tensors.rank(name) == 3 else tensor
            for name, tensor in zip(names, biased, strict=True)
        ]
    sizes = (ctx.tensors.shape(tensors[0])[1], length)
    mask = _mask(ctx, steps, node, node.operand(4), sizes)
    query, key, value = heads
    _attend_heads(steps, node, (query, key, value), (features, *sizes), [mask, node.operand(5)])
    steps.lift()


@rule("RotaryEmbedding", domain=MICROSOFT)
def rotary_embedding(ctx: LiftContext, node: OperatorNode) -> None:
    """Replace the node by ONNX's operator, which takes the position of each token as its last operand.

    x: (N, T, heads · D) or (N, heads, T, D); positions: (N, T), or a constant for the first token. `scale` and
    `is_packed_batching` are ignored, because they do not change onnxruntime's results.
    """
    steps, (x, positions, cosines, sines) = Expansion(ctx, node), node.inputs
    shape, attributes = ctx.tensors.shape(x), node.attributes
    part, heads = attributes.get("rotary_embedding_dim", 0), attributes.get("num_heads", 0)
    (rows, columns), sine_shape = ctx.tensors.shape(cosines), ctx.tensors.shape(sines)
    if len(shape) == 4:
        heads, features = shape[1], shape[3]
    elif len(shape) == 3:
        if part and not heads:
            raise UnsupportedFeature("`rotary_embedding_dim` without `num_heads`")
        heads = heads or shape[2] // (2 * columns)
        features = shape[2] // heads
    else:
        raise UnsupportedFeature(f"x has {len(shape)} axes instead of 3 or 4")
    rotated = part or features
    if 2 * columns != rotated or sine_shape != (rows, columns):
        raise UnsupportedFeature(
            f"cos_cache and sin_cache must have {rotated / 2:g} columns for {rotated} rotated features, "
            f"got {columns} and {sine_shape[1]}"
        )
    if ctx.tensors.rank(positions) < 2:
        first = int(ctx.tensors.constant(positions, "position of the first token").item())
        end = first + shape[-2]
        if first < 0 or end > rows:
            raise UnsupportedFeature(f"positions {first} to {end - 1} are not in cos_cache, which has {rows} rows")
        positions = steps.integers(np.arange(first, end)[None])
    fields = {"num_heads": heads, "interleaved": attributes.get("interleaved", 0), "rotary_embedding_dim": part}
    steps.node("RotaryEmbedding", x, cosines, sines, positions, **fields)
    steps.lift()


def _biased(ctx: LiftContext, steps: Expansion, node: OperatorNode, names: list[str]) -> list[str]:
    """Add to query, key and value their parts of the bias."""
    if not node.operand(3):
        return names
    bias, begin, biased = ctx.tensors.constant(node.operand(3), "bias"), 0, []
    for name in names:
        width = ctx.tensors.shape(name)[-1] * (ctx.tensors.shape(name)[1] if ctx.tensors.rank(name) == 4 else 1)
        part = bias[begin : begin + width]
        if ctx.tensors.rank(name) == 4:
            part = part.reshape(ctx.tensors.shape(name)[1], 1, -1)
        biased.append(steps.node("Add", name, steps.constant(part)))
        begin += width
    return biased


def need_no_state(ctx: LiftContext, node: OperatorNode, past: tuple[int, ...]) -> None:
    """Raise `UnsupportedFeature` if cached keys and values are passed in, or results other than the first are used."""
    if any(map(node.operand, past)) or any(ctx.tensors.is_read(name) for name in node.outputs[1:]):
        raise UnsupportedFeature("past or present keys and values, or attention scores as an output are not supported")


def _mask(ctx: LiftContext, steps: Expansion, node: OperatorNode, mask: str, sizes: tuple[int, int]) -> str:
    """Values to add to the scores, (N, 1, 1, S) or (N, 1, T, S): 0, or a large negative number for masked keys.

    `mask` is 0 for masked keys, (N, S) or (N, T, S), or contains the number of keys of each sample, (N).
    """
    least = node.attributes.get("mask_filter_value", MASKED)
    if not mask:
        return ""
    rank, samples = ctx.tensors.rank(mask), ctx.tensors.shape(node.inputs[0])[0]
    if rank == 1:
        if ctx.tensors.shape(mask) != (samples,):
            raise UnsupportedFeature("a mask of start and end positions is not supported")
        positions = steps.constant(np.arange(sizes[1], dtype=ctx.tensors.dtype_name(mask))[None])
        ends = steps.node("Unsqueeze", mask, steps.integers([1]), axes=[1])
        is_kept = steps.node("Cast", steps.node("Less", positions, ends), to=1)
    elif rank in (2, 3):
        is_kept = steps.node("Cast", mask, to=1)
    else:
        raise UnsupportedFeature(f"its mask has {rank} axes, not 1 to 3")
    added = steps.node("Mul", steps.node("Sub", steps.number(1.0), is_kept), steps.number(least))
    axes = [1] if rank == 3 else [1, 2]
    return steps.node("Unsqueeze", added, steps.integers(axes), axes=axes)


def _attend_heads(
    steps: Expansion, node: OperatorNode, heads: tuple[str, str, str], sizes: tuple[int, int, int], added: list[str]
) -> None:
    """softmax(scale · query · keyᵀ + added) · value, with the heads concatenated."""
    (query, key, value), (features, rows, columns) = heads, sizes
    scores = steps.node("MatMul", query, steps.node("Transpose", key, perm=[0, 1, 3, 2]))
    scores = steps.node("Mul", scores, steps.number(node.attributes.get("scale") or 1 / sqrt(features)))
    for term in filter(None, added):
        scores = steps.node("Add", scores, term)
    if node.attributes.get("unidirectional"):
        later = np.triu(np.full((rows, columns), MASKED_LATER, "float32"), 1 + columns - rows)
        scores = steps.node("Add", scores, steps.constant(later))
    attended = steps.node("MatMul", steps.node("Softmax", scores, axis=-1), value)
    merge_heads(steps, attended)
