"""The tensors of one import: constants, types, and how each tensor of the model is stored in the net.

A net has a batch: axis 0 of every value. A model is imported in one of two ways, and rules need not know in which:

- in batches: axis 0 of the model's tensors is the batch. Axis k of a tensor is axis k in the net.
- as a single sample: the model computes one sample. The net puts a batch axis in front of every tensor, so axis k of a
  tensor is axis k + 1 in the net.

`axis` and `shape` hide that. A tensor may also be stored in the net in another way: with its axes permuted, with an
axis that merges two of the net's (often the batch and the steps), or without an axis of size 1. Its `AxisView` says
how.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod
from typing import Any

from numpy.typing import NDArray

from netspec.exchange.axis_view import Axes, AxisView
from netspec.exchange.unsupported import MixesSamples, UnsupportedFeature
from netspec.graph.types import DType, TensorType
from netspec.graph.value import Value

MAX_SIZE = 2**28
"""Largest number of elements of a tensor in one sample."""


class Tensors:
    """The tensors of one import, by name."""

    def __init__(self, constants: Mapping[str, NDArray[Any]], single_sample: bool, reads: Mapping[str, int]) -> None:
        self.single_sample = single_sample
        """Whether the whole model is one sample, so that its tensors have no batch axis."""
        self.axis_offset = int(single_sample)
        """The axis of the net for axis 0 of a tensor."""
        self.constants: dict[str, NDArray[Any]] = dict(constants)
        self.views: dict[str, AxisView] = {}
        """Tensors that are not stored in the net with their axes in order."""
        self.sequences: dict[str, tuple[str, ...]] = {}
        """The tensors of each sequence, by its name."""
        self.stands_for: dict[str, str] = {}
        """Tensors that the import has added → the tensor of the model that each stands for."""
        self.needed_constants: set[str] = set()
        """Computed tensors that a rule needs as constants."""
        self.values: dict[str, Value] = {}
        """The tensors of the net."""
        self.aliases: dict[str, str] = {}
        """Tensors with the same elements as another one."""
        self.reads = dict(reads)
        """Number of nodes and outputs that read each tensor."""

    def resolve(self, tensor: str) -> str:
        """The tensor that a layer computes and of which `tensor` is an alias; else `tensor` itself."""
        while tensor in self.aliases:
            tensor = self.aliases[tensor]
        return tensor

    def axes_in_order(self, rank: int) -> Axes:
        """The axes of a tensor that is stored in order."""
        return tuple((axis,) for axis in range(self.axis_offset, rank + self.axis_offset))

    def view(self, tensor: str) -> AxisView:
        """Return the layout of a computed tensor in the net."""
        if tensor in self.views:
            return self.views[tensor]
        rank = len(self.values[self.resolve(tensor)].shape) - self.axis_offset
        return AxisView(tensor, self.axes_in_order(rank))

    def is_read(self, tensor: str) -> bool:
        """Whether a node reads the tensor, or it is an output."""
        return bool(self.reads.get(tensor))

    def is_computed(self, tensor: str) -> bool:
        """Whether the tensor is not a constant."""
        return tensor not in self.constants

    def dtype(self, tensor: str) -> DType:
        """The element type of a computed tensor."""
        return self._value_of_view(tensor).dtype

    def dtype_name(self, tensor: str) -> str:
        """NumPy's name of a tensor's element type, also of a constant."""
        return str(self.dtype(tensor) if self.is_computed(tensor) else self.constants[tensor].dtype)

    def shape(self, tensor: str) -> tuple[int, ...]:
        """The tensor's shape in the model. If the model is imported in batches, axis 0 is the batch."""
        if tensor in self.constants:
            return tuple(self.constants[tensor].shape)
        shape = self._value_of_view(tensor).shape
        return tuple(prod(shape[axis] for axis in axes) for axes in self.view(tensor).axes)

    def rank(self, tensor: str) -> int:
        """The number of the tensor's axes in the model."""
        return len(self.shape(tensor))

    def rank_in_net(self, tensor: str) -> int:
        """The number of axes, with the batch, of the tensor of the net that stores a computed tensor."""
        return len(self._value_of_view(tensor).shape)

    def types(self) -> dict[str, TensorType]:
        """The type of every tensor of the net, with the batch."""
        return {tensor: value.type for tensor, value in self.values.items()}

    def axis(self, tensor: str, axis: int, why_not: str = "it operates along the batch axis") -> int:
        """The axis of the net for the model's `axis`, which may be negative; fields of layers count axes so.

        Raises `MixesSamples` with the reason `why_not` if it is the batch.
        """
        rank = self.rank(tensor)
        if not -rank <= axis < rank:
            raise UnsupportedFeature(f"axis {axis} is out of range for a tensor of rank {rank}")
        if axis % rank == 0 and not self.single_sample:
            raise MixesSamples(why_not)
        return axis % rank + self.axis_offset

    def constant(self, tensor: str, role: str) -> NDArray[Any]:
        """A constant operand. Raises `UnsupportedFeature` if it is computed; the message calls it `role`."""
        if tensor not in self.constants:
            self.needed_constants.add(tensor)
            reason = f"its {role} is computed, not a constant" if tensor else f"it has no {role}"
            raise UnsupportedFeature(reason, needs_constant=tensor)
        return self.constants[tensor]

    def is_same_for_all_samples(self, array: NDArray[Any]) -> bool:
        """Whether a constant has an entry for each sample of the batch, and all entries are equal."""
        return (
            not self.single_sample
            and array.shape[0] == self.batch_size
            and (array.strides[0] == 0 or bool((array == array[:1]).all()))
        )

    @property
    def batch_size(self) -> int:
        """The size of the net's batch during the import."""
        return next(iter(self.values.values())).shape[0]

    def fresh_name(self, tensor: str, reads: int | None = None) -> str:
        """A new name for a tensor that stands for `tensor`, by default with as many readers."""
        origin = self.stands_for.get(tensor, tensor)
        name = f"{origin} (held {len(self.stands_for)})"
        self.stands_for[name] = origin
        self.reads[name] = self.reads.get(origin, 1) if reads is None else reads
        return name

    def require_room(self, shape: Sequence[int]) -> None:
        """Raise `UnsupportedFeature` if a tensor of the model with this shape would be too large."""
        if prod(shape[1 - self.axis_offset :]) > MAX_SIZE:
            raise UnsupportedFeature(f"its result has the shape {list(shape)}, which is too large")

    def count_reads(self, more: Mapping[str, int]) -> None:
        """Change the number of readers of tensors by these amounts."""
        for name, count in more.items():
            self.reads[name] = self.reads.get(name, 0) + count

    def _value_of_view(self, tensor: str) -> Value:
        return self.values[self.resolve(self.view(tensor).source)]
