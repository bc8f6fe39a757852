"""The memory plan: where each value lives, in one arena, so that what is dead makes room for what comes.

Values that live at the same time never overlap; a view lives where its operand lives; an op with the trait `inplace`
may write over an operand that dies with it; a new value of a state is written where the state lives if nobody reads
the old value afterwards. Places are found greedily, the largest first (Pisarchyk and Lee 2020, arXiv:2001.03288,
"greedy by size"), which is within a few per cent of the lower bound on real nets.
"""

from __future__ import annotations

from bisect import insort
from collections.abc import Mapping, Sequence

from netspec.graph.graph import Graph
from netspec.graph.ops.source import State
from netspec.graph.plan import MemoryPlan, Storage, aligned
from netspec.graph.value import Node, Value

def plan_memory(graph: Graph, order: Sequence[Node], workspace: Mapping[Node, int]) -> MemoryPlan:
    """Plan the memory of the nodes run in `order`; `workspace` is the scratch memory each kernel wants, in bytes."""
    planner = _Planner(graph, order)
    planner.assign()
    extra = {
        node: Storage(aligned(size), index, index, "arena")
        for index, node in enumerate(order)
        if (size := workspace.get(node, 0))
    }
    pieces = list({id(one): one for one in planner.storage.values() if one.kind == "arena"}.values()) + list(extra.values())
    live = [0] * (len(order) + 1)
    for piece in pieces:
        live[max(piece.first, 0)] += piece.size
        if piece.last + 1 < len(live):
            live[piece.last + 1] -= piece.size
    for index in range(1, len(live)):
        live[index] += live[index - 1]
    constants = list({id(one): one for one in planner.storage.values() if one.kind == "constant"}.values())
    size = 0
    for one in constants:
        one.offset, size = size, size + one.size
    return MemoryPlan(
        planner.storage, extra, tuple(planner.copies), place(pieces), max(live, default=0), size, live[: len(order)]
    )


class _Planner:
    """Decides which values share a storage."""

    def __init__(self, graph: Graph, order: Sequence[Node]) -> None:
        self.graph, self.order = graph, order
        self.storage: dict[Value, Storage] = {}
        self.copies: list[tuple[Value, str]] = []
        self.position = {node: index for index, node in enumerate(order)}
        self.last_use: dict[Value, int] = {}
        for index, node in enumerate(order):
            for value in node.inputs:
                self.last_use[value] = index
        end = len(order)
        kept = [*graph.outputs.values(), *([graph.guard] if graph.guard is not None else [])]
        self.last_use.update(dict.fromkeys(kept, end))

    def assign(self) -> None:
        """Give every value that anybody reads a storage."""
        targets = self._updates_in_place()
        for index, node in enumerate(self.order):
            for value in node.outputs:
                if value in targets:
                    self.storage[value] = targets[value]
                elif value in self.last_use or value in self.graph.updates.values():
                    self.storage[value] = self._storage(value, index)
        for name, value in self.graph.updates.items():
            if self.storage[value].kind != f"state:{name}":
                self.copies.append((value, name))
                self.storage[value].last = len(self.order)

    def _storage(self, value: Value, index: int) -> Storage:
        node = value.node
        last = self.last_use.get(value, index)
        if isinstance(node.op, State):
            return Storage(value.type.nbytes, index, last, f"state:{node.op.label}")
        if node.op.traits.source and node.op.traits.pure:
            return Storage(aligned(value.type.nbytes), index, last, "constant")
        shared = self._taken_over(value, index)
        if shared is not None:
            shared.last = max(shared.last, last)
            return shared
        first = -1 if node.op.traits.source else index  # an input is there before the first node runs
        return Storage(aligned(value.type.nbytes), first, last, "arena")

    def _taken_over(self, value: Value, index: int) -> Storage | None:
        """The storage of an operand that the value can live in."""
        node = value.node
        if node.op.traits.view:
            return self.storage[node.inputs[0]]
        if not node.op.traits.inplace:
            return None
        for operand in node.inputs:
            storage = self.storage[operand]
            fits = operand.type == value.type and storage.kind == "arena" and storage.first >= 0
            if fits and storage.last <= index and self.last_use[operand] == index:
                return storage
        return None

    def _updates_in_place(self) -> dict[Value, Storage]:
        """New values of states that can be written where the state lives."""
        states, readers = self.graph.states(), self._readers_of_states()
        targets: dict[Value, Storage] = {}
        for name, value in self.graph.updates.items():
            node, state = value.node, states.get(name)
            if node.op.traits.source or node.op.traits.view or value in targets:
                continue
            index = self.position[node]
            later = [reader for reader in readers.get(name, []) if reader > index]
            itself = state is not None and index in readers.get(name, [])
            directly = not itself or (node.op.traits.inplace and state in node.inputs)
            if not later and directly:
                targets[value] = Storage(value.type.nbytes, index, len(self.order), f"state:{name}")
        return targets

    def _readers_of_states(self) -> dict[str, list[int]]:
        """Positions of the nodes that read each state, also through views of it."""
        name_of: dict[Value, str] = {}
        readers: dict[str, list[int]] = {}
        for index, node in enumerate(self.order):
            if isinstance(node.op, State):
                name_of[node.outputs[0]] = node.op.label
                continue
            for operand in node.inputs:
                if operand in name_of:
                    readers.setdefault(name_of[operand], []).append(index)
                    if node.op.traits.view:
                        name_of[node.outputs[0]] = name_of[operand]
        end = len(self.order)
        for value in (*self.graph.outputs.values(), *self.graph.updates.values()):
            if value in name_of:
                readers.setdefault(name_of[value], []).append(end)
        return readers


def place(pieces: Sequence[Storage]) -> int:
    """Give each piece its offset so that none overlaps another alive at the same time; the size of the arena."""
    total = 0
    placed: list[Storage] = []
    for piece in sorted(pieces, key=lambda one: (-one.size, one.first)):
        offset = 0
        for other in placed:  # in the order of offsets
            if other.offset >= offset + piece.size:
                break
            if other.first <= piece.last and piece.first <= other.last:
                offset = max(offset, other.offset + other.size)
        piece.offset = offset
        insort(placed, piece, key=lambda one: one.offset)
        total = max(total, offset + piece.size)
    return total
