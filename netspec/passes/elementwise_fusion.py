"""Elementwise fusion: adjacent elementwise nodes of one shape become one `Fused` node.

Decisions depend on traits, never on op names. A node joins the groups of its operands unless a path leaves the group
and returns through the node, which would make the fused node depend on itself.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import ClassVar

from netspec.graph.fused import Fused, FusedStep
from netspec.graph.graph import Graph, rebuild, topological_order, users
from netspec.graph.op import AcceptsOp
from netspec.graph.ops.source import Fill
from netspec.graph.value import Node, Value, apply, in_scope
from netspec.passes.base import Pass

FusedGroup = tuple["_Group", Fused, list[Value], list[Value]]
"""A group, its op, the op's operands, and the results that other nodes read."""

MAX_STEPS = 64
"""Longer bodies are not faster, and take long to compile."""
MAX_OPERANDS = 16


@dataclass
class _Group:
    """Nodes to be fused."""

    members: list[Node]
    bits: int
    """Their positions in the graph as a bit set."""
    inputs: set[Value] = field(default_factory=set)


class FuseElementwise(Pass):
    """Fuse groups of elementwise nodes into `Fused` nodes."""

    name: ClassVar[str] = "elementwise_fusion"
    requires: ClassVar[frozenset[str]] = frozenset({"constant_folding", "cse"})

    def __init__(self, accepts: AcceptsOp) -> None:
        self.accepts = accepts

    def run(self, graph: Graph) -> Graph:
        """The graph with groups of two or more elementwise nodes fused, if a fast kernel accepts them."""
        nodes = graph.nodes()
        read, results = users(nodes), set(graph.roots())
        candidates = [
            group
            for group in _fusion_groups(nodes, graph)
            if sum(not _is_scalar_constant(node) for node in group.members) > 1
        ]
        fused = [(group, *_fused_op(group, read, results)) for group in candidates]
        accepted = [group for group in fused if self.accepts(group[1], [value.type for value in group[2]])]
        return _rebuild_graph(graph, nodes, accepted)


def _is_scalar_constant(node: Node) -> bool:
    """Whether the node is a scalar constant, which becomes a step of the body instead of an operand."""
    return isinstance(node.op, Fill) and node.types[0].shape == ()


def _is_fusible(node: Node) -> bool:
    return node.op.traits.elementwise and node.op.traits.pure and len(node.outputs) == 1


def _fusion_groups(nodes: Sequence[Node], graph: Graph) -> list[_Group]:
    position = {node: index for index, node in enumerate(nodes)}
    ancestors: dict[Node, int] = {}  # for each node its ancestors and itself, as a bit set of positions
    group_of: dict[Node, _Group] = {}
    guarded, read = _before_guard(graph), users(nodes)
    for index, node in enumerate(nodes):
        ancestors[node] = 1 << index
        for value in node.inputs:
            ancestors[node] |= ancestors[value.node]
        if not _is_fusible(node):
            continue
        group = _Group([node], 1 << index, _external(node, ()))
        for value in node.inputs:
            other = group_of.get(value.node)
            if other is None or other is group or other.members[0].types[0].shape != node.types[0].shape:
                continue
            if (node in guarded) != (other.members[0] in guarded):
                continue  # nodes that the guard needs run before it, the others after
            if _can_merge(group, other, ancestors, position):
                group = _merge_groups(other, group)
        for member in group.members:
            group_of[member] = group
        if len(group.members) > 1:
            _update_ancestors(group, ancestors, group_of, read)
    return list({id(group): group for group in group_of.values()}.values())


def _update_ancestors(
    group: _Group, ancestors: dict[Node, int], group_of: Mapping[Node, _Group], read: Mapping[Value, Sequence[Node]]
) -> None:
    """Propagate a group's ancestors to all members and their dependents, since a group is computed as one node."""
    added = 0
    for member in group.members:
        added |= ancestors[member]
    waiting = list(group.members)
    while waiting:
        node = waiting.pop()
        if node not in ancestors or ancestors[node] | added == ancestors[node]:
            continue  # not visited yet, or already has these ancestors, as have its dependents
        ancestors[node] |= added
        waiting += [reader for value in node.outputs for reader in read.get(value, ())]
        waiting += group_of[node].members if node in group_of else ()


