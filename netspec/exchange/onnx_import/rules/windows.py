"""Convolution and pooling."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from netspec.exchange.onnx_import.model import Node, Unsupported
from netspec.exchange.onnx_import.translate import Translator, rule


@rule("Conv")
def conv(net: Translator, node: Node) -> None:
    """Conv with a constant kernel (M, C/groups, KH, KW) → Conv2D."""
    kernel = net.constant(node.inputs[1], "kernel")
    if kernel.ndim != 4:
        raise Unsupported(f"a convolution over {kernel.ndim - 2} axes, not 2")
    size = list(kernel.shape[2:])
    if node.attributes.get("kernel_shape", size) != size:
        raise Unsupported(f"its kernel is {size}, its attribute says {node.attributes['kernel_shape']}")
    dilation = _ints(node, "dilations", [1, 1])
    fields: dict[str, Any] = {"filters": kernel.shape[0], "kernel_size": short(size)}
    fields |= _strides(node, [1, 1]) | _padding(net, node, size, dilation)
    if dilation != [1, 1]:
        fields["dilation_rate"] = short(dilation)
    if node.attributes["group"] != 1:
        fields["groups"] = node.attributes["group"]
    arrays = {"kernel": kernel}
    if node.operand(2):
        arrays["bias"] = net.constant(node.operand(2), "bias")
    else:
        fields["use_bias"] = False
    net.add(node, "Conv2D", node.inputs[:1], fields, arrays)


@rule("MaxPool", "AveragePool")
def pool(net: Translator, node: Node) -> None:
    """MaxPool → MaxPooling2D, AveragePool → AveragePooling2D, where padding is not counted."""
    size = _ints(node, "kernel_shape", [])
    if len(size) != 2:
        raise Unsupported(f"pooling over {len(size)} axes, not 2")
    if _ints(node, "dilations", [1, 1]) != [1, 1]:
        raise Unsupported("a dilated window")
    padding = _padding(net, node, size, [1, 1], ceil=bool(node.attributes.get("ceil_mode")))
    if node.attributes.get("count_include_pad") and padding:
        raise Unsupported("an average that counts padding")
    strides = _strides(node, size, absent=[1, 1])
    fields = ({} if size == [2, 2] else {"pool_size": short(size)}) | strides | padding
    net.add(node, "MaxPooling2D" if node.op_type == "MaxPool" else "AveragePooling2D", node.inputs[:1], fields)


@rule("GlobalAveragePool")
def global_average_pool(net: Translator, node: Node) -> None:
    """Over both axes of an image, which stay with size 1."""
    net.add(node, "GlobalAveragePooling2D", node.inputs[:1], {"keepdims": True})


@rule("ReduceMean")
def reduce_mean(net: Translator, node: Node) -> None:
    """A mean over height and width → GlobalAveragePooling2D."""
    axes = net.constant(node.operand(1), "axes").tolist() if node.operand(1) else node.attributes.get("axes")
    rank = len(net.shape(node.inputs[0]))
    if rank != 4 or axes is None or sorted(axis % rank for axis in axes) != [2, 3]:
        raise Unsupported("a mean over other axes than height and width")
    net.add(node, "GlobalAveragePooling2D", node.inputs[:1], {"keepdims": True} if node.attributes["keepdims"] else {})


def short(pair: Sequence[int]) -> int | list[int]:
    """One number for two equal ones, as people write it."""
    return pair[0] if pair[0] == pair[1] else list(pair)


def _ints(node: Node, name: str, default: list[int]) -> list[int]:
    value = node.attributes.get(name, default)
    return list(value) if isinstance(value, (list, tuple)) else []


def _strides(node: Node, default: list[int], absent: list[int] | None = None) -> dict[str, Any]:
    strides = _ints(node, "strides", absent or default)
    if len(strides) != 2:
        raise Unsupported(f"strides {strides}")
    return {} if strides == default else {"strides": short(strides)}


def _padding(net: Translator, node: Node, size: list[int], dilation: list[int], ceil: bool = False) -> dict[str, Any]:
    """The field `padding`, from explicit pads, `auto_pad`, or pads that make ONNX's ceil_mode."""
    spatial, strides = net.shape(node.inputs[0])[2:], _ints(node, "strides", [1, 1])
    if len(spatial) != 2 or len(strides) != 2 or len(dilation) != 2:
        raise Unsupported("windows over other than 2 axes")
    auto = node.attributes.get("auto_pad", "NOTSET")
    if auto == "SAME_UPPER":
        return {"padding": "same"}
    reach = [(window - 1) * step + 1 for window, step in zip(size, dilation, strict=True)]
    if auto == "SAME_LOWER":
        pads = [_same_lower(*sizes) for sizes in zip(spatial, reach, strides, strict=True)]
    elif auto == "VALID":
        pads = [(0, 0), (0, 0)]
    else:
        flat = _ints(node, "pads", [0, 0, 0, 0])
        if len(flat) != 4 or min(flat) < 0:
            raise Unsupported(f"padding {flat}")
        pads = [(flat[0], flat[2]), (flat[1], flat[3])]
        if ceil:
            pads = [_ceil(*sizes) for sizes in zip(spatial, reach, strides, pads, strict=True)]
    if pads == [(0, 0), (0, 0)]:
        return {}
    if all(begin == end for begin, end in pads):
        return {"padding": short([begin for begin, _ in pads])}
    return {"padding": [list(side) for side in pads]}


def _same_lower(size: int, reach: int, stride: int) -> tuple[int, int]:
    total = max(0, (-(-size // stride) - 1) * stride + reach - size)
    return total - total // 2, total // 2


def _ceil(size: int, reach: int, stride: int, pads: tuple[int, int]) -> tuple[int, int]:
    """Padding after the end with which rounding down gives as many windows as rounding up without.

    A window must begin inside the input or the padding before it (ONNX's rule since opset 11 as onnxruntime has it).
    """
    begin, end = pads
    count = -(-(size + begin + end - reach) // stride) + 1
    if (count - 1) * stride >= size + begin:
        count -= 1
    return begin, max(0, (count - 1) * stride + reach - size - begin)
