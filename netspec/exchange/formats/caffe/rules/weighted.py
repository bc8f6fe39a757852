"""Layers with kernels: Convolution, Deconvolution, InnerProduct, Embed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from numpy.typing import NDArray

from netspec.exchange.formats.caffe.fillers import initializers
from netspec.exchange.formats.caffe.importer import CaffeImporter, NetValue, ParameterBlob, rule
from netspec.exchange.formats.caffe.proto.message import Message
from netspec.exchange.formats.caffe.wiring import CaffeNode, ValueRef
from netspec.exchange.unsupported import UnsupportedFeature

MAX_SPATIAL = 3


@rule("Convolution", "Deconvolution")
def convolution(importer: CaffeImporter, node: CaffeNode) -> None:
    """Windows over 1 to 3 spatial axes → Conv1D to Conv3D, and their transposes. Each input has an output."""
    path = "convolution_param"
    param = node.layer[path]
    for index in range(len(node.bottoms)):
        x = importer.read(node, index)
        spatial = len(x.shape) - 2
        if importer.axis(node, f"{path}.axis", len(x.shape), param["axis"]) != 1:
            raise UnsupportedFeature("its channels must be axis 1", field=f"{path}.axis")
        if not 1 <= spatial <= MAX_SPATIAL:
            raise UnsupportedFeature(
                f"its input must have 1 to {MAX_SPATIAL} spatial axes, got {spatial}", field=f"{path}.axis"
            )
        size, strides, pads, dilation = window_sizes(param, path, spatial)
        transposed = node.type == "Deconvolution"
        cut = any(pads) or (transposed and any(step > reach for step, reach in zip(strides, size, strict=True)))
        fields: dict[str, Any] = {
            "filters": _count(param, path, "num_output"),
            "kernel_size": plain(size),
            "strides": plain(strides),
            **({"padding": plain(pads) if len(set(pads)) == 1 or spatial > 1 else pads[0]} if cut else {}),
            "dilation_rate": plain(dilation),
            "groups": param["group"],
            "use_bias": param["bias_term"],
            **initializers(param, path, kernel_initializer="weight_filler", bias_initializer="bias_filler"),
        }
        blobs = {"kernel": ParameterBlob(node, 0)} | ({"bias": ParameterBlob(node, 1)} if param["bias_term"] else {})
        kind = f"Conv{spatial}D{'Transpose' if transposed else ''}"
        _add_for_input(importer, node, index, kind, x, fields, blobs)


def _add_for_input(
    importer: CaffeImporter,
    node: CaffeNode,
    index: int,
    kind: str,
    x: NetValue,
    fields: dict[str, Any],
    blobs: dict[str, ParameterBlob],
) -> None:
    """Add the layer for one of the inputs; the layers of further inputs share the parameters of the first."""
    if index == 0:
        importer.set_top(node, importer.add(node, kind, [x], fields, parameters=blobs))
    else:
        first = importer.values[ValueRef(node.key, 0, node.layer["top"][0])].name
        importer.set_top(node, importer.add(node, kind, [x], fields | {"share": first}, part=str(index)), index)


_WINDOW = {"kernel_size": ("kernel", None), "stride": ("stride", 1), "pad": ("pad", 0), "dilation": ("", 1)}
"""The fields of a window, with the prefix of the fields for height and width, and the default."""


def window_sizes(param: Message, path: str, count: int) -> list[list[int]]:
    """Kernel, strides, padding and dilation along each of `count` axes."""
    return [_sizes(param, path, name, short, count, default) for name, (short, default) in _WINDOW.items()]


def _sizes(param: Message, path: str, name: str, short: str, count: int, default: int | None) -> list[int]:
    """Sizes along each axis: given for all, for each, or as `kernel_h` and `kernel_w`."""
    both = [f"{short}_h", f"{short}_w"] if short else []
    if any(size in param for size in both):
        if param.get(name, ()):
            raise UnsupportedFeature(f"`{name}` and `{both[0]}` are both given", field=f"{path}.{both[0]}")
        if count != 2:
            raise UnsupportedFeature(
                f"`{both[0]}` needs an input with 2 spatial axes, got {count}", field=f"{path}.{both[0]}"
            )
        if default is None and not all(size in param for size in both):
            raise UnsupportedFeature(f"`{both[0]}` and `{both[1]}` must be given together", field=path)
        sizes = [param.get(size, 0) for size in both]
    else:
        values: Sequence[int] = param[name]
        if not values and default is None:
            raise UnsupportedFeature(f"`{name}` is missing", field=path)
        if len(values) > 1 and len(values) != count:
            raise UnsupportedFeature(
                f"`{name}` has {len(values)} values for {count} spatial axes", field=f"{path}.{name}"
            )
        sizes = list(values) * (count if len(values) == 1 else 1) or [default or 0] * count
    if min(sizes) < (0 if name == "pad" else 1):
        raise UnsupportedFeature(
            f"`{name}` must be ≥ {0 if name == 'pad' else 1}, got {min(sizes)}", field=f"{path}.{name}"
        )
    return sizes


def window_fields(*sizes: Sequence[int]) -> dict[str, Any]:
    """Caffe's fields for kernel, strides, padding and dilation.

    A field has one value if all axes have the same, else one per axis; for images they are in `_h` and `_w`.
    """
    fields: dict[str, Any] = {}
    for (name, (short, default)), values in zip(_WINDOW.items(), sizes, strict=True):
        if all(value == default for value in values):
            continue
        if short and len(values) == 2 and values[0] != values[1]:
            fields |= {f"{short}_h": values[0], f"{short}_w": values[1]}
        else:
            fields[name] = list(values[:1] if len(set(values)) == 1 else values)
    return fields


def plain(sizes: Sequence[int]) -> Any:
    """Sizes as a net file has them: one number if they are equal."""
    return sizes[0] if len(set(sizes)) == 1 else list(sizes)


def _count(param: Message, path: str, name: str) -> int:
    count: int = param[name]
    if count < 1:
        raise UnsupportedFeature(f"`{name}` is missing or 0", field=f"{path}.{name}" if name in param else path)
    return count


@rule("InnerProduct")
def inner_product(importer: CaffeImporter, node: CaffeNode) -> None:
    """Dense, after a Flatten if the input has more axes than the batch and `axis`."""
    path = "inner_product_param"
    param = node.layer[path]
    units = _count(param, path, "num_output")
    x = importer.read(node)
    rank = len(x.shape)
    x = flattened(importer, node, x, importer.axis(node, f"{path}.axis", rank, param["axis"]))
    in_first = not param["transpose"]

    def as_kernel(array: NDArray[Any]) -> NDArray[Any]:
        """(out, in), or (in, out) with `transpose`, in old files after axes of size 1 → (in, out)."""
        if array.size % units:
            raise UnsupportedFeature(f"its weights have {array.size} elements for {units} outputs", field=path)
        while array.ndim > 2 and array.shape[0] == 1:
            array = array[0]
        return array.T if in_first else array

    fields = {
        "units": units,
        "use_bias": param["bias_term"],
        **initializers(
            param, path, swapped=param["transpose"], kernel_initializer="weight_filler", bias_initializer="bias_filler"
        ),
    }
    blobs = {"kernel": ParameterBlob(node, 0, as_kernel)} | (
        {"bias": ParameterBlob(node, 1)} if param["bias_term"] else {}
    )
    importer.set_top(node, importer.add(node, "Dense", [x], fields, parameters=blobs))


def flattened(importer: CaffeImporter, node: CaffeNode, x: NetValue, axis: int) -> NetValue:
    """The value with all axes from `axis` on merged into one."""
    shape = x.shape[1:]
    if len(shape) == axis:
        return x
    if len(shape) < axis:
        raise UnsupportedFeature(
            f"axis {axis} is out of range for its input, whose samples have the shape {list(shape)}"
        )
    if axis == 1:
        return importer.add(node, "Flatten", [x], part="flatten")
    return importer.add(node, "Reshape", [x], {"target_shape": [*shape[: axis - 1], -1]}, part="flatten")


@rule("Embed")
def embed(importer: CaffeImporter, node: CaffeNode) -> None:
    """Embedding, followed by a Bias if there is one."""
    path = "embed_param"
    param = node.layer[path]
    x = importer.read(node)
    fields = {
        "input_dim": _count(param, path, "input_dim"),
        "output_dim": _count(param, path, "num_output"),
        **initializers(param, path, swapped=True, embeddings_initializer="weight_filler"),
    }
    embedded = importer.add(node, "Embedding", [x], fields, parameters={"embeddings": ParameterBlob(node, 0)})
    if param["bias_term"]:
        fields = {"axis": -1, **initializers(param, path, bias_initializer="bias_filler")}
        blobs = {"bias": ParameterBlob(node, 1)}
        embedded = importer.add(node, "Bias", [embedded], fields, parameters=blobs, part="bias")
    importer.set_top(node, embedded)