def _before_guard(graph: Graph) -> set[Node]:
    return set(topological_order([graph.guard])) if graph.guard is not None else set()


def _external(node: Node, members: Sequence[Node]) -> set[Value]:
    inside = {node, *members}
    return {value for value in node.inputs if value.node not in inside and not _is_scalar_constant(value.node)}


def _can_merge(first: _Group, second: _Group, ancestors: dict[Node, int], position: dict[Node, int]) -> bool:
    """Whether two groups can be merged: no path leads from one to the other through other nodes."""
    if len(first.members) + len(second.members) > MAX_STEPS:
        return False
    operands = first.inputs | second.inputs
    if sum(value.node not in first.members and value.node not in second.members for value in operands) > MAX_OPERANDS:
        return False
    members = first.bits | second.bits
    for group in (first, second):
        for value in group.inputs:
            if not members >> position[value.node] & 1 and ancestors[value.node] & members:
                return False
    return True


def _merge_groups(first: _Group, second: _Group) -> _Group:
    members = first.members + [node for node in second.members if node not in first.members]
    inside = set(members)
    inputs = {value for value in first.inputs | second.inputs if value.node not in inside}
    return _Group(members, first.bits | second.bits, inputs)


def _rebuild_graph(graph: Graph, nodes: Sequence[Node], groups: Sequence[FusedGroup]) -> Graph:
    """Rebuild the graph with each group placed where all of its operands exist."""
    group_of = {node: fused for fused in groups for node in fused[0].members}
    new: dict[Value, Value] = {}
    pending = list(nodes)
    while pending:
        waiting: list[Node] = []
        for node in pending:
            fused = group_of.get(node)
            if fused is not None and node.outputs[0] in new:
                continue
            operands = fused[2] if fused is not None else node.inputs
            if any(value not in new for value in operands):
                waiting.append(node)
            elif fused is not None:
                group, op, _, results = fused
                with in_scope(max(group.members, key=lambda member: member.serial).scope):
                    new_results = dict(zip(results, apply(op, [new[value] for value in operands]), strict=True))
                # Members that no other node reads are marked as computed too.
                any_result = next(iter(new_results.values()))
                new.update(
                    {member.outputs[0]: new_results.get(member.outputs[0], any_result) for member in group.members}
                )
            else:
                inputs = tuple(new[value] for value in node.inputs)
                same = inputs == node.inputs
                new.update(zip(node.outputs, node.outputs if same else rebuild(node, inputs), strict=True))
        if len(waiting) == len(pending):
            raise RuntimeError("fusion created a cycle")
        pending = waiting
    return graph.remap(new)


def _fused_op(
    group: _Group, read: dict[Value, list[Node]], graph_results: set[Value]
) -> tuple[Fused, list[Value], list[Value]]:
    """The op of a group, its operands, and the results that other nodes read."""
    inside = set(group.members)
    members = sorted(group.members, key=lambda node: node.serial)
    operands: list[Value] = []
    for node in members:
        operands += [
            v for v in node.inputs if v.node not in inside and not _is_scalar_constant(v.node) and v not in operands
        ]
    index = {value: position for position, value in enumerate(operands)}
    body: list[FusedStep] = []
    for node in members:
        for value in node.inputs:
            if value not in index:  # a scalar constant: all other operands precede their readers
                index[value] = len(operands) + len(body)
                body.append(FusedStep(value.op, ()))
        index[node.outputs[0]] = len(operands) + len(body)
        body.append(FusedStep(node.op, tuple(index[value] for value in node.inputs), node.scope))
    results = [
        node.outputs[0]
        for node in members
        if node.outputs[0] in graph_results or any(user not in inside for user in read.get(node.outputs[0], ()))
    ]
    return Fused(len(operands), tuple(body), tuple(index[value] for value in results)), operands, results
