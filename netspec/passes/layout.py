"""Layout assignment: each value lies as the kernel that makes it likes, copied where its reader wants it otherwise.

Kernels say what they read and write, given how their operands lie; elementwise ops follow their operands. Copies are
made once for all readers that want the same. An opaque layout is for the kernel that asked for it: to everybody else
the value is a plain one. Inputs, states and results are never opaque. What may lie in fewer bits does so where the
kernel that makes it, or the product that reads it, takes it so.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property

from netspec.graph.graph import Graph, rebuild
from netspec.graph.kernel import Kernel
from netspec.graph.layout import PLAIN, Layout, Signature
from netspec.graph.ops.shape import Reorder
from netspec.graph.ops.source import Input
from netspec.graph.types import DType
from netspec.graph.value import Node, Scope, Value, in_scope
from netspec.passes.precision import contracted
from netspec.passes.steady import steady_nodes

KernelOf = Callable[[Node], Kernel]


@dataclass(frozen=True)
class Narrow:
    """The values that may lie in fewer bits, and the type they have then."""

    values: frozenset[Value]
    dtype: DType


def assign_layouts(
    graph: Graph, kernel_of: KernelOf, narrow: Narrow | None = None
) -> tuple[Graph, dict[Value, Layout]]:
    """The graph with copies where layouts change, and the layout of every value."""
    new: dict[Value, Value] = {}
    layouts: dict[Value, Layout] = {}
    copies: dict[tuple[Value, Layout], Value] = {}
    chooser = _Chooser(graph, kernel_of, narrow)

    def lying(value: Value, layout: Layout, scope: Scope) -> Value:
        """`value`, or a copy that lies as wanted; an opaque one belongs to the `scope` of the one who wants it."""
        lies = layouts[value]
        if alike(value, lies, layout):
            return value
        if (lies.form or layout.form) and PLAIN not in (lies, layout) and not alike(value, lies, PLAIN):
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
        signature = chooser.signature(node, [layouts[value] for value in operands])
        operands = [lying(value, layout, node.scope) for value, layout in zip(operands, signature.inputs, strict=True)]
        made = node.outputs if tuple(operands) == node.inputs else rebuild(node, operands)
        new.update(zip(node.outputs, made, strict=True))
        layouts.update(zip(made, signature.outputs, strict=True))
    ends = graph.mapped(new)
    outputs = {name: readable(value) for name, value in ends.outputs.items()}
    updates = {name: lying(value, PLAIN, value.node.scope) for name, value in ends.updates.items()}
    return Graph(outputs, updates, None if ends.guard is None else readable(ends.guard)), layouts


def alike(value: Value, one: Layout, other: Layout) -> bool:
    """Whether the elements of a value lie the same way in two layouts."""
    if one.dtype != other.dtype:
        return False
    return one == other or (one.is_plain(value.type) and other.is_plain(value.type))


@dataclass(frozen=True)
class _Chooser:
    """Decides how the operands and results of each node lie."""

    graph: Graph
    kernel_of: KernelOf
    narrow: Narrow | None

    def signature(self, node: Node, given: Sequence[Layout]) -> Signature:
        """The layouts of a node whose operands lie as `given`."""
        traits = node.op.traits
        given = [_strided(layout) for layout in given]
        if traits.source:
            return Signature((), (self.inputs.get(node, PLAIN),))
        if traits.view:
            flat = PLAIN.as_stored(given[0].dtype)
            return Signature((flat, *(PLAIN for _ in given[1:])), (flat,))
        wide = self._ordered(node, [one.as_stored(None) for one in given])
        wanted = self._stored(node, given, wide)
        if wanted == wide:
            return wide
        return self.kernel_of(node).narrowed(node, wanted) or wide

    def _ordered(self, node: Node, given: Sequence[Layout]) -> Signature:
        """The order of elements alone."""
        if node.op.traits.elementwise:
            shape = node.types[0].shape
            whole = [layout for value, layout in zip(node.inputs, given, strict=True) if value.shape == shape]
            chosen = next((layout for layout in whole if layout != PLAIN), PLAIN)
            wanted = tuple(
                chosen if value.shape == shape else layout for value, layout in zip(node.inputs, given, strict=True)
            )
            return Signature(wanted, (chosen,) * len(node.outputs))
        steady = [index for index, value in enumerate(node.inputs) if value.node in self.steady]
        return self.kernel_of(node).steady_layouts(node, given, steady)

    def _stored(self, node: Node, given: Sequence[Layout], wide: Signature) -> Signature:
        """The layouts with element types: as operands lie, and fewer bits for what products read and for results."""
        if self.narrow is None:
            return wide
        narrow, rounded = self.narrow, contracted(node)
        inputs = [
            order.as_stored(narrow.dtype if index < rounded and value.dtype == DType.FLOAT32 else lies.dtype)
            for index, (value, order, lies) in enumerate(zip(node.inputs, wide.inputs, given, strict=True))
        ]
        outputs = [
            order.as_stored(narrow.dtype if value in narrow.values else None)
            for value, order in zip(node.outputs, wide.outputs, strict=True)
        ]
        return Signature(tuple(inputs), tuple(outputs))

    @cached_property
    def steady(self) -> set[Node]:
        """What changes so seldom that copies of it cost nothing."""
        return steady_nodes(self.graph)

    @cached_property
    def inputs(self) -> dict[Node, Layout]:
        """Inputs are copied in anyway: each lies as its first reader wants it.

        One that is to lie in another order and in fewer bits is copied in as it is: a kernel does both faster.
        """
        found: dict[Node, Layout] = {}
        for node in self.graph.nodes():
            if node.op.traits.source or node.op.traits.view or node.op.traits.elementwise:
                continue
            for index, value in enumerate(node.inputs):
                if isinstance(value.op, Input) and value.node not in found:
                    wanted = self.kernel_of(node).layouts(node, (PLAIN,) * len(node.inputs)).inputs[index]
                    found[value.node] = _strided(wanted)
        if self.narrow is None:
            return found
        flat = PLAIN.as_stored(self.narrow.dtype)
        rounded = {value.node: value.type for value in self.narrow.values if isinstance(value.op, Input)}
        return found | {
            node: flat if found.get(node, PLAIN).is_plain(kind) else PLAIN for node, kind in rounded.items()
        }


def _strided(layout: Layout) -> Layout:
    """The layout, or the plain one for an opaque one."""
    return PLAIN if layout.form is not None else layout
