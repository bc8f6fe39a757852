"""Merge several inputs elementwise (or add a bias), and Concatenate."""

from __future__ import annotations

from math import isclose
from typing import Any

import numpy as np
from numpy.typing import NDArray

from netspec.exchange.axis_view import Axes
from netspec.exchange.lift.context import LiftContext
from netspec.exchange.lift.layers import LiftedLayer
from netspec.exchange.lift.registry import rule
from netspec.exchange.lift.rules.arithmetic import clip_by_constant, subtracted_from, with_constant
from netspec.exchange.lift.rules.functions import formula
from netspec.exchange.lift.rules.leading_axis import concat_leading_axis
from netspec.exchange.operator_graph.graph import OperatorNode
from netspec.graph.ops.shape import Concat
from netspec.graph.types import DType

CONVOLUTIONS = [
    *(f"Conv{rank}D{kind}" for rank in (1, 2, 3) for kind in ("", "Transpose")),
    *(f"{kind}Conv{rank}D" for rank in (1, 2) for kind in ("Depthwise", "Separable")),
]
CHANNEL_AXIS = {**dict.fromkeys(CONVOLUTIONS, 1), "Dense": -1}
"""The axis of a layer's output that its `bias` is along."""


@rule("Add", "Sum")
def add(ctx: LiftContext, node: OperatorNode) -> None:
    """Two computed tensors → Add; one and a constant → the bias of the layer before it."""
    constants = [name for name in node.inputs if name in ctx.tensors.constants]
    if _needs_formula(ctx, node):
        formula(ctx, node, " + ".join(f"{{{k}}}" for k in range(len(node.inputs))))
        return
    if len(constants) != 1 or len(node.inputs) != 2:
        _add_layer(ctx, node)
        return
    (computed,) = (name for name in node.inputs if name not in ctx.tensors.constants)
    if not _bias(ctx, node, computed, ctx.tensors.constants[constants[0]]):
        with_constant(ctx, node, computed, constants[0], "Add")


MERGED = {"Sub": "Subtract", "Mul": "Multiply", "Max": "Maximum", "Min": "Minimum", "Mean": "Average"}


@rule(*MERGED)
def merge(ctx: LiftContext, node: OperatorNode) -> None:
    """Computed tensors → Subtract, Multiply, Maximum, Minimum or Average; with a constant, layers of `arithmetic`."""
    constants = [name for name in node.inputs if name in ctx.tensors.constants]
    if node.op_type == "Mul" and len(constants) == 1 and _averages(ctx, node, constants[0]):
        return
    if len(node.inputs) == 1:
        ctx.reshaping.alias(node, node.inputs[0])
    elif _needs_formula(ctx, node):
        placeholders = [f"{{{k}}}" for k in range(len(node.inputs))]
        sign = {"Sub": " - ", "Mul": " * "}.get(node.op_type)
        formula(ctx, node, sign.join(placeholders) if sign else f"{node.op_type.lower()}({', '.join(placeholders)})")
    elif len(constants) != 1 or len(node.inputs) != 2 or node.op_type == "Mean":
        ctx.layers.add_elementwise(node, MERGED[node.op_type], node.inputs, {})
    else:
        computed = next(name for name in node.inputs if name not in ctx.tensors.constants)
        if node.op_type in ("Max", "Min"):
            clip_by_constant(ctx, node, computed, constants[0])
        elif node.op_type == "Sub" and node.inputs[0] in ctx.tensors.constants:
            subtracted_from(ctx, node, constants[0], computed)
        else:
            with_constant(ctx, node, computed, constants[0], node.op_type)


def _needs_formula(ctx: LiftContext, node: OperatorNode) -> bool:
    """Whether operands are of a type that layers convert to float, and a formula keeps: not float, int32 or int64."""
    types = {ctx.tensors.dtype(name) for name in node.inputs if name not in ctx.tensors.constants}
    return not any(type_.is_float for type_ in types) and not types <= {DType.INT32, DType.INT64}


def _averages(ctx: LiftContext, node: OperatorNode, constant: str) -> bool:
    """A sum times 1 / (number of its operands) → Average. False if it is another product."""
    (total,) = (name for name in node.inputs if name != constant)
    before, factor = ctx.layers.fusable_producer(total, node), ctx.tensors.constants[constant]
    if before is None or before.type != "Add" or factor.size != 1:
        return False
    if not isclose(float(factor.reshape(())), 1 / len(before.inputs), rel_tol=1e-6):
        return False
    axes = ctx.tensors.view(total).axes
    ctx.layers.written.remove(before)
    ctx.layers.add(node, "Average", before.inputs, {}, result_axes=lambda rank: axes)
    return True


def _add_layer(ctx: LiftContext, node: OperatorNode) -> None:
    if len(node.inputs) == 1:
        ctx.reshaping.alias(node, node.inputs[0])
        return
    before = ctx.layers.fusable_producer(node.inputs[0], node)
    if before is not None and before.type == "Add" and node.inputs[0] not in node.inputs[1:]:
        further = ctx.layers.broadcast_operands(node.inputs)[1:]  # a + b + c, summed from the left as by Add
        if ctx.tensors.view(node.inputs[0]).axes == ctx.tensors.axes_in_order(ctx.tensors.rank(node.inputs[0])):
            ctx.layers.written.remove(before)
            ctx.layers.add(node, "Add", (*before.inputs, *further), {})
            return
    ctx.layers.add_elementwise(node, "Add", node.inputs, {})


def _bias(ctx: LiftContext, node: OperatorNode, computed: str, constant: NDArray[Any]) -> bool:
    """Make the constant the bias of the producing layer. False if that is not possible."""
    layer = ctx.layers.fusable_producer(computed, node)
    bias = (
        _along(layer, ctx.tensors.shape(computed), ctx.tensors.view(computed).axes, constant)
        if layer is not None
        else None
    )
    if layer is None or bias is None:
        return False
    if layer.fields.pop("use_bias", True):
        layer.arrays["bias"] = layer.arrays["bias"] + bias
    else:
        layer.arrays["bias"] = bias
    ctx.layers.absorb(layer, node)
    return True


def _along(layer: LiftedLayer, shape: tuple[int, ...], axes: Axes, constant: NDArray[Any]) -> NDArray[Any] | None:
    """The constant as a vector along the channels of the layer's output; None if it varies along another axis."""
    channels = CHANNEL_AXIS.get(layer.type)
    if channels is None or "activation" in layer.fields or constant.ndim > len(shape) or constant.dtype.kind != "f":
        return None
    stored_axes = (max(axis for group in axes for axis in group) if channels == -1 else channels,)
    if stored_axes not in axes:
        return None
    axis = axes.index(stored_axes)
    full = (1,) * (len(shape) - constant.ndim) + constant.shape
    if any(size != 1 for index, size in enumerate(full) if index != axis) or full[axis] not in (1, shape[axis]):
        return None
    return np.array(np.broadcast_to(constant.reshape(-1), (shape[axis],)), np.float32)


@rule("Concat", keeps_type=True)
def concat(ctx: LiftContext, node: OperatorNode) -> None:
    """Concat → Concatenate; empty tensors are left out."""
    inputs = [name for name in node.inputs if ctx.tensors.is_computed(name) or ctx.tensors.constants[name].size]
    if len(inputs) == 1:
        ctx.reshaping.alias(node, inputs[0])
        return
    if concat_leading_axis(ctx, node):
        return
    axis = ctx.tensors.axis(node.inputs[0], node.as_op(Concat).axis, "it concatenates batches")
    ctx.layers.add(node, "Concatenate", inputs, {"axis": axis})
