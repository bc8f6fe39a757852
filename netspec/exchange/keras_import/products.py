"""Operations of Keras that multiply and add up: products of matrices, convolutions, poolings."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from netspec.exchange.keras_import.axes import Held, Order, channels_first, identity
from netspec.exchange.keras_import.config import Call, Tensor
from netspec.exchange.keras_import.elements import constant
from netspec.exchange.keras_import.fields import Unsupported
from netspec.exchange.keras_import.operations import argument, name_of, one, operation
from netspec.exchange.keras_import.reducing import NOWHERE, matrix
from netspec.exchange.keras_import.translate import Translator

if TYPE_CHECKING:
    from numpy.typing import NDArray


@operation("einsum")
def einsum(net: Translator, call: Call, given: dict[str, Any]) -> None:
    """As an equation says, of tensors."""
    equation = argument(given, "subscripts", 0)
    operands = [each for each in call.args if not isinstance(each, str)]
    if not all(isinstance(each, Tensor) for each in operands) or not operands:
        raise Unsupported("one of its operands is no result of a layer")
    net.put(call, *net.add(call, "Einsum", {"equation": equation}, [net.plain(each) for each in operands]))


@operation("matmul")
def matmul(net: Translator, call: Call, given: dict[str, Any]) -> None:
    """Matrices of two tensors; an array is the same for every sample."""
    a, b = (*given["args"], None)[:2]
    tensors = [net.plain(each) for each in (a, b) if isinstance(each, Tensor)]
    if not tensors:
        raise Unsupported("it does not read the result of a layer")
    fields = {name: True for name in ("transpose_a", "transpose_b") if given.get(name)}
    if isinstance(a, Tensor) and isinstance(b, list) and not fields and matrix(b).ndim == 2:
        _dense(net, call, tensors[0], matrix(b))
        return
    held = [net.plain(each) if isinstance(each, Tensor) else _matrices(net, call, each, tensors[0]) for each in (a, b)]
    if len({len(each.order) for each in held}) > 1:
        raise Unsupported("its operands have different numbers of axes")
    net.put(call, *net.add(call, "MatMul", fields, held))


def _dense(net: Translator, call: Call, held: Held, array: NDArray[Any]) -> None:
    """A product with a matrix of numbers that are known: a Dense that is not trained; of whole numbers in floats."""
    fields = {"units": array.shape[1], "use_bias": False, "trainable": False}
    kind, own = held.value.dtype, net.name_of(call)
    if not kind.is_float:
        (held,) = net.add(call, "Cast", {"dtype": "float32"}, [held], name=f"{own}/floats")
    (made,) = net.add(call, "Dense", fields, [held], name=own if kind.is_float else f"{own}/dense")
    _hold(net, "kernel", array)
    net.put(call, made if kind.is_float else net.add(call, "Cast", {"dtype": str(kind)}, [made], name=own)[0])


def _hold(net: Translator, state: str, array: NDArray[Any]) -> None:
    """Give the layer that was written last the value of a state."""
    import numpy as np

    net.draft.layers[-1].arrays[state] = np.ascontiguousarray(array, np.float32)


def _matrices(net: Translator, call: Call, numbers: Any, like: Held) -> Held:
    array = matrix(numbers)
    wide = array.reshape((1,) * (len(like.order) - array.ndim) + array.shape)
    if wide.ndim != len(like.order) or wide.shape[0] != 1:
        raise Unsupported("one of its operands is an array that differs from sample to sample")
    return constant(net, call, wide, like)


def image_order(given: dict[str, Any], rank: int) -> Order:
    """How the axes of an image lie for a layer of images; the operation says where the channels are."""
    first = str(given.get("data_format") or "").startswith(("channels_first", "NC"))
    return identity(rank) if first else channels_first(rank)


def _of_window(given: dict[str, Any], name: str, rank: int, usual: Any = None) -> Any:
    """Sizes of a window; TensorFlow may tell them of all axes of its input, and paddings in capitals."""
    found = argument(given, name, NOWHERE, usual)
    if isinstance(found, str):
        return found.lower()
    return found[1:-1] if isinstance(found, list) and len(found) == rank else found


@operation("conv")
def convolve(net: Translator, call: Call, given: dict[str, Any]) -> None:
    """With a kernel of numbers that are known: a layer that is not trained."""
    held, kernel = one(net, given), matrix(argument(given, "kernel", 1))
    rank = len(held.order)
    if kernel.ndim != rank:
        raise Unsupported("its kernel has another number of axes")
    order = image_order(given, rank)
    held = net.turned(held, order)
    groups = held.value.shape[1] // max(1, kernel.shape[-2])
    fields: dict[str, Any] = {"filters": kernel.shape[-1], "kernel_size": list(kernel.shape[:-2])}
    for name, usual in (("strides", 1), ("dilation_rate", 1), ("padding", "valid")):
        fields[name] = _of_window(given, name, rank, usual)
    fields |= ({"groups": groups} if groups > 1 else {}) | {"use_bias": False, "trainable": False}
    net.put(call, *net.add(call, f"Conv{rank - 2}D", fields, [held], order))
    _hold(net, "kernel", kernel.transpose(rank - 1, rank - 2, *range(rank - 2)))


@operation("fold")
def fold(net: Translator, call: Call, given: dict[str, Any]) -> None:
    """Windows added up to an image."""
    names = {"output_size": "output_size", "kernel_size": "kernel_size", "dilation": "dilation_rate",
             "stride": "strides", "padding": "padding"}  # fmt: skip
    told = {new: argument(given, old, NOWHERE) for old, new in names.items()}
    fields = {name: each for name, each in told.items() if each is not None}
    net.put(call, *net.add(call, "Col2Im", fields, [net.plain(one(net, given))]))


@operation("max_pool", "average_pool", "adaptive_max_pool", "adaptive_average_pool")
def pool(net: Translator, call: Call, given: dict[str, Any]) -> None:
    """As the layers."""
    held = one(net, given)
    rank = len(held.order)
    order = image_order(given, rank)
    kind = "".join(part.capitalize() for part in name_of(call).removesuffix("_pool").split("_"))
    told = {name: _of_window(given, name, rank) for name in ("pool_size", "strides", "padding", "output_size")}
    fields = {name: each for name, each in told.items() if each is not None}
    net.put(call, *net.add(call, f"{kind}Pooling{rank - 2}D", fields, [net.turned(held, order)], order))


@operation("depth_to_space", "space_to_depth")
def blocks(net: Translator, call: Call, given: dict[str, Any]) -> None:
    """Channels over blocks of places, or back: as TensorFlow orders them."""
    order = image_order(given, 4)
    type_ = "DepthToSpace" if name_of(call) == "depth_to_space" else "SpaceToDepth"
    fields = {"block_size": argument(given, "block_size", 1), "mode": "DCR"}
    net.put(call, *net.add(call, type_, fields, [net.turned(one(net, given), order)], order))


@operation("resize")
def resize(net: Translator, call: Call, given: dict[str, Any]) -> None:
    """Images of another size, as the layer Resizing."""
    size, order = argument(given, "size", 1), image_order(given, 4)
    kept = ("antialias", "crop_to_aspect_ratio", "pad_to_aspect_ratio", "preserve_aspect_ratio")
    if any(given.get(name) for name in kept):
        raise Unsupported("it keeps the ratio of the sides, or smooths")
    fields = {"height": size[0], "width": size[1], "interpolation": argument(given, "interpolation", 2, "bilinear")}
    net.put(call, *net.add(call, "Resizing", fields, [net.turned(one(net, given), order)], order))


@operation("crop_images", "pad_images")
def sides(net: Translator, call: Call, given: dict[str, Any]) -> None:
    """Images with less, or more, at their sides."""
    crops, order = name_of(call) == "crop_images", image_order(given, 4)
    held, what = net.turned(one(net, given), order), "cropping" if crops else "padding"
    found = []
    for axis, (first, second, whole) in enumerate((("top", "bottom", "height"), ("left", "right", "width"))):
        before, after = (argument(given, f"{side}_{what}", NOWHERE) for side in (first, second))
        target, size = argument(given, f"target_{whole}", NOWHERE), held.value.shape[2 + axis]
        if target is not None:
            more = size - target if crops else target - size
            before = more - after if before is None else before
            after = more - before
        found.append([before or 0, after or 0])
    net.put(call, *net.add(call, "Cropping2D" if crops else "ZeroPadding2D", {what: found}, [held], order))
