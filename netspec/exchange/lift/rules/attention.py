"""Decompose the node Attention, so that `layer_fusion` can fuse it with its projections."""

from __future__ import annotations

from math import sqrt
from typing import Any

import numpy as np
from numpy.typing import NDArray

from netspec.exchange.lift.context import LiftContext
from netspec.exchange.lift.nodes import Expansion
from netspec.exchange.lift.registry import rule
from netspec.exchange.operator_graph.graph import OperatorNode
from netspec.exchange.unsupported import UnsupportedFeature

MASKED = -1e9
"""Added to the score of a masked key."""
SUPPORTED = {"q_num_heads", "kv_num_heads", "scale", "is_causal", "softmax_precision", "qk_matmul_output_mode"}
NO_EFFECT = (0, -1)
"""Values of other attributes that have no effect."""
PAST, LAST = 4, 7
"""Operands `PAST` to `LAST` - 1 are past keys and values, and lengths of sequences."""
HEADS_FIRST = [0, 2, 1, 3]


@rule("Attention")
def attention(ctx: LiftContext, node: OperatorNode) -> None:
    """Split heads if there are several, compute softmax(scale · query · keyᵀ + mask) · value, and merge the heads.

    query, key, value: (N, T, heads · D) or (N, heads, T, D). Other forms are decomposed as ONNX defines them.
    """
    have = node.attributes
    if any(value not in NO_EFFECT for name, value in have.items() if name not in SUPPORTED):
        raise UnsupportedFeature("softcap or a sliding window of keys is not supported")
    if any(map(node.operand, range(PAST, LAST))):
        raise UnsupportedFeature("past keys and values, or sequence lengths as inputs are not supported")
    shapes = [ctx.tensors.shape(name) for name in node.inputs[:3]]
    packed = len(shapes[0]) == 3
    counts = [
        have.get(f"{prefix}_num_heads") if packed else shapes[index][1] for index, prefix in enumerate(("q", "kv"))
    ]
    if not counts[0] or counts[0] != counts[1]:
        raise UnsupportedFeature("grouped-query attention (heads that share keys and values) is not supported")
    features = shapes[0][-1] // counts[0] if packed else shapes[0][-1]
    factor = have.get("scale", 1 / sqrt(features))
    packed &= counts[0] > 1 or factor != 1
    steps, heads, rank = Expansion(ctx, node), list(node.inputs[:3]), 4 if packed else len(shapes[0])
    if packed:
        heads = [split_heads(steps, name, counts[0]) for name in heads]
    transposed = steps.node("Transpose", heads[1], perm=[*range(rank - 2), rank - 1, rank - 2])
    scores = steps.node("MatMul", heads[0], transposed)
    if factor != 1:
        scores = steps.node("Mul", scores, steps.number(factor))
    mask = _mask(ctx, node, (shapes[0][-2], shapes[1][-2]))
    if mask is not None:
        scores = steps.node("Add", scores, steps.constant(mask))
    attended = steps.node("MatMul", steps.node("Softmax", scores, axis=-1), heads[2])
    if packed:
        merge_heads(steps, attended)
    steps.lift()


def split_heads(steps: Expansion, x: str, count: int) -> str:
    """Reshape (N, T, heads · D) to (N, heads, T, D)."""
    return steps.node("Transpose", steps.node("Reshape", x, steps.integers([0, 0, count, -1])), perm=HEADS_FIRST)


def merge_heads(steps: Expansion, x: str) -> str:
    """Reshape (N, heads, T, D) to (N, T, heads · D)."""
    return steps.node("Reshape", steps.node("Transpose", x, perm=HEADS_FIRST), steps.integers([0, 0, -1]))


def _mask(ctx: LiftContext, node: OperatorNode, shape: tuple[int, int]) -> NDArray[Any] | None:
    """The mask that is added to the scores (T, S).

    Raises `UnsupportedFeature` if a query may attend to no key: ONNX gives 0 for it.
    """
    bias = np.zeros(shape, "float32")
    if node.operand(3):
        mask = ctx.tensors.constant(node.operand(3), "mask")
        if mask.shape != shape:
            raise UnsupportedFeature(f"its mask has the shape {list(mask.shape)}, not {list(shape)} (queries × keys)")
        bias = np.where(mask, 0, MASKED).astype("float32") if mask.dtype == bool else np.maximum(mask, MASKED)
    elif not node.attributes.get("is_causal"):
        return None
    if node.attributes.get("is_causal"):
        bias = np.where(np.tri(*shape, dtype=bool), bias, np.float32(MASKED))
    if (bias <= MASKED).all(axis=1).any():
        raise UnsupportedFeature("its mask lets a query attend to no key")
    return bias.astype("float32")
