"""The arrays of Caffe's files: in messages, in `.caffemodel` and `.caffemodel.h5`, in `.binaryproto`."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from math import prod
from pathlib import Path
from typing import TYPE_CHECKING, Any

from netspec.errors import InputError, Problem
from netspec.exchange.caffe.proto.message import Message
from netspec.exchange.caffe.proto.wire import read_binary
from netspec.exchange.caffe.upgrade import upgraded
from netspec.exchange.files import reading

if TYPE_CHECKING:
    from numpy.typing import NDArray

WEIGHTS = "weights of Caffe's (.caffemodel or .caffemodel.h5)"
HDF5 = b"\x89HDF\r\n\x1a\n"
MAX_GROUPS = 100_000
MAX_DEPTH = 64
MAX_RANK = 32
ROWS = 64
"""Of a kernel that is turned."""
_INDEX = re.compile(r"0|[1-9][0-9]{0,4}")

Weights = Mapping[str, list[Any]]
"""The arrays of each layer, by its name."""


class BadBlob(ValueError):
    """The message is no array; the text says why."""


def blob_array(blob: Message) -> NDArray[Any]:
    """The numbers of a BlobProto, in its shape: that of old files has always four axes. Raises `BadBlob`."""
    data = blob.array("double_data" if "double_data" in blob else "data")
    if "shape" in blob:
        shape = tuple(blob["shape"]["dim"])
    elif any(name in blob for name in ("num", "channels", "height", "width")):
        shape = tuple(blob[name] for name in ("num", "channels", "height", "width"))
    else:
        shape = (data.size,)
    if len(shape) > MAX_RANK or min(shape, default=0) < 0 or prod(shape) != data.size:
        sizes = " × ".join(map(str, shape[:8])) + (" × …" if len(shape) > 8 else "")
        raise BadBlob(f"it is said to be {sizes or 'one number'}, and has {data.size:,} numbers")
    return data.reshape(shape)


def array_blob(array: NDArray[Any]) -> Message:
    """An array of float32 or float64 as a BlobProto."""
    name = "double_data" if array.dtype.itemsize == 8 else "data"
    found = Message("BlobProto", shape=Message("BlobShape", dim=list(array.shape)))
    found[name] = array.reshape(-1)
    return found


def trimmed(shape: tuple[int, ...]) -> tuple[int, ...]:
    """A shape without axes of size 1 in front: old files have four axes for all."""
    while shape and shape[0] == 1:
        shape = shape[1:]
    return shape


def fitted(array: NDArray[Any], shape: tuple[int, ...]) -> NDArray[Any]:
    """The array as float32 in another shape, if it differs in axes of size 1 in front alone; else as it is."""
    return array if trimmed(array.shape) != trimmed(shape) else _laid_out(array).reshape(shape)


def _laid_out(array: NDArray[Any]) -> NDArray[Any]:
    """The array as float32, rows behind each other, aligned, which a view of a file's bytes need not be."""
    import numpy as np

    if array.ndim != 2 or array.flags.c_contiguous:
        return np.require(array, np.float32, ["C", "ALIGNED"])
    made = np.empty(array.shape, np.float32)
    for start in range(
        0, array.shape[1], ROWS
    ):  # a few at a time stay in the cache: eight times as fast as all at once
        made[:, start : start + ROWS] = array[:, start : start + ROWS].T.copy().T
    return made


def running_statistics(blobs: list[Any]) -> tuple[NDArray[Any], NDArray[Any]]:
    """Mean and variance, which Caffe keeps times a factor that grows to 1 / (1 - moving_average_fraction)."""
    import numpy as np

    mean, variance, factor = (blob.astype(np.float64).reshape(-1) for blob in blobs)
    scale = 1 / factor[0] if factor.size and factor[0] else 0.0
    return (mean * scale).astype(np.float32), (variance * scale).astype(np.float32)


def read_mean(path: str | Path) -> NDArray[Any]:
    """The mean image in a `.binaryproto` file, (channels, height, width). Raises `InputError`."""
    what = "a mean image of Caffe's (.binaryproto)"
    found = read_binary(path, "BlobProto", what)
    try:
        array = blob_array(found)
    except BadBlob as error:
        raise InputError(f"{path} is not {what}", expected=what, got=str(error)) from None
    if array.ndim == 4 and array.shape[0] == 1:
        array = array[0]
    if array.ndim != 3 or not array.size:
        raise InputError(f"{path} is not {what}", expected="channels, height and width", got=f"{list(array.shape)}")
    return array


