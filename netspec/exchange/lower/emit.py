"""Convert a graph to ONNX nodes as plain data: each op's `onnx` form, with names from the layers.

Nothing here needs the ONNX library; `formats/onnx/messages.py` turns the result into messages of a file.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from netspec.errors import Problem
from netspec.exchange.names import UniqueNames
from netspec.exchange.operator_graph.graph import LoweredGraph, OperatorNode
from netspec.graph.graph import Graph
from netspec.graph.onnx_map import Decomposed, NoOnnxForm, OnnxExpansion, OnnxMap
from netspec.graph.ops.random import RNG_INPUT
from netspec.graph.ops.source import Input, State
from netspec.graph.value import Node, Scope, Value, in_scope


def emit(graph: Graph) -> tuple[LoweredGraph, list[Problem]]:
    """The graph in ONNX nodes, and a problem for each op of a layer that has no ONNX form."""
    while any(_is_decomposed(node) for node in graph.nodes()):
        graph = graph.rewrite(_decomposed)
    return _GraphLowering(graph).write()


def _is_decomposed(node: Node) -> bool:
    form = node.op.onnx
    return isinstance(form, Decomposed) or (isinstance(form, OnnxExpansion) and not form.accepts(node.op))


def _decomposed(node: Node, inputs: tuple[Value, ...]) -> tuple[Value, ...] | None:
    if not _is_decomposed(node):
        return None
    with in_scope(node.scope):
        results = node.op.decompose(*inputs)
    return results if isinstance(results, tuple) else (results,)


class _GraphLowering:
    """Writes a graph node by node; it is the `Emitter` that expansions write to."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.lowered = LoweredGraph()
        self.problems: dict[Problem, None] = {}
        self._tensor_names, self._node_names = UniqueNames(), UniqueNames()
        self._tensors: dict[Value, str] = {}
        self._shared: dict[tuple[str, tuple[int, ...], bytes], str] = {}
        self._spec_names: dict[Value, str] = {}
        self._scope = Scope()
        self._nodes = graph.nodes()
        self._read = {value for node in self._nodes for value in node.inputs} | set(graph.roots())

    def write(self) -> tuple[LoweredGraph, list[Problem]]:
        """Write all nodes."""
        inputs = self.graph.inputs().items()
        # ONNX's random operators keep their own state.
        self.lowered.inputs = {name: value.type for name, value in inputs if name != RNG_INPUT}
        self.lowered.outputs = {name: value.type for name, value in self.graph.outputs.items()}
        for name in dict.fromkeys([*self.lowered.inputs, *self.lowered.outputs]):
            self._tensor_names(name)
        for name, value in self.graph.states().items():
            self.lowered.states[name] = self._tensor_names(name), value.type
        final = self._final_names()
        for node in self._nodes:
            self._write(node, final)
        self._finish_outputs()
        return self.lowered, list(self.problems)

    def _final_names(self) -> dict[Value, str]:
        """Names that values must get: those of the graph's outputs and of the layers' outputs in the spec."""
        names: dict[Value, str] = {}
        for name, value in self.graph.outputs.items():
            if not value.op.traits.source and (value not in names or value.node.scope.layer == name):
                names[value] = name
        for name, value in self.graph.named.items():
            if value in self._read and not value.op.traits.source:
                self._spec_names.setdefault(value, name)
                if value not in names:
                    names[value] = self._tensor_names(name)
        return names

    def _write(self, node: Node, final: dict[Value, str]) -> None:
        self._scope = node.scope
        if isinstance(node.op, (Input, State)):
            label = node.op.label
            name = label if isinstance(node.op, Input) else self.lowered.states[label][0]
            self._tensors[node.outputs[0]], self.lowered.types[name] = name, node.outputs[0].type
            return
        operands = [self._tensors[value] for value in node.inputs]
        start = len(self.lowered.nodes)
        results = self._results(node, operands)
        for value, name in zip(node.outputs, results, strict=False):
            final_name = final.get(value)
            if final_name is not None and self._rename(name, final_name, start):
                name = final_name
            self._tensors[value] = name
            self.lowered.types[name] = value.type
            if value in self._spec_names:
                self.lowered.tensors[self._spec_names[value]] = name

    def _results(self, node: Node, operands: list[str]) -> tuple[str, ...]:
        form = node.op.onnx
        if isinstance(form, OnnxMap):
            count = 1 + max((value.index for value in node.outputs if value in self._read), default=0)
            first = self.node(
                form.op_type, *operands, outputs=count, **form.encode(node.op)
            )  # unread ones are left out
            return tuple(first if index == 0 else f"{first}:{index}" for index in range(count))
        if isinstance(form, OnnxExpansion):
            results = form.write(self, node.outputs[0], *operands)
            return (results,) if isinstance(results, str) else tuple(results)
        reason = form.reason if isinstance(form, NoOnnxForm) else "its ONNX form is not written down"
        layer = f"layer `{node.scope.layer}` ({node.scope.kind}): " if node.scope.layer else ""
        problem = Problem(
            f"{layer}{node.op.name} has no ONNX form", node.scope.location,
            f"layers.{node.scope.layer}" if node.scope.layer else "", got=reason or None,
        )  # fmt: skip
        self.problems[problem] = None
        return tuple(map(self._tensor_names, [node.op.name] * len(node.outputs)))  # so that later nodes are checked too

    def _rename(self, old: str, new: str, start: int) -> bool:
        """Rename a tensor computed by the nodes from `start` on; False if another node computes it."""
        if not any(old in node.outputs for node in self.lowered.nodes[start:]):
            return False
        for index in range(start, len(self.lowered.nodes)):
            node = self.lowered.nodes[index]
            inputs, outputs = (
                tuple(new if name == old else name for name in names) for names in (node.inputs, node.outputs)
            )
            self.lowered.nodes[index] = replace(node, inputs=inputs, outputs=outputs)
        return True

    def _finish_outputs(self) -> None:
        """Add an Identity for each output that is the same tensor as an input, a constant or another output."""
        for name, value in self.graph.outputs.items():
            tensor = self._tensors.get(value)
            if tensor is not None and tensor != name:
                self.lowered.nodes.append(
                    OperatorNode("Identity", self._node_names(f"{name}/Identity"), (tensor,), (name,), {})
                )

    def node(self, op_type: str, *inputs: str, outputs: int = 1, **attributes: Any) -> str:
        """Add a node (see `Emitter`)."""
        name = f"{self._scope.layer}/{op_type}" if self._scope.layer else op_type
        first = self._tensor_names(name)
        names = (first, *(self._tensor_names(f"{first}:{index}") for index in range(1, outputs)))
        self.lowered.nodes.append(
            OperatorNode(op_type, self._node_names(name), inputs, names, attributes, scope=self._scope)
        )
        return first

    def constant(self, values: Any, dtype: str) -> str:
        """Add a constant (see `Emitter`); equal ones are stored once."""
        array = np.asarray(values, dtype=dtype)
        key = dtype, array.shape, array.tobytes()
        if key not in self._shared:
            name = self._tensor_names(f"{self._scope.layer}/constant" if self._scope.layer else "constant")
            self._shared[key] = name
            self.lowered.constants[name] = array
        return self._shared[key]

    def is_read(self, value: Value) -> bool:
        """Whether a node reads the value, or it is an output (see `Emitter`)."""
        return value in self._read


