"""Epilogue fusion: elementwise ops after a convolution, matrix product or normalization move into it.

Kernels decide what can move: the pass proposes a growing epilogue and stops when only the reference kernel would accept
it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from netspec.graph.fused import EpilogueFused, FusedStep
from netspec.graph.graph import Graph, topological_order, users
from netspec.graph.op import AcceptsOp
from netspec.graph.value import Node, Value, apply, in_scope
from netspec.passes.base import Pass


class FuseEpilogues(Pass):
    """Move elementwise ops into the anchors that they follow."""

    name: ClassVar[str] = "epilogue_fusion"
    requires: ClassVar[frozenset[str]] = frozenset({"constant_folding", "cse"})

    def __init__(self, accepts: AcceptsOp) -> None:
        self.accepts = accepts

    def run(self, graph: Graph) -> Graph:
        """The graph with epilogues fused into their anchors."""
        chains = self._chains(graph)
        inside = {node for chain in chains.values() for node in chain[:-1]}
        new: dict[Value, Value] = {}
        pending = [node for node in graph.nodes() if node not in inside]
        while pending:
            waiting = []
            for node in pending:
                chain = chains.get(node, [node])
                op, operands = _epilogue_fused(chain) if len(chain) > 1 else (node.op, list(node.inputs))
                # It may read another result of an anchor that is not rebuilt yet.
                if any(value not in new for value in operands):
                    waiting.append(node)
                    continue
                inputs = tuple(new[value] for value in operands)
                if inputs == node.inputs:
                    results = node.outputs
                else:
                    with in_scope(node.scope):
                        results = apply(op, inputs)
                new.update(zip((node.outputs[0], *chain[0].outputs[1:]), results, strict=True))
            if len(waiting) == len(pending):
                raise RuntimeError("an epilogue created a cycle")
            pending = waiting
        return graph.remap(new)

    def _chains(self, graph: Graph) -> dict[Node, list[Node]]:
        """Chains of nodes from an anchor to the end of its epilogue, by their last node."""
        nodes = graph.nodes()
        read, results = users(nodes), set(graph.roots())
        guarded = set(topological_order([graph.guard])) if graph.guard is not None else set()
        position = {node: index for index, node in enumerate(nodes)}
        dependent = _dependent_on_other_results(nodes)
        chains: dict[Node, list[Node]] = {}
        fused: set[Node] = set()
        for anchor in nodes:
            if not anchor.op.traits.anchor:
                continue
            chain = [anchor]
            while (following := self._next_fusable(chain, read, results)) is not None:
                if (following in guarded) != (anchor in guarded) or following in fused:
                    break
                extras = [value for value in following.inputs if value is not chain[-1].outputs[0]]
                if any(position[value.node] >= position[following] for value in extras):
                    break
                if len(anchor.outputs) > 1 and any(value.node in dependent or value.index > 0 for value in extras):
                    break  # ops that need other results of the anchor cannot be part of its epilogue
                chain.append(following)
            if len(chain) > 1:
                chains[chain[-1]] = chain
                fused.update(chain)
        return chains

    def _next_fusable(self, chain: list[Node], read: dict[Value, list[Node]], results: set[Value]) -> Node | None:
        """The node that can be added to the epilogue, or None."""
        value = chain[-1].outputs[0]
        readers = read.get(value, [])
        if value in results or len(set(readers)) != 1:
            return None
        (node, *_) = readers
        if not node.op.traits.elementwise or node.types[0] != value.type or len(node.outputs) != 1:
            return None
        if node.scope.phase != chain[0].scope.phase:
            return None  # a weight update is faster as one elementwise node than split between an epilogue and a node
        op, operands = _epilogue_fused([*chain, node])
        return node if self.accepts(op, [value.type for value in operands]) else None


def _dependent_on_other_results(nodes: Sequence[Node]) -> set[Node]:
    """The nodes that depend on a result of an anchor other than the first one."""
    dependent: set[Node] = set()
    for node in nodes:
        if any(value.node in dependent or (value.op.traits.anchor and value.index > 0) for value in node.inputs):
            dependent.add(node)
    return dependent


def _epilogue_fused(chain: Sequence[Node]) -> tuple[EpilogueFused, list[Value]]:
    """The op of a chain of nodes, and its operands."""
    anchor, *following = chain
    extras: list[Value] = []
    for previous, node in zip(chain, following, strict=False):
        extras += [value for value in node.inputs if value is not previous.outputs[0] and value not in extras]
    count = 1 + len(extras)
    body: list[FusedStep] = []
    for number, (previous, node) in enumerate(zip(chain, following, strict=False)):
        carried = 0 if number == 0 else count + number - 1
        operands = tuple(carried if value is previous.outputs[0] else 1 + extras.index(value) for value in node.inputs)
        body.append(FusedStep(node.op, operands, node.scope))
    return EpilogueFused(anchor.op, len(anchor.inputs), tuple(body), anchor.scope), [*anchor.inputs, *extras]
