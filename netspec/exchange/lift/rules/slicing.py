"""Slice, Split, Gather, Tile, DepthToSpace and SpaceToDepth."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from netspec.exchange.lift.context import LiftContext
from netspec.exchange.lift.registry import rule
from netspec.exchange.lift.rules.leading_axis import gather_leading_axis, slice_leading_axis, split_leading_axis
from netspec.exchange.lift.rules.windows import padding_field, short
from netspec.exchange.operator_graph.constant_folding import slice_range
from netspec.exchange.operator_graph.graph import OperatorNode
from netspec.exchange.unsupported import MixesSamples, UnsupportedFeature

MAX_COPIES = 2**12
"""Largest number of repetitions of an axis of several elements: each is an operand of a concatenation."""


@rule("Slice")
def cut(ctx: LiftContext, node: OperatorNode) -> None:
    """Cropped spatial axes → Cropping2D (or 1D, 3D); others → one Slice per axis, and Flip for negative steps."""
    shape = ctx.tensors.shape(node.inputs[0])
    if node.operand(1):
        starts, ends = (ctx.tensors.constant(node.inputs[k], "range").tolist() for k in (1, 2))
    else:
        starts, ends = node.attributes["starts"], node.attributes["ends"]
    axes = ctx.tensors.constant(node.operand(3), "axes").tolist() if node.operand(3) else node.attributes.get("axes")
    steps = ctx.tensors.constant(node.operand(4), "steps").tolist() if node.operand(4) else [1] * len(starts)
    parts: dict[int, tuple[int, int, int]] = {}
    flipped: list[int] = []
    for axis, start, end, step in zip(axes or range(len(starts)), starts, ends, steps, strict=True):
        size = shape[axis % len(shape)]
        indices = slice_range(start, end, step, size)
        if step < 0:  # the same elements in ascending order, to be flipped
            indices = range(indices[-1], indices[0] + 1, -step) if indices else indices
            flipped.append(axis % len(shape))
        if indices != range(size):
            parts[axis % len(shape)] = indices.start, indices.stop, indices.step
    sizes = {axis: len(range(*part)) for axis, part in parts.items()}
    if 0 in sizes.values():
        ctx.tensors.constants[node.outputs[0]] = _empty(ctx, node, sizes)
        return
    if slice_leading_axis(ctx, node, parts, flipped):
        return
    for axes, why_not in (
        (flipped, "it reverses the order of the samples in the batch"),
        (parts, "it takes a part of the batch"),
    ):
        for axis in axes:
            ctx.tensors.axis(node.inputs[0], axis, why_not)
    if (
        parts
        and not flipped
        and not ctx.layers.is_permuted(node.inputs[0])
        and len(shape) in (3, 4, 5)
        and min(parts) > 1
        and {step for _, _, step in parts.values()} == {1}
    ):
        sides = [(0, 0)] * len(shape)
        for axis, (first, last, _) in parts.items():
            sides[axis] = first, shape[axis] - max(first, last)
        written = padding_field(sides[2:]).get("padding", 0)
        ctx.reshaping.add_per_sample(node, f"Cropping{len(shape) - 2}D", node.inputs[:1], {"cropping": written})
        return
    stored_axes = {axis: ctx.layers.stored_axis(node.inputs[0], axis) for axis in (*parts, *flipped)}
    layers = [("Slice", {"axis": stored_axes[axis], **_range(shape[axis], *part)}) for axis, part in parts.items()]
    if flipped:
        layers.append(("Flip", {"axis": short(sorted(stored_axes[axis] for axis in flipped))}))
    ctx.reshaping.add_chain(node, node.inputs[0], layers)


def _range(size: int, first: int, last: int, step: int) -> dict[str, Any]:
    return {"start": first, "stop": None if last == size else last, "step": step}


@rule("Split", uses_all_results=True)
def split(ctx: LiftContext, node: OperatorNode) -> None:
    """The parts of an axis → Split."""
    shape, count = ctx.tensors.shape(node.inputs[0]), len(node.outputs)
    axis = node.attributes["axis"] % len(shape)
    if node.operand(1):
        sizes = ctx.tensors.constant(node.operand(1), "sizes").tolist()
    elif "split" in node.attributes:
        sizes = node.attributes["split"]
    else:  # equal parts; the last may be smaller
        size = -(-shape[axis] // count)
        sizes = [size] * (count - 1) + [shape[axis] - size * (count - 1)]
    for name, size in zip(node.outputs, sizes, strict=True):
        if size == 0 and name:
            ctx.tensors.constants[name] = _empty(ctx, node, {axis: 0})
    parts = [(name, size) for name, size in zip(node.outputs, sizes, strict=True) if size]
    if not parts:
        return
    if len(parts) == 1:
        ctx.reshaping.alias(replace(node, outputs=(parts[0][0],)), node.inputs[0])
        return
    if split_leading_axis(ctx, node, axis, parts):
        return
    stored_axis = ctx.layers.stored_axis(node.inputs[0], axis, "it splits the batch")
    view, sizes = ctx.layers.permuted_view(node.inputs[0]), [size for _, size in parts]
    fields = {"sections": len(sizes) if len(set(sizes)) == 1 else sizes, "axis": stored_axis}
    names = [name for name, _ in parts]
    ctx.layers.add(node, "Split", [view.source], fields, outputs=names, result_axes=lambda rank: view.axes)


def _empty(ctx: LiftContext, node: OperatorNode, sizes: Mapping[int, int]) -> NDArray[Any]:
    """An empty tensor, shaped like the input except for `sizes` along some axes: a constant that Concat ignores."""
    shape = (sizes.get(axis, size) for axis, size in enumerate(ctx.tensors.shape(node.inputs[0])))
    return np.zeros(tuple(shape), str(ctx.tensors.dtype(node.inputs[0])))


@rule("Gather")
def gather(ctx: LiftContext, node: OperatorNode) -> None:
    """Rows of a constant table → Embedding; constant indices → Gather; reordered samples → BatchReindex."""
    data, index = node.inputs
    axis = node.attributes["axis"] % len(ctx.tensors.shape(data))
    if (
        data in ctx.tensors.constants
        and axis == 0
        and ctx.tensors.constants[data].dtype.kind == "f"
        and ctx.tensors.rank(data) > 0
    ):
        _embedding(ctx, node)
        return
    if gather_leading_axis(ctx, node):
        return
    if index not in ctx.tensors.constants:
        if (
            axis == 0
            and ctx.tensors.rank(index) == 1
            and not ctx.tensors.single_sample
            and ctx.tensors.is_computed(data)
        ):
            ctx.layers.add(node, "BatchReindex", node.inputs, {})
            return
        if not ctx.tensors.single_sample:
            if axis or ctx.tensors.is_computed(data):
                raise MixesSamples("its computed indices apply to all samples of the batch")
            table, data = ctx.tensors.constants[data], ctx.tensors.fresh_name(data)
            ctx.tensors.constants[data] = table[None]  # the same for all samples
        ctx.layers.add(node, "Gather", [data, index], {} if axis == 0 else {"axis": axis + 1})
        return
    indices = ctx.tensors.constants[index]
    stored_axis = ctx.layers.stored_axis(data, axis, "it selects samples of the batch by constant indices")
    fields = {"indices": indices.reshape(-1).tolist(), "axis": stored_axis}
    if indices.ndim == 0:  # a scalar index removes the axis
        ctx.reshaping.add_chain(node, data, [("Gather", fields), ("Squeeze", {"axis": stored_axis})], [axis])
    elif indices.ndim == 1:
        ctx.reshaping.add_chain(node, data, [("Gather", fields)])
    else:
        picked, shape = ctx.tensors.fresh_name(node.outputs[0]), ctx.tensors.shape(data)
        ctx.reshaping.add_chain(replace(node, outputs=(picked,)), data, [("Gather", fields)])
        ctx.reshaping.reshape(node, picked, (*shape[:axis], *indices.shape, *shape[axis + 1 :]))


def _embedding(ctx: LiftContext, node: OperatorNode) -> None:
    """Rows of a table of floats → Embedding, and a Reshape if each row is a tensor."""
    table, index = ctx.tensors.constants[node.inputs[0]], node.inputs[1]
    width = prod(table.shape[1:])
    fields = {"input_dim": table.shape[0], "output_dim": width}
    arrays = {"embeddings": table.reshape(-1, width)}
    if table.ndim == 2:
        ctx.layers.add(node, "Embedding", [index], fields, arrays)
        return
    rows, index_shape = ctx.tensors.fresh_name(node.outputs[0]), ctx.tensors.shape(index)
    ctx.layers.add(node, "Embedding", [index], fields, arrays, outputs=[rows])
    ctx.reshaping.reshape(node, rows, (*index_shape, *table.shape[1:]))


@rule("Tile")
def tile(ctx: LiftContext, node: OperatorNode) -> None:
    """One layer Tile for each repeated axis."""
    repeats = ctx.tensors.constant(node.inputs[1], "repeats").tolist()
    shape = ctx.tensors.shape(node.inputs[0])
    ctx.tensors.require_room([size * count for size, count in zip(shape, repeats, strict=True)])
    if any(count > MAX_COPIES for size, count in zip(shape, repeats, strict=True) if size > 1):
        raise UnsupportedFeature(f"its `repeats` {repeats} are too large: at most {MAX_COPIES:,} copies are supported")
    axes = {
        axis: ctx.layers.stored_axis(node.inputs[0], axis, "it repeats the batch")
        for axis, count in enumerate(repeats)
        if count != 1
    }
    layers = [("Tile", {"tiles": repeats[axis], "axis": stored_axis}) for axis, stored_axis in axes.items()]
    ctx.reshaping.add_chain(node, node.inputs[0], layers)


@rule("DepthToSpace", "SpaceToDepth")
def blocks(ctx: LiftContext, node: OperatorNode) -> None:
    """Blocks of pixels and channels → the layers of the same names, whose mode is CRD by default."""
    mode = node.attributes.get("mode", "DCR")  # SpaceToDepth has no such attribute and always uses DCR
    fields = {"block_size": node.attributes["blocksize"], "mode": mode}
    ctx.reshaping.add_per_sample(node, node.op_type, node.inputs, fields)
