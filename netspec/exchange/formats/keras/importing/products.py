"""Operations of Keras that multiply and add up: products of matrices, convolutions, poolings.

Products, convolutions and blocks of pixels are operators of ONNX. Poolings, and operations that resize, crop or pad
images, are layers of Keras by another name, and become these layers.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from netspec.exchange.formats.keras.importing.axes import Order, channels_first, identity, moved
from netspec.exchange.formats.keras.importing.config import CallOutput, LayerCall
from netspec.exchange.formats.keras.importing.elementwise import cast_to
from netspec.exchange.formats.keras.importing.importer import KerasImporter
from netspec.exchange.formats.keras.importing.operations import argument, lifted, name_of, one, operation
from netspec.exchange.formats.keras.importing.operator_nodes import KerasOperation, array_of
from netspec.exchange.formats.keras.importing.reductions import NOWHERE
from netspec.exchange.unsupported import UnsupportedFeature


@lifted("einsum")
def einsum(op: KerasOperation) -> str:
    """Einsum of tensors and arrays."""
    operands = [_plain(op, each) for each in op.call.args if not isinstance(each, str)]
    return op.node("Einsum", *operands, equation=op.argument("subscripts", 0))


@lifted("matmul")
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


def image_order(given: Mapping[str, Any], rank: int) -> Order:
    """The order of axes for a layer of images, by the operation's `data_format`."""
    first = str(given.get("data_format") or "").startswith(("channels_first", "NC"))
    return identity(rank) if first else channels_first(rank)


def _of_window(given: Mapping[str, Any], name: str, rank: int, usual: Any = None) -> Any:
    """Sizes of a window; TensorFlow may give those of all axes, and paddings in capitals."""
    found = argument(given, name, NOWHERE, usual)
    if isinstance(found, str):
        return found.lower()
    return found[1:-1] if isinstance(found, list) and len(found) == rank else found


def _images_first(op: KerasOperation) -> str:
    """The images that the operation reads, channels-first."""
    rank = len(op.tensor.order)
    order = image_order(op.arguments, rank)
    operand = op.operand(op.importer.turned(op.tensor, order))
    return operand if order == identity(rank) else op.node("Transpose", operand, perm=moved(identity(rank), order))


def _images_as_given(op: KerasOperation, result: str) -> str:
    """Channels-first images in the order of axes of the images that the operation reads."""
    order = image_order(op.arguments, len(op.tensor.order))
    return result if order == identity(len(order)) else op.node("Transpose", result, perm=order)


@lifted("conv")
def convolve(op: KerasOperation) -> str:
    """A convolution with a constant kernel."""
    kernel, rank = array_of(op.argument("kernel", 1)), len(op.tensor.order)
    if kernel.ndim != rank:
        raise UnsupportedFeature("its kernel has another rank")
    images, padding = _images_first(op), _of_window(op.arguments, "padding", rank, "valid")
    strides, dilations = (_of_window(op.arguments, name, rank, 1) for name in ("strides", "dilation_rate"))
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


@lifted("fold")
def fold(op: KerasOperation) -> str:
    """Windows added up to an image."""
    image, block, dilations, strides = (
        _each(op.argument(name, NOWHERE, 1), 2) for name in ("output_size", "kernel_size", "dilation", "stride")
    )
    pads = _each(op.argument("padding", NOWHERE, 0), 2) * 2
    return op.node("Col2Im", op.plain_tensor, image, block, dilations=dilations, strides=strides, pads=pads)


@operation("max_pool", "average_pool", "adaptive_max_pool", "adaptive_average_pool")
def pool(importer: KerasImporter, call: LayerCall, given: dict[str, Any]) -> None:
    """As the layers."""
    held = one(importer, given)
    rank = len(held.order)
    order = image_order(given, rank)
    kind = "".join(part.capitalize() for part in name_of(call).removesuffix("_pool").split("_"))
    told = {name: _of_window(given, name, rank) for name in ("pool_size", "strides", "padding", "output_size")}
    fields = {name: each for name, each in told.items() if each is not None}
    importer.put(call, *importer.add(call, f"{kind}Pooling{rank - 2}D", fields, [importer.turned(held, order)], order))


@lifted("depth_to_space", "space_to_depth")
def blocks(op: KerasOperation) -> str:
    """SpaceToDepth and DepthToSpace, in TensorFlow's order."""
    op_type = "DepthToSpace" if op.name == "depth_to_space" else "SpaceToDepth"
    return _images_as_given(op, op.node(op_type, _images_first(op), blocksize=op.argument("block_size", 1)))


@operation("resize")
def resize(importer: KerasImporter, call: LayerCall, given: dict[str, Any]) -> None:
    """Resize images, as the layer Resizing."""
    size, order = argument(given, "size", 1), image_order(given, 4)
    kept = ("antialias", "crop_to_aspect_ratio", "pad_to_aspect_ratio", "preserve_aspect_ratio")
    if any(given.get(name) for name in kept):
        raise UnsupportedFeature("it keeps the ratio of the sides, or smooths")
    fields = {"height": size[0], "width": size[1], "interpolation": argument(given, "interpolation", 2, "bilinear")}
    importer.put(call, *importer.add(call, "Resizing", fields, [importer.turned(one(importer, given), order)], order))


@operation("crop_images", "pad_images")
def sides(importer: KerasImporter, call: LayerCall, given: dict[str, Any]) -> None:
    """Crop or pad images."""
    crops, order = name_of(call) == "crop_images", image_order(given, 4)
    held, what = importer.turned(one(importer, given), order), "cropping" if crops else "padding"
    found = []
    for axis, (first, second, whole) in enumerate((("top", "bottom", "height"), ("left", "right", "width"))):
        before, after = (argument(given, f"{side}_{what}", NOWHERE) for side in (first, second))
        target, size = argument(given, f"target_{whole}", NOWHERE), held.value.shape[2 + axis]
        if target is not None:
            more = size - target if crops else target - size
            before = more - after if before is None else before
            after = more - before
        found.append([before or 0, after or 0])
    importer.put(call, *importer.add(call, "Cropping2D" if crops else "ZeroPadding2D", {what: found}, [held], order))