def weights_of(net: Message, path: str | Path) -> dict[str, list[NDArray[Any]]]:
    """The arrays of all layers of a net that has any. Raises `InputError` with all that are none."""
    found: dict[str, list[NDArray[Any]]] = {}
    problems: list[Problem] = []
    for layer in net["layer"]:
        arrays = []
        for index, blob in enumerate(layer["blobs"]):
            try:
                arrays.append(blob_array(blob))
            except BadBlob as error:
                problems.append(Problem(f"{path}: blob {index} of the layer `{layer['name']}`: {error}"))
        if arrays:
            found.setdefault(layer["name"], arrays)
    if problems:
        raise InputError(problems)
    return found


def read_weights(path: str | Path) -> tuple[Weights, Message | None]:
    """The weights in a file, and the net where it holds that too (`.caffemodel`). Raises `InputError`."""
    with reading(path, WEIGHTS) as (file, _):
        head = file.read(len(HDF5))
    if head == HDF5:
        return _read_hdf5(Path(path)), None
    net = upgraded(read_binary(path, "NetParameter", WEIGHTS))
    return weights_of(net, path), net


def _read_hdf5(path: Path) -> dict[str, list[NDArray[Any]]]:
    """`/data/<layer>/0, 1, …`; a layer whose name has a `/` is a group in a group."""
    import h5py

    with reading(path, WEIGHTS) as (file, size):
        try:
            with h5py.File(file, "r") as opened:
                return _layers(path, opened, size)
        except (OSError, KeyError, RuntimeError, ValueError, TypeError, RecursionError, MemoryError) as error:
            raise InputError(f"{path} is damaged", expected=WEIGHTS, got=str(error)) from error


def _layers(path: Path, file: Any, size: int) -> dict[str, list[NDArray[Any]]]:
    import h5py

    linked = "data" in file and file.get("data", getclass=True, getlink=True) is h5py.HardLink
    if not linked or not isinstance(file["data"], h5py.Group):
        raise InputError(f"{path} holds no weights of Caffe's", expected="a group `data` with one for each layer")
    found: dict[str, list[NDArray[Any]]] = {}
    pending, seen, taken = [("", file["data"], 0)], 0, 0
    while pending:
        name, group, depth = pending.pop()
        seen += len(group)
        if seen > MAX_GROUPS or depth > MAX_DEPTH:
            raise InputError(f"{path} is refused: it holds more groups than any net has layers", expected=WEIGHTS)
        arrays: dict[int, NDArray[Any]] = {}
        for part, item in _items(path, group, name):
            if isinstance(item, h5py.Group):
                pending.append((f"{name}/{part}" if name else part, item, depth + 1))
            elif _INDEX.fullmatch(part):
                taken += _stored(path, f"{name}/{part}", item)
                if taken > size:
                    raise InputError(f"{path} is refused: it declares more than it stores", expected=WEIGHTS)
                arrays[int(part)] = item[()]
        if arrays:
            if sorted(arrays) != list(range(len(arrays))):
                raise InputError(f"{path}: arrays of the layer `{name}` are missing", got=str(sorted(arrays)))
            found[name] = [arrays[index] for index in range(len(arrays))]
    return found


def _items(path: Path, group: Any, name: str) -> Iterator[tuple[str, Any]]:
    import h5py

    for part in group:
        if not isinstance(group.get(part, getlink=True), h5py.HardLink):
            raise InputError(f"{path} is refused: `{name}/{part}` is a link to somewhere else", expected=WEIGHTS)
        yield part, group[part]


def _stored(path: Path, name: str, dataset: Any) -> int:
    """How many bytes a plainly stored array of floats has."""
    import h5py

    plist = dataset.id.get_create_plist()
    plain = not plist.get_external_count() and plist.get_layout() in (h5py.h5d.CONTIGUOUS, h5py.h5d.COMPACT)
    if not plain or dataset.shape is None or dataset.dtype.kind != "f" or dataset.dtype.itemsize not in (4, 8):
        raise InputError(
            f"{path} is refused: `{name}` is not stored as Caffe stores weights", expected="contiguous float32",
            got=f"{dataset.dtype}",
        )  # fmt: skip
    nbytes = int(dataset.dtype.itemsize * dataset.size)
    if plist.get_layout() == h5py.h5d.CONTIGUOUS and dataset.id.get_storage_size() != nbytes:
        raise InputError(f"{path} is refused: `{name}` declares more than it stores", expected=WEIGHTS)
    return nbytes
