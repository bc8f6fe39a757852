"""Reductions: GlobalAveragePooling and GlobalMaxPooling, Reduction, ArgMax and ArgMin."""

from __future__ import annotations

from typing import Any

from netspec.exchange.lift.context import LiftContext
from netspec.exchange.lift.registry import rule
from netspec.exchange.operator_graph.graph import OperatorNode

OPERATIONS = {
    "ReduceSum": "sum", "ReduceMean": "mean", "ReduceMax": "max", "ReduceMin": "min", "ReduceProd": "prod",
    "ReduceL1": "asum", "ReduceSumSquare": "sumsq", "ReduceL2": "l2", "ReduceLogSum": "logsum",
    "ReduceLogSumExp": "logsumexp",
}  # fmt: skip
GLOBAL = {"ReduceMean": "GlobalAveragePooling", "ReduceMax": "GlobalMaxPooling"}


@rule(*OPERATIONS, keeps_type=True)
def reduction(ctx: LiftContext, node: OperatorNode) -> None:
    """A mean or maximum over all spatial axes → GlobalAveragePooling2D (or 1D, 3D); else Reduction."""
    axes = ctx.tensors.constant(node.operand(1), "axes").tolist() if node.operand(1) else node.attributes.get("axes")
    rank = len(ctx.tensors.shape(node.inputs[0]))
    if not axes and node.attributes.get("noop_with_empty_axes"):
        ctx.reshaping.alias(node, node.inputs[0])
        return
    source = node.inputs[0]
    over = sorted(axis % rank for axis in axes or range(rank))
    keeps_axes = bool(node.attributes["keepdims"])
    for axis in over:
        ctx.tensors.axis(source, axis)
    if not over:
        ctx.reshaping.alias(node, source)
        return
    pooled = rank in (3, 4, 5) and node.op_type in GLOBAL and ctx.tensors.dtype(source).is_float
    if pooled and over == list(range(2, rank)) and not ctx.layers.is_permuted(source):
        ctx.reshaping.add_per_sample(node, f"{GLOBAL[node.op_type]}{rank - 2}D", [source], {"keepdims": keeps_axes})
        return
    stored_axes = sorted(ctx.layers.stored_axis(source, axis) for axis in over)
    everything = len(over) == rank - 1 + ctx.tensors.axis_offset
    fields: dict[str, Any] = {} if everything else {"axes": stored_axes[0] if len(over) == 1 else stored_axes}
    layers = [("Reduction", fields | {"operation": OPERATIONS[node.op_type], "keepdims": keeps_axes})]
    if pooled and stored_axes == list(range(2, rank)) and not ctx.tensors.single_sample:
        layers = [(f"{GLOBAL[node.op_type]}{rank - 2}D", {"keepdims": keeps_axes})]
    if everything and not keeps_axes:  # the layer then keeps an axis of size 1
        layers.append(("Squeeze", {}))
    ctx.reshaping.add_chain(node, source, layers, () if keeps_axes else over)


@rule("ArgMax", "ArgMin")
def extreme(ctx: LiftContext, node: OperatorNode) -> None:
    """The layers of the same names."""
    axis = ctx.tensors.axis(node.inputs[0], node.attributes["axis"], "it operates along the batch axis")
    fields = {name: bool(node.attributes.get(name)) for name in ("keepdims", "select_last_index")}
    ctx.layers.add(node, node.op_type, node.inputs, {"axis": axis, **fields})
