"""Simplify exported ONNX: a bias becomes an operand of its Conv or Gemm instead of an Add after it."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

from netspec.exchange.operator_graph.graph import LoweredGraph, OperatorNode, needed, reads


def tidy(graph: LoweredGraph) -> LoweredGraph:
    """Return the same computation in fewer nodes: Conv + Add → Conv with bias, without unused nodes and constants."""
    makers = {name: node for node in graph.nodes for name in node.outputs}
    counts = reads(graph.nodes) + Counter(list(graph.outputs))
    biases = {name: kind.shape for name, kind in graph.states.values()}
    folded: dict[str, OperatorNode] = {}
    gone: set[str] = set()
    for node in graph.nodes:
        if node.op_type != "Add":
            continue
        for left, right in (node.inputs, node.inputs[::-1]):
            conv, bias = makers.get(left), _channel_bias(right, makers, graph, biases)
            if conv is None or bias is None or conv.op_type != "Conv" or len(conv.inputs) != 2:
                continue
            if counts[left] == 1 and conv.scope.layer == node.scope.layer:
                folded[node.outputs[0]] = replace(conv, inputs=(*conv.inputs, bias), outputs=node.outputs)
                gone.add(left)
                break
    nodes = [folded.get(node.outputs[0], node) for node in graph.nodes if node.outputs[0] not in gone]
    return _without_unread(replace(graph, nodes=nodes))


def _channel_bias(
    name: str, makers: dict[str, OperatorNode], graph: LoweredGraph, biases: dict[str, tuple[int, ...]]
) -> str | None:
    """The state of shape (C,) if the tensor `name` is one, reshaped to (C, 1, 1, …); else None."""
    node = makers.get(name)
    if node is None or node.op_type != "Reshape" or node.inputs[1] not in graph.constants:
        return None
    shape = biases.get(node.inputs[0], ())
    target = graph.constants[node.inputs[1]].tolist()
    fits = len(shape) == 1 and len(target) > 1 and target[0] in (0, shape[0]) and all(size == 1 for size in target[1:])
    return node.inputs[0] if fits else None


def _without_unread(graph: LoweredGraph) -> LoweredGraph:
    nodes = needed(graph.nodes, graph.outputs)
    read = {*graph.outputs, *reads(nodes)}
    return replace(
        graph, nodes=nodes, constants={name: array for name, array in graph.constants.items() if name in read}
    )
