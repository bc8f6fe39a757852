"""Anchor and epilogue: elementwise ops that follow a convolution, a product or a normalization move into it.

What can move is what a kernel says it takes: the pass offers a growing epilogue and stops where no kernel but the
reference accepts it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from netspec.graph.fused import Anchored, Step
from netspec.graph.graph import Graph, topological, users
from netspec.graph.op import Accepts
from netspec.graph.value import Node, Value, apply, in_scope
from netspec.passes.base import Pass


class FuseEpilogues(Pass):
    """Move elementwise ops into the anchors before them."""

    name: ClassVar[str] = "epilogue"
    needs: ClassVar[frozenset[str]] = frozenset({"fold", "cse"})

    def __init__(self, accepts: Accepts) -> None:
        self.accepts = accepts

    def run(self, graph: Graph) -> Graph:
        """The graph with anchors that have swallowed what followed them."""
        chains = self._chains(graph)
        inside = {node for chain in chains.values() for node in chain[:-1]}
        new: dict[Value, Value] = {}
        pending = [node for node in graph.nodes() if node not in inside]
        while pending:
            rest = []
            for node in pending:
                chain = chains.get(node, [node])
                op, operands = _anchored(chain) if len(chain) > 1 else (node.op, list(node.inputs))
                if any(value not in new for value in operands):  # it reads another result of an anchor still to come
                    rest.append(node)
                    continue
                inputs = tuple(new[value] for value in operands)
                if inputs == node.inputs:
                    made = node.outputs
                else:
                    with in_scope(node.scope):
                        made = apply(op, inputs)
                new.update(zip((node.outputs[0], *chain[0].outputs[1:]), made, strict=True))
            if len(rest) == len(pending):
                raise RuntimeError("an epilogue made a cycle")
            pending = rest
        return graph.mapped(new)

    def _chains(self, graph: Graph) -> dict[Node, list[Node]]:
        """For the last node of each epilogue, the nodes from the anchor to it."""
        nodes = graph.nodes()
        read, kept = users(nodes), set(graph.roots())
        guarded = set(topological([graph.guard])) if graph.guard is not None else set()
        position = {node: index for index, node in enumerate(nodes)}
        behind = _behind_other_results(nodes)
        found: dict[Node, list[Node]] = {}
        swallowed: set[Node] = set()
        for anchor in nodes:
            if not anchor.op.traits.anchor:
                continue
            chain = [anchor]
            while (following := self._next(chain, read, kept)) is not None:
                if (following in guarded) != (anchor in guarded) or following in swallowed:
                    break
                extras = [value for value in following.inputs if value is not chain[-1].outputs[0]]
                if any(position[value.node] >= position[following] for value in extras):
                    break
                if len(anchor.outputs) > 1 and any(value.node in behind or value.index > 0 for value in extras):
                    break  # what needs the anchor's other results cannot be done inside of it
                chain.append(following)
            if len(chain) > 1:
                found[chain[-1]] = chain
                swallowed.update(chain)
        return found

    def _next(self, chain: list[Node], read: dict[Value, list[Node]], kept: set[Value]) -> Node | None:
        """The node that may be swallowed next."""
        value = chain[-1].outputs[0]
        readers = read.get(value, [])
        if value in kept or len(set(readers)) != 1:
            return None
        (node, *_) = readers
        if not node.op.traits.elementwise or node.types[0] != value.type or len(node.outputs) != 1:
            return None
        if node.scope.phase != chain[0].scope.phase:
            return None  # the update of a weight is better one elementwise pass than half of it behind a product
        op, operands = _anchored([*chain, node])
        return node if self.accepts(op, [one.type for one in operands]) else None


def _behind_other_results(nodes: Sequence[Node]) -> set[Node]:
    """The nodes that depend on a result of an anchor other than its first."""
    found: set[Node] = set()
    for node in nodes:
        if any(value.node in found or (value.op.traits.anchor and value.index > 0) for value in node.inputs):
            found.add(node)
    return found


def _anchored(chain: Sequence[Node]) -> tuple[Anchored, list[Value]]:
    """The op for a chain of nodes, and its operands."""
    anchor, *following = chain
    extras: list[Value] = []
    for previous, node in zip(chain, following, strict=False):
        extras += [value for value in node.inputs if value is not previous.outputs[0] and value not in extras]
    count = 1 + len(extras)
    body: list[Step] = []
    for number, (previous, node) in enumerate(zip(chain, following, strict=False)):
        carried = 0 if number == 0 else count + number - 1
        operands = tuple(carried if value is previous.outputs[0] else 1 + extras.index(value) for value in node.inputs)
        body.append(Step(node.op, operands, node.scope))
    return Anchored(anchor.op, len(anchor.inputs), tuple(body), anchor.scope), [*anchor.inputs, *extras]
