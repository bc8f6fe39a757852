"""`Wholes`: states of which each worker has a piece, or which only some workers have, put together and handed out."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from netspec.graph.types import DType, TensorType
from netspec.layers.states import Piece
from netspec.parallel import Communicator

if TYPE_CHECKING:
    from netspec.compile import Compiler

BESIDE = ("gathered", "gradient")
"""Roles of states that no checkpoint holds: they are made of others, or begun anew by each step."""


@dataclass(frozen=True)
class Divided:
    """A state that not every worker has the whole of."""

    name: str
    role: str
    kind: TensorType
    """Of the whole."""
    holders: tuple[int, ...]
    """The workers who have it, or some of it, in the order of ranks."""
    piece: Piece | None
    """How it is cut, as the first worker would have it; None: each holder has the whole."""

    def counts(self, workers: int) -> list[int]:
        """How many numbers each worker has, of what is put together: of wholes that of the first holder."""
        if self.piece is None:
            return [self.kind.size if rank == self.holders[0] else 0 for rank in range(workers)]
        return [int(np.prod(self.piece.at(rank).part)) if rank in self.holders else 0 for rank in range(workers)]


class Wholes:
    """What the workers know of each other's states. All make it together, and call its methods together."""

    def __init__(self, workers: Communicator, compiler: Compiler) -> None:
        self._workers, self._compiler = workers, compiler
        told = {
            name: [info.role, str(info.value.dtype), list(info.value.shape), info.piece and asdict(info.piece)]
            for name, info in compiler.info.items()
        }
        gathers = [[name, info.gathers] for name, info in compiler.info.items() if info.gathers is not None]
        found = workers.gather(told) if workers.size > 1 else []
        self.gathered = dict(one for every in (workers.gather(gathers) if found else [gathers]) for one in every)
        """States that are wholes of others, which some workers may not have, and of which."""
        self.divided = {one.name: one for one in _divided(found)}
        """Those that some worker has no whole of, by name; in the order of the workers and their states."""
        self.common = [name for name in (found[0] if found else told) if name not in self.divided]
        """Those that every worker has the whole of, in the order of the first worker's."""

    def __contains__(self, name: object) -> bool:
        return name in self.divided

    @property
    def kept(self) -> list[Divided]:
        """Those that checkpoints hold."""
        return [one for one in self.divided.values() if one.role not in BESIDE]

    @property
    def copies(self) -> list[str]:
        """Those of them that this worker has the whole of."""
        info = self._compiler.info
        return [one.name for one in self.kept if one.name in info and info[one.name].piece is None]

    def assembled(self) -> dict[str, Any]:
        """What checkpoints hold of them, whole, on the first worker; nothing on the others."""
        found = {}
        for one in self.kept:
            parts = self._workers.collect_parts(self._mine(one), one.counts(self._workers.size))
            if parts is not None:
                found[one.name] = _joined(one, parts)
        return found

    def hand_out(self, wholes: Mapping[str, Any]) -> None:
        """Give all workers their parts of the wholes that the first one has; the others have none."""
        names = self._workers.shared(list(wholes))
        for one in (self.divided[name] for name in names):
            parts = _parts(one, wholes[one.name], self._workers.size) if self._workers.is_first else None
            counts = one.counts(self._workers.size)
            if one.piece is None:  # each holder gets the whole
                counts = [one.kind.size if rank in one.holders else 0 for rank in range(self._workers.size)]
            part = self._workers.hand_out_parts(parts, counts, str(one.kind.dtype))
            if self._has(one):
                shape = self._compiler.info[one.name].value.shape
                self._compiler.states.assign(one.name, part.reshape(shape))

    def gather(self) -> None:
        """Fill the states that are wholes of pieces, on all workers."""
        for name, source in self.gathered.items():
            one = self.divided.get(source)
            if one is None:  # every worker has the whole of it
                self._compiler.states.assign(name, self._compiler.states[source])
                continue
            told = self._workers.all_gather(self._mine(one).tobytes())
            parts = [np.frombuffer(part, str(one.kind.dtype)) for part in told]
            if name in self._compiler.info:
                self._compiler.states.assign(name, _joined(one, parts))

    def _mine(self, one: Divided) -> Any:
        """What this worker has of a state, flat; of wholes the first holder has it."""
        if not self._has(one) or (one.piece is None and self._workers.rank != one.holders[0]):
            return np.empty(0, str(one.kind.dtype))
        return np.ascontiguousarray(self._compiler.states[one.name]).reshape(-1)

    def _has(self, one: Divided) -> bool:
        """Whether this worker has what is put together: not a copy of the whole of what others have pieces of."""
        info = self._compiler.info.get(one.name)
        return info is not None and (info.piece is None) == (one.piece is None)


def _divided(told: list[dict[str, Any]]) -> Iterator[Divided]:
    """The states that not all have the whole of, from what each worker tells of its own."""
    for name in dict.fromkeys(name for one in told for name in one):
        holders = [rank for rank, one in enumerate(told) if name in one]
        # What one has a piece of is put together of pieces, though others have copies of the whole.
        role, dtype, shape, cut = max((told[rank][name] for rank in holders), key=lambda one: one[3] is not None)
        if cut is None and len(holders) == len(told):
            continue
        piece = None if cut is None else Piece(tuple(cut["shape"]), cut["axis"], tuple(cut["cuts"]), 0)
        kind = TensorType(tuple(shape) if piece is None else piece.shape, DType(dtype))
        yield Divided(name, role, kind, tuple(holders), piece)


def _joined(one: Divided, parts: list[Any]) -> Any:
    if one.piece is None:
        return parts[one.holders[0]].reshape(one.kind.shape)
    return one.piece.joined([part.reshape(one.piece.at(rank).part) for rank, part in enumerate(parts)])


def _parts(one: Divided, whole: Any, workers: int) -> list[Any]:
    """What each worker is to have, flat."""
    whole, none = np.ascontiguousarray(whole, str(one.kind.dtype)), np.empty(0, str(one.kind.dtype))
    return [
        none if rank not in one.holders else (whole if one.piece is None else one.piece.at(rank).of(whole)).reshape(-1)
        for rank in range(workers)
    ]
