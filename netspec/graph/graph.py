"""`Graph`: a computation, given by the values that it returns and the states that it updates."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from operator import attrgetter
from typing import TypeAlias

from netspec.graph.ops.source import Input, State
from netspec.graph.value import Node, Value, apply, in_scope

Rewrite: TypeAlias = Callable[[Node, tuple[Value, ...]], Sequence[Value] | None]


@dataclass(frozen=True)
class Graph:
    """Fetched values and new values of states, with all nodes that these depend on.

    `updates` maps the name of a state to its value after the step. `guard` is a fetched scalar that must be finite
    before any state is written; otherwise a run stops and leaves all states unchanged. `named` maps names of the spec
    to values, which need not be part of the graph; exporters use it.
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
        """All nodes in execution order: each after its operands."""
        return topological_order(self.roots())

    def inputs(self) -> dict[str, Value]:
        """The inputs that the results depend on, by name."""
        return {node.op.label: node.outputs[0] for node in self.nodes() if isinstance(node.op, Input)}

    def states(self) -> dict[str, Value]:
        """The states that the results depend on, by name."""
        return {node.op.label: node.outputs[0] for node in self.nodes() if isinstance(node.op, State)}

    def rewrite(self, change: Rewrite) -> Graph:
        """A new graph with nodes replaced by `change(node, new_operands)`; None keeps a node."""
        new_values: dict[Value, Value] = {}
        for node in self.nodes():
            inputs = tuple(new_values[value] for value in node.inputs)
            results = change(node, inputs)
            if results is None:
                results = node.outputs if inputs == node.inputs else rebuild(node, inputs)
            new_values.update(zip(node.outputs, results, strict=True))
        return self.remap(new_values)

    def deterministic_form(self) -> Graph:
        """The graph with random ops such as dropout replaced by their deterministic form."""

        def replace_random(node: Node, inputs: tuple[Value, ...]) -> tuple[Value, ...] | None:
            result = node.op.deterministic_form(inputs)
            return None if result is None else (result,)

        return self.rewrite(replace_random)

    def remap(self, new_values: dict[Value, Value]) -> Graph:
        """A graph that returns `new_values[value]` in place of each result `value`."""
        return replace(
            self,
            outputs={name: new_values[value] for name, value in self.outputs.items()},
            updates={name: new_values[value] for name, value in self.updates.items()},
            guard=None if self.guard is None else new_values[self.guard],
            named={name: new_values[value] for name, value in self.named.items() if value in new_values},
        )


def rebuild(node: Node, inputs: Sequence[Value]) -> tuple[Value, ...]:
    """Apply a node's op to other operands, in the same scope."""
    if all(new.type == old.type for new, old in zip(inputs, node.inputs, strict=True)):
        return Node(node.op, tuple(inputs), node.types, node.scope).outputs  # the shape rule infers the same types
    with in_scope(node.scope):
        return apply(node.op, inputs)


def topological_order(roots: Iterable[Value], stop: frozenset[Value] | None = None) -> list[Node]:
    """The nodes that `roots` depend on, each after its operands; the search stops at the values in `stop`.

    The order is that of construction (`Node.serial`), which is valid since operands are created before the nodes that
    read them.
    """
    visited = {value.node for value in roots if not (stop and value in stop)}
    stack = list(visited)
    while stack:
        for value in stack.pop().inputs:
            node = value.node
            if node not in visited and not (stop and value in stop):
                visited.add(node)
                stack.append(node)
    return sorted(visited, key=attrgetter("serial"))


def users(nodes: Iterable[Node]) -> dict[Value, list[Node]]:
    """The nodes that read each value."""
    readers: dict[Value, list[Node]] = {}
    for node in nodes:
        for value in node.inputs:
            readers.setdefault(value, []).append(node)
    return readers
