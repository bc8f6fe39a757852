"""If, Loop and Scan whose control flow is known at import: they are replaced by the nodes of their bodies."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from netspec.exchange.lift.context import LiftContext
from netspec.exchange.lift.registry import rule
from netspec.exchange.operator_graph.graph import OperatorNode, Subgraph
from netspec.exchange.operator_graph.onnx_protos import MAX_NODES, inlined
from netspec.exchange.unsupported import MixesSamples, UnsupportedFeature

MAX_ITERATIONS = 4096
"""Largest number of iterations of one loop."""


@rule("If", uses_all_results=True)
def branch(ctx: LiftContext, node: OperatorNode) -> None:
    """Inline the branch that a constant condition selects."""
    condition = bool(ctx.tensors.constant(node.inputs[0], "condition").reshape(()))
    graph = graph_of(node, "then_branch" if condition else "else_branch")
    if len(graph.outputs) < len(node.outputs):
        raise UnsupportedFeature(f"its branch has {len(graph.outputs)} outputs, but the node has {len(node.outputs)}")
    constants, nodes, outputs = inlined(graph, (), node.outputs[0])
    ctx.tensors.constants.update(constants)
    ctx.nodes.replace(node, [*nodes, *_named(node, outputs)])


@rule("Loop", uses_all_results=True)
def loop(ctx: LiftContext, node: OperatorNode) -> None:
    """Unroll the body: a constant number of iterations, or until its condition, also a constant, is false."""
    graph = graph_of(node, "body")
    states = list(node.inputs[2:])
    iterations = (
        int(ctx.tensors.constant(node.inputs[0], "number of iterations").reshape(()))
        if node.inputs[0]
        else MAX_ITERATIONS + 1
    )
    is_running = not node.operand(1) or bool(ctx.tensors.constant(node.inputs[1], "condition").reshape(()))
    if len(graph.inputs) != len(states) + 2 or len(graph.outputs) < len(states) + 1:
        raise UnsupportedFeature(
            f"its body has {len(graph.inputs)} inputs and {len(graph.outputs)} outputs, which do not fit the node"
        )
    stacked_names: list[list[str]] = [[] for _ in graph.outputs[len(states) + 1 :]]
    iteration = 0
    while is_running and iteration < iterations:
        number, condition = f"{node.outputs[0]} iteration {iteration}", f"{node.outputs[0]} condition {iteration}"
        ctx.tensors.constants[number], ctx.tensors.constants[condition] = (
            np.asarray(iteration, "int64"),
            np.asarray(True),
        )
        outputs = add_iteration(ctx, node, graph, (number, condition, *states), iteration)
        is_running = bool(ctx.tensors.constant(outputs[0], "condition after an iteration").reshape(()))
        states = list(outputs[1 : len(states) + 1])
        for tensors, output in zip(stacked_names, outputs[len(states) + 1 :], strict=True):
            tensors.append(output)
        iteration += 1
    if not iteration and not any(ctx.tensors.is_read(name) for name in node.outputs[len(states) :]):
        stacked_names = []
    if stacked_names and not iteration:
        raise UnsupportedFeature("the loop runs zero iterations, so that one of its scan outputs is empty")
    stacked = [_stack(node, index, tensors, 0) for index, tensors in enumerate(stacked_names)]
    nodes = [stacking for several in stacked for stacking in several]
    ctx.nodes.replace(node, [*nodes, *_named(node, [*states, *(several[-1].outputs[0] for several in stacked)])])


@rule("Scan", uses_all_results=True)
def scan(ctx: LiftContext, node: OperatorNode) -> None:
    """Unroll the body: one iteration for each element along the scan axes of the inputs."""
    if node.opset < 9:
        _over_batch(ctx, node)
        return
    graph, count = graph_of(node, "body"), int(node.attributes["num_scan_inputs"])
    states, over = list(node.inputs[: len(node.inputs) - count]), node.inputs[len(node.inputs) - count :]
    results = len(graph.outputs) - len(states)
    axes = [
        axis % ctx.tensors.rank(name)
        for axis, name in zip(_integers_of(node, "scan_input_axes", count), over, strict=True)
    ]
    lengths = {ctx.tensors.shape(name)[axis] for name, axis in zip(over, axes, strict=True)}
    if len(graph.inputs) != len(node.inputs):
        raise UnsupportedFeature(f"its body has {len(graph.inputs)} inputs, but the node has {len(node.inputs)}")
    if len(lengths) != 1:
        raise UnsupportedFeature(f"its scan inputs differ in length: {sorted(lengths)}")
    (iterations,) = lengths
    back = _integers_of(node, "scan_input_directions", count)
    rows: list[list[str]] = [[] for _ in range(results)]
    for iteration in range(iterations):
        parts = []
        for index, (name, axis, backwards) in enumerate(zip(over, axes, back, strict=True)):
            of = f"{iteration} of {node.outputs[0]}" + (f" ({index})" if over.count(name) > 1 else "")
            position, part = f"{name} position {of}", f"{name} at {of}"
            ctx.tensors.constants[position] = np.asarray(
                iterations - 1 - iteration if backwards else iteration, "int64"
            )
            parts.append(OperatorNode("Gather", node.name, (name, position), (part,), {"axis": axis}, node.opset))
        ctx.nodes.insert(parts, [part.outputs[0] for part in parts])
        outputs = add_iteration(ctx, node, graph, (*states, *(part.outputs[0] for part in parts)), iteration)
        states = list(outputs[: len(states)])
        for tensors, output in zip(rows, outputs[len(states) :], strict=True):
            tensors.append(output)
    directions, axes = (
        _integers_of(node, "scan_output_directions", results),
        _integers_of(node, "scan_output_axes", results),
    )
    stacked = [
        _stack(node, index, tensors[::-1] if directions[index] else tensors, axes[index])
        for index, tensors in enumerate(rows)
    ]
    nodes = [stacking for several in stacked for stacking in several]
    ctx.nodes.replace(node, [*nodes, *_named(node, [*states, *(several[-1].outputs[0] for several in stacked)])])


def _over_batch(ctx: LiftContext, node: OperatorNode) -> None:
    """Import Scan of opset 8, over a batch of sequences, as one Scan of opset 9 for each sequence."""
    lengths, *sequences = node.inputs
    if not ctx.tensors.single_sample:
        raise MixesSamples("its body processes one sample, without a batch axis")
    count = int(node.attributes["num_scan_inputs"])
    samples, most = (
        ctx.tensors.shape(sequences[-1])[0],
        {ctx.tensors.shape(name)[1] for name in sequences[len(sequences) - count :]},
    )
    if lengths and {*ctx.tensors.constant(lengths, "sequence lengths").reshape(-1).tolist()} != most:
        raise UnsupportedFeature("its sequences differ in length")
    if samples > MAX_ITERATIONS:
        raise UnsupportedFeature(f"it processes {samples} sequences: at most {MAX_ITERATIONS} are supported")
    back = _integers_of(node, "directions", count)
    attributes = {"body": graph_of(node, "body"), "num_scan_inputs": count, "scan_input_directions": back}
    nodes, rows = [], [[f"{name} of sample {sample}" for sample in range(samples)] for name in node.outputs]
    for sample in range(samples):
        prefix = f"{node.outputs[0]} sample {sample}"
        ctx.tensors.constants[prefix] = np.asarray(sample, "int64")
        parts = [f"{name} ({index}) of {prefix}" for index, name in enumerate(sequences)]
        nodes += [
            OperatorNode("Gather", node.name, (name, prefix), (part,), {"axis": 0}, node.opset)
            for name, part in zip(sequences, parts, strict=True)
        ]
        results = tuple(tensors[sample] for tensors in rows)
        nodes.append(OperatorNode("Scan", node.name, tuple(parts), results, attributes, opset=9))
    stacked = [_stack(node, index, tensors, 0) for index, tensors in enumerate(rows)]
    nodes += [stacking for several in stacked for stacking in several]
    ctx.nodes.replace(node, [*nodes, *_named(node, [several[-1].outputs[0] for several in stacked])])


def graph_of(node: OperatorNode, name: str) -> Subgraph:
    """Return the graph in an attribute of the node. Raises `UnsupportedFeature`."""
    graph = node.attributes.get(name)
    if not isinstance(graph, Subgraph):
        raise UnsupportedFeature(f"its attribute `{name}` is missing")
    return graph


def _integers_of(node: OperatorNode, name: str, count: int) -> list[int]:
    """An attribute with one integer for each of `count` tensors; zeros if it is left out."""
    attribute: Any = node.attributes.get(name) or [0] * count
    if len(attribute) != count:
        raise UnsupportedFeature(f"`{name}` has {len(attribute)} values for {count} tensors")
    return list(attribute)


def add_iteration(
    ctx: LiftContext, node: OperatorNode, graph: Subgraph, inputs: Sequence[str], iteration: int
) -> Sequence[str]:
    """Add the nodes of one iteration and return the names of their results. Raises `UnsupportedFeature`."""
    if iteration >= MAX_ITERATIONS or iteration * len(graph.nodes) > MAX_NODES:
        raise UnsupportedFeature(f"the loop runs more than {iteration} iterations, too many to unroll")
    constants, nodes, outputs = inlined(graph, inputs, f"{node.outputs[0]}/{iteration}")
    ctx.tensors.constants.update(constants)
    ctx.nodes.insert(nodes, outputs)
    lost = [name for name in outputs if ctx.nodes.is_lost(name)]
    if lost:
        raise UnsupportedFeature(f"iteration {iteration} of its body can't be imported")
    return outputs


def _named(node: OperatorNode, outputs: Sequence[str]) -> list[OperatorNode]:
    """Identity nodes that give tensors the names of the node's results."""
    return [
        OperatorNode("Identity", "", (output,), (name,), {}, node.opset)
        for output, name in zip(outputs, node.outputs, strict=False)
        if name
    ]


def _stack(node: OperatorNode, index: int, tensors: Sequence[str], axis: int) -> list[OperatorNode]:
    """Nodes that stack tensors along a new axis."""
    row_names = [f"{name} as row {row} of {index} of {node.outputs[0]}" for row, name in enumerate(tensors)]
    rows = [
        OperatorNode("Unsqueeze", node.name, (name,), (row,), {"axes": [axis]}, node.opset)
        for name, row in zip(tensors, row_names, strict=True)
    ]
    joined = f"rows of {index} of {node.outputs[0]}"
    return [*rows, OperatorNode("Concat", node.name, tuple(row_names), (joined,), {"axis": axis}, node.opset)]
