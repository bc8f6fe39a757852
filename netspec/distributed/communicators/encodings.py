"""Encodings in which workers exchange the arrays that they sum, by name.

16-bit encodings are summed by parts: each of p workers receives 1/p of every array, adds in float32 in the order of
ranks, and sends the sum to all in 16 bits. If sums can't be encoded (signs, indices), each worker receives the arrays
of all workers and adds them in the order of ranks. In both cases sums are bit-identical on all workers and in all runs.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from math import ceil, prod
from typing import TYPE_CHECKING, Any, TypeAlias

from netspec.distributed.communicators.base import all_gather_volume, all_reduce_volume
from netspec.graph.ops.gradient_compression import is_output_axis_last

if TYPE_CHECKING:
    import numpy as np

    Floats: TypeAlias = np.ndarray[Any, Any]
    Bytes: TypeAlias = np.ndarray[Any, np.dtype[np.uint8]]

Shape: TypeAlias = tuple[int, ...]


SMALLEST = 1024
"""Smallest number of elements of a gradient that is encoded: below it, headers and call overhead outweigh the gain."""


def should_compress(shape: Shape, smallest: int) -> bool:
    """Return whether the gradient of a parameter is compressed: vectors, such as biases, never are."""
    return len(shape) > 1 and prod(shape) >= smallest


class Encoding:
    """Encodes arrays of floats as bytes; the number of bytes depends on the shape alone."""

    gathers: bool = False
    """Whether each worker receives the arrays of all workers, instead of the sum of a part."""

    def nbytes(self, shape: Shape, itemsize: int) -> int:
        """Return the encoded size of an array whose elements have `itemsize` bytes unencoded."""
        raise NotImplementedError  # subclasses implement it

    def encode(self, array: Floats) -> Bytes:
        """Encode an array. An encoding that gathers receives only arrays that it represents exactly."""
        raise NotImplementedError  # subclasses implement it

    def decode(self, data: Bytes, shape: Shape, dtype: str) -> Floats:
        """Decode an array of this shape and type."""
        raise NotImplementedError  # subclasses implement it

    def sent(self, nbytes: float, workers: int) -> float:
        """Return the bytes that each worker sends, if its encoded arrays take `nbytes`."""
        return (all_gather_volume if self.gathers else all_reduce_volume)(nbytes, workers)


class FullPrecisionEncoding(Encoding):
    """Arrays without encoding; they are added in the order of ranks."""

    def nbytes(self, shape: Shape, itemsize: int) -> int:
        """Return the size of the array."""
        return prod(shape) * itemsize

    def encode(self, array: Floats) -> Bytes:
        """Return the bytes of the array."""
        return _bytes(array)

    def decode(self, data: Bytes, shape: Shape, dtype: str) -> Floats:
        """Return an array with these bytes."""
        return data.view(dtype).reshape(shape)


class Float16Encoding(Encoding):
    """IEEE 16-bit floats: 11 significant bits, up to 65504."""

    def nbytes(self, shape: Shape, itemsize: int) -> int:
        """Return 2 bytes per element."""
        return 2 * prod(shape)

    def encode(self, array: Floats) -> Bytes:
        """Round to nearest, ties to even; values that are too large become infinite."""
        import numpy as np

        with np.errstate(over="ignore"):
            return _bytes(array.astype(np.float16))

    def decode(self, data: Bytes, shape: Shape, dtype: str) -> Floats:
        """Widen the elements."""
        return data.view("float16").reshape(shape).astype(dtype)


class BFloat16Encoding(Encoding):
    """The upper half of 32-bit floats: 8 significant bits, and the range of float32."""

    def nbytes(self, shape: Shape, itemsize: int) -> int:
        """Return 2 bytes per element."""
        return 2 * prod(shape)

    def encode(self, array: Floats) -> Bytes:
        """Round to nearest, ties to even."""
        import numpy as np

        exact = np.ascontiguousarray(array, np.float32)
        bits = exact.reshape(-1).view(np.uint32)
        upper = ((bits + (((bits >> 16) & 1) + np.uint32(0x7FFF))) >> 16).astype(np.uint16)
        upper[np.isnan(exact.reshape(-1))] = 0x7FC0  # rounding could make NaN infinite
        return _bytes(upper)

    def decode(self, data: Bytes, shape: Shape, dtype: str) -> Floats:
        """Widen the elements."""
        bits = data.view("uint16").astype("uint32") << 16
        return bits.view("float32").reshape(shape).astype(dtype)


class OneBitEncoding(Encoding):
    """One bit per element and two float32 values per column, for arrays that `OneBitQuantize` returns."""

    gathers = True

    def nbytes(self, shape: Shape, itemsize: int) -> int:
        """Return one bit per element, rounded up to bytes, and 8 bytes per column."""
        return ceil(prod(shape) / 8) + 8 * _columns(shape)

    def encode(self, array: Floats) -> Bytes:
        """Encode the smaller and the larger value of each column, and a bit that says which one an element is."""
        import numpy as np

        flat = _by_columns(array)
        low, high = flat.min(1, keepdims=True), flat.max(1, keepdims=True)
        values = np.concatenate([low, high], 1).astype(np.float32)
        return np.concatenate([_bytes(values), np.packbits(flat > low)])

    def decode(self, data: Bytes, shape: Shape, dtype: str) -> Floats:
        """Return the value that each element's bit selects."""
        import numpy as np

        columns = _columns(shape)
        values = data[: 8 * columns].view(np.float32).reshape(columns, 2).astype(dtype)
        bits = np.unpackbits(data[8 * columns :], count=prod(shape)).reshape(columns, -1)
        flat = np.where(bits, values[:, 1:], values[:, :1])
        return flat.T if is_output_axis_last(shape) else flat.reshape(shape)


