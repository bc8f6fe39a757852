"""`Graph`: what a program computes, as the values it ends in."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeAlias

from netspec.graph.ops.source import Input, State
from netspec.graph.value import Node, Value, apply, in_scope

Rewrite: TypeAlias = Callable[[Node, tuple[Value, ...]], Sequence[Value] | None]


@dataclass(frozen=True)
class Graph:
    """Fetched values and new values of states; the nodes are whatever these are computed from.

    `updates` maps the name of a state to the value it has after the step. `guard` is a fetched scalar that must be
    finite before any state is written; a run stops there otherwise, with its state as it was before the step.
    `named` is what a spec calls values that may or may not be among those computed: for who writes the graph down.
    """

    outputs: dict[str, Value] = field(default_factory=dict)
    updates: dict[str, Value] = field(default_factory=dict)
    guard: Value | None = None
    named: dict[str, Value] = field(default_factory=dict)

    def roots(self) -> list[Value]:
        """All values that must be computed."""
        guard = [self.guard] if self.guard is not None else []
        return [*self.outputs.values(), *guard, *self.updates.values()]

    def nodes(self) -> list[Node]:
        """All nodes in an order of execution: each after its operands."""
        return topological(self.roots())

    def inputs(self) -> dict[str, Value]:
        """The inputs that the results depend on, by name."""
        return {node.op.label: node.outputs[0] for node in self.nodes() if isinstance(node.op, Input)}

    def states(self) -> dict[str, Value]:
        """The states that the results depend on, by name."""
        return {node.op.label: node.outputs[0] for node in self.nodes() if isinstance(node.op, State)}

    def rewrite(self, change: Rewrite) -> Graph:
        """A new graph in which `change(node, new operands)` replaces nodes; None keeps a node as it is."""
        new: dict[Value, Value] = {}
        for node in self.nodes():
            inputs = tuple(new[value] for value in node.inputs)
            made = change(node, inputs)
            if made is None:
                made = node.outputs if inputs == node.inputs else rebuild(node, inputs)
            new.update(zip(node.outputs, made, strict=True))
        return self.mapped(new)

    def undrawn(self) -> Graph:
        """The graph in which ops that draw random numbers draw none, as far as they can do without."""

        def quiet(node: Node, inputs: tuple[Value, ...]) -> tuple[Value, ...] | None:
            made = node.op.undrawn(inputs)
            return None if made is None else (made,)

        return self.rewrite(quiet)

    def mapped(self, new: dict[Value, Value]) -> Graph:
        """The graph that ends in the images of this graph's results."""
        return replace(
            self,
            outputs={name: new[value] for name, value in self.outputs.items()},
            updates={name: new[value] for name, value in self.updates.items()},
            guard=None if self.guard is None else new[self.guard],
            named={name: new[value] for name, value in self.named.items() if value in new},
        )


def rebuild(node: Node, inputs: Sequence[Value]) -> tuple[Value, ...]:
    """The same op on other operands, in the same scope."""
    with in_scope(node.scope):
        return apply(node.op, inputs)


def topological(roots: Iterable[Value], stop: frozenset[Value] | None = None) -> list[Node]:
    """Nodes that `roots` are computed from, each after its operands; not past the values in `stop`.

    The order is that of construction (`Node.serial`), which is valid since a node's operands are made before it.
    """
    seen: set[Node] = set()
    stack = [value.node for value in roots if not (stop and value in stop)]
    while stack:
        node = stack.pop()
        if node not in seen:
            seen.add(node)
            stack.extend(value.node for value in node.inputs if not (stop and value in stop))
    return sorted(seen, key=lambda node: node.serial)


def users(nodes: Iterable[Node]) -> dict[Value, list[Node]]:
    """For each value, the nodes that read it."""
    table: dict[Value, list[Node]] = {}
    for node in nodes:
        for value in node.inputs:
            table.setdefault(value, []).append(node)
    return table


def values(nodes: Iterable[Node]) -> Iterator[Value]:
    """All results of the nodes."""
    for node in nodes:
        yield from node.outputs