def differences(first: LoweredGraph, second: LoweredGraph) -> dict[str, tuple[OperatorNode, str]]:
    """The layers that differ between a net's nodes for two batch sizes, each with a node and the difference."""
    changed_layers: dict[str, tuple[OperatorNode, str]] = {}
    first_layers, right = _by_layer(first), _by_layer(second)
    for layer in dict.fromkeys([*first_layers, *right]):
        ours, theirs = first_layers.get(layer, []), right.get(layer, [])
        if len(ours) != len(theirs):
            changed_layers[layer] = max(ours, theirs, key=len)[-1], "the number of nodes"
            continue
        for a, b in zip(ours, theirs, strict=True):
            difference = _difference(first, a, second, b)
            if difference:
                changed_layers[layer] = a, difference
                break
    return changed_layers


def _by_layer(graph: LoweredGraph) -> dict[str, list[OperatorNode]]:
    layers: dict[str, list[OperatorNode]] = {}
    for node in graph.nodes:
        layers.setdefault(node.scope.layer, []).append(node)
    return layers


def _difference(first: LoweredGraph, node: OperatorNode, second: LoweredGraph, right: OperatorNode) -> str | None:
    if node.op_type != right.op_type:
        return f"{node.op_type} or {right.op_type}"
    if node.attributes != right.attributes:
        changed = [name for name, value in node.attributes.items() if right.attributes.get(name) != value]
        return f"{node.op_type}'s {', '.join(changed)}"
    contents = zip(_contents(first, node), _contents(second, right), strict=False)
    if len(node.inputs) != len(right.inputs) or any(_differ(*both) for both in contents):
        return f"a constant operand of {node.op_type}"
    return None


def _contents(graph: LoweredGraph, node: OperatorNode) -> list[Any]:
    return [graph.constants.get(name) for name in node.inputs]


def _differ(left: Any, right: Any) -> bool:
    if left is None or right is None:
        return (left is None) != (right is None)
    return left.shape != right.shape or bool((left != right).any())
