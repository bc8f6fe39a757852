"""`ShardedStates`: states that are sharded over the workers, or that only some workers hold: gather and scatter."""

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
    """How it is cut, with the piece of worker 0; None: each holder has the full tensor."""

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
        told = {
            name: [info.role, str(info.value.dtype), list(info.value.shape), info.shard and asdict(info.shard)]
            for name, info in compiler.info.items()
        }
        gathers = [[name, info.gathers] for name, info in compiler.info.items() if info.gathers is not None]
        found = workers.all_gather_objects(told) if workers.size > 1 else []
        self.gathered = dict(
            one for every in (workers.all_gather_objects(gathers) if found else [gathers]) for one in every
        )
        """States that are wholes of others, which some workers may not have, and of which."""
        self.sharded = {one.name: one for one in _divided(found)}
        """Those that some worker has no whole of, by name; in the order of the workers and their states."""
        self.replicated = [name for name in (found[0] if found else told) if name not in self.sharded]
        """Those that every worker has the whole of, in the order of the first worker's."""

    def __contains__(self, name: object) -> bool:
        return name in self.sharded

    @property
    def checkpointed(self) -> list[ShardedState]:
        """Those that checkpoints hold."""
        return [one for one in self.sharded.values() if one.role not in NOT_CHECKPOINTED]

    @property
    def copies(self) -> list[str]:
        """Those of them that this worker has the whole of."""
        info = self._compiler.info
        return [one.name for one in self.checkpointed if one.name in info and info[one.name].shard is None]

    def assemble(self) -> dict[str, Any]:
        """What checkpoints hold of them, whole, on the first worker; nothing on the others."""
        found = {}
        for one in self.checkpointed:
            parts = self._workers.gather_parts(self._mine(one), one.counts(self._workers.size))
            if parts is not None:
                found[one.name] = _joined(one, parts)
        return found

    def scatter(self, wholes: Mapping[str, Any]) -> None:
        """Give all workers their parts of the wholes that the first one has; the others have none."""
        names = self._workers.broadcast_object(list(wholes))
        for one in (self.sharded[name] for name in names):
            parts = _parts(one, wholes[one.name], self._workers.size) if self._workers.is_first else None
            counts = one.counts(self._workers.size)
            if one.piece is None:  # each holder gets the whole
                counts = [one.kind.size if rank in one.holders else 0 for rank in range(self._workers.size)]
            part = self._workers.scatter_parts(parts, counts, str(one.kind.dtype))
            if self._has(one):
                shape = self._compiler.info[one.name].value.shape
                self._compiler.states.assign(one.name, part.reshape(shape))

    def gather_full(self) -> None:
        """Fill the states that are wholes of pieces, on all workers."""
        for name, source in self.gathered.items():
            one = self.sharded.get(source)
            if one is None:  # every worker has the whole of it
                self._compiler.states.assign(name, self._compiler.states[source])
                continue
            told = self._workers.all_gather_bytes(self._mine(one).tobytes())
            parts = [np.frombuffer(part, str(one.kind.dtype)) for part in told]
            if name in self._compiler.info:
                self._compiler.states.assign(name, _joined(one, parts))

    def _mine(self, one: ShardedState) -> Any:
        """Return this worker's contribution to a state, flat; a state without pieces comes from its first holder."""
        if not self._has(one) or (one.piece is None and self._workers.rank != one.holders[0]):
            return np.empty(0, str(one.kind.dtype))
        return np.ascontiguousarray(self._compiler.states[one.name]).reshape(-1)

    def _has(self, one: ShardedState) -> bool:
        """Return whether this worker contributes to a state: a full copy of a state that others cut does not count."""
        info = self._compiler.info.get(one.name)
        return info is not None and (info.shard is None) == (one.piece is None)


def _divided(told: list[dict[str, Any]]) -> Iterator[ShardedState]:
    """Yield the states that are not complete on all workers, from each worker's description of its own states."""
    for name in dict.fromkeys(name for one in told for name in one):
        holders = [rank for rank, one in enumerate(told) if name in one]
        # If one worker holds a piece, the state is assembled from pieces, even if others hold full copies.
        role, dtype, shape, cut = max((told[rank][name] for rank in holders), key=lambda one: one[3] is not None)
        if cut is None and len(holders) == len(told):
            continue
        piece = None if cut is None else ShardSpec(tuple(cut["shape"]), cut["axis"], tuple(cut["bounds"]), 0)
        kind = TensorType(tuple(shape) if piece is None else piece.shape, DType(dtype))
        yield ShardedState(name, role, kind, tuple(holders), piece)


def _joined(one: ShardedState, parts: list[Any]) -> Any:
    if one.piece is None:
        return parts[one.holders[0]].reshape(one.kind.shape)
    return one.piece.assemble([part.reshape(one.piece.for_rank(rank).local_shape) for rank, part in enumerate(parts)])


def _parts(one: ShardedState, whole: Any, workers: int) -> list[Any]:
    """What each worker is to have, flat."""
    whole, none = np.ascontiguousarray(whole, str(one.kind.dtype)), np.empty(0, str(one.kind.dtype))
    return [
        none
        if rank not in one.holders
        else (whole if one.piece is None else one.piece.for_rank(rank).slice_of(whole)).reshape(-1)
        for rank in range(workers)
    ]
