"""An ONNX model as plain data: what the rules see of it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from numpy.typing import NDArray


class Unsupported(Exception):
    """A node says something that netspec has no layer for; the text is the reason."""

    def __init__(self, reason: str, wanted: str = "") -> None:
        super().__init__(reason)
        self.wanted = wanted
        """The computed tensor that should have been a constant, where that is it."""


class Mixed(Unsupported):
    """A node does something with axis 0 that cannot be done to a batch. Where the whole model is a sample, it can."""


@dataclass(frozen=True)
class Subgraph:
    """A graph in an attribute of a node: the branch of an If, the body of a Loop."""

    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    constants: Mapping[str, NDArray[Any]]
    nodes: tuple[Node, ...]

    @property
    def own(self) -> frozenset[str]:
        """Names of what is made within it."""
        return frozenset((*self.inputs, *self.constants, *(name for node in self.nodes for name in node.outputs)))

    @property
    def captured(self) -> frozenset[str]:
        """Names of what it reads from around it."""
        read = {name for node in self.nodes for name in (*node.inputs, *node.captured) if name}
        return frozenset((read | set(self.outputs)) - self.own)


@dataclass(frozen=True)
class Node:
    """One node. Its attributes include the operator's defaults; an operand left out has an empty name."""

    op_type: str
    name: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    attributes: dict[str, Any]
    opset: int
    domain: str = ""
    path: str = ""
    """The module that it was exported from, and its operator, where the exporter says so: `encoder/layers.0/Add`."""

    def operand(self, index: int) -> str:
        """The name of an operand, empty where it is left out."""
        return self.inputs[index] if index < len(self.inputs) else ""

    @property
    def label(self) -> str:
        """The node's name, or that of its result where it has none."""
        return self.name or (self.outputs[0] if self.outputs else "")

    @property
    def called(self) -> str:
        """What a layer made of it is called: by its path, where that is known, else as the node."""
        return self.path or self.name

    @property
    def captured(self) -> tuple[str, ...]:
        """Names of what graphs within it read from around it."""
        graphs = (value for value in self.attributes.values() if isinstance(value, Subgraph))
        return tuple(sorted({name for graph in graphs for name in graph.captured}))

    def describe(self) -> str:
        """The node as a message names it."""
        domain = f"{self.domain}." if self.domain else ""
        return f"node `{self.label}` ({domain}{self.op_type}, opset {self.opset})"


@dataclass(frozen=True)
class ModelInput:
    """An input of the model: its element type by NumPy's name, and its sizes (None where it is open)."""

    name: str
    dtype: str
    dims: tuple[int | None, ...] | None
    names: tuple[str, ...] = ()
    """What the model calls its axes, empty where it does not; as many as `dims`."""
    empty: tuple[int, ...] = ()
    """The axes that the model gives the size 0, which stands for one that it leaves open."""


@dataclass
class Model:
    """A model; nodes come after those they read."""

    name: str
    producer: str
    opset: int
    inputs: list[ModelInput] = field(default_factory=list)
    outputs: list[str] = field(default_factory=list)
    output_types: dict[str, str] = field(default_factory=dict)
    """NumPy's names of their element types, where the model says them."""
    constants: dict[str, NDArray[Any]] = field(default_factory=dict)
    nodes: list[Node] = field(default_factory=list)
    remarks: list[str] = field(default_factory=list)
    """What the user should know of how the file was read."""
    metadata: dict[str, str] = field(default_factory=dict)
    """What the program that wrote it says of it."""

    def reads(self) -> Counter[str]:
        """How often each tensor is read, outputs of the model included."""
        return reads(self.nodes) + Counter(self.outputs)


def reads(nodes: Iterable[Node]) -> Counter[str]:
    """How often the nodes read each tensor."""
    return Counter(name for node in nodes for name in (*node.inputs, *node.captured))


def needed(nodes: Sequence[Node], outputs: Iterable[str]) -> list[Node]:
    """Those of the nodes, which are in order, that the outputs come from."""
    wanted, kept = set(outputs), []
    for node in reversed(nodes):
        if not wanted.isdisjoint(name for name in node.outputs if name):
            kept.append(node)
            wanted.update((*node.inputs, *node.captured))
    return kept[::-1]
