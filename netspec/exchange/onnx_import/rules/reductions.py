"""Many numbers made one: GlobalAveragePooling and GlobalMaxPooling, Reduction, ArgMax and ArgMin."""

from __future__ import annotations

from typing import Any

from netspec.exchange.onnx_import.model import Node
from netspec.exchange.onnx_import.translate import Translator, rule

OPERATIONS = {
    "ReduceSum": "sum", "ReduceMean": "mean", "ReduceMax": "max", "ReduceMin": "min", "ReduceProd": "prod",
    "ReduceL1": "asum", "ReduceSumSquare": "sumsq", "ReduceL2": "l2", "ReduceLogSum": "logsum",
    "ReduceLogSumExp": "logsumexp",
}  # fmt: skip
GLOBAL = {"ReduceMean": "GlobalAveragePooling", "ReduceMax": "GlobalMaxPooling"}


@rule(*OPERATIONS)
def reduction(net: Translator, node: Node) -> None:
    """A mean or maximum over all spatial axes → GlobalAveragePooling2D (or 1D, 3D); else Reduction."""
    axes = net.constant(node.operand(1), "axes").tolist() if node.operand(1) else node.attributes.get("axes")
    rank = len(net.shape(node.inputs[0]))
    if not axes and node.attributes.get("noop_with_empty_axes"):
        net.same(node, node.inputs[0])
        return
    over = sorted(axis % rank for axis in axes or range(rank))
    keepdims: dict[str, Any] = {"keepdims": True} if node.attributes["keepdims"] else {}
    held = [net.axis(node.inputs[0], axis) for axis in over]
    if not held:
        net.same(node, node.inputs[0])
        return
    pooled = rank in (3, 4, 5) and node.op_type in GLOBAL and net.dtype(node.inputs[0]).is_float
    if pooled and over == list(range(2, rank)):
        net.sampled(node, f"{GLOBAL[node.op_type]}{rank - 2}D", node.inputs[:1], keepdims)
        return
    everything = len(over) == rank - 1 + net.lead
    fields: dict[str, Any] = {} if everything else {"axes": held[0] if len(over) == 1 else held}
    if node.op_type != "ReduceSum":
        fields = {"operation": OPERATIONS[node.op_type], **fields}
    layers = [("Reduction", fields | keepdims)]
    if everything and not keepdims:  # the layer keeps an axis then, of size 1
        layers.append(("Squeeze", {}))
    net.chain(node, node.inputs[0], layers)


@rule("ArgMax", "ArgMin")
def extreme(net: Translator, node: Node) -> None:
    """The layers of the same names."""
    axis = net.axis(node.inputs[0], node.attributes["axis"], "it runs over the batch")
    fields: dict[str, Any] = {} if axis == 1 else {"axis": axis}
    fields |= {name: True for name in ("keepdims", "select_last_index") if node.attributes.get(name)}
    net.add(node, node.op_type, node.inputs, fields)
