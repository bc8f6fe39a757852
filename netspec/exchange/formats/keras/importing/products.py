"""Operations of Keras that multiply and add up: products of matrices, convolutions, poolings."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from netspec.exchange.formats.keras.importing.axes import Order, TensorView, channels_first, identity
from netspec.exchange.formats.keras.importing.config import CallOutput, LayerCall
from netspec.exchange.formats.keras.importing.elementwise import constant
from netspec.exchange.formats.keras.importing.importer import KerasImporter
from netspec.exchange.formats.keras.importing.operations import argument, name_of, one, operation
from netspec.exchange.formats.keras.importing.operator_nodes import array_of
from netspec.exchange.formats.keras.importing.reductions import NOWHERE
from netspec.exchange.unsupported import UnsupportedFeature

if TYPE_CHECKING:
    from numpy.typing import NDArray


@operation("einsum")
def einsum(importer: KerasImporter, call: LayerCall, given: dict[str, Any]) -> None:
    """Einsum of tensors."""
    equation = argument(given, "subscripts", 0)
    operands = [each for each in call.args if not isinstance(each, str)]
    if not all(isinstance(each, CallOutput) for each in operands) or not operands:
        raise UnsupportedFeature("one of its operands is not the result of a layer")
    importer.put(
        call, *importer.add(call, "Einsum", {"equation": equation}, [importer.plain(each) for each in operands])
    )


@operation("matmul")
def matmul(importer: KerasImporter, call: LayerCall, given: dict[str, Any]) -> None:
    """Products of matrices of two tensors, or of a tensor and an array."""
    a, b = (*given["args"], None)[:2]
    tensors = [importer.plain(each) for each in (a, b) if isinstance(each, CallOutput)]
    if not tensors:
        raise UnsupportedFeature("its input is not the result of a layer")
    fields = {name: True for name in ("transpose_a", "transpose_b") if given.get(name)}
    if isinstance(a, CallOutput) and isinstance(b, list) and not fields and array_of(b).ndim == 2:
        _dense(importer, call, tensors[0], array_of(b))
        return
    held = [
        importer.plain(each) if isinstance(each, CallOutput) else _matrices(importer, call, each, tensors[0])
        for each in (a, b)
    ]
    if len({len(each.order) for each in held}) > 1:
        raise UnsupportedFeature("its operands have different ranks")
    importer.put(call, *importer.add(call, "MatMul", fields, held))


def _dense(importer: KerasImporter, call: LayerCall, held: TensorView, array: NDArray[Any]) -> None:
    """A product with a constant matrix: a Dense that is not trained; integers are computed in floats."""
    fields = {"units": array.shape[1], "use_bias": False, "trainable": False}
    kind, own = held.value.dtype, importer.name_of(call)
    if not kind.is_float:
        (held,) = importer.add(call, "Cast", {"dtype": "float32"}, [held], name=f"{own}/floats")
    (made,) = importer.add(call, "Dense", fields, [held], name=own if kind.is_float else f"{own}/dense")
    _hold(importer, "kernel", array)
    importer.put(call, made if kind.is_float else importer.add(call, "Cast", {"dtype": str(kind)}, [made], name=own)[0])


def _hold(importer: KerasImporter, state: str, array: NDArray[Any]) -> None:
    """Set a state of the last layer."""
    import numpy as np

    importer.draft.layers[-1].arrays[state] = np.ascontiguousarray(array, np.float32)


def _matrices(importer: KerasImporter, call: LayerCall, numbers: Any, like: TensorView) -> TensorView:
    array = array_of(numbers)
    wide = array.reshape((1,) * (len(like.order) - array.ndim) + array.shape)
    if wide.ndim != len(like.order) or wide.shape[0] != 1:
        raise UnsupportedFeature("one of its operands is an array that differs from sample to sample")
    return constant(importer, call, wide, like)


def image_order(given: dict[str, Any], rank: int) -> Order:
    """The order of axes for a layer of images, by the operation's `data_format`."""
    first = str(given.get("data_format") or "").startswith(("channels_first", "NC"))
    return identity(rank) if first else channels_first(rank)


def _of_window(given: dict[str, Any], name: str, rank: int, usual: Any = None) -> Any:
    """Sizes of a window; TensorFlow may give those of all axes, and paddings in capitals."""
    found = argument(given, name, NOWHERE, usual)
    if isinstance(found, str):
        return found.lower()
    return found[1:-1] if isinstance(found, list) and len(found) == rank else found


@operation("conv")
def convolve(importer: KerasImporter, call: LayerCall, given: dict[str, Any]) -> None:
    """A convolution with a constant kernel: a layer that is not trained."""
    held, kernel = one(importer, given), array_of(argument(given, "kernel", 1))
    rank = len(held.order)
    if kernel.ndim != rank:
        raise UnsupportedFeature("its kernel has another rank")
    order = image_order(given, rank)
    held = importer.turned(held, order)
    groups = held.value.shape[1] // max(1, kernel.shape[-2])
    fields: dict[str, Any] = {"filters": kernel.shape[-1], "kernel_size": list(kernel.shape[:-2])}
    for name, usual in (("strides", 1), ("dilation_rate", 1), ("padding", "valid")):
        fields[name] = _of_window(given, name, rank, usual)
    fields |= ({"groups": groups} if groups > 1 else {}) | {"use_bias": False, "trainable": False}
    importer.put(call, *importer.add(call, f"Conv{rank - 2}D", fields, [held], order))
    _hold(importer, "kernel", kernel.transpose(rank - 1, rank - 2, *range(rank - 2)))


@operation("fold")
def fold(importer: KerasImporter, call: LayerCall, given: dict[str, Any]) -> None:
    """Windows added up to an image."""
    names = {"output_size": "output_size", "kernel_size": "kernel_size", "dilation": "dilation_rate",
             "stride": "strides", "padding": "padding"}  # fmt: skip
    told = {new: argument(given, old, NOWHERE) for old, new in names.items()}
    fields = {name: each for name, each in told.items() if each is not None}
    importer.put(call, *importer.add(call, "Col2Im", fields, [importer.plain(one(importer, given))]))


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


@operation("depth_to_space", "space_to_depth")
def blocks(importer: KerasImporter, call: LayerCall, given: dict[str, Any]) -> None:
    """SpaceToDepth and DepthToSpace, in TensorFlow's order."""
    order = image_order(given, 4)
    type_ = "DepthToSpace" if name_of(call) == "depth_to_space" else "SpaceToDepth"
    fields = {"block_size": argument(given, "block_size", 1), "mode": "DCR"}
    importer.put(call, *importer.add(call, type_, fields, [importer.turned(one(importer, given), order)], order))


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
