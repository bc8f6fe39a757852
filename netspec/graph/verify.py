"""The verifier: what must hold of every graph, checked after each pass in tests."""

from __future__ import annotations

from collections.abc import Mapping

from netspec.graph.graph import Graph
from netspec.graph.layout import Layout
from netspec.graph.ops.shape import Reorder
from netspec.graph.ops.source import Input, State
from netspec.graph.types import DType
from netspec.graph.value import Value


class InvalidGraphError(Exception):
    """A graph breaks one of its own rules: a defect of a pass or an op, never of a user."""


def verify(graph: Graph) -> Graph:
    """Return `graph` if it is valid, else raise `InvalidGraphError` with everything that is wrong.

    Checked: operands come before their users; inferred types are the recorded ones; inputs and states have one node
    per name; an update has the type of its state; the guard is a float scalar.
    """
    wrong: list[str] = []
    nodes = graph.nodes()
    place = {node: index for index, node in enumerate(nodes)}
    labels: dict[str, object] = {}
    for node in nodes:
        for value in node.inputs:
            if place.get(value.node, len(nodes)) >= place[node]:
                wrong.append(f"{node} comes before its operand {value}")
            if value not in value.node.outputs:
                wrong.append(f"{node} reads {value}, which its node does not make")
        inferred = node.op.infer(*(value.type for value in node.inputs))
        types = inferred if isinstance(inferred, tuple) else (inferred,)
        if types != node.types:
            wrong.append(f"{node} has types {list(map(str, node.types))}, its rule says {list(map(str, types))}")
        if isinstance(node.op, (Input, State)) and labels.setdefault(node.op.label, node) is not node:
            wrong.append(f"two nodes are called {node.op.label!r}")
    states = graph.states()
    for name, value in graph.updates.items():
        if name in states and states[name].type != value.type:
            wrong.append(f"the update of {name!r} is {value.type}, the state is {states[name].type}")
    if graph.guard is not None and (graph.guard.shape != () or graph.guard.dtype not in (DType.FLOAT32, DType.FLOAT64)):
        wrong.append(f"the guard is {graph.guard.type}, not a float scalar")
    if wrong:
        raise InvalidGraphError("\n".join(wrong))
    return graph


def verify_layouts(graph: Graph, layouts: Mapping[Value, Layout]) -> Graph:
    """Return `graph` if its values can lie as they are said to, else raise `InvalidGraphError` as `verify` does.

    Checked: a `Reorder` reads and makes the layouts it names, one of which is plain where the other is opaque; sources,
    views, elementwise ops and whoever runs the program meet no opaque layout; an updated state is plain.
    """
    wrong: list[str] = []
    for node in graph.nodes():
        met = [layouts[value] for value in (*node.inputs, *node.outputs)]
        opaque = any(one.form is not None for one in met)
        if isinstance(node.op, Reorder):
            if met != [node.op.source, node.op.target]:
                wrong.append(f"{node} goes from {met[0]} to {met[1]}, it says {node.op.source} to {node.op.target}")
            if opaque and not any(one.is_plain(node.types[0]) for one in met):
                wrong.append(f"{node} goes from {met[0]} to {met[1]}: one of them must be plain")
        elif opaque and (node.op.traits.source or node.op.traits.view or node.op.traits.elementwise):
            wrong.append(f"{node} meets an opaque layout")
    opaque_roots = [value for value in graph.roots() if layouts[value].form is not None]
    wrong += [f"{value!r} is a result in an opaque layout" for value in opaque_roots]
    for name, value in graph.updates.items():
        if not layouts[value].is_plain(value.type):
            wrong.append(f"the update of {name!r} lies as {layouts[value]}")
    if wrong:
        raise InvalidGraphError("\n".join(wrong))
    return graph
