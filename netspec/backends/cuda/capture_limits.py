"""`CaptureLimits`: reasons why a plan is not one CUDA graph.

Separate from graph capture, so that planning for a GPU does not import it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from netspec.errors import listing
from netspec.graph.execution_plan import ExecutionPlan
from netspec.graph.value import Node

SLOTS = 2
"""Number of input slots of a captured graph: one is written while a run reads the other."""
STOPPABLE_BACKEND = "cuda"
"""The backend whose kernels check the stop flag."""
MAX_NAMED = 6
"""Maximum number of nodes that a note names."""


@dataclass(frozen=True)
class CaptureLimits:
    """Reasons why a plan can't run, from the inputs to the new states, as a single CUDA graph."""

    runs_array_library: tuple[Node, ...]
    """Nodes whose kernels run array-library code, which allocates memory: they cannot be captured."""
    runs_on_host: tuple[Node, ...]
    """Nodes that involve the CPU: they cannot be captured."""
    ignores_stop_flag: tuple[Node, ...]
    """Nodes that write a state and ignore the stop flag: the CPU checks the guard before them."""
    writes: bool
    """Whether any state is written."""
    guarded: bool

    @classmethod
    def of(cls, plan: ExecutionPlan) -> CaptureLimits:
        """Find the reasons from kernels and memory. Loop-invariant nodes are never part of a graph."""
        kernels = {node: choice.kernel for node, choice in plan.choices.items()}
        storage = plan.memory.storage

        def writes_state(node: Node) -> bool:
            return any(result in storage and storage[result].kind.startswith("state:") for result in node.outputs)

        captured_nodes = [node for node in plan.order[plan.invariant_count :] if node in kernels]
        after_guard = [node for node in plan.order[plan.before_guard_count :] if node in kernels]
        return cls(
            tuple(node for node in captured_nodes if kernels[node].uses_array_library),
            tuple(node for node in captured_nodes if kernels[node].runs_on_host),
            tuple(node for node in after_guard if kernels[node].backend != STOPPABLE_BACKEND and writes_state(node)),
            bool(plan.graph.updates),
            plan.graph.guard is not None,
        )

    @property
    def can_capture(self) -> bool:
        """Whether the program can be one graph or two."""
        return not (self.runs_array_library or self.runs_on_host)

    @property
    def waits_for_guard(self) -> bool:
        """Whether the CPU waits for the guard of each run before states are written."""
        return self.guarded and bool(self.ignores_stop_flag)

    def notes(self) -> list[str]:
        """Describe the reasons in sentences."""
        if not self.can_capture:
            reasons = [f"{_named(self.runs_array_library)} run array-library code"] * bool(self.runs_array_library)
            reasons += [f"{_named(self.runs_on_host)} go through the CPU"] * bool(self.runs_on_host)
            notes = [f"no CUDA graph, its kernels are called one by one: {'; '.join(reasons)}"]
        else:
            two = "two CUDA graphs; the CPU checks the loss between them"
            notes = [two if self.waits_for_guard else "one CUDA graph"]
        if self.waits_for_guard:
            named = _named(self.ignores_stop_flag)
            notes.append(f"the CPU waits for the loss, because the GPU cannot stop {named} from writing states")
        return notes


def _named(nodes: Sequence[Node]) -> str:
    return listing([f"`{node.scope.layer}` ({node.op.name})" if node.scope.layer else node.op.name for node in nodes],
                   MAX_NAMED)  # fmt: skip
