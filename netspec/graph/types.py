"""`DType`, `Precision` and `TensorType`: the static types of values."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from functools import lru_cache
from math import prod


class DType(StrEnum):
    """Element types. The text is NumPy's name of the type (for bfloat16, that of the package ml_dtypes)."""

    FLOAT64 = "float64"
    FLOAT32 = "float32"
    BFLOAT16 = "bfloat16"
    """The upper 16 bits of float32. A storage type for float32 values; no value of a graph has this type."""
    FLOAT16 = "float16"
    """Five exponent bits and ten mantissa bits. A storage type for float32 values, like bfloat16."""
    INT64 = "int64"
    INT32 = "int32"
    INT16 = "int16"
    INT8 = "int8"
    UINT64 = "uint64"
    UINT32 = "uint32"
    UINT16 = "uint16"
    UINT8 = "uint8"
    BOOL = "bool"

    __hash__ = str.__hash__
    """Faster than `Enum.__hash__`, which is a Python function; element types are part of most keys."""

    @property
    def itemsize(self) -> int:
        """Bytes of one element."""
        return _ITEMSIZE[self]

    @property
    def is_float(self) -> bool:
        """Whether gradients flow through values of this type."""
        return "float" in self.value

    @property
    def compute_dtype(self) -> DType:
        """The type in which stored values of this type are computed: float32 for 16-bit types, else the type itself."""
        return DType.FLOAT32 if self in (DType.BFLOAT16, DType.FLOAT16) else self


_ITEMSIZE = {
    DType.FLOAT64: 8,
    DType.FLOAT32: 4,
    DType.BFLOAT16: 2,
    DType.FLOAT16: 2,
    DType.INT64: 8,
    DType.INT32: 4,
    DType.INT16: 2,
    DType.INT8: 1,
    DType.UINT64: 8,
    DType.UINT32: 4,
    DType.UINT16: 2,
    DType.UINT8: 1,
    DType.BOOL: 1,
}


class Precision(StrEnum):
    """The precision of a net: an element type, or `tf32` for float32 with products that may be rounded."""

    FLOAT64 = "float64"
    FLOAT32 = "float32"
    TF32 = "tf32"
    """Matrix products may round float32 operands to ten mantissa bits; values are stored as float32."""
    BFLOAT16 = "bfloat16"
    FLOAT16 = "float16"

    @property
    def storage_dtype(self) -> DType:
        """The type to which values may be rounded when they are stored."""
        return DType.FLOAT32 if self == Precision.TF32 else DType(self.value)

    @property
    def compute_dtype(self) -> DType:
        """The type in which values are computed."""
        return self.storage_dtype.compute_dtype


@dataclass(frozen=True)
class TensorType:
    """Shape and element type of a value. Shapes are static: all sizes are known when the graph is built."""

    shape: tuple[int, ...]
    dtype: DType

    @property
    def rank(self) -> int:
        """Number of axes."""
        return len(self.shape)

    @property
    def size(self) -> int:
        """Number of elements."""
        return prod(self.shape)

    @property
    def nbytes(self) -> int:
        """Bytes of the elements, densely stored."""
        return self.size * self.dtype.itemsize

    def with_shape(self, *shape: int) -> TensorType:
        """A type of the same elements in another shape."""
        return TensorType(shape, self.dtype)

    def with_dtype(self, dtype: DType) -> TensorType:
        """A type of the same shape with other elements."""
        return TensorType(self.shape, dtype)

    def __str__(self) -> str:
        return f"{self.dtype}[{', '.join(map(str, self.shape))}]"

    def describe(self, *, batch: bool = True) -> str:
        """The type for messages: `float32 (batch, 28, 28)`, or `float32 of shape [16, 8]` without a batch axis."""
        return f"{self.dtype} {batch_shape(self.shape)}" if batch else f"{self.dtype} of shape {list(self.shape)}"


def batch_shape(shape: tuple[int, ...]) -> str:
    """A shape for messages, without the size of the batch: `(batch, 28, 28)`."""
    return f"({', '.join(['batch', *map(str, shape[1:])])})"


@lru_cache(maxsize=4096)
def broadcast_shapes(*shapes: tuple[int, ...]) -> tuple[int, ...] | None:
    """The common shape by NumPy's broadcasting rules; None if there is none."""
    rank = max(map(len, shapes), default=0)
    result = []
    for axis in range(-rank, 0):
        sizes = {shape[axis] for shape in shapes if len(shape) >= -axis} - {1}
        if len(sizes) > 1:
            return None
        result.append(sizes.pop() if sizes else 1)
    return tuple(result)


def factored_axes(shape: tuple[int, ...]) -> tuple[int, int] | None:
    """The two largest axes of a parameter, in order; among axes of equal size the later ones. None for a vector.

    Factored second moments (Adafactor, Shazeer and Stern 2018, arXiv:1804.04235) are sums along these axes.
    """
    if len(shape) < 2:
        return None
    column, row = sorted(range(len(shape)), key=lambda axis: (shape[axis], axis))[:-3:-1]
    return min(row, column), max(row, column)
