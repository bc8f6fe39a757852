"""`Recording`: whether a program can be one CUDA graph, and why not."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from netspec.errors import listing
from netspec.graph.plan import Plan
from netspec.graph.value import Node

OWN = "cuda"
"""The backend whose launches look at the flag of a guard that was not finite."""
MOST_NAMED = 6
"""Nodes that a note names."""


@dataclass(frozen=True)
class Recording:
    """What of a plan stands in the way of one graph that runs from the inputs to the new states."""

    unrecorded: tuple[Node, ...]
    """Nodes whose kernels run code of the array library, which allocates: they can't be part of a graph."""
    hosted: tuple[Node, ...]
    """Nodes in which the processor takes part, and for which it waits: they can't be part of a graph either."""
    unstopped: tuple[Node, ...]
    """Nodes that write a state where the flag does not stop them: the processor looks at the guard before them."""
    writes: bool
    """Whether any state is written."""
    guarded: bool

    @classmethod
    def of(cls, plan: Plan) -> Recording:
        """From kernels and memory; steady nodes are never part of a graph."""
        kernels = {node: choice.kernel for node, choice in plan.choices.items()}
        storage = plan.memory.storage

        def writes_state(node: Node) -> bool:
            return any(one in storage and storage[one].kind.startswith("state:") for one in node.outputs)

        again = [node for node in plan.order[plan.steady :] if node in kernels]
        late = [node for node in plan.order[plan.before_guard :] if node in kernels]
        return cls(
            tuple(node for node in again if kernels[node].array_code),
            tuple(node for node in again if kernels[node].hosted),
            tuple(node for node in late if kernels[node].backend != OWN and writes_state(node)),
            bool(plan.graph.updates),
            plan.graph.guard is not None,
        )

    @property
    def records(self) -> bool:
        """Whether it can be a graph, or two."""
        return not (self.unrecorded or self.hosted)

    @property
    def looks(self) -> bool:
        """Whether the processor waits for the guard of each run before states are written."""
        return self.guarded and bool(self.unstopped)

    def notes(self) -> list[str]:
        """The same in sentences."""
        if not self.records:
            why = [f"{_named(self.unrecorded)} run array code"] * bool(self.unrecorded)
            why += [f"{_named(self.hosted)} go through the processor"] * bool(self.hosted)
            found = [f"no CUDA graph, its kernels are called one by one: {'; '.join(why)}"]
        else:
            found = ["two CUDA graphs, with a look at the loss between them" if self.looks else "one CUDA graph"]
        if self.looks:
            found.append(
                f"the processor waits for the loss: {_named(self.unstopped)} write states, unstopped by the GPU"
            )
        return found


def _named(nodes: Sequence[Node]) -> str:
    return listing([f"`{node.scope.layer}` ({node.op.name})" if node.scope.layer else node.op.name for node in nodes],
                   MOST_NAMED)  # fmt: skip
