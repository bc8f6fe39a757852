"""Multi-tensor grouping: similar elementwise nodes on small operands become one `MultiTensor` node.

A net has tens of small parameters, whose updates take less time than the kernel calls that run them. Nodes can be
grouped if they cannot depend on each other: nodes whose results are not read before the end of the step (updates of
parameters, solver slots, moving averages), and nodes that read no computed values.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Iterable, Iterator, Sequence
from dataclasses import replace
from typing import ClassVar

from netspec.graph.fused import MultiTensor
from netspec.graph.graph import Graph, rebuild, topological_order, users
from netspec.graph.op import AcceptsOp
from netspec.graph.value import Node, Value, in_scope
from netspec.passes.base import Pass
from netspec.passes.cse import exact_key

MAX_BYTES = 1 << 20
"""Largest result in bytes: call overhead of larger updates does not matter, and groups keep gradients alive longer."""
MAX_GROUP_BYTES = 1 << 22
"""Largest total of a group's results in bytes: gradients stay alive until the last one of the group exists."""


class GroupMultiTensor(Pass):
    """Group elementwise nodes that apply the same op to different values."""

    name: ClassVar[str] = "multi_tensor"
    requires: ClassVar[frozenset[str]] = frozenset({"elementwise_fusion"})

    def __init__(self, accepts: AcceptsOp) -> None:
        self.accepts = accepts

    def run(self, graph: Graph) -> Graph:
        """The graph with similar nodes grouped, if a fast kernel accepts the group."""
        groups = {group[-1]: group for group in self._groups(graph)}
        grouped = {node for group in groups.values() for node in group}
        new: dict[Value, Value] = {}
        for node in _schedule_groups(graph.nodes(), groups):
            group = groups.get(node)
            if group is not None:
                operands = [new[value] for member in group for value in member.inputs]
                with in_scope(replace(node.scope, layer="")):
                    results = MultiTensor(node.op, len(group)).call_multi(*operands)
                new.update(zip((value for member in group for value in member.outputs), results, strict=True))
            elif node not in grouped:
                inputs = tuple(new[value] for value in node.inputs)
                same = inputs == node.inputs
                new.update(zip(node.outputs, node.outputs if same else rebuild(node, inputs), strict=True))
        return graph.remap(new)

    def _groups(self, graph: Graph) -> Iterator[list[Node]]:
        """Groups of two or more nodes, in execution order."""
        nodes = graph.nodes()
        read = users(nodes)
        guarded = set(topological_order([graph.guard])) if graph.guard is not None else set()
        alike: dict[Hashable, list[Node]] = defaultdict(list)
        for node in nodes:
            if not _is_groupable(node):
                continue
            last = not any(value in read for value in node.outputs)
            if last or all(value.op.traits.source for value in node.inputs):
                dtypes = tuple(value.dtype for value in node.inputs)
                scalars = tuple(value.shape == () for value in node.inputs)
                key = exact_key(node.op), dtypes, scalars, node.scope.phase, node in guarded, last
                alike[key].append(node)
        for similar in alike.values():
            for group in _split_groups(similar):
                op = MultiTensor(group[0].op, len(group))
                if len(group) > 1 and self.accepts(op, [value.type for node in group for value in node.inputs]):
                    yield group


def _is_groupable(node: Node) -> bool:
    """Whether a node is small and elementwise, with operands that are scalars or have the result's shape."""
    traits, shape = node.op.traits, node.types[0].shape
    return (
        traits.elementwise
        and traits.pure
        and not traits.source
        and node.types[0].size > 1
        and _nbytes(node) <= MAX_BYTES
        and all(value.shape in (shape, ()) for value in node.inputs)
    )


def _nbytes(node: Node) -> int:
    return max(kind.nbytes for kind in node.types)


def _split_groups(nodes: Iterable[Node]) -> Iterator[list[Node]]:
    """The nodes split into groups of limited size, in which no two nodes read the same array."""
    group: list[Node] = []
    read: set[Value] = set()
    size = 0
    for node in nodes:
        arrays = {value for value in node.inputs if value.shape != ()}
        if arrays & read or size + _nbytes(node) > MAX_GROUP_BYTES:
            yield group
            group, read, size = [], set(), 0
        group.append(node)
        read |= arrays
        size += _nbytes(node)
    yield group


def _schedule_groups(nodes: Sequence[Node], groups: dict[Node, list[Node]]) -> list[Node]:
    """All nodes, each after its operands, with a group at the position of its last node.

    Groups that read only sources come first, since other nodes may read their results.
    """
    early = [node for node in groups if all(value.op.traits.source for value in node.inputs)]
    first = topological_order([value for node in early for member in groups[node] for value in member.inputs])
    front = [*first, *early]
    grouped = set(front)
    return [*front, *(node for node in nodes if node not in grouped)]
