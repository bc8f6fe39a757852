"""Loops over the vectors along one axis of arrays, and the base class of kernels that work on such vectors."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

from netspec.backends.common.loops import collapse_loops
from netspec.graph.kernel import Kernel, data_layouts
from netspec.graph.layout import PLAIN, Layout, LayoutSignature
from netspec.graph.value import Node


@dataclass(frozen=True)
class AxisLoops:
    """The vectors along an axis of some arrays: at most two loops over the other axes."""

    count: int
    """Number of vectors."""
    inner: int
    steps: tuple[tuple[int, int], ...]
    """For each array, the steps between vectors in the outer and in the inner loop."""

    @classmethod
    def of(cls, outer_shape: Sequence[int], arrays: Sequence[Any]) -> AxisLoops | None:
        """Return the loops over arrays without the axis; None if they need more than two loops."""
        loops = collapse_loops(outer_shape, arrays)
        if len(loops.sizes) > 2:
            return None
        outer = len(loops.sizes) == 1
        inner = 1 if outer else loops.sizes[1]
        return cls(
            prod(outer_shape), inner, tuple((step[0], 0) if outer else (step[0], step[1]) for step in loops.steps)
        )


def without_axis(array: Any, axis: int) -> Any:
    """A view of the first element of each vector along an axis."""
    return array[(slice(None),) * (axis % array.ndim) + (0,)]


class AxisKernel(Kernel):
    """Base class: operands are plain, or channels-last if the axis is the channel axis."""

    def axis(self, node: Node) -> int:
        """The axis, counted from the front."""
        axis: int = node.op.axis  # type: ignore[attr-defined]  # all of these ops have it
        return axis % len(node.inputs[0].shape)

    def layouts(self, node: Node, offered: Sequence[Layout]) -> LayoutSignature:
        last = Layout.channels_last(len(node.inputs[0].shape))
        return data_layouts(node, last if offered[0] == last and self.axis(node) == 1 else PLAIN)
