"""Reductions as four nested loops: kept · reduced · kept · reduced, each possibly of size 1."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

from netspec.backends.common.loops import element_strides, merge_loops
from netspec.graph.kernel import Kernel, LowPrecision
from netspec.graph.layout import PLAIN, Layout, LayoutSignature
from netspec.graph.ops.reduce import ReduceMean, Reduction
from netspec.graph.types import DType, TensorType
from netspec.graph.value import Node

REDUCIBLE = (DType.FLOAT32, DType.FLOAT64, DType.INT32, DType.INT64)
"""Supported element types."""


@dataclass(frozen=True)
class ReductionLoops:
    """Sizes and steps of the four loops: kept, reduced, kept, reduced."""

    sizes: tuple[int, int, int, int]
    x: tuple[int, int, int, int]
    y: tuple[int, int, int, int]

    @classmethod
    def of(cls, shape: Sequence[int], x: Sequence[int], y: Sequence[int]) -> ReductionLoops | None:
        """The loops of a reduction, from the steps of the operand and of the result along the operand's axes.

        None if more than four loops are needed. The result's steps are 0 along reduced axes.
        """
        order = sorted((axis for axis in range(len(shape)) if shape[axis] != 1), key=lambda axis: (-x[axis], axis))
        steps = [[strides[axis] for axis in order] for strides in (x, y)]
        loops = merge_loops([shape[axis] for axis in order], steps)
        slots: list[tuple[int, int, int]] = [(1, 0, 0)] * 4
        slot = 3
        for size, step, to in reversed(list(zip(loops.sizes, *loops.steps, strict=True))):
            slot -= (slot % 2 == 1) != (to == 0)
            if slot < 0:
                return None
            slots[slot] = size, step, to
            slot -= 1
        return cls(*(tuple(slot[k] for slot in slots) for k in range(3)))  # type: ignore[arg-type]  # four of each


def reduction_loops(op: Reduction, x: TensorType, layout: Layout) -> ReductionLoops | None:
    """The loops over an operand in a layout; the result is plain."""
    return ReductionLoops.of(x.shape, layout.strides(x), _result_strides(op, x))


def array_loops(op: Reduction, x: TensorType, array: Any) -> tuple[ReductionLoops, int]:
    """The loops over an operand in memory, and the number of elements that are reduced to each result."""
    loops = ReductionLoops.of(x.shape, element_strides(array), _result_strides(op, x))
    assert loops is not None
    return loops, prod(x.shape[axis] for axis in op.reduced_axes(x))


def _result_strides(op: Reduction, x: TensorType) -> list[int]:
    """Steps of the plain result along the operand's axes."""
    axes = op.reduced_axes(x)
    kept_type = x.with_shape(*(1 if axis in axes else size for axis, size in enumerate(x.shape)))
    return [0 if axis in axes else step for axis, step in enumerate(PLAIN.strides(kept_type))]


class BaseReductionKernel(Kernel):
    """Base class of kernels that reduce with at most four loops, in two stages if that is faster."""

    low_precision = LowPrecision.OPERANDS

    def reject_reason(self, op: Reduction, *types: TensorType) -> str | None:
        (x,) = types
        if x.dtype not in REDUCIBLE:
            return f"no reduction of {x.dtype}"
        if isinstance(op, ReduceMean) and not x.dtype.is_float:
            return "the mean of integers is not supported"
        return "the axes need more than four loops" if reduction_loops(op, x, PLAIN) is None else None

    def layouts(self, node: Node, offered: Sequence[Layout]) -> LayoutSignature:
        fits = reduction_loops(node.op, node.inputs[0].type, offered[0]) is not None  # type: ignore[arg-type]  # a Reduction
        return LayoutSignature((offered[0] if fits else PLAIN,), (PLAIN,))

    def workspace(self, node: Node, signature: LayoutSignature) -> int:
        loops = reduction_loops(node.op, node.inputs[0].type, signature.inputs[0])  # type: ignore[arg-type]  # a Reduction
        assert loops is not None
        partial = self.partial_results(loops)
        return partial * node.types[0].nbytes if partial > 1 else 0

    def partial_results(self, loops: ReductionLoops) -> int:
        """Number of partial results for each result of the first stage."""
        raise NotImplementedError  # abstract
