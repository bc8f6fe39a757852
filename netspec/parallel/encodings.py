"""Forms in which workers send each other what they sum up, by name.

Those of 16 bits are summed up by parts: each worker gets a p-th of all, adds in float32 in the order of ranks, and
hands the sum round in 16 bits. Where sums are of no use to send (signs, places) each worker gets what all have, and
adds it up by itself in the order of ranks. Either way the sums are the same on all workers, to the bit, and each time.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from math import ceil, prod
from typing import TYPE_CHECKING, Any, TypeAlias

from netspec.graph.ops.quantize import columns_last
from netspec.parallel import volumes

if TYPE_CHECKING:
    import numpy as np

    Floats: TypeAlias = np.ndarray[Any, Any]
    Bytes: TypeAlias = np.ndarray[Any, np.dtype[np.uint8]]

Shape: TypeAlias = tuple[int, ...]


SMALLEST = 1024
"""Gradients with fewer numbers are not worth encoding: what goes beside and the time of a call outweigh them."""


def is_encoded(shape: Shape, smallest: int = SMALLEST) -> bool:
    """Whether the gradient of a parameter is sent in fewer bits: vectors, such as biases, never are."""
    return len(shape) > 1 and prod(shape) >= smallest


class Encoding:
    """A form of arrays of floats as bytes, as many for all arrays of a shape."""

    gathers: bool = False
    """Whether each worker gets what all have, instead of the sum of a part."""

    def nbytes(self, shape: Shape, itemsize: int) -> int:
        """Bytes of an array whose elements have `itemsize` bytes by themselves."""
        raise NotImplementedError  # abstract: subclasses say

    def encode(self, array: Floats) -> Bytes:
        """An array, as bytes. Of an encoding that gathers: one that it can tell exactly."""
        raise NotImplementedError  # abstract: subclasses say

    def decode(self, data: Bytes, shape: Shape, dtype: str) -> Floats:
        """The inverse."""
        raise NotImplementedError  # abstract: subclasses say

    def sent(self, nbytes: float, workers: int) -> float:
        """Bytes that each worker sends, where what it has takes `nbytes` so."""
        return (volumes.gathered if self.gathers else volumes.reduced)(nbytes, workers)


class InFull(Encoding):
    """All bits, summed up in the order of ranks."""

    def nbytes(self, shape: Shape, itemsize: int) -> int:
        """As many as the array has."""
        return prod(shape) * itemsize

    def encode(self, array: Floats) -> Bytes:
        """Its bytes."""
        return _bytes(array)

    def decode(self, data: Bytes, shape: Shape, dtype: str) -> Floats:
        """An array with these bytes."""
        return data.view(dtype).reshape(shape)


class Float16(Encoding):
    """IEEE's 16-bit floats: 11 bits of a number, up to 65504."""

    def nbytes(self, shape: Shape, itemsize: int) -> int:
        """Two a number."""
        return 2 * prod(shape)

    def encode(self, array: Floats) -> Bytes:
        """Rounded to nearest, ties to even; what is too large becomes infinite."""
        import numpy as np

        with np.errstate(over="ignore"):
            return _bytes(array.astype(np.float16))

    def decode(self, data: Bytes, shape: Shape, dtype: str) -> Floats:
        """The numbers."""
        return data.view("float16").reshape(shape).astype(dtype)


class BFloat16(Encoding):
    """The upper half of 32-bit floats: 8 bits of a number, of any size."""

    def nbytes(self, shape: Shape, itemsize: int) -> int:
        """Two a number."""
        return 2 * prod(shape)

    def encode(self, array: Floats) -> Bytes:
        """Rounded to nearest, ties to even."""
        import numpy as np

        exact = np.ascontiguousarray(array, np.float32)
        bits = exact.reshape(-1).view(np.uint32)
        found = ((bits + (((bits >> 16) & 1) + np.uint32(0x7FFF))) >> 16).astype(np.uint16)
        found[np.isnan(exact.reshape(-1))] = 0x7FC0  # rounding could make it infinite
        return _bytes(found)

    def decode(self, data: Bytes, shape: Shape, dtype: str) -> Floats:
        """The numbers."""
        bits = data.view("uint16").astype("uint32") << 16
        return bits.view("float32").reshape(shape).astype(dtype)


