"""`Layout`: how the elements of a value are stored in memory."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass, replace
from typing import Any, Protocol

from netspec.graph.types import DType, TensorType


class OpaqueLayout(Hashable, Protocol):
    """A backend's own memory layout. Equal layouts store elements equally; `str` is shown to users."""

    @property
    def nbytes(self) -> int:
        """Bytes that a value takes, including padding: a multiple of an element's size."""


@dataclass(frozen=True)
class Layout:
    """A dense order of axes, from the outermost to the innermost; None is the order of the shape (C order).

    The shape of a value is the same in every layout; only strides and the stored element type differ. A value stored in
    fewer bits than its type has is rounded when it is written, and read back as its own type.

    If `opaque` is set, only the backend that defined the layout understands the memory; to all others it is an array of
    elements without structure. `Reorder` converts between opaque and plain layouts.
    """

    order: tuple[int, ...] | None = None
    opaque: OpaqueLayout | None = None
    dtype: DType | None = None
    """Element type in memory, if it differs from the value's."""

    @classmethod
    def channels_last(cls, rank: int) -> Layout:
        """(N, C, sizes…) stored as (N, sizes…, C)."""
        return cls((0, *range(2, rank), 1))

    def stored_dtype(self, tensor_type: TensorType) -> DType:
        """The element type in which a value of this type is stored."""
        return self.dtype or tensor_type.dtype

    def with_dtype(self, dtype: DType | None) -> Layout:
        """A layout of the same element order with another stored type; None is the value's own type."""
        return replace(self, dtype=dtype)

    def nbytes(self, tensor_type: TensorType) -> int:
        """Bytes that a value of this type takes."""
        return tensor_type.size * self.stored_dtype(tensor_type).itemsize if self.opaque is None else self.opaque.nbytes

    def strides(self, tensor_type: TensorType) -> tuple[int, ...]:
        """Strides of each axis, in elements."""
        steps = [0] * tensor_type.rank
        step = 1
        for axis in reversed(self.order or range(tensor_type.rank)):
            steps[axis] = step
            step *= tensor_type.shape[axis]
        return tuple(steps)

    def view_elements(self, flat: Any, tensor_type: TensorType) -> Any:
        """View a flat array of elements stored in this layout as an array of the type's shape."""
        if self.order is None:
            return flat.reshape(tensor_type.shape)
        in_memory_order = flat.reshape([tensor_type.shape[axis] for axis in self.order])
        return in_memory_order.transpose(sorted(range(tensor_type.rank), key=self.order.__getitem__))

    def is_plain(self, tensor_type: TensorType) -> bool:
        """Whether elements are stored in C order, disregarding axes of size 1."""
        if self.opaque is not None:
            return False
        order = [axis for axis in self.order or () if tensor_type.shape[axis] != 1]
        return order == sorted(order)

    def __str__(self) -> str:
        if self.opaque is not None:
            return str(self.opaque)
        order = "plain" if self.order is None else "-".join(map(str, self.order))
        return order if self.dtype is None else f"{order} {self.dtype}"


PLAIN = Layout()


@dataclass(frozen=True)
class LayoutSignature:
    """The layouts that a kernel reads and writes."""

    inputs: tuple[Layout, ...]
    outputs: tuple[Layout, ...]

    def with_unrounded_outputs(self) -> LayoutSignature:
        """The same layouts with results stored in their own element types."""
        return LayoutSignature(self.inputs, tuple(result.with_dtype(None) for result in self.outputs))
