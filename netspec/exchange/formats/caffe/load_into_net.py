"""Load weights of Caffe into an existing net, by the names of its layers."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from netspec.exchange.formats.caffe.blobs import fitted, read_weights, running_statistics
from netspec.exchange.formats.caffe.proto.message import Message
from netspec.exchange.interface import Target
from netspec.exchange.net_yaml_writer import clean
from netspec.schema.specs.links import resolve_names

_ORDER = {"PReLU": ("alpha",), "Scale": ("scale", "bias"), "Bias": ("bias",), "Embedding": ("embeddings",)}
"""Names of a layer's arrays here, if they are not `kernel` and `bias`."""
_NORM = re.compile("bn|batch_?norm", re.IGNORECASE)


def weights_onto(path: Path, target: Target) -> dict[str, NDArray[Any]]:
    """The arrays of the layers that the net has too. Raises `InputError` if the file has no weights of Caffe."""
    weights, net = read_weights(path)
    blobs = {clean(name): arrays for name, arrays in weights.items()}
    scales = {} if net is None else _scales(net)
    states: dict[str, NDArray[Any]] = {}
    for layer in resolve_names(target.net).layers:
        kind = str(getattr(layer.fields, "type", ""))
        if layer.name not in blobs or layer.fields.share:
            continue
        arrays: Mapping[str, Any]
        if kind == "BatchNormalization" and len(blobs[layer.name]) == 3:
            arrays = _normalization(layer.name, blobs, scales)
        else:
            arrays = dict(zip(_ORDER.get(kind, ("kernel", "bias")), blobs[layer.name], strict=False))
        for key, array in arrays.items():
            state = f"{layer.name}/{key}"
            shape = target.states[state].shape if state in target.states else array.shape
            if kind == "PReLU" and (array.size,) == shape[:1]:
                array = array.reshape(-1, *(1 for _ in shape[1:]))
            states[state] = _dense(array, shape) if (kind, key) == ("Dense", "kernel") else fitted(array, shape)
    return target.renamed(states)


def _dense(array: NDArray[Any], shape: tuple[int, ...]) -> NDArray[Any]:
    """(out, in) → (in, out). An array that fits without this is from a layer with `transpose`."""
    while array.ndim > 2 and array.shape[0] == 1:
        array = array[0]
    transposed = array.T
    return array if array.shape == shape != transposed.shape else fitted(transposed, shape)


def _normalization(name: str, blobs: Mapping[str, list[Any]], scales: Mapping[str, str]) -> dict[str, Any]:
    """The statistics of a BatchNorm, and the factors and offsets of the Scale after it, if there is one."""
    mean, variance = running_statistics(blobs[name])
    arrays = {"moving_mean": mean, "moving_variance": variance}
    for candidate in _scale_names(name, scales):
        scale_blobs = blobs.get(candidate, [])
        if candidate != name and scale_blobs and all(blob.size == mean.size for blob in scale_blobs):
            return arrays | dict(zip(("gamma", "beta"), scale_blobs, strict=False))
    return arrays


def _scale_names(name: str, scales: Mapping[str, str]) -> Iterator[str]:
    """Possible names of the Scale after a BatchNorm: from the net in the file, else by convention."""
    if name in scales:
        yield scales[name]
    else:
        yield from (_NORM.sub("scale", name), f"{name}_scale", f"{name}/scale", f"scale_{name}")


def _scales(net: Message) -> dict[str, str]:
    """The Scale that reads each BatchNorm of a net."""
    scale_of: dict[str, str] = {}
    norm_of_blob: dict[str, str] = {}
    for layer in net["layer"]:
        before = norm_of_blob.get(layer["bottom"][0], "") if layer["bottom"] else ""
        if layer["type"] == "Scale" and before:
            scale_of.setdefault(before, clean(layer["name"]))
        for top in layer["top"]:
            norm_of_blob[top] = clean(layer["name"]) if layer["type"] == "BatchNorm" else ""
    return scale_of
