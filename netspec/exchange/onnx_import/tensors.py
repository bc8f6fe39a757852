"""How the tensors of an ONNX model lie in the net, and the layers written down so far: what rules read and add to.

A net has a batch: axis 0 of every value. A model is read in one of two ways, and rules need not know in which:

- in batches: axis 0 of the model's tensors is the batch. Axis k of a tensor is axis k in the net.
- whole: the model is what is done to one sample. Every tensor lies in the net behind a batch of its own, so axis k of
  a tensor is axis k + 1 in the net.

`axis`, `shape` and `operands` hide that. A tensor may also lie in the net otherwise: with its axes in another order,
with an axis that is two of the net's (the batch times something, often), or without one of size 1; its `View` says how.
`value`, and so `add`, write down the Permute or Reshape that it takes to have it in order; `each` and `held` take it as
it lies.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import TYPE_CHECKING, Any, TypeAlias

from netspec.exchange.onnx_import.layer import Layer
from netspec.exchange.onnx_import.model import Mixed, Model, Node, Unsupported
from netspec.graph.types import DType, TensorType
from netspec.graph.value import Value

if TYPE_CHECKING:
    from numpy.typing import NDArray

Axes: TypeAlias = tuple[tuple[int, ...], ...]
"""For each axis of a tensor of the model the axes of the net that it is made of: usually one, none for one of size 1
that the net does not have, several that were made one."""


MAX_SIZE = 2**28
"""Elements of a tensor of one sample at most."""


@dataclass(frozen=True)
class View:
    """A tensor of the model as it lies in one of the net."""

    source: str
    """The tensor of the net."""
    axes: Axes
    node: Node | None = None
    """What made it so: a layer that has to undo it is called after that."""

    def axis(self, axis: int) -> int:
        """The only axis of the net that one of the model's is."""
        (found,) = self.axes[axis]
        return found

    @property
    def flat(self) -> list[int]:
        """All axes of the net in the model's order."""
        return [axis for axes in self.axes for axis in axes]


def one_sample(rank: int) -> Axes:
    """How a tensor (1, …) lies in the net's (batch, …) of so many axes, where the whole model is a sample."""
    return ((), *((axis,) for axis in range(1, rank)))


def several_samples(rank: int) -> Axes:
    """How a tensor (batch · steps, …) lies in the net's (batch, steps, …) of so many axes."""
    return ((0, 1), *((axis,) for axis in range(2, rank)))


