"""Layout of an imported model's tensor within a tensor of the net."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import TypeAlias

from netspec.exchange.operator_graph.graph import OperatorNode

Axes: TypeAlias = tuple[tuple[int, ...], ...]
"""For each axis of the model's tensor, the axes of the net's tensor that it consists of.

Usually that is one axis. An axis of size 1 that the net does not have consists of zero axes; an axis that merges
axes of the net, of several.
"""


@dataclass(frozen=True)
class AxisView:
    """A tensor of the model as a view of a tensor of the net."""

    source: str
    """The tensor of the net."""
    axes: Axes
    node: OperatorNode | None = None
    """The node that made the view. A layer that puts the axes in order is named after it."""

    def axis(self, axis: int) -> int:
        """The axis of the net for an axis of the model, which must be a single one."""
        (axis_in_net,) = self.axes[axis]
        return axis_in_net

    @property
    def flat(self) -> list[int]:
        """All axes of the net in the model's order."""
        return [axis for axes in self.axes for axis in axes]


def axes_without(axes: Axes, dropped: Collection[int]) -> Axes:
    """Axes of a tensor after `dropped` axes have been removed from it and from the net's tensor."""
    gone = [stored_axis for axis in dropped for stored_axis in axes[axis]]
    remaining = (stored_axes for axis, stored_axes in enumerate(axes) if axis not in dropped)
    return tuple(tuple(axis - sum(other < axis for other in gone) for axis in stored_axes) for stored_axes in remaining)


def axes_of_order(order: Iterable[int]) -> Axes:
    """Axes of a tensor whose axis k is the net's axis `order[k]`."""
    return tuple((axis,) for axis in order)


def axes_of_single_sample(rank: int) -> Axes:
    """Axes of a tensor (1, …) in the net's (batch, …) of the given rank, if the whole model is one sample."""
    return ((), *((axis,) for axis in range(1, rank)))


def axes_of_merged_steps(rank: int) -> Axes:
    """Axes of a tensor (batch · steps, …) in the net's (batch, steps, …) of the given rank."""
    return ((0, 1), *((axis,) for axis in range(2, rank)))


def axes_with_batch_at(axis: int, rank: int) -> Axes:
    """Axes of a tensor whose samples are along `axis`, in the net's tensor that has them in front."""
    return tuple((0 if index == axis else index + 1 if index < axis else index,) for index in range(rank))
