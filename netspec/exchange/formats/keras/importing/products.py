"""Operations of Keras that multiply and add up: products of matrices, convolutions, poolings.

Products, convolutions and blocks of pixels are operators of ONNX. Poolings, and operations that resize, crop or pad
images, are layers of Keras by another name, and become these layers.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from netspec.exchange.formats.keras.importing.axes import Order, TensorView, channels_first, identity, moved
from netspec.exchange.formats.keras.importing.config import CallOutput
from netspec.exchange.formats.keras.importing.elementwise import cast_to
from netspec.exchange.formats.keras.importing.operations import operation
from netspec.exchange.formats.keras.importing.operator_nodes import KerasOperation, array_of
from netspec.exchange.formats.keras.importing.reductions import NOWHERE
from netspec.exchange.unsupported import UnsupportedFeature


@operation("einsum")
def einsum(op: KerasOperation) -> str:
    """Einsum of tensors and arrays."""
    operands = [_plain(op, each) for each in op.call.args if not isinstance(each, str)]
    return op.node("Einsum", *operands, equation=op.argument("subscripts", 0))


@operation("matmul")
def matmul(op: KerasOperation) -> str:
    """Products of matrices of two tensors, or of a tensor and an array; of integers with an array in floats."""
    both = (*op.arguments["args"], None)[:2]
    kinds = {op.importer.get(each).value.dtype for each in both if isinstance(each, CallOutput)}
    if not kinds:
        raise UnsupportedFeature("its input is not the result of a layer")
    a, b = (_plain(op, each) for each in both)
    if op.arguments.get("transpose_a"):
        a = _transposed(op, a)
    if op.arguments.get("transpose_b"):
        b = _transposed(op, b)
    whole = next((kind for kind in kinds if not kind.is_float), None)
    if whole is None or not isinstance(both[1], list):
        return op.node("MatMul", a, b)
    product = op.node("MatMul", *(cast_to(op, each, "float32") for each in (a, b)))
    return cast_to(op, product, str(whole))


def _plain(op: KerasOperation, value: Any) -> str:
    """An operand with its axes in Keras's order."""
    return op.operand(op.importer.plain(value) if isinstance(value, CallOutput) else array_of(value))


def _transposed(op: KerasOperation, operand: str) -> str:
    rank = len(op.shape(operand))
    return op.node("Transpose", operand, perm=[*range(rank - 2), rank - 1, rank - 2])


def _image_order(op: KerasOperation) -> Order:
    """The order of axes for a layer of images, by the operation's `data_format`."""
    rank = len(op.tensor.order)
    first = str(op.arguments.get("data_format") or "").startswith(("channels_first", "NC"))
    return identity(rank) if first else channels_first(rank)


def _of_window(op: KerasOperation, name: str, rank: int, default: Any = None) -> Any:
    """Sizes of a window; TensorFlow may give those of all axes, and paddings in capitals."""
    found = op.argument(name, NOWHERE, default)
    if isinstance(found, str):
        return found.lower()
    return found[1:-1] if isinstance(found, list) and len(found) == rank else found


def _images_first(op: KerasOperation) -> str:
    """The images that the operation reads, channels-first."""
    rank = len(op.tensor.order)
    order = _image_order(op)
    operand = op.operand(op.importer.turned(op.tensor, order))
    return operand if order == identity(rank) else op.node("Transpose", operand, perm=moved(identity(rank), order))


def _images_as_given(op: KerasOperation, result: str) -> str:
    """Channels-first images in the order of axes of the images that the operation reads."""
    order = _image_order(op)
    return result if order == identity(len(order)) else op.node("Transpose", result, perm=order)


