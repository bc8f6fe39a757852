"""Vectors along one axis of arrays: where each begins, and in which layouts kernels take them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

from netspec.backends.loops import collapsed
from netspec.graph.kernel import Kernel
from netspec.graph.layout import PLAIN, Layout, Signature
from netspec.graph.value import Node


@dataclass(frozen=True)
class Vectors:
    """The vectors along an axis of some arrays: at most two loops over their places."""

    count: int
    """Places, in all."""
    inner: int
    steps: tuple[tuple[int, int], ...]
    """Of each array, from place to place in the outer and in the inner loop."""

    @classmethod
    def of(cls, places: Sequence[int], arrays: Sequence[Any]) -> Vectors | None:
        """From arrays whose axes are `places` alone; None if there are more loops."""
        loops = collapsed(places, arrays)
        if len(loops.sizes) > 2:
            return None
        outer = len(loops.sizes) == 1
        inner = 1 if outer else loops.sizes[1]
        return cls(prod(places), inner, tuple((one[0], 0) if outer else (one[0], one[1]) for one in loops.steps))


def without(array: Any, axis: int) -> Any:
    """The places of the vectors along an axis, as an array."""
    return array[(slice(None),) * (axis % array.ndim) + (0,)]


class AlongAxis(Kernel):
    """Base of these kernels: plain operands, or channels-last ones whose axis is that of the channels."""

    def axis(self, node: Node) -> int:
        """The axis, counted from the front."""
        axis: int = node.op.axis  # type: ignore[attr-defined]  # all of these ops have it
        return axis % len(node.inputs[0].shape)

    def layouts(self, node: Node, given: Sequence[Layout]) -> Signature:
        x = node.inputs[0]
        last = Layout.channels_last(len(x.shape))
        taken = last if given[0] == last and self.axis(node) == 1 else PLAIN
        lying = [taken if value.shape == x.shape else PLAIN for value in (*node.inputs, *node.outputs)]
        return Signature(tuple(lying[: len(given)]), tuple(lying[len(given) :]))
