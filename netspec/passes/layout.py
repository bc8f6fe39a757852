"""Layout assignment: each value lies as the kernel that makes it likes, copied where its reader wants it otherwise.

Kernels say what they read and write, given how their operands lie; elementwise ops follow their operands. Copies are
made once for all readers that want the same.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from netspec.graph.graph import Graph, rebuild
from netspec.graph.kernel import Kernel
from netspec.graph.layout import PLAIN, Layout, Signature
from netspec.graph.ops.shape import Reorder
from netspec.graph.ops.source import Input
from netspec.graph.value import Node, Value, in_scope

KernelOf = Callable[[Node], Kernel]


def assign_layouts(graph: Graph, kernel_of: KernelOf) -> tuple[Graph, dict[Value, Layout]]:
    """The graph with copies where layouts change, and the layout of every value."""
    new: dict[Value, Value] = {}
    layouts: dict[Value, Layout] = {}
    copies: dict[tuple[Value, Layout], Value] = {}
    inputs = _layouts_of_inputs(graph, kernel_of)

    def lying(value: Value, layout: Layout) -> Value:
        """`value`, or a copy of it that lies as wanted."""
        if layouts[value] == layout or (layouts[value].is_plain(value.type) and layout.is_plain(value.type)):
            return value
        key = value, layout
        if key not in copies:
            with in_scope(value.node.scope):
                copies[key] = Reorder()(value)
            layouts[copies[key]] = layout
        return copies[key]

    for node in graph.nodes():
        operands = [new[value] for value in node.inputs]
        signature = _signature(node, [layouts[value] for value in operands], kernel_of, inputs)
        operands = [lying(value, layout) for value, layout in zip(operands, signature.inputs, strict=True)]
        made = node.outputs if tuple(operands) == node.inputs else rebuild(node, operands)
        new.update(zip(node.outputs, made, strict=True))
        layouts.update(zip(made, signature.outputs, strict=True))
    states = graph.mapped(new)
    updates = {name: lying(value, PLAIN) for name, value in states.updates.items()}
    return Graph(states.outputs, updates, states.guard), layouts


def _signature(node: Node, given: Sequence[Layout], kernel_of: KernelOf, inputs: dict[Node, Layout]) -> Signature:
    traits = node.op.traits
    if traits.source:
        return Signature((), (inputs.get(node, PLAIN),))
    if traits.view:
        return Signature((PLAIN,) * len(given), (PLAIN,))
    if traits.elementwise:
        shape = node.types[0].shape
        whole = [layout for value, layout in zip(node.inputs, given, strict=True) if value.shape == shape]
        chosen = next((layout for layout in whole if layout != PLAIN), PLAIN)
        wanted = tuple(
            chosen if value.shape == shape else layout for value, layout in zip(node.inputs, given, strict=True)
        )
        return Signature(wanted, (chosen,) * len(node.outputs))
    return kernel_of(node).layouts(node, given)


def _layouts_of_inputs(graph: Graph, kernel_of: KernelOf) -> dict[Node, Layout]:
    """Inputs are copied in anyway: each lies as its first reader wants it."""
    found: dict[Node, Layout] = {}
    for node in graph.nodes():
        if node.op.traits.source or node.op.traits.view or node.op.traits.elementwise:
            continue
        for index, value in enumerate(node.inputs):
            if isinstance(value.op, Input) and value.node not in found:
                found[value.node] = kernel_of(node).layouts(node, (PLAIN,) * len(node.inputs)).inputs[index]
    return found
