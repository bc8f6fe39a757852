"""Import operations of Keras that multiply and sum: matrix products, convolutions, poolings.

Products, convolutions and blocks of pixels are operators of ONNX. Poolings, and operations that resize, crop or pad
images, are layers of Keras by another name, and become these layers.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from netspec.exchange.formats.keras.importing.axes import Order, TensorView, channels_first, keras_order, permutation_to
from netspec.exchange.formats.keras.importing.config import CallOutput
from netspec.exchange.formats.keras.importing.elementwise import cast_to
from netspec.exchange.formats.keras.importing.operations import operation
from netspec.exchange.formats.keras.importing.operator_nodes import KerasOperation, array_of
from netspec.exchange.formats.keras.importing.reductions import KEYWORD_ONLY
from netspec.exchange.unsupported import UnsupportedFeature


@operation("einsum")
def einsum(op: KerasOperation) -> str:
    """Einsum of tensors and arrays."""
    operands = [_in_keras_order_or_array(op, operand) for operand in op.call.args if not isinstance(operand, str)]
    return op.node("Einsum", *operands, equation=op.argument("subscripts", 0))


@operation("matmul")
def matmul(op: KerasOperation) -> str:
    """Matrix products of two tensors, or of a tensor and an array; integers times an array are computed as floats."""
    factors = (*op.arguments["args"], None)[:2]
    dtypes = {op.importer.get(operand).value.dtype for operand in factors if isinstance(operand, CallOutput)}
    if not dtypes:
        raise UnsupportedFeature("its input is not the result of a layer")
    a, b = (_in_keras_order_or_array(op, operand) for operand in factors)
    if op.arguments.get("transpose_a"):
        a = _transposed(op, a)
    if op.arguments.get("transpose_b"):
        b = _transposed(op, b)
    integer_dtype = next((dtype for dtype in dtypes if not dtype.is_float), None)
    if integer_dtype is None or not isinstance(factors[1], list):
        return op.node("MatMul", a, b)
    product = op.node("MatMul", *(cast_to(op, operand, "float32") for operand in (a, b)))
    return cast_to(op, product, str(integer_dtype))


def _in_keras_order_or_array(op: KerasOperation, value: Any) -> str:
    """An operand: a tensor with its axes in Keras's order, or an array."""
    return op.operand(op.importer.in_keras_order(value) if isinstance(value, CallOutput) else array_of(value))


def _transposed(op: KerasOperation, operand: str) -> str:
    rank = len(op.shape(operand))
    return op.node("Transpose", operand, perm=[*range(rank - 2), rank - 1, rank - 2])


def _image_order(op: KerasOperation) -> Order:
    """The order of axes for a layer of images, by the operation's `data_format`."""
    rank = len(op.tensor.order)
    first = str(op.arguments.get("data_format") or "").startswith(("channels_first", "NC"))
    return keras_order(rank) if first else channels_first(rank)


def _window_sizes(op: KerasOperation, name: str, rank: int, default: Any = None) -> Any:
    """Sizes of a window; TensorFlow may state sizes of all axes, and paddings in upper case."""
    sizes = op.argument(name, KEYWORD_ONLY, default)
    if isinstance(sizes, str):
        return sizes.lower()
    return sizes[1:-1] if isinstance(sizes, list) and len(sizes) == rank else sizes


def _channels_first_images(op: KerasOperation) -> str:
    """The images that the operation reads, channels-first."""
    rank = len(op.tensor.order)
    order = _image_order(op)
    operand = op.operand(op.importer.permuted(op.tensor, order))
    return (
        operand
        if order == keras_order(rank)
        else op.node("Transpose", operand, perm=permutation_to(keras_order(rank), order))
    )


def _in_given_order(op: KerasOperation, result: str) -> str:
    """Convert channels-first images to the operation's `data_format`."""
    order = _image_order(op)
    return result if order == keras_order(len(order)) else op.node("Transpose", result, perm=order)


