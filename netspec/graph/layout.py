"""`Layout`: how the elements of a value lie in memory."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass, replace
from typing import Any, Protocol

from netspec.graph.types import DType, TensorType


class Form(Hashable, Protocol):
    """What a backend knows of a layout of its own. Equal forms are equal memory; its text is shown to users."""

    @property
    def nbytes(self) -> int:
        """Bytes that a value takes so, padding included: a multiple of an element's size."""


@dataclass(frozen=True)
class Layout:
    """A dense order of axes, from the outermost to the innermost; None is that of the shape itself (C order).

    The shape of a value is the same in every layout: only strides differ, and the bits of an element. A value that lies
    in fewer bits than its type has is rounded when it is written; who reads it computes with the value's own type.

    A layout with a `form` is opaque: only the backend that made it understands the memory, which to everybody else is a
    row of elements. It is made of the plain layout, and made plain again, by `Reorder`.
    """

    order: tuple[int, ...] | None = None
    form: Form | None = None
    dtype: DType | None = None
    """Element type in memory, where it is not the value's."""

    @classmethod
    def channels_last(cls, rank: int) -> Layout:
        """(N, C, sizes…) stored as (N, sizes…, C)."""
        return cls((0, *range(2, rank), 1))

    def stored(self, kind: TensorType) -> DType:
        """The element type in memory of a value of this type."""
        return self.dtype or kind.dtype

    def as_stored(self, dtype: DType | None) -> Layout:
        """The same order of elements of another type; None for the value's own."""
        return replace(self, dtype=dtype)

    def nbytes(self, kind: TensorType) -> int:
        """Bytes that a value of this type takes."""
        return kind.size * self.stored(kind).itemsize if self.form is None else self.form.nbytes

    def strides(self, kind: TensorType) -> tuple[int, ...]:
        """Steps along each axis, in elements."""
        steps = [0] * kind.rank
        step = 1
        for axis in reversed(self.order or range(kind.rank)):
            steps[axis] = step
            step *= kind.shape[axis]
        return tuple(steps)

    def arranged(self, flat: Any, kind: TensorType) -> Any:
        """A row of elements that lie so as an array of the type's shape: a view of it."""
        if self.order is None:
            return flat.reshape(kind.shape)
        lying = flat.reshape([kind.shape[axis] for axis in self.order])
        return lying.transpose(sorted(range(kind.rank), key=self.order.__getitem__))

    def is_plain(self, kind: TensorType) -> bool:
        """Whether the elements lie as in C order; axes of size 1 do not matter."""
        if self.form is not None:
            return False
        order = [axis for axis in self.order or () if kind.shape[axis] != 1]
        return order == sorted(order)

    def __str__(self) -> str:
        if self.form is not None:
            return str(self.form)
        order = "plain" if self.order is None else "-".join(map(str, self.order))
        return order if self.dtype is None else f"{order} {self.dtype}"


PLAIN = Layout()


@dataclass(frozen=True)
class Signature:
    """The layouts that a kernel reads and writes."""

    inputs: tuple[Layout, ...]
    outputs: tuple[Layout, ...]
