"""Quantized numbers: QuantizeLinear, DequantizeLinear, DynamicQuantizeLinear, and products of 8 bits."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from netspec.exchange.onnx_import.arrays import NARROW, bounds, widened
from netspec.exchange.onnx_import.folding import element_type
from netspec.exchange.onnx_import.model import Mixed, Node, Unsupported
from netspec.exchange.onnx_import.rules.windows import geometry
from netspec.exchange.onnx_import.tensors import one_sample
from netspec.exchange.onnx_import.translate import Translator, rule

if TYPE_CHECKING:
    from numpy.typing import NDArray


OF_CODES = {21: "uint4", 22: "int4", 25: "uint2", 26: "int2"}
"""What ONNX calls the types of `NARROW`."""


@rule("QuantizeLinear", "DequantizeLinear")
def scaled(net: Translator, node: Node) -> None:
    """Numbers of less than a byte are cut off where their type ends, and held as those of a byte."""
    narrow = _quantized_type(net, node) if node.op_type == "QuantizeLinear" else ""
    if narrow not in NARROW:
        _scaled(net, node)
        return
    least, most = bounds(narrow)
    held = net.hide(node.outputs[0])
    _scaled(net, replace(node, outputs=(held,)))
    net.each(node, "Expression", [held], {"expr": f"min(max(x, {least}), {most})", "keep_types": True})


def _scaled(net: Translator, node: Node) -> None:
    """Constant scales belong to the layer; computed ones are inputs of it."""
    x, scale, zero_point = node.inputs[0], node.inputs[1], node.operand(2)
    fields: dict[str, Any] = {}
    if node.op_type == "QuantizeLinear":
        quantized = _quantized_type(net, node)
        dtype = NARROW.get(quantized, quantized)
        fields = {"dtype": dtype} if dtype != "uint8" else {}
    else:
        dtype = str(widened(net.constants[x]).dtype if x in net.constants else net.dtype(x))
    shape = net.shape(scale)
    if len(shape) == 0 or shape == (1,):
        if scale not in net.constants or (zero_point and zero_point not in net.constants):
            _computed(net, node, fields, ())
            return
        arrays = {"scale": net.constants[scale].reshape(()), "zero_point": _zero(net, zero_point, dtype).reshape(())}
        net.each(node, node.op_type, [x], fields, arrays)
        return
    axis = node.attributes.get("axis", 1)
    fields["axis"] = net.axis(x, axis)
    if len(shape) > 1:
        fields["block_size"] = node.attributes.get("block_size", 0) or -(-net.shape(x)[axis] // shape[axis])
    if scale not in net.constants or (zero_point and zero_point not in net.constants):
        _computed(net, node, fields, shape)
        return
    arrays = {"scale": net.constants[scale], "zero_point": _zero(net, zero_point, dtype, shape)}
    if len(shape) > 1:
        if not net.whole:
            raise Mixed("its scales differ between samples")
        net.add(node, node.op_type, [x], fields, arrays)
        return
    view = net.lying(x, axis)
    fields["axis"] = view.axis(axis)
    net.add(node, node.op_type, [view.source], fields, arrays, laid=lambda rank: view.axes)


def _computed(net: Translator, node: Node, fields: dict[str, Any], shape: tuple[int, ...]) -> None:
    """Scales that are computed: those of a sample."""
    if not net.whole:
        raise Mixed("its scales are computed for all samples of a batch")
    names = [node.inputs[0]]
    for name in node.inputs[1:3]:
        if name and net.shape(name) != shape:
            made = net.hide(name)
            if name in net.constants:
                net.constants[made] = net.constants[name].reshape(shape)
            else:
                net.reshape(node, name, shape, made)
            name = made
        names += [name] if name else []
    net.add(node, node.op_type, names, fields)


def _quantized_type(net: Translator, node: Node) -> str:
    """The element type of the result, as the model has it."""
    zero_point, code = node.operand(2), node.attributes.get("output_dtype", 0)
    if zero_point:
        given = {one.name: one.dtype for one in net.model.inputs}
        found = str(net.constants[zero_point].dtype if zero_point in net.constants else net.dtype(zero_point))
        found = given.get(zero_point, found)
    else:
        try:
            found = OF_CODES.get(code) or (element_type(code) if code else "uint8")
        except ValueError as error:
            raise Unsupported(str(error)) from error
    if found in NARROW:
        return found
    if found not in ("uint8", "int8", "uint16", "int16"):
        raise Unsupported(f"numbers quantized to {found}")
    return found


def _zero(net: Translator, name: str, dtype: str, shape: tuple[int, ...] = ()) -> NDArray[Any]:
    """A constant zero point; zeros where it is left out."""
    import numpy as np

    return widened(net.constant(name, "zero point")) if name else np.zeros(shape, dtype)


@rule("DynamicQuantizeLinear", several=True)
def dynamic(net: Translator, node: Node) -> None:
    """Scale and zero point of all that a sample holds."""
    if not net.whole:
        raise Mixed("its scale is one for all samples of a batch")
    net.add(node, node.op_type, node.inputs, {})


@rule("MatMulInteger")
def matmul_integer(net: Translator, node: Node) -> None:
    """By a constant matrix, which is the layer's, or a computed one."""
    x, other = node.inputs[:2]
    kernel, sources, fields = _matrix(net, node, x, other)
    zero, of_kernel = (node.operand(place) for place in (2, 3))
    arrays = {"kernel": kernel} if kernel is not None else {}
    if zero and zero not in net.constants:
        sources.append(_one_zero(net, node, zero))
    else:
        arrays["zero_point"] = _alone(_zero(net, zero, _type(net, x)), "zero point")
    _per_channel(fields, arrays, "kernel_zero_point", _zero(net, of_kernel, _type(net, other)))
    net.add(node, node.op_type, sources, fields, arrays)


