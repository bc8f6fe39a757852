"""Quantized values: QuantizeLinear, DequantizeLinear, DynamicQuantizeLinear, and 8-bit products."""

from __future__ import annotations

from dataclasses import replace
from math import isfinite
from typing import Any

import numpy as np
from numpy.typing import NDArray

from netspec.exchange.axis_view import axes_of_single_sample
from netspec.exchange.lift.context import LiftContext
from netspec.exchange.lift.nodes import Expansion
from netspec.exchange.lift.registry import rule
from netspec.exchange.lift.rules.windows import window_of
from netspec.exchange.operator_graph.arrays import NARROW, bounds, widened
from netspec.exchange.operator_graph.constant_folding import element_type
from netspec.exchange.operator_graph.graph import OperatorNode
from netspec.exchange.unsupported import MixesSamples, UnsupportedFeature

MAX_SAMPLES = 1024
"""Largest batch that is convolved sample by sample."""
OF_CODES = {21: "uint4", 22: "int4", 25: "uint2", 26: "int2"}
"""ONNX's names of the types in `NARROW`."""


@rule("QuantizeLinear", "DequantizeLinear")
def scaled(ctx: LiftContext, node: OperatorNode) -> None:
    """Values narrower than a byte are clipped to the range of their type and stored as bytes."""
    narrow = _quantized_type(ctx, node) if node.op_type == "QuantizeLinear" else ""
    if narrow not in NARROW:
        _scaled(ctx, node)
        return
    least, most = bounds(narrow)
    scaled_name = ctx.tensors.fresh_name(node.outputs[0])
    _scaled(ctx, replace(node, outputs=(scaled_name,)))
    ctx.layers.add_elementwise(
        node, "Expression", [scaled_name], {"expr": f"min(max(x, {least}), {most})", "keep_types": True}
    )


