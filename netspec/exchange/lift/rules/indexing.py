"""Gather, scatter and order elements: GatherElements, GatherND, ScatterElements, ScatterND, OneHot, TopK and others."""

from __future__ import annotations

from math import prod
from typing import Any

from netspec.exchange.lift.context import LiftContext
from netspec.exchange.lift.inputs import INPUT_TYPES
from netspec.exchange.lift.registry import rule
from netspec.exchange.lift.rules.windows import short
from netspec.exchange.operator_graph.graph import OperatorNode
from netspec.exchange.unsupported import MixesSamples, UnsupportedFeature
from netspec.graph.ops.indexing import GatherElements


def along(ctx: LiftContext, node: OperatorNode, axis: int | None = None) -> dict[str, Any]:
    """The field `axis` for the operator's axis of its first operand."""
    return {"axis": ctx.tensors.axis(node.inputs[0], node.attributes["axis"] if axis is None else axis)}


@rule("GatherElements")
def gather_elements(ctx: LiftContext, node: OperatorNode) -> None:
    """The layer of the same name."""
    ctx.layers.add(node, "GatherElements", node.inputs, along(ctx, node, axis=node.as_op(GatherElements).axis))


@rule("ScatterElements", "Scatter")
def scatter_elements(ctx: LiftContext, node: OperatorNode) -> None:
    """The layer ScatterElements."""
    ctx.layers.add(node, "ScatterElements", node.inputs, along(ctx, node) | _reduction(node))


def _reduction(node: OperatorNode) -> dict[str, Any]:
    return {"reduction": node.attributes.get("reduction", "none")}


@rule("GatherND")
def gather_nd(ctx: LiftContext, node: OperatorNode) -> None:
    """The layer of the same name, whose `batch_dims` includes the batch."""
    shared = node.attributes.get("batch_dims", 0) + ctx.tensors.axis_offset
    if shared < 1:
        raise MixesSamples("it gathers along the batch axis (`batch_dims` is 0)")
    ctx.layers.add(node, "GatherND", node.inputs, {"batch_dims": shared})


@rule("ScatterND")
def scatter_nd(ctx: LiftContext, node: OperatorNode) -> None:
    """The layer of the same name, if the model is one sample: the layer's indices are within a sample."""
    if not ctx.tensors.single_sample:
        raise MixesSamples("it scatters along the batch axis")
    ctx.layers.add(node, "ScatterND", node.inputs, _reduction(node))


@rule("TensorScatter")
def tensor_scatter(ctx: LiftContext, node: OperatorNode) -> None:
    """The layer of the same name; a model of one sample can have several caches only if all start at one index."""
    net_axis = ctx.tensors.axis(node.inputs[0], node.attributes["axis"])
    fields = {} if net_axis == ctx.tensors.rank_in_net(node.inputs[0]) - 2 else {"axis": net_axis}
    fields |= {"mode": node.attributes["mode"]}
    ctx.layers.add(node, "TensorScatter", [name for name in node.inputs if name], fields)


@rule("ReverseSequence")
def reverse_sequence(ctx: LiftContext, node: OperatorNode) -> None:
    """The layer of the same name."""
    time = ctx.tensors.axis(node.inputs[0], node.attributes["time_axis"])
    batch = node.attributes["batch_axis"] + ctx.tensors.axis_offset
    ctx.layers.add(node, "ReverseSequence", node.inputs, {"time_axis": time, "batch_axis": batch})


@rule("OneHot")
def one_hot(ctx: LiftContext, node: OperatorNode) -> None:
    """The layer of the same name; indices that are floats are cast to integers first."""
    index = node.inputs[0]
    depth = int(ctx.tensors.constant(node.inputs[1], "depth").item())
    values = ctx.tensors.constant(node.inputs[2], "values").reshape(-1)
    off, on = (float(str(value)) for value in values)
    rank = ctx.tensors.rank(index) + 1
    axis = node.attributes["axis"]
    if axis % rank == 0 and not ctx.tensors.single_sample:
        raise MixesSamples("its one-hot vectors are along the batch axis")
    net_axis = axis % rank + ctx.tensors.axis_offset
    fields = {} if net_axis == rank - 1 + ctx.tensors.axis_offset else {"axis": net_axis}
    dtype = INPUT_TYPES.get(str(values.dtype), str(values.dtype))
    fields |= {"depth": depth, "on_value": on, "off_value": off, "dtype": dtype}
    if ctx.tensors.is_computed(index) and ctx.tensors.dtype(index).is_float:
        integers = ctx.tensors.fresh_name(index)
        ctx.layers.add(node, "Cast", [index], {"dtype": "int64"}, outputs=[integers])
        index = integers
    ctx.layers.add(node, "OneHot", [index], fields)


