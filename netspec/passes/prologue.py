"""Prologues: elementwise ops that make an operand of a heavy op move into it, where it says that it can be fed so.

The gradient of batch normalization reads its operand twice; past a ReLU that operand is a gradient and the sign of the
ReLU's result, which need not be written down in between. Where that result follows, element by element, from what the
op reads anyway, it is made anew instead of being read.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import ClassVar

from netspec.graph.fused import Fed, Step
from netspec.graph.graph import Graph, topological, users
from netspec.graph.op import Accepts
from netspec.graph.ops.source import Fill
from netspec.graph.value import Node, Value, in_scope
from netspec.passes.base import Pass

MOST_READ = 2
"""A body that reads more large operands than this, once for each time that its result is read, saves nothing."""


class FusePrologues(Pass):
    """Move the elementwise ops that make an operand of a heavy op into it."""

    name: ClassVar[str] = "prologue"
    needs: ClassVar[frozenset[str]] = frozenset({"fold", "cse", "epilogue"})

    def __init__(self, accepts: Accepts) -> None:
        self.accepts = accepts

    def run(self, graph: Graph) -> Graph:
        """The graph with heavy ops that make an operand of theirs."""
        read, kept = users(graph.nodes()), set(graph.roots())
        guarded = set(topological([graph.guard])) if graph.guard is not None else set()

        def movable(value: Value, reader: Node, members: Sequence[Node]) -> bool:
            """Whether the node of a value can move into the heavy op `reader`, as `members` do."""
            node, traits = value.node, value.op.traits
            elementwise = traits.elementwise and traits.pure and len(node.outputs) == 1
            together = (node in guarded) == (reader in guarded) and node.scope.phase == reader.scope.phase
            return elementwise and together and value not in kept and {reader, *members}.issuperset(read[value])

        def fed(node: Node, inputs: tuple[Value, ...]) -> Sequence[Value] | None:
            for operand in node.op.traits.feeds:
                old, new = node.inputs[operand], inputs[operand]
                if node.inputs.count(old) == 1 and movable(old, node, ()):
                    with in_scope(node.scope):
                        body = _Body(new, [*inputs[:operand], *inputs[operand + 1 :]])
                        body.grow(old, new, lambda value, members: movable(value, node, members))
                        op, operands = body.as_op(node, operand)
                        if self.accepts(op, [value.type for value in operands]):
                            return op.many(*operands)
            return None

        return graph.rewrite(fed)


class _Body:
    """The elementwise nodes that make a value, and what they read."""

    def __init__(self, result: Value, own: list[Value]) -> None:
        """`own` is what the heavy op reads besides the result."""
        self.result, self.own = result, own
        self.inside: set[Node] = {result.node}
        self.remade: dict[Value, Value] = {}

    def grow(self, old: Value, new: Value, movable: Callable[[Value, Sequence[Node]], bool]) -> None:
        """Take in further nodes, as long as few large operands are read.

        `old` is what `new` is the image of: the same ops, in the graph in which `movable` knows its way.
        """
        members, images = [old.node], [new.node]
        self._remake(new.node)
        for member, image in zip(members, images, strict=False):  # both grow on the way
            for value, copy in zip(member.inputs, image.inputs, strict=True):
                if copy.shape != self.result.shape or copy.node in self.inside or not movable(value, members):
                    continue
                before = len(self._large())
                self.inside.add(copy.node)
                self._remake(copy.node)
                if len(self._large()) > max(MOST_READ, before):
                    self.inside.discard(copy.node)
                else:
                    members.append(value.node)
                    images.append(copy.node)

    def _remake(self, node: Node) -> None:
        """Note which operands of a node can be made anew from what the heavy op reads."""
        for value in node.inputs:
            if value.shape == self.result.shape and value.index == 0 and value not in self.remade:
                made = value.op.again(value.inputs, value.node.outputs)
                if made is not None and all(one in self.own for one in self._leaves(made)):
                    self.remade[value] = made

    def _leaves(self, made: Value) -> list[Value]:
        """The large values that elementwise nodes make a value of."""
        if made.shape != self.result.shape:
            return []
        if not made.op.traits.elementwise or made in self.own:
            return [made]
        return [leaf for value in made.inputs for leaf in self._leaves(value)]

    def _large(self) -> set[Value]:
        """The large operands that are read for the body alone."""
        read = {value for node in self.inside for value in node.inputs if value.node not in self.inside}
        free = {*self.own, *self.remade}
        return {value for value in read if value.shape == self.result.shape} - free

    def as_op(self, node: Node, operand: int) -> tuple[Fed, list[Value]]:
        """The heavy op of a node with this body, and its operands."""
        order: list[Value] = []  # of literals and of what the body makes, each after what it reads
        operands: list[Value] = []
        anew = self._made_anew()

        def visit(value: Value) -> None:
            value = self.remade.get(value, value)
            if value in order or value in operands:
                return
            literal = isinstance(value.op, Fill) and value.shape == ()
            if literal or value.node in self.inside or value in anew:
                for one in value.inputs:
                    visit(one)
                order.append(value)
            else:
                operands.append(value)

        visit(self.result)
        place = {value: index for index, value in enumerate([*operands, *order])}
        steps = [Step(one.op, tuple(place[self.remade.get(v, v)] for v in one.inputs), one.node.scope) for one in order]
        return Fed(node.op, operand, len(node.inputs), tuple(steps)), [*self.own, *operands]

    def _made_anew(self) -> set[Value]:
        """What the nodes that make operands anew make."""
        found: set[Value] = set()
        stack = list(self.remade.values())
        while stack:
            value = stack.pop()
            if value.shape == self.result.shape and value not in self.own:
                found.add(value)
                stack.extend(value.inputs)
        return found
