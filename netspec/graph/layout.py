"""`Layout`: in which order the elements of a value lie in memory."""

from __future__ import annotations

from dataclasses import dataclass

from netspec.graph.types import TensorType


@dataclass(frozen=True)
class Layout:
    """A dense order of axes, from the outermost to the innermost; None is that of the shape itself (C order).

    The shape of a value is the same in every layout: only strides differ.
    """

    order: tuple[int, ...] | None = None

    @classmethod
    def channels_last(cls, rank: int) -> Layout:
        """(N, C, sizes…) stored as (N, sizes…, C)."""
        return cls((0, *range(2, rank), 1))

    def strides(self, kind: TensorType) -> tuple[int, ...]:
        """Steps along each axis, in elements."""
        steps = [0] * kind.rank
        step = 1
        for axis in reversed(self.order or range(kind.rank)):
            steps[axis] = step
            step *= kind.shape[axis]
        return tuple(steps)

    def is_plain(self, kind: TensorType) -> bool:
        """Whether the elements lie as in C order; axes of size 1 do not matter."""
        order = [axis for axis in self.order or () if kind.shape[axis] != 1]
        return order == sorted(order)

    def __str__(self) -> str:
        return "plain" if self.order is None else "-".join(map(str, self.order))


PLAIN = Layout()


@dataclass(frozen=True)
class Signature:
    """The layouts that a kernel reads and writes."""

    inputs: tuple[Layout, ...]
    outputs: tuple[Layout, ...]
