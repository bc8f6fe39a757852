"""Normalizations: ONNX's operators, and patterns of several nodes."""

from __future__ import annotations

from dataclasses import replace
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from netspec.exchange.lift.context import LiftContext
from netspec.exchange.lift.nodes import Expansion
from netspec.exchange.lift.patterns.finding import DOMAIN, PARTS
from netspec.exchange.lift.patterns.matching import holds
from netspec.exchange.lift.patterns.normalization import LAYER, ROOT_MEAN_SQUARE, UNIT
from netspec.exchange.lift.registry import rule
from netspec.exchange.lift.rules.activations import softmax
from netspec.exchange.lift.rules.arithmetic import with_constant
from netspec.exchange.operator_graph.graph import OperatorNode
from netspec.exchange.unsupported import MixesSamples, UnsupportedFeature


@rule("BatchNormalization", uses_all_results=True)
def batch_normalization(ctx: LiftContext, node: OperatorNode) -> None:
    """The form for inference. Channels are axis 1 in the model, which may be another axis in the net."""
    if node.attributes.get("training_mode"):
        _training_form(ctx, node)
        return
    ctx.nodes.require_one_result(node)
    if node.attributes.get("spatial", 1) != 1:
        raise UnsupportedFeature("statistics per element (`spatial` = 0) are not supported")
    if ctx.tensors.rank(node.inputs[0]) == 1:
        _of_single_axis(ctx, node)
        return
    names = ("gamma", "beta", "moving_mean", "moving_variance")
    arrays = {name: ctx.tensors.constant(tensor, name) for name, tensor in zip(names, node.inputs[1:], strict=True)}
    view = ctx.layers.view_with_single_axes(node.inputs[0], 1)
    fields = {"axis": view.axis(1), **{name: node.attributes[name] for name in ("epsilon", "momentum")}}
    ctx.layers.add(node, "BatchNormalization", [view.source], fields, arrays, result_axes=lambda rank: view.axes)


def _of_single_axis(ctx: LiftContext, node: OperatorNode) -> None:
    """Normalize (N) as (N, 1): ONNX gives a tensor of one axis a single channel."""
    steps = Expansion(ctx, node)
    last = steps.integers([1])
    column = steps.node("Unsqueeze", node.inputs[0], last)
    steps.node("Squeeze", steps.node("BatchNormalization", column, *node.inputs[1:], **node.attributes), last)
    steps.lift()


def _training_form(ctx: LiftContext, node: OperatorNode) -> None:
    """Decompose the form for training, in a model of one sample, with the new averages if they are read."""
    if not ctx.tensors.single_sample:
        raise MixesSamples("in training mode, it normalizes with the statistics of the batch")
    steps, (x, *operands) = Expansion(ctx, node), node.inputs
    shape, momentum = ctx.tensors.shape(x), node.attributes["momentum"]
    axes = [axis for axis in range(len(shape)) if axis != 1]
    shapes = (shape[1:2], (-1, *(1 for _ in axes[1:])))
    channels, per_channel = (steps.integers(sizes) for sizes in shapes)
    scale, offset = (steps.node("Reshape", name, per_channel) for name in operands[:2])
    mean = steps.node("ReduceMean", x, axes=axes, keepdims=1)
    centered = steps.node("Sub", x, mean)
    variance = steps.node("ReduceMean", steps.node("Mul", centered, centered), axes=axes, keepdims=1)
    epsilon = steps.number(node.attributes["epsilon"])
    unit = steps.node("Div", centered, steps.node("Sqrt", steps.node("Add", variance, epsilon)))
    old_share, new_share = (steps.number(share) for share in (momentum, 1 - momentum))
    updated = []
    for old, new in zip(operands[2:4], (mean, variance), strict=True):
        new_average = steps.node("Mul", steps.node("Reshape", new, channels), new_share)
        updated.append(steps.node("Add", steps.node("Mul", old, old_share), new_average))
    steps.lift(steps.node("Add", steps.node("Mul", unit, scale), offset), *updated)


