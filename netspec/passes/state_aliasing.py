"""State aliasing: copies results whose memory would change when the step writes a state."""

from __future__ import annotations

from typing import ClassVar

from netspec.graph.graph import Graph
from netspec.graph.ops.shape import Identity
from netspec.graph.ops.source import State
from netspec.graph.value import Value, in_scope
from netspec.passes.base import Pass


class CopyAliasedStates(Pass):
    """Copy each result that is the old value of an updated state, or a view of it.

    A fetched result is the value before the step, although it is read after the step. The same holds if the new value
    of a state is the old value of another one: a, b ← b, a swaps them.
    """

    name: ClassVar[str] = "state_aliasing"

    def run(self, graph: Graph) -> Graph:
        """The graph in which no result is a state that the step writes."""
        written = {name for name, value in graph.updates.items() if _aliased_state(value) != name}
        copies: dict[Value, Value] = {}

        def copy_if_aliased(value: Value, of: str | None = None) -> Value:
            state = _aliased_state(value)
            if state not in written or state == of:
                return value
            if value not in copies:
                with in_scope(value.node.scope):
                    copies[value] = Identity()(value)
            return copies[value]

        return Graph(
            {name: copy_if_aliased(value) for name, value in graph.outputs.items()},
            {name: copy_if_aliased(value, name) for name, value in graph.updates.items()},
            graph.guard,
        )


def _aliased_state(value: Value) -> str | None:
    """The name of the state whose memory the value is, directly or through views."""
    op = value.base.op
    return op.label if isinstance(op, State) else None