@rule("QLinearMatMul")
def qlinear_matmul(net: Translator, node: Node) -> None:
    """By a constant matrix, which is the layer's, or a computed one; scales and zero points are constants."""
    x, other = node.inputs[0], node.inputs[3]
    kernel, sources, fields = _matrix(net, node, x, other)
    arrays = {"kernel": kernel} if kernel is not None else {}
    _requantized(net, fields, arrays, [*node.inputs[1:3], *node.inputs[4:8]])
    net.add(node, node.op_type, sources, fields, arrays)


def _matrix(net: Translator, node: Node, x: str, other: str) -> tuple[NDArray[Any] | None, list[str], dict[str, Any]]:
    """The matrix, if it is the layer's; what the layer reads; its fields."""
    net.axis(x, -1)
    if other in net.constants and net.constants[other].ndim == 2:
        kernel = net.constants[other]
        kind = {} if str(kernel.dtype) == "int8" else {"kernel_dtype": str(kernel.dtype)}
        return kernel, [x], {"units": kernel.shape[1], **kind}
    return None, net.operands([x, other]), {}


@rule("ConvInteger")
def conv_integer(net: Translator, node: Node) -> None:
    """With a constant kernel."""
    x, kernel = node.inputs[0], net.constant(node.inputs[1], "kernel")
    fields, arrays = _kernel(net, node, x, kernel), {"kernel": kernel}
    zero = node.operand(2)
    _per_channel(fields, arrays, "kernel_zero_point", _zero(net, node.operand(3), str(kernel.dtype)))
    if not zero or zero in net.constants:
        arrays["zero_point"] = _alone(_zero(net, zero, _type(net, x)), "zero point")
        net.sampled(node, node.op_type, [x], fields, arrays)
        return
    sources = [net.samples_first(x), _one_zero(net, node, zero)]
    net.add(node, node.op_type, sources, fields, arrays, laid=one_sample)


@rule("QLinearConv")
def qlinear_conv(net: Translator, node: Node) -> None:
    """With constant kernel, bias, scales and zero points."""
    x, kernel = node.inputs[0], net.constant(node.inputs[3], "kernel")
    fields, arrays = _kernel(net, node, x, kernel), {"kernel": kernel}
    _requantized(net, fields, arrays, [*node.inputs[1:3], *node.inputs[4:8]])
    if node.operand(8):
        arrays["bias"] = net.constant(node.operand(8), "bias")
    else:
        fields["use_bias"] = False
    net.sampled(node, node.op_type, [x], fields, arrays)


def _kernel(net: Translator, node: Node, x: str, kernel: NDArray[Any]) -> dict[str, Any]:
    """Fields of a convolution of 8 bits."""
    fields: dict[str, Any] = {"filters": kernel.shape[0], "kernel_size": list(kernel.shape[2:])}
    fields |= {"kernel_dtype": str(kernel.dtype)} if str(kernel.dtype) != "int8" else {}
    strides, sides, dilation = geometry(node, list(kernel.shape[2:]), net.shape(x)[2:])
    for name, value, default in (
        ("strides", strides, 1), ("padding", [list(both) for both in sides], [0, 0]), ("dilation_rate", dilation, 1)
    ):  # fmt: skip
        if any(one != default for one in value):
            fields[name] = value
    return fields | ({"groups": node.attributes["group"]} if node.attributes["group"] != 1 else {})


def _requantized(net: Translator, fields: dict[str, Any], arrays: dict[str, NDArray[Any]], names: list[str]) -> None:
    """Scales and zero points of input, kernel and output."""
    found = [net.constant(name, "scales and zero points") for name in names]
    arrays |= {"input_scale": _alone(found[0], "scale"), "input_zero_point": _alone(found[1], "zero point")}
    arrays |= {"output_scale": _alone(found[4], "scale"), "output_zero_point": _alone(found[5], "zero point")}
    if str(found[5].dtype) != "uint8":
        fields["dtype"] = str(found[5].dtype)
    _per_channel(fields, arrays, "kernel_scale", found[2])
    arrays["kernel_zero_point"] = _spread(found[3], arrays["kernel_scale"].shape)


def _per_channel(fields: dict[str, Any], arrays: dict[str, NDArray[Any]], name: str, array: NDArray[Any]) -> None:
    if array.size > 1:
        if array.ndim != 1:
            raise Unsupported(f"scales or zero points of shape {list(array.shape)}")
        fields["per_channel"] = True
        arrays[name] = array
    else:
        arrays[name] = array.reshape(())


def _spread(array: NDArray[Any], shape: tuple[int, ...]) -> NDArray[Any]:
    import numpy as np

    return np.broadcast_to(array if array.size > 1 else array.reshape(()), shape)


def _alone(array: NDArray[Any], what: str) -> NDArray[Any]:
    if array.size != 1:
        raise Unsupported(f"its {what} has {array.size} numbers, for rows of the first operand")
    return array.reshape(())


def _one_zero(net: Translator, node: Node, name: str) -> str:
    """A computed zero point, of which each sample has one."""
    if not net.whole:
        raise Mixed("its zero point is computed for all samples of a batch")
    if net.shape(name) == (1,):
        made = net.hide(name)
        net.reshape(node, name, (), made)
        return made
    if net.rank(name):
        raise Unsupported(f"computed zero points of shape {list(net.shape(name))}")
    return name


def _type(net: Translator, name: str) -> str:
    return str(net.constants[name].dtype if name in net.constants else net.dtype(name))
