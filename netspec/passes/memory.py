"""The memory plan: where each value lives, in one arena, so that what is dead makes room for what comes.

Values that live at the same time never overlap; a view lives where its operand lives; an op with the trait `inplace`
may write over an operand that dies with it; a new value of a state is written where the state lives if nobody reads
the old value afterwards, and never before the guard was looked at. What could not be written in place is copied at
the end of the step. What steady nodes leave to others has memory of its own, since it stays from run to run. Operands
that an op wants side by side (`Op.row`) are parts of one piece.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping, Sequence

from netspec.graph.graph import Graph
from netspec.graph.layout import PLAIN, Layout
from netspec.graph.ops.source import Input, State
from netspec.graph.plan import MemoryPlan, Storage, aligned
from netspec.graph.value import Node, Value
from netspec.passes.place import place


def plan_memory(
    graph: Graph,
    order: Sequence[Node],
    workspace: Mapping[Node, int],
    before_guard: int = 0,
    layouts: Mapping[Value, Layout] | None = None,
    steady: int = 0,
    slots: int = 0,
    apart: Container[Node] = (),
) -> MemoryPlan:
    """Plan the memory of the nodes run in `order`; `workspace` is the scratch memory each kernel wants, in bytes.

    Inputs on their way have so many `slots`. The first `steady` nodes run only when states have changed. The first
    `before_guard` nodes run before the guard: they write no state, and find their inputs whole until its end, so that
    they can be run again to look for what is not finite. The nodes `apart` write over no operand. An updated state must
    not be fetched, nor be the new value of another state, by itself or as a view: see the pass `detach`.
    """
    planner = _Planner(graph, order, before_guard, layouts or {}, steady, apart)
    planner.assign()
    storages = {id(one): one for one in map(_whole, planner.storage.values())}.values()
    scratch = {
        node: Storage(aligned(size), index, index, "arena")
        for index, node in enumerate(order)
        if (size := workspace.get(node, 0))
    }
    arena = [one for one in storages if one.kind == "arena"] + list(scratch.values())
    live, arena_bytes = _live_bytes(arena, len(order)), place(arena)
    for part in planner.storage.values():
        if part.row is not None:
            part.offset = part.row.offset + part.within
    return MemoryPlan(
        storage=planner.storage,
        workspace=scratch,
        copies=tuple(planner.copies),
        arena_bytes=arena_bytes,
        lower_bound=max(live, default=0),
        constant_bytes=_in_a_row(one for one in storages if one.kind == "constant"),
        steady_bytes=_in_a_row(one for one in storages if one.kind == "steady"),
        staged_bytes=slots * sum(one.size for value, one in planner.storage.items() if isinstance(value.op, Input)),
        live_bytes=live[: len(order)],
    )


def _whole(piece: Storage) -> Storage:
    """The piece, or the row that it is a part of, which lives as long as any of its parts."""
    row = piece.row
    if row is None:
        return piece
    row.first, row.last = min(row.first, piece.first), max(row.last, piece.last)
    return row


def _live_bytes(pieces: Iterable[Storage], steps: int) -> list[int]:
    """Bytes alive while each node runs; the last entry is the end of the step."""
    change = [0] * (steps + 2)
    for piece in pieces:
        change[max(piece.first, 0)] += piece.size
        change[piece.last + 1] -= piece.size
    live, total = [], 0
    for bytes_ in change[: steps + 1]:
        total += bytes_
        live.append(total)
    return live


def _in_a_row(pieces: Iterable[Storage]) -> int:
    """Give each piece a place of its own; the bytes of all."""
    size = 0
    for piece in pieces:
        piece.offset, size = size, size + piece.size
    return size


class _Planner:
    """Decides which values share a storage."""

    def __init__(
        self, graph: Graph, order: Sequence[Node], before_guard: int, layouts: Mapping[Value, Layout], steady: int,
        apart: Container[Node],
    ) -> None:  # fmt: skip
        self.graph, self.order, self.before_guard, self.layouts = graph, order, before_guard, layouts
        self.apart, self.kept = apart, self._kept(steady)
        self.end = len(order)
        self.storage: dict[Value, Storage] = {}
        self.copies: list[tuple[Value, str]] = []
        self.targets = self._updates_in_place()
        self.last_use = self._last_uses()
        self.rows = self._rows()

    def assign(self) -> None:
        """Give every value that anybody reads a storage, and note what must be copied at the end."""
        for index, node in enumerate(self.order):
            for value in node.outputs:
                if value in self.last_use:
                    self.storage[value] = self._storage(value, index)
        for name, value in self.graph.updates.items():
            if self.storage[value].kind != f"state:{name}":
                self.copies.append((value, name))

    def _last_uses(self) -> dict[Value, int]:
        """For each value that anybody reads, the position of the last node that does, or the end of the step."""
        last: dict[Value, int] = {}
        for index, node in enumerate(self.order):
            for value in node.inputs:
                last[value] = index
                if isinstance(value.op, Input):
                    last[value] = max(index, self.before_guard - 1)
        last.update(dict.fromkeys(self.graph.roots(), self.end))
        return last

    def _kept(self, steady: int) -> set[Value]:
        """The results of the first nodes that later ones or the caller read, and what those are views of."""
        read = [value for node in self.order[steady:] for value in node.inputs]
        first = set(self.order[:steady])
        kept = {value for value in (*read, *self.graph.roots()) if value.node in first}
        for node in reversed(self.order[:steady]):
            if node.op.traits.view and node.outputs[0] in kept:
                kept.add(node.inputs[0])
        return kept

    def _rows(self) -> dict[Value, tuple[Storage, int]]:
        """For each value that lies in a row, the row and where in it; whoever asked for it copies what does not."""
        found: dict[Value, tuple[Storage, int]] = {}
        for index, node in enumerate(self.order):
            row = Storage(0, index, index, "arena")
            for value in (one.base for one in node.op.row(node.inputs)):
                if not (value in found or value in self.kept or value in self.targets or value.op.traits.source):
                    found[value] = row, row.size
                    row.size += self._size(value)
        return found

    def _size(self, value: Value) -> int:
        return aligned(self.layouts.get(value, PLAIN).nbytes(value.type))

    def _storage(self, value: Value, index: int) -> Storage:
        node, last = value.node, self.last_use[value]
        if value in self.targets:
            return Storage(value.type.nbytes, index, last, f"state:{self.targets[value]}")
        if isinstance(node.op, State):
            return Storage(value.type.nbytes, index, last, f"state:{node.op.label}")
        if node.op.traits.source and node.op.traits.pure:
            return Storage(self._size(value), index, last, "constant")
        if value in self.kept and not node.op.traits.view:
            return Storage(self._size(value), index, last, "steady")
        if value in self.rows:
            row, within = self.rows[value]
            return Storage(self._size(value), index, last, "arena", row=row, within=within)
        shared = self._taken_over(value, index)
        if shared is not None:
            shared.last = max(shared.last, last)
            return shared
        first = -1 if node.op.traits.source else index  # an input is there before the first node runs
        return Storage(self._size(value), first, last, "arena")

    def _taken_over(self, value: Value, index: int) -> Storage | None:
        """The storage of an operand that the value can live in."""
        node = value.node
        if node.op.traits.view:
            return self.storage[node.inputs[0]]
        for operand in self._overwritable(value):
            storage = self.storage[operand]
            alike = operand.type == value.type and self.layouts.get(operand) == self.layouts.get(value)
            fits = alike and storage.kind == "arena" and storage.first >= 0
            if fits and storage.last <= index:
                return storage
        return None

    def _overwritable(self, value: Value) -> Sequence[Value]:
        """The operands that a value may be written over."""
        node = value.node
        return () if node in self.apart else node.op.overwritable(value.index, node.inputs)

    def _updates_in_place(self) -> dict[Value, str]:
        """New values of states that can be written where the state lives, with the state's name."""
        position = {node: index for index, node in enumerate(self.order)}
        states, readers = self.graph.states(), self._readers_of_states()
        targets: dict[Value, str] = {}
        for name, value in self.graph.updates.items():
            node, read = value.node, readers.get(name, [])
            index = position[node]
            if node.op.traits.source or node.op.traits.view or value in targets or index < self.before_guard:
                continue
            # A node that reads the state it writes must be able to write over an operand, and see it as such.
            safe = index not in read or states[name] in self._overwritable(value)
            if safe and all(reader <= index for reader in read):
                targets[value] = name
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
        return readers
