"""What is decided of a graph before it runs: the contract between the passes that plan and the backends that bind."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from netspec.graph.graph import Graph
from netspec.graph.kernel import Choice
from netspec.graph.layout import Layout, Signature
from netspec.graph.value import Node, Value

ALIGNMENT = 64
"""Bytes; a cache line, and the width of the widest vector registers."""


@dataclass
class Storage:
    """A piece of memory that one or several values live in, one after another."""

    size: int
    first: int
    last: int
    kind: str
    """`arena`, `constant` (filled once), `steady` (kept from run to run), or the name of a state behind `state:`."""
    offset: int = 0
    row: Storage | None = None
    """The larger piece that it is a part of, beside others."""
    within: int = 0
    """Where in that it begins."""


@dataclass(frozen=True)
class MemoryPlan:
    """Where every value lives."""

    storage: Mapping[Value, Storage]
    workspace: Mapping[Node, Storage]
    copies: tuple[tuple[Value, str], ...]
    """New values of states that could not be written in place: copied at the end of the step."""
    arena_bytes: int
    lower_bound: int
    """The most bytes alive at once: no plan can be smaller."""
    constant_bytes: int
    steady_bytes: int
    """Of the results of steady nodes that others read."""
    staged_bytes: int = 0
    """Of inputs on their way, where the device has them arrive while a run goes on."""
    live_bytes: Sequence[int] = field(default_factory=list)
    """Bytes alive while each node runs, in the order of execution."""

    @property
    def nbytes(self) -> int:
        """Of all that is allocated for the program beside the states."""
        return self.arena_bytes + self.constant_bytes + self.steady_bytes + self.staged_bytes


@dataclass(frozen=True)
class Plan:
    """A graph with everything decided: order, kernels, memory. Nothing is allocated."""

    graph: Graph
    order: Sequence[Node]
    steady: int
    """How many nodes come first and run only when states have changed."""
    before_guard: int
    """How many nodes come before the guard is looked at, the steady ones included."""
    choices: Mapping[Node, Choice]
    layouts: Mapping[Value, Layout]
    """In which order the elements of each value lie."""
    memory: MemoryPlan
    again: Sequence[Node] = ()
    """Nodes that make a second time what is not kept for the gradients."""
    spared_bytes: int = 0
    """By how much the arena would be larger without them."""


def signature(node: Node, layouts: Mapping[Value, Layout]) -> Signature:
    """How the operands and results of a node lie."""
    return Signature(tuple(layouts[one] for one in node.inputs), tuple(layouts[one] for one in node.outputs))


def aligned(size: int) -> int:
    """`size` rounded up to the alignment."""
    return -(-size // ALIGNMENT) * ALIGNMENT


def in_a_row(sizes: Sequence[int]) -> int:
    """Bytes from the first to the end of the last of arrays of these sizes that begin at aligned places."""
    return sum(map(aligned, sizes[:-1])) + sum(sizes[-1:])
