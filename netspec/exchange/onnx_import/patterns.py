"""Activation functions that are several ONNX nodes (mish = x · tanh(softplus(x))) → one node each.

The patterns are not written down: every function of the registry with its default fields is emitted as the exporter
would, and what comes out is looked for. So an activation added there is imported too.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from functools import cache
from math import isclose
from typing import Any

from netspec.exchange.onnx_emit import OnnxGraph, OnnxNode, emit
from netspec.exchange.onnx_import.model import Model, Node
from netspec.graph.graph import Graph
from netspec.graph.ops.source import Input
from netspec.graph.types import DType, TensorType
from netspec.layers.activations import ActivationSpec, OverAxis
from netspec.schema.kinds import ACTIVATIONS

ACTIVATION, DOMAIN = "Activation", "netspec"
"""Operator and domain of the nodes put in place of a pattern; `function` is their attribute."""
COMMUTATIVE = ("Add", "Mul", "Max", "Min")


@dataclass(frozen=True)
class _Pattern:
    function: str
    graph: OnnxGraph

    def maker(self, tensor: str) -> OnnxNode | None:
        return next((node for node in self.graph.nodes if tensor in node.outputs), None)


@cache
def _patterns() -> tuple[_Pattern, ...]:
    found = []
    for name in ACTIVATIONS.names():
        cls = ACTIVATIONS[name]
        if issubclass(cls, OverAxis):
            continue
        function, x = ACTIVATIONS.parse(name), Input("x", TensorType((3, 5), DType.FLOAT32))()
        assert isinstance(function, ActivationSpec)
        graph, problems = emit(Graph({"y": function.of(x)}))
        if not problems and any(node.op_type != "Identity" for node in graph.nodes):
            found.append(_Pattern(name, graph))
    return tuple(sorted(found, key=lambda pattern: -len(pattern.graph.nodes)))  # the larger may contain a smaller


def find_activations(model: Model) -> Model:
    """The model with each activation function that is found as one node of the domain `netspec`."""
    search = _Search(model)
    replaced: dict[str, Node] = {}
    gone: set[str] = set()
    for node in reversed(model.nodes):
        if node.outputs and node.outputs[0] not in gone:
            hit = search.at(node, gone)
            if hit:
                function, source, used = hit
                made = Node(ACTIVATION, node.name, (source,), node.outputs, {"function": function}, node.opset, DOMAIN)
                replaced[node.outputs[0]] = made
                gone.update(used)
    nodes = [
        replaced.get(node.outputs[0], node)
        for node in model.nodes
        if node.outputs and (node.outputs[0] in replaced or node.outputs[0] not in gone)
    ]
    return replace(model, nodes=nodes)


class _Search:
    """Looks for patterns that end in a given node."""

    def __init__(self, model: Model) -> None:
        self.model = model
        self.makers = {name: node for node in model.nodes for name in node.outputs if name}
        self.reads = Counter(name for node in model.nodes for name in node.inputs)
        self.reads.update(model.outputs)

    def at(self, node: Node, gone: set[str]) -> tuple[str, str, set[str]] | None:
        """The function that ends in `node`: its name, its operand, and the outputs of the nodes it is made of."""
        for pattern in _patterns():
            bound = self._match(pattern, "y", node.outputs[0], {})
            if bound is None or "x" not in bound:
                continue
            inner = {bound[name] for made in pattern.graph.nodes for name in made.outputs} - {node.outputs[0]}
            reads_inside = Counter(
                name for tensor in {*inner, node.outputs[0]} for name in self.makers[tensor].inputs if name in inner
            )
            alone = all(self.reads[name] == reads_inside[name] for name in inner)
            if alone and not inner & gone:
                return pattern.function, bound["x"], {*inner, node.outputs[0]}
        return None

    def _match(self, pattern: _Pattern, wanted: str, tensor: str, bound: dict[str, str]) -> dict[str, str] | None:
        """`bound` with what matching the pattern's tensor `wanted` to the model's `tensor` adds; None if it differs."""
        if wanted in bound:
            return bound if bound[wanted] == tensor else None
        if wanted == "x":
            return None if tensor in self.model.constants else {**bound, "x": tensor}
        constant = pattern.graph.constants.get(wanted)
        if constant is not None:
            value = self._scalar(tensor)
            same = value is not None and isclose(value, float(constant), rel_tol=1e-6)
            return {**bound, wanted: tensor} if same else None
        want, have = pattern.maker(wanted), self.makers.get(tensor)
        if want is None or have is None or have.domain or want.op_type != have.op_type:
            return None
        if len(want.inputs) != len(have.inputs) or not _same_attributes(want.attributes, have.attributes):
            return None
        orders = [have.inputs, have.inputs[::-1]] if want.op_type in COMMUTATIVE else [have.inputs]
        for order in orders:
            found: dict[str, str] | None = {**bound, wanted: tensor}
            for part, operand in zip(want.inputs, order, strict=True):
                found = None if found is None else self._match(pattern, part, operand, found)
            if found is not None:
                return found
        return None

    def _scalar(self, tensor: str) -> float | None:
        array = self.model.constants.get(tensor)
        if array is None:
            node = self.makers.get(tensor)
            array = node.attributes.get("value") if node is not None and node.op_type == "Constant" else None
        return float(array.reshape(-1)[0]) if array is not None and array.size == 1 else None


def _same_attributes(want: dict[str, Any], have: dict[str, Any]) -> bool:
    return all(
        isclose(value, have[name], rel_tol=1e-6) if isinstance(value, float) else value == have[name]
        for name, value in want.items()
        if name in have
    )