@rule("Compress")
def compress(ctx: LiftContext, node: OperatorNode) -> None:
    """The elements at which a constant condition is true → Gather of their indices."""
    condition = ctx.tensors.constant(node.inputs[1], "condition").reshape(-1)
    source, axis = node.inputs[0], node.attributes.get("axis")
    if axis is None:
        axis, flat = 0, ctx.tensors.fresh_name(node.outputs[0])
        ctx.reshaping.reshape(node, source, (prod(ctx.tensors.shape(source)),), flat)
        source = flat
    net_axis = ctx.tensors.axis(source, axis, "it removes samples of the batch")
    indices = condition.nonzero()[0].tolist()
    if not indices:
        raise UnsupportedFeature("its condition is false everywhere, so that the result is empty")
    ctx.layers.add(node, "Gather", [source], {"indices": indices, "axis": net_axis})


@rule("TopK", uses_all_results=True)
def top_k(ctx: LiftContext, node: OperatorNode) -> None:
    """The layer of the same name."""
    rank = ctx.tensors.rank(node.inputs[0])
    net_axis = ctx.tensors.axis(node.inputs[0], node.attributes["axis"], "it operates along the batch axis")
    k = int(ctx.tensors.constant(node.operand(1), "k").item()) if node.operand(1) else node.attributes["k"]
    fields = {} if net_axis == rank - 1 + ctx.tensors.axis_offset else {"axis": net_axis}
    fields |= {"k": k, "largest": bool(node.attributes.get("largest", 1))}
    ctx.layers.add(node, "TopK", node.inputs[:1], fields, outputs=(*node.outputs, "")[:2])


@rule("CumSum", "CumProd")
def cumulative(ctx: LiftContext, node: OperatorNode) -> None:
    """The layers of the same names."""
    axis = int(ctx.tensors.constant(node.inputs[1], "axis").item())
    fields = {name: bool(node.attributes.get(name)) for name in ("exclusive", "reverse")}
    ctx.layers.add(node, node.op_type, node.inputs[:1], along(ctx, node, axis=axis) | fields)


@rule("Trilu")
def trilu(ctx: LiftContext, node: OperatorNode) -> None:
    """The layer of the same name."""
    k = int(ctx.tensors.constant(node.operand(1), "k").item()) if node.operand(1) else 0
    _of_matrices(ctx, node, {"upper": bool(node.attributes["upper"]), "k": k})


@rule("Det")
def det(ctx: LiftContext, node: OperatorNode) -> None:
    """The layer of the same name."""
    _of_matrices(ctx, node, {})


def _of_matrices(ctx: LiftContext, node: OperatorNode, fields: dict[str, Any]) -> None:
    ctx.tensors.axis(node.inputs[0], -2, "the batch axis is one axis of its matrices")
    ctx.layers.add(node, node.op_type, node.inputs[:1], fields)


@rule("Col2Im")
def col2im(ctx: LiftContext, node: OperatorNode) -> None:
    """The layer of the same name."""
    image, block = (ctx.tensors.constant(node.inputs[k], name).tolist() for k, name in ((1, "image"), (2, "block")))
    fields: dict[str, Any] = {"output_size": short(image), "kernel_size": short(block)}
    if len(image) > 1:
        fields["output_size"] = image
    for name, ours in (("strides", "strides"), ("pads", "padding"), ("dilations", "dilation_rate")):
        value = node.attributes.get(name)
        if value:
            fields[ours] = short(value)
    ctx.reshaping.add_per_sample(node, "Col2Im", node.inputs[:1], fields)