@rule("LayerNormalization")
def layer_normalization(ctx: LiftContext, node: OperatorNode) -> None:
    """Normalize over the last axes in the model, which may be other axes in the net."""
    x, rank = node.inputs[0], ctx.tensors.rank(node.inputs[0])
    first = node.attributes["axis"] % rank
    ctx.tensors.axis(x, first)
    view = ctx.layers.view_with_single_axes(x, *range(first, rank))
    axes = [view.axis(axis) for axis in range(first, rank)]
    arrays = {"gamma": ctx.tensors.constant(node.inputs[1], "scale")}
    last = ctx.tensors.rank_in_net(x) - 1
    fields: dict[str, Any] = {} if axes == [last] else {"axis": sorted(axes) if len(axes) > 1 else axes[0]}
    if node.operand(2):
        arrays["beta"] = ctx.tensors.constant(node.inputs[2], "offset")
    fields |= {"center": "beta" in arrays, "epsilon": node.attributes["epsilon"]}
    ascending = sorted(range(len(axes)), key=axes.__getitem__)
    arrays = {name: array.transpose(ascending) for name, array in arrays.items()}
    ctx.layers.add(node, "LayerNormalization", [view.source], fields, arrays, result_axes=lambda rank: view.axes)


@rule("InstanceNormalization", "GroupNormalization")
def group_normalization(ctx: LiftContext, node: OperatorNode) -> None:
    """Normalize each channel (axis 1), or each group of channels."""
    if node.op_type == "GroupNormalization" and node.opset < 21:
        raise UnsupportedFeature(
            "before opset 21, it has one scale per group; netspec's GroupNormalization has one per channel"
        )
    arrays = {
        name: ctx.tensors.constant(tensor, name)
        for name, tensor in zip(("gamma", "beta"), node.inputs[1:], strict=True)
    }
    fields = {"epsilon": node.attributes["epsilon"]}
    if node.op_type == "GroupNormalization":
        fields["groups"] = node.attributes["num_groups"]
    ctx.reshaping.add_per_sample(node, node.op_type, node.inputs[:1], fields, arrays)


@rule("LpNormalization")
def lp_normalization(ctx: LiftContext, node: OperatorNode) -> None:
    """Divide each vector by its L1 or L2 norm; zero vectors stay zero."""
    length = {1: "ReduceL1", 2: "ReduceL2"}.get(node.attributes["p"])
    if length is None:
        raise UnsupportedFeature(f"the norm of order {node.attributes['p']} is not supported, only of order 1 or 2")
    norm = ctx.tensors.fresh_name(node.outputs[0])
    attributes = {"axes": [node.attributes["axis"]], "keepdims": 1}
    ctx.nodes.lift(replace(node, op_type=length, outputs=(norm,), attributes=attributes, domain=""))
    ctx.layers.add_elementwise(node, "Expression", [node.inputs[0], norm], {"expr": "x / y if y != 0 else x"})


@rule("MeanVarianceNormalization")
def mean_variance_normalization(ctx: LiftContext, node: OperatorNode) -> None:
    """Decompose MeanVarianceNormalization as ONNX defines it."""
    steps, x, axes = Expansion(ctx, node), node.inputs[0], node.attributes.get("axes", [0, 2, 3])

    def mean(of: str) -> str:
        return steps.node("ReduceMean", of, axes=axes, keepdims=1)

    centered = steps.node("Sub", x, mean(x))
    deviation = steps.node("Sqrt", mean(steps.node("Mul", centered, centered)))
    steps.node("Div", centered, steps.node("Add", deviation, steps.number(1e-9)))
    steps.lift()


@rule("LRN")
def local_response_normalization(ctx: LiftContext, node: OperatorNode) -> None:
    """Across channels → LocalResponseNormalization."""
    if node.attributes["size"] % 2 == 0:
        _lrn_of_even_size(ctx, node)
        return
    fields = {"k": node.attributes["bias"], **{name: node.attributes[name] for name in ("size", "alpha", "beta")}}
    ctx.reshaping.add_per_sample(node, "LocalResponseNormalization", node.inputs, fields)