class Tensors:
    """The tensors and layers of one import: what is known of them."""

    def __init__(self, model: Model, whole: bool, reads: Mapping[str, int]) -> None:
        self.model = model
        self.whole = whole
        self.lead = int(whole)
        """How far the net's axes are from the model's."""
        self.layers: list[Layer] = []
        self.constants: dict[str, NDArray[Any]] = dict(model.constants)
        self.views: dict[str, View] = {}
        self.hidden: dict[str, str] = {}
        """Tensors that the model does not have, and the tensor of the model that each stands for."""
        self.remarks: list[str] = []
        self.wanted: set[str] = set()
        """Computed tensors that rules wanted to be constants."""
        self._values: dict[str, Value] = {}
        self._aliases: dict[str, str] = {}
        self._reads = dict(reads)
        self._parameters: dict[tuple[str, tuple[int, ...]], str] = {}

    def resolve(self, tensor: str) -> str:
        """The tensor that holds the same numbers under the name its layer knows."""
        while tensor in self._aliases:
            tensor = self._aliases[tensor]
        return tensor

    def in_order(self, rank: int) -> Axes:
        """The axes of the net that those of a tensor usually lie along."""
        return tuple((axis,) for axis in range(self.lead, rank + self.lead))

    def held(self, tensor: str) -> View:
        """How a computed tensor lies in the net."""
        if tensor in self.views:
            return self.views[tensor]
        rank = len(self._values[self.resolve(tensor)].shape) - self.lead
        return View(tensor, self.in_order(rank))

    def held_in(self, tensor: str) -> str:
        """The tensor of the net that this one lies in otherwise than in order; empty where it does not."""
        return self.views[tensor].source if tensor in self.views else ""

    def is_read(self, tensor: str) -> bool:
        """Whether a node reads the tensor, or it is an output."""
        return bool(self._reads.get(tensor))

    def is_computed(self, tensor: str) -> bool:
        """Whether the tensor is no constant."""
        return tensor not in self.constants

    def dtype(self, tensor: str) -> DType:
        """The element type of a computed tensor."""
        return self._values[self.resolve(self.held(tensor).source)].dtype

    def shape(self, tensor: str) -> tuple[int, ...]:
        """The tensor's shape as the model has it. Where it is read in batches, axis 0 is the batch."""
        if tensor in self.constants:
            return tuple(self.constants[tensor].shape)
        view = self.held(tensor)
        shape = self._values[self.resolve(view.source)].shape
        return tuple(prod(shape[axis] for axis in axes) for axes in view.axes)

    def rank(self, tensor: str) -> int:
        """The number of the tensor's axes in the model."""
        return len(self.shape(tensor))

    def net_rank(self, tensor: str) -> int:
        """The number of axes, with the batch, of the tensor of the net that a computed tensor lies in."""
        return len(self._values[self.resolve(self.held(tensor).source)].shape)

    def types(self) -> dict[str, TensorType]:
        """The type of every value as the net has it, with the batch."""
        return {tensor: value.type for tensor, value in self._values.items()}

    def axis(self, tensor: str, axis: int, why_not: str = "it runs over the samples of a batch") -> int:
        """The axis of the net for the model's `axis` (from the end if negative). Raises `Mixed` where it is the batch.

        Layers count axes so. `why_not` is what the message says of an operator that does it to the batch.
        """
        rank = self.rank(tensor)
        if not -rank <= axis < rank:
            raise Unsupported(f"there is no axis {axis} of {rank}")
        if axis % rank == 0 and not self.whole:
            raise Mixed(why_not)
        return axis % rank + self.lead

    def constant(self, tensor: str, what: str) -> NDArray[Any]:
        """A constant operand; `what` names it in the message where it is not one."""
        if tensor not in self.constants:
            self.wanted.add(tensor)
            raise Unsupported(f"its {what} is computed, not a constant" if tensor else f"it has no {what}", tensor)
        return self.constants[tensor]

    @property
    def batch(self) -> int:
        """The size of the net's batch while it is written down."""
        return next(iter(self._values.values())).shape[0]

    def hide(self, tensor: str, reads: int | None = None) -> str:
        """A new name for a tensor of the net that stands for one of the model; by default it is read as often."""
        of = self.hidden.get(tensor, tensor)
        name = f"{of} (held {len(self.hidden)})"
        self.hidden[name] = of
        self._reads[name] = self._reads.get(of, 1) if reads is None else reads
        return name

    def need_room(self, shape: Sequence[int]) -> None:
        """Raise unless a tensor of this shape, as the model has it, is one that there is room for."""
        if prod(shape[1 - self.lead :]) > MAX_SIZE:
            raise Unsupported(f"its result has the shape {list(shape)}, which is too large")

    def count_reads(self, more: Mapping[str, int]) -> None:
        """Take notice of how many more nodes read these tensors."""
        for name, count in more.items():
            self._reads[name] = self._reads.get(name, 0) + count

    def maker(self, tensor: str) -> Layer | None:
        """The layer that makes this tensor alone."""
        found = (layer for layer in reversed(self.layers) if layer.output == tensor and not layer.outputs)
        return next(found, None)

    def host(self, tensor: str, node: Node) -> Layer | None:
        """The layer that makes `tensor`, if `node` may become part of it: nothing else reads the tensor.

        The tensor may lie in what the layer makes in another way: `held` says how. Where `conv1/Conv` makes `conv1`, as
        netspec writes it, the layer is complete: only `conv1/…` belongs to it.
        """
        if self._reads.get(tensor) != 1 or tensor in self.constants:
            return None
        source = self.held(tensor).source
        layer = self.maker(source) if self._reads.get(source) == 1 else None
        made = self.hidden.get(source, source)
        if layer is not None and layer.node.name.startswith(f"{made}/") and not node.name.startswith(f"{made}/"):
            return None
        return layer
