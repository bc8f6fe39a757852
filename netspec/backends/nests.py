"""Reductions as loops: an operand seen as four nested loops, kept · reduced · kept · reduced, any of size 1 perhaps."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from netspec.backends.loops import merged
from netspec.graph.kernel import Kernel
from netspec.graph.layout import PLAIN, Layout, Signature
from netspec.graph.ops.reduce import ReduceMean, Reduction
from netspec.graph.types import DType, TensorType
from netspec.graph.value import Node

REDUCED = (DType.FLOAT32, DType.FLOAT64, DType.INT32, DType.INT64)
"""Element types that are reduced."""


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


class Reducing(Kernel):
    """Base of kernels that reduce over axes which leave at most four loops, in pieces where that pays."""

    def why_not(self, op: Reduction, *types: TensorType) -> str | None:
        (x,) = types
        if x.dtype not in REDUCED:
            return f"no reduction of {x.dtype}"
        if isinstance(op, ReduceMean) and not x.dtype.is_float:
            return "no mean of whole numbers"
        return "the axes are too scattered" if nest(op, x, PLAIN) is None else None

    def layouts(self, node: Node, given: Sequence[Layout]) -> Signature:
        fits = nest(node.op, node.inputs[0].type, given[0]) is not None  # type: ignore[arg-type]  # a Reduction
        return Signature((given[0] if fits else PLAIN,), (PLAIN,))

    def narrowed(self, node: Node, wanted: Signature) -> Signature:
        return Signature(wanted.inputs, tuple(one.as_stored(None) for one in wanted.outputs))

    def workspace(self, node: Node, layouts: Signature) -> int:
        found = nest(node.op, node.inputs[0].type, layouts.inputs[0])  # type: ignore[arg-type]  # a Reduction
        assert found is not None
        partial = self.partial_results(found)
        return partial * node.types[0].nbytes if partial > 1 else 0

    def partial_results(self, found: Nest) -> int:
        """How many there are of each result, before they are put together."""
        raise NotImplementedError  # abstract: subclasses say
