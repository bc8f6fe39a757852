"""What rules pass on to each other: values of the net, and parameters of Caffe's with where they go."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

from netspec.exchange.caffe.proto.message import Message
from netspec.exchange.caffe.wiring import Node
from netspec.exchange.drafting import DraftLayer
from netspec.graph.value import Value

if TYPE_CHECKING:
    from numpy.typing import NDArray

Convert: TypeAlias = "Callable[[NDArray[Any]], NDArray[Any]]"


@dataclass
class Made:
    """A value of the net: what layers call it, its type, and the layer that makes it (None: it is an input)."""

    name: str
    value: Value
    layer: DraftLayer | None = None
    node: Node | None = None

    @property
    def shape(self) -> tuple[int, ...]:
        """Sizes of all axes, the batch (of no matter what size) first."""
        return self.value.shape


@dataclass(frozen=True)
class Blob:
    """A parameter as Caffe has it: the layer's `index`-th, and what makes it what netspec has."""

    node: Node
    index: int
    convert: Convert | None = None

    @property
    def spec(self) -> Message | None:
        """What the layer says of it: its multipliers, and a name if others share it."""
        those = self.node.layer["param"]
        return those[self.index] if self.index < len(those) else None


@dataclass(frozen=True)
class Learned:
    """Where a parameter of Caffe's has gone: what states of its solver belong to."""

    layer: str
    index: int
    state: str
    """The state's name; empty where it is none here, such as statistics of a BatchNorm."""
    convert: Convert | None = None
