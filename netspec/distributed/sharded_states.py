"""`ShardedStates`: gather and scatter states that are sharded over the workers, or that only some workers hold."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from netspec.distributed import Communicator
from netspec.graph.types import DType, TensorType
from netspec.layers.states import ShardSpec

if TYPE_CHECKING:
    from netspec.compile import Compiler

NOT_CHECKPOINTED = ("gathered", "gradient")
"""Roles of states that checkpoints omit: they are computed from other states, or reset by each step."""


@dataclass(frozen=True)
class ShardedState:
    """A state that is not complete on every worker."""

    name: str
    role: str
    kind: TensorType
    """Type of the full tensor."""
    holders: tuple[int, ...]
    """The workers that hold it or a piece of it, in the order of ranks."""
    piece: ShardSpec | None
    """Layout of the pieces, with the piece of worker 0; None: each holder has the full tensor."""

    def counts(self, workers: int) -> list[int]:
        """Return how many elements each worker contributes; the first holder contributes a state without pieces."""
        if self.piece is None:
            return [self.kind.size if rank == self.holders[0] else 0 for rank in range(workers)]
        return [
            int(np.prod(self.piece.for_rank(rank).local_shape)) if rank in self.holders else 0
            for rank in range(workers)
        ]


class ShardedStates:
    """The sharded states of all workers. All workers create it and call its methods collectively."""

    def __init__(self, workers: Communicator, compiler: Compiler) -> None:
        self._workers, self._compiler = workers, compiler
        own_states = {
            name: [info.role, str(info.value.dtype), list(info.value.shape), info.shard and asdict(info.shard)]
            for name, info in compiler.info.items()
        }
        gathers = [[name, info.gathers] for name, info in compiler.info.items() if info.gathers is not None]
        by_rank = workers.all_gather_objects(own_states) if workers.size > 1 else []
        gathers_by_rank = workers.all_gather_objects(gathers) if by_rank else [gathers]
        self.gathered = dict(gather for gathers in gathers_by_rank for gather in gathers)
        """States that hold the full tensor of a sharded state, by name: the name of the sharded state."""
        self.sharded = {state.name: state for state in _find_sharded(by_rank)}
        """States that are not complete on every worker, by name, in the order of workers and their states."""
        self.replicated = [name for name in (by_rank[0] if by_rank else own_states) if name not in self.sharded]
        """Names of the states that are complete on every worker, in the order of worker 0."""

    def __contains__(self, name: object) -> bool:
        return name in self.sharded

    @property
    def checkpointed(self) -> list[ShardedState]:
        """Return the sharded states that checkpoints hold."""
        return [state for state in self.sharded.values() if state.role not in NOT_CHECKPOINTED]

    @property
    def copies(self) -> list[str]:
        """Return the names of the checkpointed states of which this worker has the full tensor."""
        info = self._compiler.info
        names = [state.name for state in self.checkpointed]
        return [name for name in names if name in info and info[name].shard is None]

    def assemble(self) -> dict[str, Any]:
        """Gather the full tensors of checkpointed states on worker 0, by name; return {} on the others."""
        tensors = {}
        for state in self.checkpointed:
            parts = self._workers.gatherv(self._contribution(state), state.counts(self._workers.size))
            if parts is not None:
                tensors[state.name] = _assembled(state, parts)
        return tensors

    def scatter(self, tensors: Mapping[str, Any]) -> None:
        """Scatter worker 0's full tensors, by name, so that each worker has its piece; others pass {}."""
        names = self._workers.broadcast_object(list(tensors))
        for state in (self.sharded[name] for name in names):
            parts = _worker_parts(state, tensors[state.name], self._workers.size) if self._workers.is_first else None
            counts = state.counts(self._workers.size)
            if state.piece is None:  # each holder gets the full tensor
                counts = [state.kind.size if rank in state.holders else 0 for rank in range(self._workers.size)]
            part = self._workers.scatterv(parts, counts, str(state.kind.dtype))
            if self._contributes(state):
                shape = self._compiler.info[state.name].value.shape
                self._compiler.states.assign(state.name, part.reshape(shape))

    def gather_full(self) -> None:
        """Fill the states that hold full tensors of sharded states, on all workers."""
        for name, source in self.gathered.items():
            state = self.sharded.get(source)
            if state is None:  # the state is complete on every worker
                self._compiler.states.assign(name, self._compiler.states[source])
                continue
            contributions = self._workers.all_gather_bytes(self._contribution(state).tobytes())
            parts = [np.frombuffer(part, str(state.kind.dtype)) for part in contributions]
            if name in self._compiler.info:
                self._compiler.states.assign(name, _assembled(state, parts))

    def _contribution(self, state: ShardedState) -> Any:
        """Return this worker's contribution to a state, flat; a state without pieces comes from its first holder."""
        if not self._contributes(state) or (state.piece is None and self._workers.rank != state.holders[0]):
            return np.empty(0, str(state.kind.dtype))
        return np.ascontiguousarray(self._compiler.states[state.name]).reshape(-1)

    def _contributes(self, state: ShardedState) -> bool:
        """Return whether this worker contributes: if other workers hold pieces, a full copy is not used."""
        info = self._compiler.info.get(state.name)
        return info is not None and (info.shard is None) == (state.piece is None)


def _find_sharded(by_rank: list[dict[str, Any]]) -> Iterator[ShardedState]:
    """Yield the states that are not complete on all workers, from each worker's description of its own states."""
    for name in dict.fromkeys(name for states in by_rank for name in states):
        holders = [rank for rank, states in enumerate(by_rank) if name in states]
        # If one worker holds a piece, the state is assembled from pieces, even if others hold full copies.
        role, dtype, shape, cut = max((by_rank[rank][name] for rank in holders), key=lambda entry: entry[3] is not None)
        if cut is None and len(holders) == len(by_rank):
            continue
        piece = None if cut is None else ShardSpec(tuple(cut["shape"]), cut["axis"], tuple(cut["bounds"]), 0)
        kind = TensorType(tuple(shape) if piece is None else piece.shape, DType(dtype))
        yield ShardedState(name, role, kind, tuple(holders), piece)


def _assembled(state: ShardedState, parts: list[Any]) -> Any:
    if state.piece is None:
        return parts[state.holders[0]].reshape(state.kind.shape)
    return state.piece.assemble(
        [part.reshape(state.piece.for_rank(rank).local_shape) for rank, part in enumerate(parts)]
    )


def _worker_parts(state: ShardedState, tensor: Any, workers: int) -> list[Any]:
    """Return each worker's flat part of a full tensor; empty for workers that do not hold the state."""
    dtype, piece = str(state.kind.dtype), state.piece
    tensor, empty = np.ascontiguousarray(tensor, dtype), np.empty(0, dtype)
    return [
        empty
        if rank not in state.holders
        else (tensor if piece is None else piece.for_rank(rank).slice_of(tensor)).reshape(-1)
        for rank in range(workers)
    ]