class OneBit(Encoding):
    """A bit a number and two float32 numbers a column: what `graph.ops.quantize.OneBit` makes."""

    gathers = True

    def nbytes(self, shape: Shape, itemsize: int) -> int:
        """A bit a number, two values a column."""
        return ceil(prod(shape) / 8) + 8 * _columns(shape)

    def encode(self, array: Floats) -> Bytes:
        """The smaller and the larger value of each column, and which one is where."""
        import numpy as np

        flat = _by_columns(array)
        low, high = flat.min(1, keepdims=True), flat.max(1, keepdims=True)
        values = np.concatenate([low, high], 1).astype(np.float32)
        return np.concatenate([_bytes(values), np.packbits(flat > low)])

    def decode(self, data: Bytes, shape: Shape, dtype: str) -> Floats:
        """Each number by its bit."""
        import numpy as np

        columns = _columns(shape)
        values = data[: 8 * columns].view(np.float32).reshape(columns, 2).astype(dtype)
        bits = np.unpackbits(data[8 * columns :], count=prod(shape)).reshape(columns, -1)
        flat = np.where(bits, values[:, 1:], values[:, :1])
        return flat.T if columns_last(shape) else flat.reshape(shape)


class TopK(Encoding):
    """Places and values, 4 bytes each, of the largest numbers: what `graph.ops.quantize.Largest` leaves."""

    gathers = True

    def __init__(self, density: float) -> None:
        self.density = density

    def count(self, shape: Shape) -> int:
        """How many numbers of an array are sent: one at least."""
        return max(1, round(self.density * prod(shape)))

    def nbytes(self, shape: Shape, itemsize: int) -> int:
        """8 for each number that is sent."""
        return 8 * self.count(shape)

    def encode(self, array: Floats) -> Bytes:
        """Where something other than 0 is, and what; the first place again where that is at fewer places."""
        import numpy as np

        flat = array.reshape(-1)
        places = np.zeros(self.count(array.shape), np.uint32)
        found = np.flatnonzero(flat)
        places[: found.size] = found
        return np.concatenate([_bytes(places), _bytes(flat[places].astype(np.float32))])

    def decode(self, data: Bytes, shape: Shape, dtype: str) -> Floats:
        """0 but at these places."""
        import numpy as np

        half = data.size // 2
        flat = np.zeros(prod(shape), dtype)
        flat[data[:half].view(np.uint32)] = data[half:].view(np.float32)
        return flat.reshape(shape)


IN_FULL, ONE_BIT = "in_full", "one_bit"
_PLAIN: dict[str, Encoding] = {
    IN_FULL: InFull(), "float16": Float16(), "bfloat16": BFloat16(), ONE_BIT: OneBit(),
}  # fmt: skip
TOP_K = "top_k:"


_BY_HOST = "by_host"


def by_host(form: str) -> str:
    """The name for what is summed up within hosts, then in this encoding among them; "" is in full (`by_host.py`)."""
    return f"{_BY_HOST}:{form}" if form else _BY_HOST


def between_hosts(name: str) -> str | None:
    """The encoding between hosts of what is summed up by host; None of what is not."""
    head, _, form = name.partition(":")
    return form if head == _BY_HOST else None


def encoding(name: str) -> Encoding:
    """The encoding of this name; `top_k:SHARE` is of a share of the numbers."""
    return TopK(float(name.removeprefix(TOP_K))) if name.startswith(TOP_K) else _PLAIN[name]


def sent(name: str, shapes: Iterable[Shape], itemsize: int, workers: int) -> float:
    """Bytes that each worker sends to sum up arrays of these shapes in an encoding; "" is as they are."""
    shapes = list(shapes)
    if not name:
        return volumes.reduced(sum(map(prod, shapes)) * itemsize, workers)
    one = encoding(name)
    return one.sent(sum(one.nbytes(shape, itemsize) for shape in shapes), workers)


def _columns(shape: Shape) -> int:
    return 1 if not shape else shape[-1] if columns_last(shape) else shape[0]


def _by_columns(array: Floats) -> Floats:
    """The array with a row for each column."""
    return array.T if columns_last(array.shape) else array.reshape(_columns(array.shape), -1)


def _bytes(array: Floats) -> Bytes:
    import numpy as np

    return np.ascontiguousarray(array).reshape(-1).view(np.uint8)


def filled(arrays: Sequence[Floats], form: Encoding, data: Bytes) -> None:
    """Write arrays as an encoding has them, one after the other."""
    at = 0
    for array in arrays:
        told = form.encode(array)
        data[at : at + told.size] = told
        at += told.size
