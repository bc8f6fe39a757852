"""Memory planning: assigns each value a storage, so that values which are not alive together share memory.

Values that are alive at the same time never overlap. A view shares the storage of its operand. An op with the trait
`inplace` may write over an operand that is not read afterwards. The new value of a state is written to the state's
memory if nobody reads the old value later, and never before the guard is checked; otherwise it is copied at the end of
the step. Results of invariant nodes that other nodes read have separate memory, since they persist between runs.
Operands that an op wants contiguous (`Op.contiguous_operands`) are parts of one storage.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping, Sequence

from netspec.graph.execution_plan import MemoryPlan, Storage, align_up
from netspec.graph.graph import Graph
from netspec.graph.layout import PLAIN, Layout
from netspec.graph.ops.source import Input, State
from netspec.graph.value import Node, Value
from netspec.passes.arena import assign_offsets


def plan_memory(
    graph: Graph,
    order: Sequence[Node],
    workspace: Mapping[Node, int],
    *,
    before_guard_count: int = 0,
    layouts: Mapping[Value, Layout] | None = None,
    invariant_count: int = 0,
    input_slots: int = 0,
    out_of_place: Container[Node] = (),
) -> MemoryPlan:
    """Plan the memory of the nodes run in `order`; `workspace` maps nodes to the bytes of scratch memory they need.

    Each input also gets `input_slots` staging buffers. The first `invariant_count` nodes run only when states have
    changed. The first `before_guard_count` nodes run before the guard: they write no state, and inputs stay intact
    until the guard is checked, so that these nodes can run again to find the source of a non-finite value. The nodes
    `out_of_place` do not overwrite operands. An updated state must not be fetched, nor be the new value of another
    state, directly or through a view: see the pass `state_aliasing`.
    """
    planner = _Planner(graph, order, before_guard_count, layouts or {}, invariant_count, out_of_place)
    planner.assign()
    storages = {id(storage): storage for storage in map(_outer_storage, planner.storage.values())}.values()
    scratch = {
        node: Storage(align_up(size), index, index, "arena")
        for index, node in enumerate(order)
        if (size := workspace.get(node, 0))
    }
    arena = [storage for storage in storages if storage.kind == "arena"] + list(scratch.values())
    live, arena_bytes = _live_bytes(arena, len(order)), assign_offsets(arena)
    for part in planner.storage.values():
        if part.parent is not None:
            part.offset = part.parent.offset + part.parent_offset
    return MemoryPlan(
        storage=planner.storage,
        workspace=scratch,
        copies=tuple(planner.copies),
        arena_bytes=arena_bytes,
        lower_bound=max(live, default=0),
        constant_bytes=_assign_consecutive(storage for storage in storages if storage.kind == "constant"),
        invariant_bytes=_assign_consecutive(storage for storage in storages if storage.kind == "invariant"),
        staged_bytes=input_slots
        * sum(storage.size for value, storage in planner.storage.items() if isinstance(value.op, Input)),
        live_bytes=live[: len(order)],
    )


def _outer_storage(storage: Storage) -> Storage:
    """The storage itself or, for a part, its parent, whose lifetime is extended to cover the part."""
    parent = storage.parent
    if parent is None:
        return storage
    parent.first_use, parent.last_use = min(parent.first_use, storage.first_use), max(parent.last_use, storage.last_use)
    return parent


def _live_bytes(storages: Iterable[Storage], steps: int) -> list[int]:
    """Bytes alive during each node; the last entry is the end of the step."""
    change = [0] * (steps + 2)
    for storage in storages:
        change[max(storage.first_use, 0)] += storage.size
        change[storage.last_use + 1] -= storage.size
    live, total = [], 0
    for bytes_ in change[: steps + 1]:
        total += bytes_
        live.append(total)
    return live


def _assign_consecutive(storages: Iterable[Storage]) -> int:
    """Assign consecutive offsets to the storages; return the total size."""
    size = 0
    for storage in storages:
        storage.offset, size = size, size + storage.size
    return size


class _Planner:
    """Decides which values share a storage."""

    def __init__(
        self, graph: Graph, order: Sequence[Node], before_guard_count: int, layouts: Mapping[Value, Layout],
        invariant_count: int, out_of_place: Container[Node],
    ) -> None:  # fmt: skip
        self.graph, self.order, self.before_guard_count, self.layouts = graph, order, before_guard_count, layouts
        self.out_of_place, self.kept = out_of_place, self._invariant_results(invariant_count)
        self.end = len(order)
        self.storage: dict[Value, Storage] = {}
        self.copies: list[tuple[Value, str]] = []
        self.targets = self._updates_in_place()
        self.last_use = self._last_uses()
        self.contiguous = self._contiguous_groups()

    def assign(self) -> None:
        """Assign a storage to each value that is read, and record what is copied at the end of the step."""
        for index, node in enumerate(self.order):
            for value in node.outputs:
                if value in self.last_use:
                    self.storage[value] = self._storage(value, index)
        for name, value in self.graph.updates.items():
            if self.storage[value].kind != f"state:{name}":
                self.copies.append((value, name))

    def _last_uses(self) -> dict[Value, int]:
        """For each value that is read, the index of its last reader, or the end of the step."""
        last: dict[Value, int] = {}
        for index, node in enumerate(self.order):
            for value in node.inputs:
                last[value] = index
                if isinstance(value.op, Input):
                    last[value] = max(index, self.before_guard_count - 1)
        last.update(dict.fromkeys(self.graph.roots(), self.end))
        return last

    def _invariant_results(self, invariant_count: int) -> set[Value]:
        """Invariant results that other nodes or the caller read, and the values that these results are views of."""
        read = [value for node in self.order[invariant_count:] for value in node.inputs]
        first = set(self.order[:invariant_count])
        results = {value for value in (*read, *self.graph.roots()) if value.node in first}
        for node in reversed(self.order[:invariant_count]):
            if node.op.traits.view and node.outputs[0] in results:
                results.add(node.inputs[0])
        return results

    def _contiguous_groups(self) -> dict[Value, tuple[Storage, int]]:
        """For each value of a contiguous group, the parent storage and the offset in it.

        Operands that cannot be part of a group are copied by the kernel.
        """
        group_of: dict[Value, tuple[Storage, int]] = {}
        for index, node in enumerate(self.order):
            parent = Storage(0, index, index, "arena")
            for value in (operand.base for operand in node.op.contiguous_operands(node.inputs)):
                if not (value in group_of or value in self.kept or value in self.targets or value.op.traits.source):
                    group_of[value] = parent, parent.size
                    parent.size += self._size(value)
        return group_of

    def _size(self, value: Value) -> int:
        return align_up(self.layouts.get(value, PLAIN).nbytes(value.type))

    def _storage(self, value: Value, index: int) -> Storage:
        node, last = value.node, self.last_use[value]
        if value in self.targets:
            return Storage(value.type.nbytes, index, last, f"state:{self.targets[value]}")
        if isinstance(node.op, State):
            return Storage(value.type.nbytes, index, last, f"state:{node.op.label}")
        if node.op.traits.source and node.op.traits.pure:
            return Storage(self._size(value), index, last, "constant")
        if value in self.kept and not node.op.traits.view:
            return Storage(self._size(value), index, last, "invariant")
        if value in self.contiguous:
            parent, offset = self.contiguous[value]
            return Storage(self._size(value), index, last, "arena", parent=parent, parent_offset=offset)
        shared = self._reused_storage(value, index)
        if shared is not None:
            shared.last_use = max(shared.last_use, last)
            return shared
        first = -1 if node.op.traits.source else index  # an input exists before the first node runs
        return Storage(self._size(value), first, last, "arena")

    def _reused_storage(self, value: Value, index: int) -> Storage | None:
        """The storage of an operand that the value can reuse."""
        node = value.node
        if node.op.traits.view:
            return self.storage[node.inputs[0]]
        for operand in self._inplace_operands(value):
            storage = self.storage[operand]
            alike = operand.type == value.type and self.layouts.get(operand) == self.layouts.get(value)
            fits = alike and storage.kind == "arena" and storage.first_use >= 0
            if fits and storage.last_use <= index:
                return storage
        return None

    def _inplace_operands(self, value: Value) -> Sequence[Value]:
        """The operands that the value may overwrite."""
        node = value.node
        return () if node in self.out_of_place else node.op.inplace_operands(value.index, node.inputs)

    def _updates_in_place(self) -> dict[Value, str]:
        """New values that can be written to the memory of their state, with the state's name."""
        position = {node: index for index, node in enumerate(self.order)}
        states, readers = self.graph.states(), self._readers_of_states()
        targets: dict[Value, str] = {}
        for name, value in self.graph.updates.items():
            node, read = value.node, readers.get(name, [])
            index = position[node]
            if node.op.traits.source or node.op.traits.view or value in targets or index < self.before_guard_count:
                continue
            # A node that reads the state it writes must be able to overwrite that operand.
            safe = index not in read or states[name] in self._inplace_operands(value)
            if safe and all(reader <= index for reader in read):
                targets[value] = name
        return targets

    def _readers_of_states(self) -> dict[str, list[int]]:
        """Indices of the nodes that read each state, directly or through views."""
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
        return readers
