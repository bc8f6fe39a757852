"""Arrays in Caffe's files: in messages, `.caffemodel`, `.caffemodel.h5` and `.binaryproto`."""

from __future__ import annotations

import re
from collections.abc import Mapping
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from netspec.errors import InputError, Problem
from netspec.exchange.containers.hdf5 import open_hdf5
from netspec.exchange.files import reading
from netspec.exchange.formats.caffe.proto.binary import read_binary
from netspec.exchange.formats.caffe.proto.message import Message
from netspec.exchange.formats.caffe.upgrade import upgraded
from netspec.files.hdf5 import SIGNATURE

WEIGHTS = "weights of Caffe's (.caffemodel or .caffemodel.h5)"
MAX_RANK = 32
ROWS = 64
"""Number of rows of a kernel that are transposed at a time."""
_INDEX = re.compile(r"0|[1-9][0-9]{0,4}")

Weights = Mapping[str, list[Any]]
"""The arrays of each layer, by its name."""


class BadBlob(ValueError):
    """The message is not an array; the text gives the reason."""


def blob_array(blob: Message) -> NDArray[Any]:
    """The values of a BlobProto, in its shape, which always has four axes in old files. Raises `BadBlob`."""
    data = blob.array("double_data" if "double_data" in blob else "data")
    if "shape" in blob:
        shape = tuple(blob["shape"]["dim"])
    elif any(name in blob for name in ("num", "channels", "height", "width")):
        shape = tuple(blob[name] for name in ("num", "channels", "height", "width"))
    else:
        shape = (data.size,)
    if len(shape) > MAX_RANK or min(shape, default=0) < 0 or prod(shape) != data.size:
        sizes = " × ".join(map(str, shape[:8])) + (" × …" if len(shape) > 8 else "")
        raise BadBlob(f"its shape is {sizes or 'that of one value'}, and it has {data.size:,} values")
    return data.reshape(shape)


def array_blob(array: NDArray[Any]) -> Message:
    """An array of float32 or float64 as a BlobProto."""
    name = "double_data" if array.dtype.itemsize == 8 else "data"
    blob = Message("BlobProto", shape=Message("BlobShape", dim=list(array.shape)))
    blob[name] = array.reshape(-1)
    return blob


def trimmed(shape: tuple[int, ...]) -> tuple[int, ...]:
    """A shape without leading axes of size 1: old files have four axes for all arrays."""
    while shape and shape[0] == 1:
        shape = shape[1:]
    return shape


def fitted(array: NDArray[Any], shape: tuple[int, ...]) -> NDArray[Any]:
    """The array as float32 in another shape, if only leading axes of size 1 differ; else unchanged."""
    return array if trimmed(array.shape) != trimmed(shape) else _laid_out(array).reshape(shape)


def _laid_out(array: NDArray[Any]) -> NDArray[Any]:
    """The array as float32, contiguous and aligned, which a view of a file's bytes need not be."""
    if array.ndim != 2 or array.flags.c_contiguous:
        return np.require(array, np.float32, ["C", "ALIGNED"])
    contiguous = np.empty(array.shape, np.float32)
    for start in range(0, array.shape[1], ROWS):  # few rows stay in the cache: eight times as fast as all at once
        contiguous[:, start : start + ROWS] = array[:, start : start + ROWS].T.copy().T
    return contiguous


def running_statistics(blobs: list[Any]) -> tuple[NDArray[Any], NDArray[Any]]:
    """Mean and variance, which Caffe stores times a factor that grows to 1 / (1 - moving_average_fraction)."""
    mean, variance, factor = (blob.astype(np.float64).reshape(-1) for blob in blobs)
    scale = 1 / factor[0] if factor.size and factor[0] else 0.0
    return (mean * scale).astype(np.float32), (variance * scale).astype(np.float32)


def named_file(name: str, folder: Path) -> Path | None:
    """A file that a net names, if it exists: paths start at Caffe's folder, or at the net's."""
    candidates = (Path(name), folder / name, folder / Path(name).name)
    return next((candidate for candidate in candidates if name and candidate.is_file()), None)


def read_mean(path: str | Path) -> NDArray[Any]:
    """The mean image in a `.binaryproto` file, (channels, height, width). Raises `InputError`."""
    kind = "a mean image of Caffe's (.binaryproto)"
    blob = read_binary(path, "BlobProto", kind)
    try:
        array = blob_array(blob)
    except BadBlob as error:
        raise InputError(f"{path} is not {kind}", expected=kind, got=str(error)) from None
    if array.ndim == 4 and array.shape[0] == 1:
        array = array[0]
    if array.ndim != 3 or not array.size:
        raise InputError(f"{path} is not {kind}", expected="channels, height and width", got=f"{list(array.shape)}")
    return array


def weights_of(net: Message, path: str | Path) -> dict[str, list[NDArray[Any]]]:
    """The arrays of the layers of a net. Raises `InputError` with all damaged ones."""
    weights: dict[str, list[NDArray[Any]]] = {}
    problems: list[Problem] = []
    for layer in net["layer"]:
        arrays = []
        for index, blob in enumerate(layer["blobs"]):
            try:
                arrays.append(blob_array(blob))
            except BadBlob as error:
                problems.append(Problem(f"{path}: blob {index} of the layer `{layer['name']}`: {error}"))
        if arrays:
            weights.setdefault(layer["name"], arrays)
    if problems:
        raise InputError(problems)
    return weights


def read_weights(path: str | Path) -> tuple[Weights, Message | None]:
    """The weights in a file, and the net if the file has one (`.caffemodel`). Raises `InputError`."""
    with reading(path, WEIGHTS) as (file, _):
        head = file.read(len(SIGNATURE))
    if head == SIGNATURE:
        return _read_hdf5(Path(path)), None
    net = upgraded(read_binary(path, "NetParameter", WEIGHTS))
    return weights_of(net, path), net


def _read_hdf5(path: Path) -> dict[str, list[NDArray[Any]]]:
    """Read `/data/<layer>/0, 1, …`; a layer whose name has a `/` is a group in a group."""
    file = open_hdf5(path, WEIGHTS)
    if "data" not in file or file.holds("data"):
        raise InputError(f"{path} holds no weights of Caffe's", expected="a group `data` with one for each layer")
    numbered: dict[str, dict[int, NDArray[Any]]] = {}
    for stored in file.paths():
        layer, _, index = stored.removeprefix("data/").rpartition("/")
        if layer and stored.startswith("data/") and _INDEX.fullmatch(index):
            numbered.setdefault(layer, {})[int(index)] = file.floats(stored)
    for layer, arrays in numbered.items():
        if sorted(arrays) != list(range(len(arrays))):
            raise InputError(f"{path}: arrays of the layer `{layer}` are missing", got=str(sorted(arrays)))
    return {layer: [arrays[index] for index in range(len(arrays))] for layer, arrays in numbered.items()}
