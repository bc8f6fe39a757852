"""Graphs of operators as plain data, in ONNX's vocabulary: readers of formats return them, writers take them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

from numpy.typing import NDArray

from netspec.exchange.reachability import needed_steps
from netspec.exchange.unsupported import UnsupportedFeature
from netspec.graph.onnx_map import OnnxMap
from netspec.graph.op import Op
from netspec.graph.types import TensorType
from netspec.graph.value import Scope

OpType = TypeVar("OpType", bound=Op)


@dataclass(frozen=True)
class Subgraph:
    """A graph in an attribute of a node: the branch of an If, the body of a Loop."""

    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    constants: Mapping[str, NDArray[Any]]
    nodes: tuple[OperatorNode, ...]

    @property
    def own(self) -> frozenset[str]:
        """Names of the tensors that it defines."""
        return frozenset((*self.inputs, *self.constants, *(name for node in self.nodes for name in node.outputs)))

    @property
    def captured(self) -> frozenset[str]:
        """Names of the tensors that it reads from the enclosing graph."""
        read = {name for node in self.nodes for name in (*node.inputs, *node.captured) if name}
        return frozenset((read | set(self.outputs)) - self.own)


@dataclass(frozen=True)
class OperatorNode:
    """An operator with its operands and results. An operand that is left out has an empty name.

    In an imported model, the attributes include the operator's defaults.
    """

    op_type: str
    name: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    attributes: dict[str, Any]
    opset: int = 0
    """The version of the operator set; 0 for a node of a lowered net."""
    domain: str = ""
    path: str = ""
    """The module that it was exported from and its operator, if the exporter wrote them: `encoder/layers.0/Add`."""
    scope: Scope = field(default_factory=Scope)
    """The layer that the node was lowered from."""

    def operand(self, index: int) -> str:
        """The name of an operand; empty if it is left out."""
        return self.inputs[index] if index < len(self.inputs) else ""

    @property
    def label(self) -> str:
        """The node's name, or that of its first result if it has none."""
        return self.name or (self.outputs[0] if self.outputs else "")

    @property
    def layer_name(self) -> str:
        """The name of a layer made from the node: its path if that is known, else its name."""
        return self.path or self.name

    @property
    def captured(self) -> tuple[str, ...]:
        """Names of the tensors that graphs in its attributes read from the enclosing graph."""
        graphs = (value for value in self.attributes.values() if isinstance(value, Subgraph))
        return tuple(sorted({name for graph in graphs for name in graph.captured}))

    def as_op(self, op_class: type[OpType]) -> OpType:
        """Convert the node to an op of this class, whose ONNX form it is. Raises `UnsupportedFeature`."""
        assert isinstance(op_class.onnx, OnnxMap)
        op = op_class.onnx.decode(op_class, self.attributes)
        if op is None:
            raise UnsupportedFeature(f"attributes {self.attributes}")
        return op

    def describe(self) -> str:
        """The node in a message."""
        domain = f"{self.domain}." if self.domain else ""
        return f"node `{self.label}` ({domain}{self.op_type}, opset {self.opset})"


@dataclass(frozen=True)
class GraphInput:
    """An input of a model: its element type by NumPy's name, and its sizes (None for an open size)."""

    name: str
    dtype: str
    dims: tuple[int | None, ...] | None
    names: tuple[str, ...] = ()
    """Names of its axes in the model, one for each of `dims`; empty for an axis without a name."""
    empty: tuple[int, ...] = ()
    """The axes with size 0 in the model, which stands for an open size."""


@dataclass(kw_only=True)
class OperatorGraph:
    """A computation: nodes, each after those that it reads, and the constants that they read."""

    constants: dict[str, NDArray[Any]] = field(default_factory=dict)
    nodes: list[OperatorNode] = field(default_factory=list)


@dataclass
class ImportedGraph(OperatorGraph):
    """The operator graph of a model in a file, which is lifted to a net. Types and sizes may be unknown."""

    name: str
    producer: str
    opset: int
    inputs: list[GraphInput] = field(default_factory=list)
    outputs: list[str] = field(default_factory=list)
    output_names: dict[str, str] = field(default_factory=dict)
    """Names of the outputs in the net by tensor, for outputs that are not named after their tensor."""
    output_types: dict[str, str] = field(default_factory=dict)
    """Element types of the outputs by NumPy's names, if the model declares them."""
    remarks: list[str] = field(default_factory=list)
    """Notes for the user on how the file was read."""
    metadata: dict[str, str] = field(default_factory=dict)
    """The metadata that the exporting program wrote."""

    def reads(self) -> Counter[str]:
        """Return the number of readers of each tensor, including outputs of the model."""
        return reads(self.nodes) + Counter(self.outputs)


@dataclass
class LoweredGraph(OperatorGraph):
    """The operator graph of a net. All shapes are static; `states` become initializers once their values are known."""

    inputs: dict[str, TensorType] = field(default_factory=dict)
    outputs: dict[str, TensorType] = field(default_factory=dict)
    states: dict[str, tuple[str, TensorType]] = field(default_factory=dict)
    """For each state, the name of its tensor and its type."""
    types: dict[str, TensorType] = field(default_factory=dict)
    """Types of the tensors that are values of the net, without those inside an expansion."""
    tensors: dict[str, str] = field(default_factory=dict)
    """Names of the tensors of layers' outputs, by the outputs' names in the spec, for outputs that are computed."""


def reads(nodes: Iterable[OperatorNode]) -> Counter[str]:
    """Return the number of nodes that read each tensor."""
    return Counter(name for node in nodes for name in (*node.inputs, *node.captured))


def needed(nodes: Sequence[OperatorNode], outputs: Iterable[str]) -> list[OperatorNode]:
    """The nodes that the outputs depend on. `nodes` are in order."""
    return needed_steps(
        nodes,
        filter(None, outputs),
        lambda node: filter(None, (*node.inputs, *node.captured)),
        lambda node: node.outputs,
    )
