"""Reductions as loops: an operand seen as four nested loops, kept · reduced · kept · reduced, any of size 1 perhaps."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from netspec.backends.loops import merged
from netspec.graph.layout import PLAIN, Layout
from netspec.graph.ops.reduce import Reduction
from netspec.graph.types import TensorType


@dataclass(frozen=True)
class Nest:
    """Sizes and steps of the four loops: kept, reduced, kept, reduced."""

    sizes: tuple[int, int, int, int]
    x: tuple[int, int, int, int]
    y: tuple[int, int, int, int]

    @classmethod
    def of(cls, shape: Sequence[int], x: Sequence[int], y: Sequence[int]) -> Nest | None:
        """The loops of a reduction from the steps of the operand and of the result along the operand's axes.

        None where the axes are too scattered. The result's steps are 0 along the axes that are reduced.
        """
        order = sorted((axis for axis in range(len(shape)) if shape[axis] != 1), key=lambda axis: (-x[axis], axis))
        steps = [[one[axis] for axis in order] for one in (x, y)]
        loops = merged([shape[axis] for axis in order], steps)
        slots: list[tuple[int, int, int]] = [(1, 0, 0)] * 4
        slot = 3
        for size, own, to in reversed(list(zip(loops.sizes, *loops.steps, strict=True))):
            slot -= (slot % 2 == 1) != (to == 0)
            if slot < 0:
                return None
            slots[slot] = size, own, to
            slot -= 1
        return cls(*(tuple(one[k] for one in slots) for k in range(3)))  # type: ignore[arg-type]  # four of each


def nest(op: Reduction, x: TensorType, layout: Layout) -> Nest | None:
    """The loops over an operand in a layout; the result is plain."""
    return Nest.of(x.shape, layout.strides(x), result_steps(op, x))


def result_steps(op: Reduction, x: TensorType) -> list[int]:
    """The plain result's steps along the operand's axes."""
    axes = op.over(x)
    kept = x.with_shape(*(1 if axis in axes else size for axis, size in enumerate(x.shape)))
    return [0 if axis in axes else step for axis, step in enumerate(PLAIN.strides(kept))]