def _scaled(ctx: LiftContext, node: OperatorNode) -> None:
    """Constant scales belong to the layer; computed ones are inputs of it."""
    x, scale, zero_point = node.inputs[0], node.inputs[1], node.operand(2)
    if scale in ctx.tensors.constants and not isfinite(ctx.tensors.constants[scale].astype("float64").sum()):
        raise UnsupportedFeature("one of its scales is not finite")
    fields: dict[str, Any] = {}
    if node.op_type == "QuantizeLinear":
        quantized = _quantized_type(ctx, node)
        fields["dtype"] = dtype = NARROW.get(quantized, quantized)
    else:
        dtype = str(widened(ctx.tensors.constants[x]).dtype if x in ctx.tensors.constants else ctx.tensors.dtype(x))
    shape = ctx.tensors.shape(scale)
    if len(shape) == 0 or shape == (1,):
        if scale not in ctx.tensors.constants or (zero_point and zero_point not in ctx.tensors.constants):
            _add_with_computed_scales(ctx, node, fields, ())
            return
        arrays = {
            "scale": ctx.tensors.constants[scale].reshape(()),
            "zero_point": _zero(ctx, zero_point, dtype).reshape(()),
        }
        ctx.layers.add_elementwise(node, node.op_type, [x], fields, arrays)
        return
    axis = node.attributes.get("axis", 1)
    fields["axis"] = ctx.tensors.axis(x, axis)
    if len(shape) > 1:
        fields["block_size"] = node.attributes.get("block_size", 0) or -(-ctx.tensors.shape(x)[axis] // shape[axis])
    if scale not in ctx.tensors.constants or (zero_point and zero_point not in ctx.tensors.constants):
        _add_with_computed_scales(ctx, node, fields, shape)
        return
    arrays = {"scale": ctx.tensors.constants[scale], "zero_point": _zero(ctx, zero_point, dtype, shape)}
    if len(shape) > 1:
        if not ctx.tensors.single_sample:
            raise MixesSamples("its blockwise scales differ between samples")
        ctx.layers.add(node, node.op_type, [x], fields, arrays)
        return
    view = ctx.layers.view_with_single_axes(x, axis)
    fields["axis"] = view.axis(axis)
    ctx.layers.add(node, node.op_type, [view.source], fields, arrays, result_axes=lambda rank: view.axes)


def _add_with_computed_scales(
    ctx: LiftContext, node: OperatorNode, fields: dict[str, Any], shape: tuple[int, ...]
) -> None:
    """Add a layer whose scales are inputs, one set per sample: only for a model of a single sample."""
    if not ctx.tensors.single_sample:
        raise MixesSamples("its computed scales are shared by all samples of a batch")
    names = [node.inputs[0]]
    for name in node.inputs[1:3]:
        if name and ctx.tensors.shape(name) != shape:
            computed = ctx.tensors.fresh_name(name)
            if name in ctx.tensors.constants:
                ctx.tensors.constants[computed] = ctx.tensors.constants[name].reshape(shape)
            else:
                ctx.reshaping.reshape(node, name, shape, computed)
            name = computed
        names += [name] if name else []
    ctx.layers.add(node, node.op_type, names, fields)


def _quantized_type(ctx: LiftContext, node: OperatorNode) -> str:
    """The element type of the result in the model."""
    zero_point, code = node.operand(2), node.attributes.get("output_dtype", 0)
    if zero_point:
        input_types = {model_input.name: model_input.dtype for model_input in ctx.model.inputs}
        type_name = input_types.get(zero_point) or ctx.tensors.dtype_name(zero_point)
    else:
        try:
            type_name = OF_CODES.get(code) or (element_type(code) if code else "uint8")
        except ValueError as error:
            raise UnsupportedFeature(str(error)) from error
    if type_name in NARROW:
        return type_name
    if type_name not in ("uint8", "int8", "uint16", "int16"):
        raise UnsupportedFeature(f"quantization to {type_name} is not supported")
    return type_name


def _zero(ctx: LiftContext, name: str, dtype: str, shape: tuple[int, ...] = ()) -> NDArray[Any]:
    """A constant zero point; zeros if it is left out."""
    return widened(ctx.tensors.constant(name, "zero point")) if name else np.zeros(shape, dtype)


@rule("DynamicQuantizeLinear", uses_all_results=True)
def dynamic(ctx: LiftContext, node: OperatorNode) -> None:
    """The layer of the same name, with one scale and one zero point per sample."""
    if not ctx.tensors.single_sample:
        raise MixesSamples("all samples of a batch share one scale, which is computed from their values")
    ctx.layers.add(node, node.op_type, node.inputs, {})


@rule("MatMulInteger")
def matmul_integer(ctx: LiftContext, node: OperatorNode) -> None:
    """Import an integer product with a constant matrix, which becomes a parameter, or with a computed one."""
    x, other = node.inputs[:2]
    kernel, sources, fields = _kernel_and_inputs(ctx, x, other)
    zero, of_kernel = (node.operand(index) for index in (2, 3))
    arrays = {"kernel": kernel} if kernel is not None else {}
    if zero and zero not in ctx.tensors.constants:
        sources.append(_scalar_zero_point(ctx, node, zero))
    else:
        arrays["zero_point"] = _as_scalar(_zero(ctx, zero, ctx.tensors.dtype_name(x)), "zero point")
    _per_channel(fields, arrays, "kernel_zero_point", _zero(ctx, of_kernel, ctx.tensors.dtype_name(other)))
    ctx.layers.add(node, node.op_type, sources, fields, arrays)


@rule("QLinearMatMul")
def qlinear_matmul(ctx: LiftContext, node: OperatorNode) -> None:
    """Import a quantized product with a constant or computed matrix; scales and zero points must be constants."""
    x, other = node.inputs[0], node.inputs[3]
    kernel, sources, fields = _kernel_and_inputs(ctx, x, other)
    arrays = {"kernel": kernel} if kernel is not None else {}
    _set_scales(ctx, fields, arrays, [*node.inputs[1:3], *node.inputs[4:8]])
    ctx.layers.add(node, node.op_type, sources, fields, arrays)


def _kernel_and_inputs(ctx: LiftContext, x: str, other: str) -> tuple[NDArray[Any] | None, list[str], dict[str, Any]]:
    """The kernel if the matrix is a parameter of the layer, else None; the layer's inputs; its fields."""
    ctx.tensors.axis(x, -1)
    if other in ctx.tensors.constants and ctx.tensors.constants[other].ndim == 2:
        kernel = ctx.tensors.constants[other]
        return kernel, [x], {"units": kernel.shape[1], "kernel_dtype": str(kernel.dtype)}
    return None, ctx.layers.broadcast_operands([x, other]), {}


@rule("ConvInteger")
def conv_integer(ctx: LiftContext, node: OperatorNode) -> None:
    """Import an integer convolution with a constant kernel."""
    x, kernel = node.inputs[0], ctx.tensors.constant(node.inputs[1], "kernel")
    zero = node.operand(2)
    if zero and zero not in ctx.tensors.constants and ctx.tensors.single_sample and ctx.tensors.shape(x)[0] > 1:
        _each_sample(ctx, node)
        return
    fields, arrays = _kernel(ctx, node, x, kernel), {"kernel": kernel}
    _per_channel(fields, arrays, "kernel_zero_point", _zero(ctx, node.operand(3), str(kernel.dtype)))
    if not zero or zero in ctx.tensors.constants:
        arrays["zero_point"] = _as_scalar(_zero(ctx, zero, ctx.tensors.dtype_name(x)), "zero point")
        ctx.reshaping.add_per_sample(node, node.op_type, [x], fields, arrays)
        return
    sources = [ctx.reshaping.samples_first(x), _scalar_zero_point(ctx, node, zero)]
    ctx.layers.add(node, node.op_type, sources, fields, arrays, result_axes=axes_of_single_sample)


def _each_sample(ctx: LiftContext, node: OperatorNode) -> None:
    """Split a convolution of several samples with a computed zero point into one convolution per sample."""
    steps, x = Expansion(ctx, node), node.inputs[0]
    count = ctx.tensors.shape(x)[0]
    if count > MAX_SAMPLES:
        raise UnsupportedFeature(f"it has a computed zero point and {count} samples, more than {MAX_SAMPLES}")
    samples = steps.node_with_results(count, "Split", x, axis=0)
    results = [steps.node(node.op_type, sample, *node.inputs[1:], **node.attributes) for sample in samples]
    steps.node("Concat", *results, axis=0)
    steps.lift()


@rule("QLinearConv")
def qlinear_conv(ctx: LiftContext, node: OperatorNode) -> None:
    """Import a quantized convolution with constant kernel, bias, scales and zero points."""
    x, kernel = node.inputs[0], ctx.tensors.constant(node.inputs[3], "kernel")
    fields, arrays = _kernel(ctx, node, x, kernel), {"kernel": kernel}
    _set_scales(ctx, fields, arrays, [*node.inputs[1:3], *node.inputs[4:8]])
    if node.operand(8):
        arrays["bias"] = ctx.tensors.constant(node.operand(8), "bias")
    else:
        fields["use_bias"] = False
    ctx.reshaping.add_per_sample(node, node.op_type, [x], fields, arrays)


def _kernel(ctx: LiftContext, node: OperatorNode, x: str, kernel: NDArray[Any]) -> dict[str, Any]:
    """Fields of an 8-bit convolution."""
    fields: dict[str, Any] = {"filters": kernel.shape[0], "kernel_size": list(kernel.shape[2:])}
    fields |= {"kernel_dtype": str(kernel.dtype), "groups": node.attributes["group"]}
    window = window_of(node, list(kernel.shape[2:]), ctx.tensors.shape(x)[2:])
    if any(map(any, window.pads)):
        fields["padding"] = [list(sides) for sides in window.pads]
    for name, value in (("strides", window.strides), ("dilation_rate", window.dilation)):
        if set(value) != {1}:
            fields[name] = list(value)
    return fields


def _set_scales(ctx: LiftContext, fields: dict[str, Any], arrays: dict[str, NDArray[Any]], names: list[str]) -> None:
    """Set the scales and zero points of input, kernel and output from the operands `names`."""
    constants = [ctx.tensors.constant(name, "scales and zero points") for name in names]
    arrays |= {
        "input_scale": _as_scalar(constants[0], "scale"),
        "input_zero_point": _as_scalar(constants[1], "zero point"),
    }
    arrays |= {
        "output_scale": _as_scalar(constants[4], "scale"),
        "output_zero_point": _as_scalar(constants[5], "zero point"),
    }
    fields["dtype"] = str(constants[5].dtype)
    _per_channel(fields, arrays, "kernel_scale", constants[2])
    arrays["kernel_zero_point"] = _broadcast(constants[3], arrays["kernel_scale"].shape)


def _per_channel(fields: dict[str, Any], arrays: dict[str, NDArray[Any]], name: str, array: NDArray[Any]) -> None:
    if array.size > 1:
        if array.ndim != 1:
            raise UnsupportedFeature(f"scales or zero points of the shape {list(array.shape)} are not supported")
        fields["per_channel"] = True
        arrays[name] = array
    else:
        arrays[name] = array.reshape(())


def _broadcast(array: NDArray[Any], shape: tuple[int, ...]) -> NDArray[Any]:
    return np.broadcast_to(array if array.size > 1 else array.reshape(()), shape)


def _as_scalar(array: NDArray[Any], role: str) -> NDArray[Any]:
    if array.size != 1:
        raise UnsupportedFeature(
            f"its {role} has {array.size} values; only one for all rows of the first operand is supported"
        )
    return array.reshape(())


def _scalar_zero_point(ctx: LiftContext, node: OperatorNode, name: str) -> str:
    """A computed zero point as a scalar of each sample."""
    if not ctx.tensors.single_sample:
        raise MixesSamples("its computed zero point is shared by all samples of a batch")
    if ctx.tensors.shape(name) == (1,):
        zero = ctx.tensors.fresh_name(name)
        ctx.reshaping.reshape(node, name, (), zero)
        return zero
    if ctx.tensors.rank(name):
        raise UnsupportedFeature(
            f"its computed zero point has the shape {list(ctx.tensors.shape(name))}: only a scalar is supported"
        )
    return name
