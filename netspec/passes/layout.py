"""Layout assignment: each value lies as the kernel that makes it likes, copied where its reader wants it otherwise.

Kernels say what they read and write, given how their operands lie; elementwise ops follow their operands. Copies are
made once for all readers that want the same. An opaque layout is for the kernel that asked for it: to everybody else
the value is a plain one. Inputs, states and results are never opaque.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from netspec.graph.graph import Graph, rebuild
from netspec.graph.kernel import Kernel
from netspec.graph.layout import PLAIN, Layout, Signature
from netspec.graph.ops.shape import Reorder
from netspec.graph.ops.source import Input
from netspec.graph.value import Node, Scope, Value, in_scope

KernelOf = Callable[[Node], Kernel]


def assign_layouts(graph: Graph, kernel_of: KernelOf) -> tuple[Graph, dict[Value, Layout]]:
    """The graph with copies where layouts change, and the layout of every value."""
    new: dict[Value, Value] = {}
    layouts: dict[Value, Layout] = {}
    copies: dict[tuple[Value, Layout], Value] = {}
    inputs = _layouts_of_inputs(graph, kernel_of)

    def lying(value: Value, layout: Layout, scope: Scope) -> Value:
        """`value`, or a copy that lies as wanted; an opaque one belongs to the `scope` of the one who wants it."""
        lies, plain = layouts[value], layouts[value].is_plain(value.type)
        if lies == layout or (plain and layout.is_plain(value.type)):
            return value
        if (lies.form or layout.form) and not plain and layout != PLAIN:
            return lying(lying(value, PLAIN, scope), layout, scope)
        key = value, layout
        if key not in copies:
            with in_scope(scope if layout.form else value.node.scope):
                copies[key] = Reorder(lies, layout)(value)
            layouts[copies[key]] = layout
        return copies[key]

    def readable(value: Value) -> Value:
        """`value` for whoever runs the program."""
        return value if layouts[value].form is None else lying(value, PLAIN, value.node.scope)

    for node in graph.nodes():
        operands = [new[value] for value in node.inputs]
        signature = _signature(node, [layouts[value] for value in operands], kernel_of, inputs)
        operands = [lying(value, layout, node.scope) for value, layout in zip(operands, signature.inputs, strict=True)]
        made = node.outputs if tuple(operands) == node.inputs else rebuild(node, operands)
        new.update(zip(node.outputs, made, strict=True))
        layouts.update(zip(made, signature.outputs, strict=True))
    ends = graph.mapped(new)
    outputs = {name: readable(value) for name, value in ends.outputs.items()}
    updates = {name: lying(value, PLAIN, value.node.scope) for name, value in ends.updates.items()}
    return Graph(outputs, updates, None if ends.guard is None else readable(ends.guard)), layouts


def _signature(node: Node, given: Sequence[Layout], kernel_of: KernelOf, inputs: dict[Node, Layout]) -> Signature:
    traits = node.op.traits
    given = [_strided(layout) for layout in given]
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
                wanted = kernel_of(node).layouts(node, (PLAIN,) * len(node.inputs)).inputs[index]
                found[value.node] = _strided(wanted)
    return found


def _strided(layout: Layout) -> Layout:
    """The layout, or the plain one for an opaque one."""
    return PLAIN if layout.form is not None else layout
