"""Prologue fusion: elementwise ops that compute an operand of a heavy op move into that op.

The gradient of batch normalization, for example, reads its operand dy twice. If a ReLU follows the normalization, dy is
a gradient masked by the sign of the ReLU's result; after fusion this masked gradient is never written to memory. If the
masking value can be computed elementwise from what the op reads anyway, it is recomputed instead of read.
`Traits.fusable_inputs` lists the operands for which this is possible.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import ClassVar

from netspec.graph.fused import FusedStep, PrologueFused
from netspec.graph.graph import Graph, topological_order, users
from netspec.graph.op import AcceptsOp
from netspec.graph.ops.source import Fill
from netspec.graph.value import Node, Value, in_scope
from netspec.passes.base import Pass

MAX_LARGE_READS = 2
"""Largest number of large operands that a body may read per read of its result; beyond it, fusion saves nothing."""


class FusePrologues(Pass):
    """Move elementwise ops into the heavy op whose operand they compute."""

    name: ClassVar[str] = "prologue_fusion"
    requires: ClassVar[frozenset[str]] = frozenset({"constant_folding", "cse", "epilogue_fusion"})

    def __init__(self, accepts: AcceptsOp) -> None:
        self.accepts = accepts

    def run(self, graph: Graph) -> Graph:
        """The graph with prologues fused."""
        read, roots = users(graph.nodes()), set(graph.roots())
        guarded = set(topological_order([graph.guard])) if graph.guard is not None else set()

        def movable(value: Value, reader: Node, members: Sequence[Node]) -> bool:
            """Whether the node of a value can move into the heavy op `reader` together with `members`."""
            node, traits = value.node, value.op.traits
            elementwise = traits.elementwise and traits.pure and len(node.outputs) == 1
            together = (node in guarded) == (reader in guarded) and node.scope.phase == reader.scope.phase
            return elementwise and together and value not in roots and {reader, *members}.issuperset(read[value])

        def fuse_prologue(node: Node, inputs: tuple[Value, ...]) -> Sequence[Value] | None:
            for operand in node.op.traits.fusable_inputs:
                old, new = node.inputs[operand], inputs[operand]
                if node.inputs.count(old) == 1 and movable(old, node, ()):
                    with in_scope(node.scope):
                        body = _PrologueBody(new, [*inputs[:operand], *inputs[operand + 1 :]])
                        body.grow(old, new, lambda value, members: movable(value, node, members))
                        op, operands = body.as_op(node, operand)
                        if self.accepts(op, [value.type for value in operands]):
                            return op.call_multi(*operands)
            return None

        return graph.rewrite(fuse_prologue)


class _PrologueBody:
    """A prologue under construction: the elementwise nodes that compute a value, and the values that they read."""

    def __init__(self, result: Value, stored: list[Value]) -> None:
        """`stored` are the values that the heavy op reads in addition to the result."""
        self.result, self.stored = result, stored
        self.inside: set[Node] = {result.node}
        self.recomputed: dict[Value, Value] = {}

    def grow(self, old: Value, new: Value, movable: Callable[[Value, Sequence[Node]], bool]) -> None:
        """Add preceding nodes as long as the body reads few large operands.

        `old` is the result in the graph before the pass, to which `movable` applies, and `new` the same value after it.
        """
        members, images = [old.node], [new.node]
        self._recompute_operands(new.node)
        for member, image in zip(members, images, strict=False):  # both grow in the loop
            for value, copy in zip(member.inputs, image.inputs, strict=True):
                if copy.shape != self.result.shape or copy.node in self.inside or not movable(value, members):
                    continue
                before = len(self._large())
                self.inside.add(copy.node)
                self._recompute_operands(copy.node)
                if len(self._large()) > max(MAX_LARGE_READS, before):
                    self.inside.discard(copy.node)
                else:
                    members.append(value.node)
                    images.append(copy.node)

    def _recompute_operands(self, node: Node) -> None:
        """Record which operands of a node can be recomputed from what the heavy op reads."""
        for value in node.inputs:
            if value.shape == self.result.shape and value.index == 0 and value not in self.recomputed:
                copy = value.op.recompute(value.inputs, value.node.outputs)
                if copy is not None and all(leaf in self.stored for leaf in self._leaves(copy)):
                    self.recomputed[value] = copy

    def _leaves(self, root: Value) -> list[Value]:
        """The values, shaped like the result, from which elementwise nodes compute `root`."""
        if root.shape != self.result.shape:
            return []
        if not root.op.traits.elementwise or root in self.stored:
            return [root]
        return [leaf for value in root.inputs for leaf in self._leaves(value)]

    def _large(self) -> set[Value]:
        """Operands of the body with the result's shape that the heavy op does not read anyway."""
        read = {value for node in self.inside for value in node.inputs if value.node not in self.inside}
        available = {*self.stored, *self.recomputed}
        return {value for value in read if value.shape == self.result.shape} - available

    def as_op(self, node: Node, operand: int) -> tuple[PrologueFused, list[Value]]:
        """The heavy op with this prologue, and its operands."""
        order: list[Value] = []  # scalar constants and results of the body, each after its operands
        operands: list[Value] = []
        recomputed_values = self._recomputed_values()

        def visit(value: Value) -> None:
            value = self.recomputed.get(value, value)
            if value in order or value in operands:
                return
            literal = isinstance(value.op, Fill) and value.shape == ()
            if literal or value.node in self.inside or value in recomputed_values:
                for operand_ in value.inputs:
                    visit(operand_)
                order.append(value)
            else:
                operands.append(value)

        visit(self.result)
        index_of = {value: index for index, value in enumerate([*operands, *order])}
        steps = [
            FusedStep(value.op, tuple(index_of[self.recomputed.get(v, v)] for v in value.inputs), value.node.scope)
            for value in order
        ]
        return PrologueFused(node.op, operand, len(node.inputs), tuple(steps)), [*self.stored, *operands]

    def _recomputed_values(self) -> set[Value]:
        """Results of the nodes that recompute operands."""
        results: set[Value] = set()
        stack = list(self.recomputed.values())
        while stack:
            value = stack.pop()
            if value.shape == self.result.shape and value not in self.stored:
                results.add(value)
                stack.extend(value.inputs)
        return results