class TopKEncoding(Encoding):
    """Indices and values, 4 bytes each, of nonzero elements, for arrays that `TopKSparsify` returns."""

    gathers = True

    def __init__(self, density: float) -> None:
        self.density = density

    def count(self, shape: Shape) -> int:
        """Return how many elements of an array are sent: at least one."""
        return max(1, round(self.density * prod(shape)))

    def nbytes(self, shape: Shape, itemsize: int) -> int:
        """Return 8 bytes per element that is sent."""
        return 8 * self.count(shape)

    def encode(self, array: Floats) -> Bytes:
        """Encode the nonzero elements, padded with index 0 if there are fewer than `count`."""
        import numpy as np

        flat = array.reshape(-1)
        indices = np.zeros(self.count(array.shape), np.uint32)
        nonzero = np.flatnonzero(flat)
        indices[: nonzero.size] = nonzero
        return np.concatenate([_bytes(indices), _bytes(flat[indices].astype(np.float32))])

    def decode(self, data: Bytes, shape: Shape, dtype: str) -> Floats:
        """Return an array that is 0 except at the encoded indices."""
        import numpy as np

        half = data.size // 2
        flat = np.zeros(prod(shape), dtype)
        flat[data[:half].view(np.uint32)] = data[half:].view(np.float32)
        return flat.reshape(shape)


IN_FULL, ONE_BIT = "in_full", "one_bit"
_PLAIN: dict[str, Encoding] = {
    IN_FULL: FullPrecisionEncoding(),
    "float16": Float16Encoding(),
    "bfloat16": BFloat16Encoding(),
    ONE_BIT: OneBitEncoding(),
}  # fmt: skip
TOP_K = "top_k:"


_BY_HOST = "by_host"


def by_host(form: str) -> str:
    """Return the name of the hierarchical encoding that uses `form` between hosts; "" means unencoded."""
    return f"{_BY_HOST}:{form}" if form else _BY_HOST


def between_hosts(name: str) -> str | None:
    """Return the encoding between hosts of a hierarchical encoding; None for other encodings."""
    head, _, form = name.partition(":")
    return form if head == _BY_HOST else None


def encoding(name: str) -> Encoding:
    """Return the encoding with this name; `top_k:SHARE` sends the fraction SHARE of the elements."""
    return TopKEncoding(float(name.removeprefix(TOP_K))) if name.startswith(TOP_K) else _PLAIN[name]


def sent(name: str, shapes: Iterable[Shape], itemsize: int, workers: int) -> float:
    """Return the bytes that each worker sends to sum arrays of these shapes in an encoding; "" is unencoded."""
    shapes = list(shapes)
    if not name:
        return all_reduce_volume(sum(map(prod, shapes)) * itemsize, workers)
    form = encoding(name)
    return form.sent(sum(form.nbytes(shape, itemsize) for shape in shapes), workers)


def _columns(shape: Shape) -> int:
    return 1 if not shape else shape[-1] if is_output_axis_last(shape) else shape[0]


def _by_columns(array: Floats) -> Floats:
    """Return the array with one row per column."""
    return array.T if is_output_axis_last(array.shape) else array.reshape(_columns(array.shape), -1)


def _bytes(array: Floats) -> Bytes:
    import numpy as np

    return np.ascontiguousarray(array).reshape(-1).view(np.uint8)


def encode_into(arrays: Sequence[Floats], form: Encoding, data: Bytes) -> None:
    """Write encoded arrays to `data`, one after the other."""
    at = 0
    for array in arrays:
        encoded = form.encode(array)
        data[at : at + encoded.size] = encoded
        at += encoded.size