@operation("conv")
def convolve(op: KerasOperation) -> str:
    """A convolution with a constant kernel."""
    kernel, rank = array_of(op.argument("kernel", 1)), len(op.tensor.order)
    if kernel.ndim != rank:
        raise UnsupportedFeature("its kernel does not have the rank of its input")
    images, padding = _channels_first_images(op), _window_sizes(op, "padding", rank, "valid")
    strides, dilations = (_window_sizes(op, name, rank, 1) for name in ("strides", "dilation_rate"))
    pads = [side[end] for end in (0, 1) for side in padding] if isinstance(padding, list) else [0, 0] * (rank - 2)
    result = op.node(
        "Conv", images, kernel.transpose(rank - 1, rank - 2, *range(rank - 2)),
        group=op.shape(images)[1] // max(1, kernel.shape[-2]), pads=pads,
        auto_pad="SAME_UPPER" if padding == "same" else "NOTSET",
        strides=_per_axis(strides, rank - 2), dilations=_per_axis(dilations, rank - 2),
    )  # fmt: skip
    return _in_given_order(op, result)


def _per_axis(size: Any, axes: int) -> list[int]:
    """A size along each axis."""
    return list(size) if isinstance(size, list) else [size] * axes


@operation("fold")
def fold(op: KerasOperation) -> str:
    """Add windows up to an image."""
    image, block, dilations, strides = (
        _per_axis(op.argument(name, KEYWORD_ONLY, 1), 2)
        for name in ("output_size", "kernel_size", "dilation", "stride")
    )
    pads = _per_axis(op.argument("padding", KEYWORD_ONLY, 0), 2) * 2
    return op.node("Col2Im", op.tensor_in_keras_order, image, block, dilations=dilations, strides=strides, pads=pads)


@operation("max_pool", "average_pool", "adaptive_max_pool", "adaptive_average_pool")
def pool(op: KerasOperation) -> Sequence[TensorView]:
    """Import a pooling as the layer."""
    view = op.tensor
    rank = len(view.order)
    order = _image_order(op)
    kind = "".join(part.capitalize() for part in op.name.removesuffix("_pool").split("_"))
    window = {name: _window_sizes(op, name, rank) for name in ("pool_size", "strides", "padding", "output_size")}
    fields = {name: value for name, value in window.items() if value is not None}
    return op.layer(f"{kind}Pooling{rank - 2}D", fields, [op.importer.permuted(view, order)], order)


@operation("depth_to_space", "space_to_depth")
def blocks(op: KerasOperation) -> str:
    """SpaceToDepth and DepthToSpace, in TensorFlow's order."""
    op_type = "DepthToSpace" if op.name == "depth_to_space" else "SpaceToDepth"
    return _in_given_order(op, op.node(op_type, _channels_first_images(op), blocksize=op.argument("block_size", 1)))


@operation("resize")
def resize(op: KerasOperation) -> Sequence[TensorView]:
    """Resize images, as the layer Resizing."""
    size, order = op.argument("size", 1), _image_order(op)
    unsupported = ("antialias", "crop_to_aspect_ratio", "pad_to_aspect_ratio", "preserve_aspect_ratio")
    if any(op.arguments.get(name) for name in unsupported):
        raise UnsupportedFeature("antialiasing and keeping the aspect ratio are not supported")
    fields = {"height": size[0], "width": size[1], "interpolation": op.argument("interpolation", 2, "bilinear")}
    return op.layer("Resizing", fields, [op.importer.permuted(op.tensor, order)], order)


@operation("crop_images", "pad_images")
def crop_or_pad(op: KerasOperation) -> Sequence[TensorView]:
    """Crop or pad images."""
    crops, order = op.name == "crop_images", _image_order(op)
    view, change = op.importer.permuted(op.tensor, order), "cropping" if crops else "padding"
    amounts = []
    for axis, (first, second, extent) in enumerate((("top", "bottom", "height"), ("left", "right", "width"))):
        amount_before, amount_after = (op.argument(f"{side}_{change}", KEYWORD_ONLY) for side in (first, second))
        target, size = op.argument(f"target_{extent}", KEYWORD_ONLY), view.value.shape[2 + axis]
        if target is not None:
            difference = size - target if crops else target - size
            amount_before = difference - amount_after if amount_before is None else amount_before
            amount_after = difference - amount_before
        amounts.append([amount_before or 0, amount_after or 0])
    return op.layer("Cropping2D" if crops else "ZeroPadding2D", {change: amounts}, [view], order)