@operation("conv")
def convolve(op: KerasOperation) -> str:
    """A convolution with a constant kernel."""
    kernel, rank = array_of(op.argument("kernel", 1)), len(op.tensor.order)
    if kernel.ndim != rank:
        raise UnsupportedFeature("its kernel has another rank")
    images, padding = _images_first(op), _of_window(op, "padding", rank, "valid")
    strides, dilations = (_of_window(op, name, rank, 1) for name in ("strides", "dilation_rate"))
    pads = [side[end] for end in (0, 1) for side in padding] if isinstance(padding, list) else [0, 0] * (rank - 2)
    made = op.node(
        "Conv", images, kernel.transpose(rank - 1, rank - 2, *range(rank - 2)),
        group=op.shape(images)[1] // max(1, kernel.shape[-2]), pads=pads,
        auto_pad="SAME_UPPER" if padding == "same" else "NOTSET",
        strides=_each(strides, rank - 2), dilations=_each(dilations, rank - 2),
    )  # fmt: skip
    return _images_as_given(op, made)


def _each(size: Any, axes: int) -> list[int]:
    """A size along each axis."""
    return list(size) if isinstance(size, list) else [size] * axes


@operation("fold")
def fold(op: KerasOperation) -> str:
    """Windows added up to an image."""
    image, block, dilations, strides = (
        _each(op.argument(name, NOWHERE, 1), 2) for name in ("output_size", "kernel_size", "dilation", "stride")
    )
    pads = _each(op.argument("padding", NOWHERE, 0), 2) * 2
    return op.node("Col2Im", op.plain_tensor, image, block, dilations=dilations, strides=strides, pads=pads)


@operation("max_pool", "average_pool", "adaptive_max_pool", "adaptive_average_pool")
def pool(op: KerasOperation) -> Sequence[TensorView]:
    """As the layers."""
    held = op.tensor
    rank = len(held.order)
    order = _image_order(op)
    kind = "".join(part.capitalize() for part in op.name.removesuffix("_pool").split("_"))
    told = {name: _of_window(op, name, rank) for name in ("pool_size", "strides", "padding", "output_size")}
    fields = {name: each for name, each in told.items() if each is not None}
    return op.layer(f"{kind}Pooling{rank - 2}D", fields, [op.importer.turned(held, order)], order)


@operation("depth_to_space", "space_to_depth")
def blocks(op: KerasOperation) -> str:
    """SpaceToDepth and DepthToSpace, in TensorFlow's order."""
    op_type = "DepthToSpace" if op.name == "depth_to_space" else "SpaceToDepth"
    return _images_as_given(op, op.node(op_type, _images_first(op), blocksize=op.argument("block_size", 1)))


@operation("resize")
def resize(op: KerasOperation) -> Sequence[TensorView]:
    """Resize images, as the layer Resizing."""
    size, order = op.argument("size", 1), _image_order(op)
    kept = ("antialias", "crop_to_aspect_ratio", "pad_to_aspect_ratio", "preserve_aspect_ratio")
    if any(op.arguments.get(name) for name in kept):
        raise UnsupportedFeature("it keeps the ratio of the sides, or smooths")
    fields = {"height": size[0], "width": size[1], "interpolation": op.argument("interpolation", 2, "bilinear")}
    return op.layer("Resizing", fields, [op.importer.turned(op.tensor, order)], order)


@operation("crop_images", "pad_images")
def sides(op: KerasOperation) -> Sequence[TensorView]:
    """Crop or pad images."""
    crops, order = op.name == "crop_images", _image_order(op)
    held, what = op.importer.turned(op.tensor, order), "cropping" if crops else "padding"
    found = []
    for axis, (first, second, whole) in enumerate((("top", "bottom", "height"), ("left", "right", "width"))):
        before, after = (op.argument(f"{side}_{what}", NOWHERE) for side in (first, second))
        target, size = op.argument(f"target_{whole}", NOWHERE), held.value.shape[2 + axis]
        if target is not None:
            more = size - target if crops else target - size
            before = more - after if before is None else before
            after = more - before
        found.append([before or 0, after or 0])
    return op.layer("Cropping2D" if crops else "ZeroPadding2D", {what: found}, [held], order)
