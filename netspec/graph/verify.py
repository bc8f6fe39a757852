"""The verifier: checks the invariants of a graph; tests run it after each pass."""

from __future__ import annotations

from collections.abc import Mapping

from netspec.graph.graph import Graph
from netspec.graph.layout import Layout
from netspec.graph.ops.shape import Reorder
from netspec.graph.ops.source import Input, State
from netspec.graph.types import DType
from netspec.graph.value import Value


class InvalidGraphError(Exception):
    """A graph breaks an invariant: a defect of a pass or an op, never of the user's spec."""


def verify(graph: Graph) -> Graph:
    """Return `graph` if it is valid, else raise `InvalidGraphError` with all problems.

    Checks that operands precede their users, that recorded types are the inferred ones, that each input and state has
    one node, that an update has the type of its state, and that the guard is a float scalar.
    """
    problems: list[str] = []
    nodes = graph.nodes()
    position = {node: index for index, node in enumerate(nodes)}
    labels: dict[str, object] = {}
    for node in nodes:
        for value in node.inputs:
            if position.get(value.node, len(nodes)) >= position[node]:
                problems.append(f"{node} comes before its operand {value}")
            if value not in value.node.outputs:
                problems.append(f"{node} reads {value}, which is not a result of its node")
        inferred = node.op.infer(*(value.type for value in node.inputs))
        types = inferred if isinstance(inferred, tuple) else (inferred,)
        if types != node.types:
            problems.append(f"{node} has types {list(map(str, node.types))}, but infers {list(map(str, types))}")
        if isinstance(node.op, (Input, State)) and labels.setdefault(node.op.label, node) is not node:
            problems.append(f"two nodes have the name {node.op.label!r}")
    states = graph.states()
    for name, value in graph.updates.items():
        if name in states and states[name].type != value.type:
            problems.append(f"the update of {name!r} is {value.type}, but the state is {states[name].type}")
    if graph.guard is not None and (graph.guard.shape != () or graph.guard.dtype not in (DType.FLOAT32, DType.FLOAT64)):
        problems.append(f"the guard must be a float scalar, got {graph.guard.type}")
    if problems:
        raise InvalidGraphError("\n".join(problems))
    return graph


def verify_layouts(graph: Graph, layouts: Mapping[Value, Layout]) -> Graph:
    """Return `graph` if its layouts are valid, else raise `InvalidGraphError` with all problems.

    Checks that a `Reorder` reads and writes the layouts that it names, one of which is plain if the other is opaque;
    that sources, views, elementwise ops and results have no opaque layout; and that an updated state is plain.
    """
    problems: list[str] = []
    for node in graph.nodes():
        node_layouts = [layouts[value] for value in (*node.inputs, *node.outputs)]
        opaque = any(layout.opaque is not None for layout in node_layouts)
        if isinstance(node.op, Reorder):
            if node_layouts != [node.op.source, node.op.target]:
                named = f"{node.op.source} and {node.op.target}"
                problems.append(f"{node} goes from {node_layouts[0]} to {node_layouts[1]}, but names {named}")
            if opaque and not any(layout.is_plain(node.types[0]) for layout in node_layouts):
                problems.append(f"{node} goes from {node_layouts[0]} to {node_layouts[1]}: one of them must be plain")
        elif opaque and (node.op.traits.source or node.op.traits.view or node.op.traits.elementwise):
            problems.append(f"{node} has an operand or result in an opaque layout")
    opaque_roots = [value for value in graph.roots() if layouts[value].opaque is not None]
    problems += [f"the result {value!r} has an opaque layout" for value in opaque_roots]
    for name, value in graph.updates.items():
        if not layouts[value].is_plain(value.type):
            problems.append(f"the update of {name!r} has the layout {layouts[value]}, which is not plain")
    if problems:
        raise InvalidGraphError("\n".join(problems))
    return graph
