"""`ExecutionPlan` and `MemoryPlan`: what the passes decide before a run and the backends bind to."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from netspec.graph.graph import Graph
from netspec.graph.kernel import KernelChoice
from netspec.graph.layout import Layout, LayoutSignature
from netspec.graph.value import Node, Value

ALIGNMENT = 64
"""Bytes: a cache line, which is also the width of the widest vector registers."""


@dataclass
class Storage:
    """A contiguous block of memory that holds one or several values, one after another."""

    size: int
    first_use: int
    last_use: int
    kind: str
    """`arena`, `constant` (filled once), `invariant` (kept from run to run), or `state:` and the name of a state."""
    offset: int = 0
    parent: Storage | None = None
    """The larger storage that contains this one, next to others, if values must be contiguous."""
    parent_offset: int = 0
    """Offset of this storage in `parent`."""


@dataclass(frozen=True)
class MemoryPlan:
    """The storage of each value, and the bytes that a program allocates."""

    storage: Mapping[Value, Storage]
    workspace: Mapping[Node, Storage]
    copies: tuple[tuple[Value, str], ...]
    """New values of states that could not be written in place; they are copied at the end of the step."""
    arena_bytes: int
    lower_bound: int
    """The most bytes alive at the same time: no plan can be smaller."""
    constant_bytes: int
    invariant_bytes: int
    """Bytes of the results of invariant nodes that other nodes read."""
    staged_bytes: int = 0
    """Bytes of inputs in transfer, if the device copies the next inputs during a run."""
    live_bytes: Sequence[int] = field(default_factory=list)
    """Bytes alive during each node, in execution order."""

    @property
    def nbytes(self) -> int:
        """All bytes that the program allocates in addition to the states."""
        return self.arena_bytes + self.constant_bytes + self.invariant_bytes + self.staged_bytes


@dataclass(frozen=True)
class ExecutionPlan:
    """A graph with its execution order, kernels and memory decided. Nothing is allocated yet."""

    graph: Graph
    order: Sequence[Node]
    invariant_count: int
    """Number of leading nodes that run only after states have changed."""
    before_guard_count: int
    """Number of nodes that run before the guard is checked, including the invariant ones."""
    choices: Mapping[Node, KernelChoice]
    layouts: Mapping[Value, Layout]
    """Element order of each value in memory."""
    memory: MemoryPlan
    recomputed: Sequence[Node] = ()
    """Nodes that recompute results for the gradients instead of keeping them."""
    recompute_saved_bytes: int = 0
    """Bytes by which the arena would be larger without recomputation."""


def layout_signature(node: Node, layouts: Mapping[Value, Layout]) -> LayoutSignature:
    """The layouts of a node's operands and results."""
    return LayoutSignature(
        tuple(layouts[value] for value in node.inputs), tuple(layouts[value] for value in node.outputs)
    )


def align_up(size: int) -> int:
    """`size` rounded up to the alignment."""
    return -(-size // ALIGNMENT) * ALIGNMENT


def contiguous_bytes(sizes: Sequence[int]) -> int:
    """Bytes of arrays of these sizes stored one after another, each starting at an aligned offset."""
    return sum(map(align_up, sizes[:-1])) + sum(sizes[-1:])
