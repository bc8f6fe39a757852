"""Steps of which every bit is the same on any number of workers.

A batch is cut into a fixed number of parts. The gradients of each are computed by themselves, and what the parts find
is added in the order of a fixed tree: neighbours two by two, their sums two by two, and so on. A worker has some parts
in a row, adds what the tree lets it add, and tells the others the sums that it has.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from typing import TYPE_CHECKING, Any

import numpy as np

from netspec.backends.program import NonFiniteLoss
from netspec.compile import Compiler
from netspec.data.batches import Batch
from netspec.data.loader import Loader
from netspec.data.shares import Share
from netspec.parallel import Communicator
from netspec.parallel.base import packed_bytes
from netspec.parallel.costs.networks import Cluster
from netspec.parallel.messages import Message, gathered, wish_to_stop
from netspec.schema.train import TrainSpec
from netspec.train.crew import Crew
from netspec.train.sending import Batches
from netspec.train.stepper import Part, ServedStepper, Stepper, moving

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Found = dict[str, NDArray[Any]]

LOSS, WEIGHT = "$loss", "$weight"
"""Among the arrays of a part: the sum of the losses of its samples, and how many they are."""
NUMBERS = [(name, "float64", ()) for name in (LOSS, WEIGHT)]
"""Names, types and shapes of these."""


@dataclass(frozen=True)
class Branch:
    """A sum of the tree: that of the parts from `index · 2^level` on, 2^level of them; None where they have nothing."""

    level: int
    index: int
    found: Found | None

    def with_next(self, other: Branch) -> Branch | None:
        """The sum with its neighbour, if they are two that the tree adds."""
        if self.level != other.level or self.index % 2 or other.index != self.index + 1:
            return None
        return Branch(self.level + 1, self.index // 2, added(self.found, other.found))


def added(one: Found | None, other: Found | None) -> Found | None:
    """Both together; nothing added to something leaves it as it is."""
    if one is None or other is None:
        return other if one is None else one
    return {name: array + other[name] for name, array in one.items()}


def grown(branches: Sequence[Branch], more: Branch) -> list[Branch]:
    """The branches with one more behind them, as far up the tree as their neighbours are there."""
    stack = [*branches, more]
    while len(stack) > 1 and (merged := stack[-2].with_next(stack[-1])) is not None:
        stack[-2:] = [merged]
    return stack


def whole(branches: Sequence[Branch]) -> Found | None:
    """The sum of all parts: what has no neighbour, where they are not 2, 4, 8, …, is added from the last one on."""
    return reduce(lambda later, one: added(one.found, later), reversed(branches), None)


class ShardStepper(Stepper):
    """Runs training steps part by part."""

    def __init__(
        self, spec: TrainSpec, compiler: Compiler, loader: Loader, group: Communicator, shards: int, share: Share
    ) -> None:
        super().__init__(spec, compiler, loader)
        self._group, self._shards, self._share = group, shards, share
        self._sums, self._moving = compiler.names("gradient"), moving(compiler)

    def _add(self, batch: Batch, step: int, part: Part) -> tuple[float, int]:
        """The sums of all parts of a batch, those of other workers too."""
        states = self._compiler.states
        before = {name: states[name] for name in self._sums} if part.batches else None
        start = {name: states[name] for name in self._moving}
        branches: list[Branch] = []
        failed: NonFiniteLoss | None = None
        for number, piece in self._pieces(batch):
            found: Found | None = None
            if piece is not None:
                for name, array in start.items():
                    states.assign(name, array)
                try:
                    loss, samples = super()._add(piece, step, replace(part, batches=0))
                except NonFiniteLoss as error:
                    failed, loss, samples = failed or error, np.nan, len(piece)
                found = {name: states[name] for name in self._sums}
                found |= {name: states[name] * array.dtype.type(samples) for name, array in start.items()}
                found |= {LOSS: np.array(loss * samples), WEIGHT: np.array(float(samples))}
            branches = grown(branches, Branch(0, number, found))
        total = self._with_others(branches)
        samples = int(total[WEIGHT])
        loss = float(total[LOSS]) / samples
        for name, array in start.items():
            states.assign(name, array if not np.isfinite(loss) else total[name] / array.dtype.type(samples))
        if not np.isfinite(loss):
            raise failed or NonFiniteLoss(None, None)
        for name in self._sums:
            states.assign(name, total[name] if before is None else before[name] + total[name])
        return loss, samples

    def _pieces(self, batch: Batch) -> Iterator[tuple[int, Batch | None]]:
        """This worker's parts of a batch by their numbers; None for one without samples."""
        size = batch.end - batch.position
        for number in _numbers(self._shards, self._share):
            start, stop = (size * n // self._shards - batch.offset for n in (number, number + 1))
            rows = slice(start, min(stop, len(batch)))
            if rows.stop <= start:
                yield number, None
                continue
            inputs = {name: array[rows] for name, array in batch.inputs.items()}
            yield number, replace(batch, inputs=inputs, indices=batch.indices[rows], offset=batch.offset + start)

    def _with_others(self, branches: Sequence[Branch]) -> Found:
        """The sum of the parts of all workers."""
        mine = {
            f"{one.level}/{one.index}/{name}": array
            for one in branches
            for name, array in (one.found or {"": np.zeros(0)}).items()
        }
        stack: list[Branch] = []
        for told in self._group.gather_arrays(mine):
            for one in _branches(told):
                stack = grown(stack, one)
        total = whole(stack)
        assert total is not None, "a batch has a sample"
        return total


def _numbers(shards: int, share: Share) -> range:
    """Which parts of a batch are a worker's."""
    return range(*(shards * number // share.count for number in (share.number, share.number + 1)))


def branches_of(rank: int, shards: int, ranks: int, samples: int) -> list[Branch]:
    """The sums that the tree lets a worker make of its parts of so many samples; empty where it finds something."""
    own: list[Branch] = []
    for number in _numbers(shards, Share(rank, ranks, shards)):
        start, stop = (samples * one // shards for one in (number, number + 1))
        own = grown(own, Branch(0, number, {} if stop > start else None))
    return own


def told_bytes(compiler: Compiler, shards: int, rank: int, ranks: int, samples: int) -> int:
    """Bytes that a worker tells each other one of a batch of so many samples: its sums, with their names."""
    types = {name: compiler.info[name].value.type for name in (*compiler.names("gradient"), *moving(compiler))}
    kinds = [*((name, str(one.dtype), one.shape) for name, one in types.items()), *NUMBERS]
    nbytes = sum(one.nbytes for one in types.values()) + len(NUMBERS) * np.dtype(np.float64).itemsize
    told, whole = list[tuple[str, str, Sequence[int]]](), 0
    for one in branches_of(rank, shards, ranks, samples):
        whole += 0 if one.found is None else nbytes
        parts = kinds if one.found is not None else [("", "float64", (0,))]
        told += ((f"{one.level}/{one.index}/{name}", dtype, shape) for name, dtype, shape in parts)
    return packed_bytes(told, whole)


def messages_of_parts(
    compiler: Compiler, shards: int, cluster: Cluster, batches: Batches, rank: int | None = None
) -> list[Message]:
    """What workers tell each other in a step of these batches: each the sums that the tree lets it make.

    As if all told as much as one of them does; None: as they do in the mean, since some have more sums to tell.
    """
    names, ranks = [*compiler.names("gradient"), *moving(compiler)], cluster.ranks
    found = [wish_to_stop(cluster, len(batches), every=1)]
    for (_, samples), times in Counter(batches).items():
        told = [told_bytes(compiler, shards, one, ranks, samples) for one in (range(ranks) if rank is None else [rank])]
        nbytes = sum(told) / len(told)
        found.append(Message("parts", tuple(names), nbytes, gathered(nbytes, cluster), 1.0, times))
    return found


def _branches(told: Mapping[str, NDArray[Any]]) -> list[Branch]:
    """The branches that a worker told of, in their order."""
    found: dict[tuple[int, int], Found] = {}
    for key, array in told.items():
        level, index, name = key.split("/", 2)
        found.setdefault((int(level), int(index)), {})[name] = array
    return [Branch(*place, None if "" in arrays else arrays) for place, arrays in found.items()]


def stepper(spec: TrainSpec, compiler: Compiler, loader: Loader, crew: Crew) -> Stepper:
    """What runs the steps of a training: part by part where it is to be the same on any number of workers."""
    made: Stepper
    if crew.servers is not None:
        made = ServedStepper(spec, compiler, loader, crew.servers)
    elif crew.shards is None:
        made = Stepper(spec, compiler, loader)
    else:
        made = ShardStepper(spec, compiler, loader, crew.workers, crew.shards, crew.share)
    return made if crew.alone else made.begins_anew()
