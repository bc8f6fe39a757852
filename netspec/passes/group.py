"""Grouping: alike elementwise nodes on small operands become one `ForEach`, which is one call instead of many.

A net has tens of small parameters, each with an update of its own that takes less time than its call. What can be
grouped is what cannot depend on one another: nodes whose results nobody reads before the end of the step (updates of
parameters, of the solver's slots, of moving averages), and nodes that read nothing that is computed.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Iterable, Iterator, Sequence
from dataclasses import replace
from typing import ClassVar

from netspec.graph.fused import ForEach
from netspec.graph.graph import Graph, rebuild, topological, users
from netspec.graph.op import Accepts
from netspec.graph.value import Node, Value, in_scope
from netspec.passes.base import Pass
from netspec.passes.cse import exactly

MAX_BYTES = 1 << 20
"""Of a result: a larger update takes so long that its call does not count, and would keep its gradient alive."""
MAX_GROUP_BYTES = 1 << 22
"""Of all results of a group: gradients wait for the last one of them."""


class GroupAlike(Pass):
    """Group elementwise nodes that do the same to different values."""

    name: ClassVar[str] = "group"
    needs: ClassVar[frozenset[str]] = frozenset({"fuse"})

    def __init__(self, accepts: Accepts) -> None:
        self.accepts = accepts

    def run(self, graph: Graph) -> Graph:
        """The graph with alike nodes grouped, where a fast kernel takes the group."""
        made = {group[-1]: group for group in self._groups(graph)}
        grouped = {node for group in made.values() for node in group}
        new: dict[Value, Value] = {}
        for node in _after_their_groups(graph.nodes(), made):
            group = made.get(node)
            if group is not None:
                operands = [new[value] for one in group for value in one.inputs]
                with in_scope(replace(node.scope, layer="")):
                    images = ForEach(node.op, len(group)).many(*operands)
                new.update(zip((value for one in group for value in one.outputs), images, strict=True))
            elif node not in grouped:
                inputs = tuple(new[value] for value in node.inputs)
                same = inputs == node.inputs
                new.update(zip(node.outputs, node.outputs if same else rebuild(node, inputs), strict=True))
        return graph.mapped(new)

    def _groups(self, graph: Graph) -> Iterator[list[Node]]:
        """Two or more nodes each, in the order of execution."""
        nodes = graph.nodes()
        read = users(nodes)
        guarded = set(topological([graph.guard])) if graph.guard is not None else set()
        alike: dict[Hashable, list[Node]] = defaultdict(list)
        for node in nodes:
            if not _groupable(node):
                continue
            last = not any(value in read for value in node.outputs)
            if last or all(value.op.traits.source for value in node.inputs):
                kinds = tuple(value.dtype for value in node.inputs)
                scalars = tuple(value.shape == () for value in node.inputs)
                key = exactly(node.op), kinds, scalars, node.scope.phase, node in guarded, last
                alike[key].append(node)
        for found in alike.values():
            for group in _apart(found):
                op = ForEach(group[0].op, len(group))
                if len(group) > 1 and self.accepts(op, [value.type for node in group for value in node.inputs]):
                    yield group


def _groupable(node: Node) -> bool:
    """Small, elementwise, every operand of the result's shape or a scalar."""
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


def _apart(nodes: Iterable[Node]) -> Iterator[list[Node]]:
    """The nodes in groups that are not too large, no two nodes of a group reading the same array."""
    group: list[Node] = []
    seen: set[Value] = set()
    size = 0
    for node in nodes:
        arrays = {value for value in node.inputs if value.shape != ()}
        if arrays & seen or size + _nbytes(node) > MAX_GROUP_BYTES:
            yield group
            group, seen, size = [], set(), 0
        group.append(node)
        seen |= arrays
        size += _nbytes(node)
    yield group


def _after_their_groups(nodes: Sequence[Node], made: dict[Node, list[Node]]) -> list[Node]:
    """All nodes, each after its operands, where a group counts at the place of its last node.

    A group that is read stands at the front: it depends on sources alone.
    """
    early = [node for node in made if all(value.op.traits.source for value in node.inputs)]
    first = topological([value for node in early for one in made[node] for value in one.inputs])
    front = [*first, *early]
    known = set(front)
    return [*front, *(node for node in nodes if node not in known)]
