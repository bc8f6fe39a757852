"""`MemoryDesc`, the size, element type and layout of an array, and `Memory`, such an array at an address."""

from __future__ import annotations

import ctypes
from typing import Any, Self

from netspec.backends.common.loops import element_strides
from netspec.backends.onednn.constants import DataType, FormatKind, Query, Tag
from netspec.backends.onednn.native import OneDnnEngine, OneDnnObject, Pointer

DTYPES = {
    "bfloat16": DataType.BF16,
    "float16": DataType.F16,
    "float32": DataType.F32,
    "int32": DataType.S32,
    "int8": DataType.S8,
    "uint8": DataType.U8,
}
"""oneDNN's types by NumPy's names (bfloat16 is from the package ml_dtypes)."""


class MemoryDesc(OneDnnObject):
    """Sizes, element type and layout of an array. Immutable; equal if all of them are."""

    def __init__(self, engine: OneDnnEngine, pointer: Pointer) -> None:
        super().__init__(engine, "memory_desc", pointer)

    @classmethod
    def strided(
        cls,
        engine: OneDnnEngine,
        shape: tuple[int, ...],
        strides: tuple[int, ...] | None = None,
        dtype: DataType = DataType.F32,
    ) -> Self:
        """A plain layout by its strides, counted in elements; C order without them. Raises `ValueError` for too few."""
        if strides is not None and len(strides) != len(shape):
            raise ValueError(f"{len(strides)} strides for {len(shape)} axes")
        return cls._make(engine, "create_with_strides", len(shape), shape, dtype, strides or row_major(shape))

    @classmethod
    def tagged(cls, engine: OneDnnEngine, shape: tuple[int, ...], tag: Tag, dtype: DataType = DataType.F32) -> Self:
        """A layout by its name."""
        return cls._make(engine, "create_with_tag", len(shape), shape, dtype, tag)

    @classmethod
    def any(cls, engine: OneDnnEngine, shape: tuple[int, ...], dtype: DataType = DataType.F32) -> Self:
        """A layout for the primitive to choose; its `PrimitiveDesc` reports the choice."""
        return cls.tagged(engine, shape, Tag.ANY, dtype)

    @classmethod
    def of(cls, engine: OneDnnEngine, array: Any) -> Self:
        """The layout that a NumPy array has. Raises `ValueError` for strides that are negative or within an element."""
        if any(stride < 0 or stride % array.itemsize for stride in array.strides):
            raise ValueError(f"an array with strides of {array.strides} bytes")
        strides = tuple(element_strides(array))
        return cls.strided(engine, tuple(array.shape), strides, DTYPES[str(array.dtype)])

    @classmethod
    def copy_of(cls, engine: OneDnnEngine, borrowed: Pointer) -> Self:
        """A copy of a descriptor that another object owns."""
        return cls._make(engine, "clone", borrowed)

    @classmethod
    def _make(cls, engine: OneDnnEngine, creation: str, *arguments: Any) -> Self:
        pointer = Pointer()
        engine.call(f"memory_desc_{creation}", ctypes.byref(pointer), *arguments)
        return cls(engine, pointer)

    @property
    def nbytes(self) -> int:
        """Bytes that memory of this layout takes, padding included; 0 for a layout that is not chosen yet."""
        return int(self.engine.library.functions.dnnl_memory_desc_get_size(self.pointer))

    @property
    def extent(self) -> int:
        """Bytes from the start of the memory to the end of the last element, which may be fewer than `nbytes`."""
        if self.format_kind is not FormatKind.BLOCKED or self.blocks:
            return self.nbytes
        if 0 in self.shape:
            return 0
        last = sum((n - 1) * stride for n, stride in zip(self.shape, self.strides, strict=True))
        return self.dtype.itemsize * (last + 1)

    @property
    def rank(self) -> int:
        """Number of axes."""
        return self._number(Query.RANK)

    @property
    def shape(self) -> tuple[int, ...]:
        """Sizes along the axes."""
        return self._numbers(Query.DIMS, self.rank)

    @property
    def dtype(self) -> DataType:
        """Element type."""
        return DataType(self._number(Query.DATA_TYPE))

    @property
    def format_kind(self) -> FormatKind:
        """Kind of the layout."""
        return FormatKind(self._number(Query.FORMAT_KIND))

    @property
    def strides(self) -> tuple[int, ...]:
        """Strides between elements (between whole blocks, along a blocked axis); only of a blocked or plain layout."""
        return self._numbers(Query.STRIDES, self.rank)

    @property
    def blocks(self) -> tuple[tuple[int, int], ...]:
        """(axis, size) of each block, the innermost last; empty for a plain layout."""
        count = self._number(Query.INNER_BLOCKS)
        axes, sizes = self._numbers(Query.INNER_AXES, count), self._numbers(Query.INNER_SIZES, count)
        return tuple(zip(axes, sizes, strict=True))

    def _number(self, query: Query) -> int:
        result = ctypes.c_int()
        self.engine.call("memory_desc_query", self, query, ctypes.byref(result))
        return result.value

    def _numbers(self, query: Query, count: int) -> tuple[int, ...]:
        result = ctypes.POINTER(ctypes.c_int64)()
        self.engine.call("memory_desc_query", self, query, ctypes.byref(result))
        return tuple(result[:count])

    def __eq__(self, other: object) -> bool:
        return isinstance(other, MemoryDesc) and same(self.engine, self.pointer, other.pointer)

    def __hash__(self) -> int:
        return hash((self.shape, self.dtype, self.format_kind))

    def __str__(self) -> str:
        """Shape, type and layout, the same for equal descriptors: `f32[64, 20, 12, 12] 4608·144·12·1`."""
        text = f"{self.dtype.name.lower()}{list(self.shape)}"
        if self.format_kind is not FormatKind.BLOCKED:
            return f"{text} {self.format_kind.name.lower()}"
        blocks = "".join(f" {size}{chr(ord('a') + axis)}" for axis, size in self.blocks)
        return f"{text} {'·'.join(map(str, self.strides))}{blocks}"


def row_major(shape: tuple[int, ...]) -> tuple[int, ...]:
    """The strides, in elements, of a dense array in C order."""
    strides, step = [], 1
    for size in reversed(shape):
        strides.append(step)
        step *= max(size, 1)
    return tuple(reversed(strides))


def same(engine: OneDnnEngine, left: Pointer, other: Pointer) -> bool:
    """Whether two descriptors are equal."""
    return bool(engine.library.functions.dnnl_memory_desc_equal(left, other))


class Memory(OneDnnObject):
    """An array that primitives read and write: the memory of `array`, which it keeps alive, in the layout of `desc`."""

    def __init__(self, desc: MemoryDesc, array: Any) -> None:
        """`array` must have enough bytes; for a blocked layout, its shape is irrelevant."""
        available = extent(array)
        if available < desc.extent:
            raise ValueError(f"{desc} needs {desc.extent} bytes, and the array has {available}")
        address = Pointer(array.__array_interface__["data"][0])
        pointer = Pointer()
        desc.engine.call("memory_create", ctypes.byref(pointer), desc, desc.engine, address)
        super().__init__(desc.engine, "memory", pointer)
        self.desc, self.array = desc, array

    @classmethod
    def of(cls, engine: OneDnnEngine, array: Any) -> Self:
        """A NumPy array in the layout it has."""
        return cls(MemoryDesc.of(engine, array), array)


def extent(array: Any) -> int:
    """Bytes from the first element of an array to the end of its last."""
    if 0 in array.shape:
        return 0
    return int(array.itemsize + sum((n - 1) * step for n, step in zip(array.shape, array.strides, strict=True)))