def _lrn_of_even_size(ctx: LiftContext, node: OperatorNode) -> None:
    """LRN of an even size: the window has one more channel after than before, unlike in PyTorch and netspec."""
    steps, (x,), attributes = Expansion(ctx, node), node.inputs, node.attributes
    shape, size = ctx.tensors.shape(x), attributes["size"]

    def shaped(of: str, *sizes: int) -> str:
        return steps.node("Reshape", of, steps.integers(sizes))

    column = shaped(steps.node("Mul", x, x), 0, 1, shape[1], -1)
    pads = [(size - 1) // 2, 0, size // 2, 0]
    mean = steps.node("AveragePool", column, kernel_shape=[size, 1], pads=pads, count_include_pad=1)
    alpha, bias, beta = (steps.number(attributes[name]) for name in ("alpha", "bias", "beta"))
    scale = steps.node("Add", steps.node("Mul", shaped(mean, 0, *shape[1:]), alpha), bias)
    steps.node("Div", x, steps.node("Pow", scale, beta))
    steps.lift()


@rule(ROOT_MEAN_SQUARE)
def root_mean_square(ctx: LiftContext, node: OperatorNode) -> None:
    """ONNX's operator: normalize over the axes from `axis` on."""
    x, scale = node.inputs
    ctx.tensors.constant(scale, "scale")
    rank = ctx.tensors.rank(x)
    axes = tuple(range(node.attributes["axis"] % rank, rank))
    normalization(ctx, replace(node, attributes={"axes": {axes}, "epsilon": node.attributes["epsilon"]}))


@rule(LAYER, ROOT_MEAN_SQUARE, UNIT, domain=DOMAIN)
def normalization(ctx: LiftContext, node: OperatorNode) -> None:
    """The layer of the same name; gamma and beta along other axes become Scale and Bias after it."""
    source, gamma, beta = (node.operand(index) for index in range(3))
    if not {gamma, beta, ""} <= {*ctx.tensors.constants, ""}:
        raise UnsupportedFeature("its scale or bias is computed, not a constant")
    shape, axes = ctx.tensors.shape(source), _axes(ctx, node)
    stored_axes = [ctx.tensors.axis(source, axis) for axis in axes]
    own_axis = stored_axes if len(stored_axes) > 1 else stored_axes[0]
    fields: dict[str, Any] = {} if axes == [len(shape) - 1] else {"axis": own_axis}
    if node.op_type != UNIT:
        fields["epsilon"] = node.attributes["epsilon"]
    arrays = {}
    following: list[tuple[str, str]] = []
    for name, tensor, operator in (("gamma", gamma, "Mul"), ("beta", beta, "Add")):
        along = _along(ctx.tensors.constants[tensor], shape, axes) if tensor else None
        if tensor and (along is None or following or node.op_type == UNIT):
            following.append((operator, tensor))
        elif along is not None:
            arrays[name] = along
    if node.op_type == LAYER:
        fields |= {"scale": "gamma" in arrays, "center": "beta" in arrays}
    elif node.op_type == ROOT_MEAN_SQUARE:
        arrays["scale"] = arrays.pop("gamma", np.ones([shape[axis] for axis in axes], "float32"))
    tensors = [*(f"{node.outputs[0]} {operator}" for operator, _ in following), node.outputs[0]]
    ctx.layers.add(node, node.op_type, [source], fields, arrays, outputs=tensors[:1])
    for (operator, tensor), before, after in zip(following, tensors, tensors[1:], strict=False):
        with_constant(ctx, replace(node, inputs=(before, tensor), outputs=(after,)), before, tensor, operator)


@rule("Softmax", "LogSoftmax", domain=DOMAIN)
def as_softmax(ctx: LiftContext, node: OperatorNode) -> None:
    """Import like ONNX's operator."""
    (axis,) = _axes(ctx, node)
    softmax(ctx, replace(node, attributes={"axis": axis}, opset=13, domain=""))


def _axes(ctx: LiftContext, node: OperatorNode) -> list[int]:
    """The axes that the pattern reduces, ascending. Raises `UnsupportedFeature` if its nodes use different ones."""
    source = node.inputs[0]
    shape = ctx.tensors.shape(source)
    axes, *others = {
        tuple(sorted(axis % len(shape) for axis in axes_of_one)) for axes_of_one in node.attributes["axes"]
    }
    count, size = node.attributes.get("count"), prod(shape[axis] for axis in axes)
    parts = node.attributes.get(PARTS, ())
    if (
        not ctx.tensors.dtype(source).is_float
        or others
        or count not in (None, size)
        or not holds(parts, source, shape, axes, ctx.tensors.constants)
    ):
        raise UnsupportedFeature(
            "its nodes look like a normalization, but reduce over different axes or use a different count"
        )
    return list(axes)


def _along(constant: NDArray[Any], shape: tuple[int, ...], axes: list[int]) -> NDArray[Any] | None:
    """The constant as an array over these axes; None if its shape is not theirs."""
    full = (1,) * (len(shape) - constant.ndim) + constant.shape
    target = tuple(size if axis in axes else 1 for axis, size in enumerate(shape))
    return constant.reshape([shape[axis] for axis in axes]) if full == target else None
