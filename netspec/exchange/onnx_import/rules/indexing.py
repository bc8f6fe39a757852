"""Elements found, put or ordered: GatherElements, GatherND, ScatterElements, ScatterND, OneHot, TopK and their like."""

from __future__ import annotations

from math import prod
from typing import Any

from netspec.exchange.onnx_import.inputs import INPUT_TYPES
from netspec.exchange.onnx_import.model import Mixed, Node, Unsupported
from netspec.exchange.onnx_import.rules.windows import short
from netspec.exchange.onnx_import.translate import Translator, rule


def along(net: Translator, node: Node, default: int = 1, axis: int | None = None) -> dict[str, Any]:
    """The field `axis` for the operator's, of its first operand; nothing where it is the layer's default."""
    held = net.axis(node.inputs[0], node.attributes["axis"] if axis is None else axis)
    return {} if held == default else {"axis": held}


@rule("GatherElements")
def gather_elements(net: Translator, node: Node) -> None:
    """The layer of the same name."""
    net.add(node, "GatherElements", node.inputs, along(net, node))


@rule("ScatterElements", "Scatter")
def scatter_elements(net: Translator, node: Node) -> None:
    """The layer ScatterElements."""
    net.add(node, "ScatterElements", node.inputs, along(net, node) | _reduction(node))


def _reduction(node: Node) -> dict[str, Any]:
    how = node.attributes.get("reduction", "none")
    return {} if how == "none" else {"reduction": how}


@rule("GatherND")
def gather_nd(net: Translator, node: Node) -> None:
    """The layer of the same name, which counts the batch among the axes that both operands share."""
    shared = node.attributes.get("batch_dims", 0) + net.lead
    if shared < 1:
        raise Mixed("it picks from among the samples of a batch")
    net.add(node, "GatherND", node.inputs, {} if shared == 1 else {"batch_dims": shared})


@rule("ScatterND")
def scatter_nd(net: Translator, node: Node) -> None:
    """The layer of the same name, of a whole model: samples of a batch are not among the places."""
    if not net.whole:
        raise Mixed("it puts parts among the samples of a batch")
    net.add(node, "ScatterND", node.inputs, _reduction(node))


@rule("TensorScatter")
def tensor_scatter(net: Translator, node: Node) -> None:
    """The layer of the same name; a whole model has several caches in a sample only where all begin alike."""
    held = net.axis(node.inputs[0], node.attributes["axis"])
    fields = {} if held == net.net_rank(node.inputs[0]) - 2 else {"axis": held}
    if node.attributes["mode"] != "linear":
        fields |= {"mode": node.attributes["mode"]}
    net.add(node, "TensorScatter", [name for name in node.inputs if name], fields)


@rule("ReverseSequence")
def reverse_sequence(net: Translator, node: Node) -> None:
    """The layer of the same name."""
    time = net.axis(node.inputs[0], node.attributes["time_axis"])
    batch = node.attributes["batch_axis"] + net.lead
    fields = ({} if time == 1 else {"time_axis": time}) | ({} if batch == 0 else {"batch_axis": batch})
    net.add(node, "ReverseSequence", node.inputs, fields)


@rule("OneHot")
def one_hot(net: Translator, node: Node) -> None:
    """The layer of the same name; numbers that are floats become whole first."""
    index = node.inputs[0]
    depth = int(net.constant(node.inputs[1], "depth").item())
    values = net.constant(node.inputs[2], "values").reshape(-1)
    off, on = (float(str(value)) for value in values)
    rank = net.rank(index) + 1
    axis = node.attributes["axis"]
    if axis % rank == 0 and not net.whole:
        raise Mixed("its vectors lie along the batch")
    held = axis % rank + net.lead
    fields: dict[str, Any] = {"depth": depth} | ({} if held == rank - 1 + net.lead else {"axis": held})
    fields |= ({} if on == 1 else {"on_value": on}) | ({} if off == 0 else {"off_value": off})
    if INPUT_TYPES.get(str(values.dtype)) != "float32":
        fields["dtype"] = INPUT_TYPES.get(str(values.dtype), str(values.dtype))
    if net.is_computed(index) and net.dtype(index).is_float:
        whole = net.hide(index)
        net.add(node, "Cast", [index], {"dtype": "int64"}, outputs=[whole])
        index = whole
    net.add(node, "OneHot", [index], fields)


@rule("Compress")
def compress(net: Translator, node: Node) -> None:
    """Places where a constant condition holds → Gather."""
    condition = net.constant(node.inputs[1], "condition").reshape(-1)
    source, axis = node.inputs[0], node.attributes.get("axis")
    if axis is None:
        axis, flat = 0, net.hide(node.outputs[0])
        net.reshape(node, source, (prod(net.shape(source)),), flat)
        source = flat
    held = net.axis(source, axis, "it leaves out samples")
    places = condition.nonzero()[0].tolist()
    if not places:
        raise Unsupported("nothing is left")
    net.add(node, "Gather", [source], {"indices": places} | ({} if held == 1 else {"axis": held}))


@rule("TopK", several=True)
def top_k(net: Translator, node: Node) -> None:
    """The layer of the same name."""
    rank = net.rank(node.inputs[0])
    held = net.axis(node.inputs[0], node.attributes["axis"], "it runs over the batch")
    k = int(net.constant(node.operand(1), "k").item()) if node.operand(1) else node.attributes["k"]
    fields = {"k": k} | ({} if held == rank - 1 + net.lead else {"axis": held})
    if not node.attributes.get("largest", 1):
        fields["largest"] = False
    net.add(node, "TopK", node.inputs[:1], fields, outputs=(*node.outputs, "")[:2])


@rule("CumSum", "CumProd")
def cumulative(net: Translator, node: Node) -> None:
    """The layers of the same names."""
    axis = int(net.constant(node.inputs[1], "axis").item())
    fields = {name: True for name in ("exclusive", "reverse") if node.attributes.get(name)}
    net.add(node, node.op_type, node.inputs[:1], along(net, node, axis=axis) | fields)


@rule("Trilu")
def trilu(net: Translator, node: Node) -> None:
    """The layer of the same name."""
    k = int(net.constant(node.operand(1), "k").item()) if node.operand(1) else 0
    _of_matrices(net, node, ({} if node.attributes["upper"] else {"upper": False}) | ({"k": k} if k else {}))


@rule("Det")
def det(net: Translator, node: Node) -> None:
    """The layer of the same name."""
    _of_matrices(net, node, {})


def _of_matrices(net: Translator, node: Node, fields: dict[str, Any]) -> None:
    net.axis(node.inputs[0], -2, "the samples are rows of a matrix")
    net.add(node, node.op_type, node.inputs[:1], fields)


@rule("Col2Im")
def col2im(net: Translator, node: Node) -> None:
    """The layer of the same name."""
    image, block = (net.constant(node.inputs[k], what).tolist() for k, what in ((1, "image"), (2, "block")))
    fields: dict[str, Any] = {"output_size": short(image), "kernel_size": short(block)}
    if len(image) > 1:
        fields["output_size"] = image
    for name, ours in (("strides", "strides"), ("pads", "padding"), ("dilations", "dilation_rate")):
        given = node.attributes.get(name)
        if given and set(given) != ({0} if name == "pads" else {1}):
            fields[ours] = short(given)
    net.sampled(node, "Col2Im", node.inputs[:1], fields)
