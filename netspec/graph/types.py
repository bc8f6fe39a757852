"""`DType`, `Precision` and `TensorType`: what is known of a value before anything runs."""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum
from math import prod


class DType(StrEnum):
    """Element types. The text is NumPy's name of the type (of bfloat16, the package ml_dtypes')."""

    FLOAT64 = "float64"
    FLOAT32 = "float32"
    BFLOAT16 = "bfloat16"
    """float32 without its lower 16 bits. No value of a graph is of this type: it is how float32 may lie in memory."""
    FLOAT16 = "float16"
    """Five exponent bits, ten of the mantissa: as bfloat16 a way in which float32 may lie in memory, and no value's."""
    INT64 = "int64"
    INT32 = "int32"
    INT16 = "int16"
    INT8 = "int8"
    UINT64 = "uint64"
    UINT32 = "uint32"
    UINT16 = "uint16"
    UINT8 = "uint8"
    BOOL = "bool"

    @property
    def itemsize(self) -> int:
        """Bytes of one element."""
        return _ITEMSIZE[self]

    @property
    def is_float(self) -> bool:
        """True for the types that gradients flow through."""
        return "float" in self.value

    @property
    def computed(self) -> DType:
        """The type that values are computed in that lie so: float32 for those of 16 bits, else the type itself."""
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
    """What a net is computed in: an element type, or for `tf32` float32 whose products may be rounded."""

    FLOAT64 = "float64"
    FLOAT32 = "float32"
    TF32 = "tf32"
    """Products of float32 may round their operands to ten bits of the mantissa; in memory all is float32."""
    BFLOAT16 = "bfloat16"
    FLOAT16 = "float16"

    @property
    def stored(self) -> DType:
        """The type that values may be rounded to where they go to memory."""
        return DType.FLOAT32 if self == Precision.TF32 else DType(self.value)

    @property
    def computed(self) -> DType:
        """The type that values are computed in."""
        return self.stored.computed


@dataclass(frozen=True)
class TensorType:
    """Shape and element type of a value. Shapes are static: every size is a number."""

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
        """The same element type in another shape."""
        return replace(self, shape=shape)

    def with_dtype(self, dtype: DType) -> TensorType:
        """The same shape of another element type."""
        return replace(self, dtype=dtype)

    def __str__(self) -> str:
        return f"{self.dtype}[{', '.join(map(str, self.shape))}]"


def broadcast_shapes(*shapes: tuple[int, ...]) -> tuple[int, ...] | None:
    """The common shape by NumPy's rules, or None where there is none."""
    rank = max(map(len, shapes), default=0)
    result = []
    for axis in range(-rank, 0):
        sizes = {shape[axis] for shape in shapes if len(shape) >= -axis} - {1}
        if len(sizes) > 1:
            return None
        result.append(sizes.pop() if sizes else 1)
    return tuple(result)
