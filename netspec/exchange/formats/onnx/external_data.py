"""External data of ONNX: weights too large for one message, in one file of raw bytes."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from numpy.typing import NDArray

from netspec.exchange.files import write_atomically

if TYPE_CHECKING:
    import onnx

    Weights = Mapping[str, NDArray[Any]]

ALIGNMENT = 4096
"""Alignment of each array in bytes: readers map pages of the file into memory."""
LEAST_BYTES = 1024
"""Smaller arrays stay in the model itself."""


def apart(weights: Weights) -> dict[str, NDArray[Any]]:
    """The arrays that are large enough for an external file."""
    return {name: array for name, array in weights.items() if array.nbytes >= LEAST_BYTES}


def data_name(model: str, weights: Weights) -> str:
    """The name of the file of these weights for a model of this name.

    It depends on the weights, so that an existing model keeps its file until the new model is complete.
    """
    digest = hashlib.sha256()
    for piece in _pieces(weights):
        digest.update(piece)
    return f"{model}-{digest.hexdigest()[:8]}.data"


def write_data(path: Path, weights: Weights) -> None:
    """Write the file completely or not at all."""

    def write(temporary: Path) -> None:
        with temporary.open("wb") as file:
            for piece in _pieces(weights):
                file.write(piece)

    write_atomically(path, write)


def remove_others(model: Path, kept_file: str) -> None:
    """Remove the weights of earlier models of this name."""
    for path in model.parent.glob(f"{model.name}-????????.data"):
        if path.name != kept_file and path.is_file():
            path.unlink()


def refer(model: onnx.ModelProto, location: str, weights: Weights) -> None:
    """Make the model's initializers of these weights refer to the external file."""
    offsets, offset = {}, 0
    for name, array in weights.items():
        offsets[name] = offset, array.nbytes
        offset += array.nbytes + -array.nbytes % ALIGNMENT
    for tensor in model.graph.initializer:
        if tensor.name in offsets:
            start, length = offsets[tensor.name]
            del tensor.external_data[:]
            tensor.data_location = tensor.EXTERNAL
            for key, value in {"location": location, "offset": str(start), "length": str(length)}.items():
                tensor.external_data.add(key=key, value=value)


def _pieces(weights: Weights) -> Iterator[memoryview | bytes]:
    for array in weights.values():
        little = array.astype(array.dtype.newbyteorder("<"), copy=False)
        yield little.reshape(-1).view("uint8").data
        yield bytes(-array.nbytes % ALIGNMENT)
