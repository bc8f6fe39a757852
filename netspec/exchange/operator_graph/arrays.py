"""Tensors of an ONNX file as arrays: in the model, in external files, and sparse ones."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from math import prod
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from netspec.errors import kind_of_path
from netspec.exchange.files import LFS_POINTER, sniff

if TYPE_CHECKING:
    import onnx

MAX_DENSE = 2**27
"""Largest number of elements of a sparse tensor, zeros included."""


class Damaged(ValueError):
    """Stored weights do not fit their declaration."""


NARROW = {"int4": "int8", "uint4": "uint8", "int2": "int8", "uint2": "uint8"}
"""Integer types narrower than a byte, and the types that store them in a net."""


def bounds(narrow: str) -> tuple[int, int]:
    """The least and the greatest number of a type of `NARROW`."""
    bits = int(narrow[-1])
    return (0, 2**bits - 1) if narrow.startswith("u") else (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)


def widened(array: NDArray[Any]) -> NDArray[Any]:
    """The same values, each in a byte if their type is narrower."""
    wide = NARROW.get(str(array.dtype))
    return array if wide is None else array.astype(wide)


@dataclass
class Arrays:
    """Reads tensors. `folder` may contain the model's external files; None without any."""

    folder: Path | None = None
    remarks: list[str] = field(default_factory=list)

    def named(self, tensor: onnx.TensorProto) -> tuple[str, NDArray[Any]]:
        """A tensor's name and array. Raises `ValueError`."""
        return text(tensor.name), self.numbers(tensor)

    def numbers(self, tensor: onnx.TensorProto) -> NDArray[Any]:
        """The array of a tensor. Raises `ValueError` if it is damaged, or is not numeric."""
        import onnx

        name = text(tensor.name)
        if any(size < 0 for size in tensor.dims):
            raise ValueError(f"the weights `{name}` have the shape {list(tensor.dims)}")
        try:
            if tensor.data_location == onnx.TensorProto.EXTERNAL:
                array = self._external(tensor)
            else:
                array = np.asarray(onnx.numpy_helper.to_array(tensor))
        except Damaged as error:
            raise ValueError(f"the weights `{name}` are damaged: {error}") from None
        except OSError as error:
            raise ValueError(f"the weights `{name}` cannot be read: {error.strerror or error}") from error
        except (ValueError, TypeError, KeyError, AttributeError, OverflowError) as error:  # raised by onnx
            sizes = " × ".join(map(str, tensor.dims)) or "one number"
            raise ValueError(f"the weights `{name}` are damaged: they hold no {_kind(tensor)} of {sizes}") from error
        if str(array.dtype) == "bfloat16":
            self.remarks.append("weights of bfloat16 become float32")
            array = array.astype("float32")
        if array.dtype.kind not in "fiub" and str(array.dtype) not in NARROW:
            raise ValueError(f"the weights `{name}` hold {array.dtype}, not numbers")
        return array

    def sparse(self, tensor: onnx.SparseTensorProto) -> tuple[str, NDArray[Any]]:
        """The name and array of a sparse tensor. Raises `ValueError`."""
        name, values = self.named(tensor.values)
        indices, shape = self.numbers(tensor.indices), tuple(tensor.dims)
        if any(size < 1 for size in shape) or prod(shape) > MAX_DENSE:
            raise ValueError(f"the sparse weights `{name}` have the shape {list(shape)}")
        if indices.dtype.kind != "i" or indices.shape not in ((values.size,), (values.size, len(shape))):
            raise ValueError(f"the sparse weights `{name}` have {values.size} values at {list(indices.shape)} places")
        limits = np.array(shape if indices.ndim == 2 else [prod(shape)])
        if values.ndim != 1 or (indices < 0).any() or (indices >= limits).any():
            raise ValueError(f"the sparse weights `{name}` have values outside of their shape {list(shape)}")
        dense = np.zeros(shape, values.dtype)
        dense.reshape(-1)[np.ravel_multi_index(tuple(indices.T), shape) if indices.ndim == 2 else indices] = values
        return name, dense

    def _external(self, tensor: onnx.TensorProto) -> NDArray[Any]:
        """Data in an external file, which must be below the model's folder and contain enough bytes."""
        import onnx

        fields = {entry.key: entry.value for entry in tensor.external_data}
        path = self._path(fields.get("location", ""))
        dtype = np.dtype(onnx.helper.tensor_dtype_to_np_dtype(tensor.data_type))
        packed = {"4": 2, "2": 4}[str(dtype)[-1]] if str(dtype) in NARROW else 1
        size, file_size = -(-prod(tensor.dims) * dtype.itemsize // packed), path.stat().st_size
        offset = _integer_field(fields, "offset", 0)
        length = _integer_field(fields, "length", max(file_size - offset, 0))  # default: the rest
        with path.open("rb") as file:
            head = file.read(len(LFS_POINTER))
        if head == LFS_POINTER:
            content, hint = sniff(head)
            raise Damaged(f"{fields['location']} is {content}; {hint}")
        if length != size:
            raise Damaged(f"{length:,} bytes are given for {list(tensor.dims)} of {dtype}, which takes {size:,}")
        if not 0 <= offset <= file_size - size:
            raise Damaged(f"{fields['location']} has {file_size:,} bytes, not {size:,} from {offset:,} on")
        if size == 0:
            return np.zeros(tuple(tensor.dims), dtype)
        if packed == 1 and dtype.isbuiltin == 1:
            return np.memmap(path, dtype.newbyteorder("<"), "r", offset, tuple(tensor.dims))
        message = onnx.TensorProto(data_type=tensor.data_type, dims=tensor.dims)
        with path.open("rb") as file:
            file.seek(offset)
            message.raw_data = file.read(size)
        return np.asarray(onnx.numpy_helper.to_array(message))

    def _path(self, location: str) -> Path:
        if self.folder is None:
            raise Damaged("they are stored in another file, and the model came without one")
        folder = self.folder.resolve()
        path = (folder / location).resolve()
        if not location or Path(location).is_absolute() or ".." in Path(location).parts or folder not in path.parents:
            raise Damaged(f"they would be stored in {location!r}, which is not below the model's folder")
        kind = kind_of_path(path)
        if kind is not None or not path.exists():
            raise Damaged(f"they are stored in {location!r}, which is {kind or 'not there'}")
        return path


def _integer_field(fields: Mapping[str, str], name: str, default: int) -> int:
    """An integer that locates a tensor in an external file. Raises `Damaged`."""
    value = fields.get(name)
    if value is None:
        return default
    if not re.fullmatch(r"-?[0-9]{1,19}", value):
        raise Damaged(f"their {name} is {value[:40]!r}, not a number of bytes")
    return int(value)


def _kind(tensor: onnx.TensorProto) -> str:
    """The declared element type of a tensor."""
    import onnx

    data_types = onnx.TensorProto.DataType.items()
    return next((f"{name.lower()} array" for name, number in data_types if number == tensor.data_type), "known array")


def text(name: str | bytes) -> str:
    """A name; protobuf gives bytes for one that is not UTF-8."""
    return name if isinstance(name, str) else name.decode("utf-8", "backslashreplace")
