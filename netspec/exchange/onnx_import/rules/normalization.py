"""BatchNormalization, LayerNormalization, InstanceNormalization, GroupNormalization, LRN."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from netspec.exchange.onnx_import.model import Mixed, Node, Unsupported
from netspec.exchange.onnx_import.translate import Steps, Translator, rule

DEFAULT_EPSILON, DEFAULT_MOMENTUM, INSTANCE_EPSILON, DEFAULT_GROUPS = 1e-3, 0.99, 1e-5, 32


@rule("BatchNormalization", several=True)
def batch_normalization(net: Translator, node: Node) -> None:
    """The inference form; its channels are axis 1 of its operand, which may be another axis of a layer's output."""
    if node.attributes.get("training_mode"):
        _by_its_batch(net, node)
        return
    net.need_one_result(node)
    if node.attributes.get("spatial", 1) != 1:
        raise Unsupported("statistics for each element")
    names = ("gamma", "beta", "moving_mean", "moving_variance")
    arrays = {name: net.constant(tensor, name) for name, tensor in zip(names, node.inputs[1:], strict=True)}
    fields: dict[str, Any] = {}
    if node.attributes["epsilon"] != DEFAULT_EPSILON:
        fields["epsilon"] = node.attributes["epsilon"]
    if node.attributes["momentum"] != DEFAULT_MOMENTUM:
        fields["momentum"] = node.attributes["momentum"]
    x = node.inputs[0]
    view = net.lying(x, 1)
    if view.axis(1) != 1:
        fields["axis"] = view.axis(1)
    net.add(node, "BatchNormalization", [view.source], fields, arrays, laid=lambda rank: view.axes)


def _by_its_batch(net: Translator, node: Node) -> None:
    """The training form of a model that is read whole, as arithmetic, with the new averages where they are read."""
    import numpy as np

    if not net.whole:
        raise Mixed("the training form: it takes the averages of its batch")
    steps, (x, *given) = Steps(net, node), node.inputs
    shape, momentum = net.shape(x), node.attributes["momentum"]
    axes = [axis for axis in range(len(shape)) if axis != 1]
    channels, each = (steps.constant(np.asarray(one, "int64")) for one in (shape[1:2], (-1, *(1 for _ in axes[1:]))))
    scale, offset = (steps.of("Reshape", name, each) for name in given[:2])
    mean = steps.of("ReduceMean", x, axes=axes, keepdims=1)
    away = steps.of("Sub", x, mean)
    variance = steps.of("ReduceMean", steps.of("Mul", away, away), axes=axes, keepdims=1)
    epsilon = steps.constant(np.float32(node.attributes["epsilon"]))
    unit = steps.of("Div", away, steps.of("Sqrt", steps.of("Add", variance, epsilon)))
    kept, fresh = (steps.constant(np.float32(share)) for share in (momentum, 1 - momentum))
    moved = [
        steps.of("Add", steps.of("Mul", old, kept), steps.of("Mul", steps.of("Reshape", new, channels), fresh))
        for old, new in zip(given[2:4], (mean, variance), strict=True)
    ]
    steps.run(steps.of("Add", steps.of("Mul", unit, scale), offset), *moved)


@rule("LayerNormalization")
def layer_normalization(net: Translator, node: Node) -> None:
    """Over the last axes of its operand, which may be other axes of a layer's output."""
    x, rank = node.inputs[0], net.rank(node.inputs[0])
    first = node.attributes["axis"] % rank
    net.axis(x, first)
    view = net.lying(x, *range(first, rank))
    axes = [view.axis(axis) for axis in range(first, rank)]
    arrays = {"gamma": net.constant(node.inputs[1], "scale")}
    last = net.net_rank(x) - 1
    fields: dict[str, Any] = {} if axes == [last] else {"axis": sorted(axes) if len(axes) > 1 else axes[0]}
    if node.operand(2):
        arrays["beta"] = net.constant(node.inputs[2], "offset")
    else:
        fields["center"] = False
    if node.attributes["epsilon"] != DEFAULT_EPSILON:
        fields["epsilon"] = node.attributes["epsilon"]
    ascending = sorted(range(len(axes)), key=axes.__getitem__)
    arrays = {name: array.transpose(ascending) for name, array in arrays.items()}
    net.add(node, "LayerNormalization", [view.source], fields, arrays, laid=lambda rank: view.axes)


@rule("InstanceNormalization", "GroupNormalization")
def group_normalization(net: Translator, node: Node) -> None:
    """Over channels, or groups of them, which are axis 1."""
    if node.op_type == "GroupNormalization" and node.opset < 21:
        raise Unsupported("before opset 21 it has a scale for each group, not for each channel")
    arrays = {name: net.constant(tensor, name) for name, tensor in zip(("gamma", "beta"), node.inputs[1:], strict=True)}
    fields: dict[str, Any] = {}
    if node.op_type == "GroupNormalization" and node.attributes["num_groups"] != DEFAULT_GROUPS:
        fields["groups"] = node.attributes["num_groups"]
    default = DEFAULT_EPSILON if node.op_type == "GroupNormalization" else INSTANCE_EPSILON
    if node.attributes["epsilon"] != default:
        fields["epsilon"] = node.attributes["epsilon"]
    net.sampled(node, node.op_type, node.inputs[:1], fields, arrays)


@rule("LpNormalization")
def lp_normalization(net: Translator, node: Node) -> None:
    """Each vector by its length, or by the sum of magnitudes; one of zeros stays."""
    length = {1: "ReduceL1", 2: "ReduceL2"}.get(node.attributes["p"])
    if length is None:
        raise Unsupported(f"a norm of order {node.attributes['p']}")
    made = net.hide(node.outputs[0])
    attributes = {"axes": [node.attributes["axis"]], "keepdims": 1}
    net.write(replace(node, op_type=length, outputs=(made,), attributes=attributes, domain=""))
    net.each(node, "Expression", [node.inputs[0], made], {"expr": "x / y if y != 0 else x"})


@rule("MeanVarianceNormalization")
def mean_variance_normalization(net: Translator, node: Node) -> None:
    """By the operators that ONNX says that it is made of."""
    import numpy as np

    steps, x, axes = Steps(net, node), node.inputs[0], node.attributes.get("axes", [0, 2, 3])

    def mean(of: str) -> str:
        return steps.of("ReduceMean", of, axes=axes, keepdims=1)

    away = steps.of("Sub", x, mean(x))
    deviation = steps.of("Sqrt", mean(steps.of("Mul", away, away)))
    steps.of("Div", away, steps.of("Add", deviation, steps.constant(np.float32(1e-9))))
    steps.run()


@rule("LRN")
def local_response_normalization(net: Translator, node: Node) -> None:
    """Across channels → LocalResponseNormalization, whose alpha has another default."""
    fields: dict[str, Any] = {"size": node.attributes["size"]} if node.attributes["size"] != 5 else {}
    for name, ours, default in (("alpha", "alpha", 1.0), ("beta", "beta", 0.75), ("bias", "k", 1.0)):
        if node.attributes[name] != default:
            fields[ours] = node.attributes[name]
    net.sampled(node, "LocalResponseNormalization", node.inputs, fields)
