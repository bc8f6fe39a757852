"""Training steps that are bit-identical on any number of workers.

A batch is cut into a fixed number of parts. The gradients of each part are computed separately, and added in the order
of a fixed binary tree: neighbours in pairs, their sums in pairs, and so on. A worker computes consecutive parts, adds
those that are neighbours in the tree, and sends its partial sums to the other workers.
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
from netspec.data.sharding import Share
from netspec.distributed import Communicator
from netspec.distributed.communication_plan import Batches
from netspec.distributed.communicators.base import packed_bytes
from netspec.distributed.cost_model.comm_volume import Message, gathered, wish_to_stop
from netspec.distributed.cost_model.networks import Cluster
from netspec.schema.specs.train import TrainSpec
from netspec.training.stepper import PartialStep, Stepper, moving_averages

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Found = dict[str, NDArray[Any]]

LOSS, WEIGHT = "$loss", "$weight"
"""Among the arrays of a part: the sum of the losses of its samples, and how many they are."""
NUMBERS = [(name, "float64", ()) for name in (LOSS, WEIGHT)]
"""Names, types and shapes of these."""


@dataclass(frozen=True)
class PartialSum:
    """A sum of the tree: that of the parts from `index · 2^level` on, 2^level of them; None where they have nothing."""

    level: int
    index: int
    found: Found | None

    def with_next(self, other: PartialSum) -> PartialSum | None:
        """The sum with its neighbour, if they are two that the tree adds."""
        if self.level != other.level or self.index % 2 or other.index != self.index + 1:
            return None
        return PartialSum(self.level + 1, self.index // 2, add_arrays(self.found, other.found))


def add_arrays(one: Found | None, other: Found | None) -> Found | None:
    """Both together; nothing added to something leaves it as it is."""
    if one is None or other is None:
        return other if one is None else one
    return {name: array + other[name] for name, array in one.items()}


def merge_partial(branches: Sequence[PartialSum], more: PartialSum) -> list[PartialSum]:
    """Append a partial sum and merge neighbours as far up the tree as possible."""
    stack = [*branches, more]
    while len(stack) > 1 and (merged := stack[-2].with_next(stack[-1])) is not None:
        stack[-2:] = [merged]
    return stack


def total_of(branches: Sequence[PartialSum]) -> Found | None:
    """Return the sum of all parts: branches without a neighbour are added starting with the last."""
    return reduce(lambda later, one: add_arrays(one.found, later), reversed(branches), None)


class FixedOrderStepper(Stepper):
    """Runs training steps part by part, and adds the parts in a fixed order."""

    def __init__(
        self, spec: TrainSpec, compiler: Compiler, loader: Loader, group: Communicator, shards: int, share: Share
    ) -> None:
        super().__init__(spec, compiler, loader, restarts=group.size > 1)
        self._group, self._shards, self._share = group, shards, share
        self._sums, self._moving = compiler.names("gradient"), moving_averages(compiler)

    def _add(self, batch: Batch, step: int, part: PartialStep) -> tuple[float, int]:
        """Sum all parts of a batch over all workers; return the mean loss and the number of samples."""
        states = self._compiler.states
        before = {name: states[name] for name in self._sums} if part.batches else None
        start = {name: states[name] for name in self._moving}
        branches: list[PartialSum] = []
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
            branches = merge_partial(branches, PartialSum(0, number, found))
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
        """Yield the index and the samples of this worker's parts of a batch; None for a part without samples."""
        size = batch.end - batch.position
        for number in _numbers(self._shards, self._share):
            start, stop = (size * n // self._shards - batch.offset for n in (number, number + 1))
            rows = slice(start, min(stop, len(batch)))
            if rows.stop <= start:
                yield number, None
                continue
            inputs = {name: array[rows] for name, array in batch.inputs.items()}
            yield number, replace(batch, inputs=inputs, indices=batch.indices[rows], offset=batch.offset + start)

    def _with_others(self, branches: Sequence[PartialSum]) -> Found:
        """Return the sum of the parts of all workers."""
        mine = {
            f"{one.level}/{one.index}/{name}": array
            for one in branches
            for name, array in (one.found or {"": np.zeros(0)}).items()
        }
        stack: list[PartialSum] = []
        for told in self._group.all_gather_arrays(mine):
            for one in _branches(told):
                stack = merge_partial(stack, one)
        total = total_of(stack)
        assert total is not None, "a batch has a sample"
        return total


def _numbers(shards: int, share: Share) -> range:
    """Return the indices of a worker's parts of a batch."""
    return range(*(shards * number // share.count for number in (share.number, share.number + 1)))


def partial_sums_of(rank: int, shards: int, ranks: int, samples: int) -> list[PartialSum]:
    """Return the partial sums of a worker for `samples` samples; `found` is {}, or None without samples."""
    own: list[PartialSum] = []
    for number in _numbers(shards, Share(rank, ranks, shards)):
        start, stop = (samples * one // shards for one in (number, number + 1))
        own = merge_partial(own, PartialSum(0, number, {} if stop > start else None))
    return own


def sent_bytes(compiler: Compiler, shards: int, rank: int, ranks: int, samples: int) -> int:
    """Return the bytes that a worker sends to each other worker for a batch: its partial sums, with their names."""
    types = {name: compiler.info[name].value.type for name in (*compiler.names("gradient"), *moving_averages(compiler))}
    kinds = [*((name, str(one.dtype), one.shape) for name, one in types.items()), *NUMBERS]
    nbytes = sum(one.nbytes for one in types.values()) + len(NUMBERS) * np.dtype(np.float64).itemsize
    told, whole = list[tuple[str, str, Sequence[int]]](), 0
    for one in partial_sums_of(rank, shards, ranks, samples):
        whole += 0 if one.found is None else nbytes
        parts = kinds if one.found is not None else [("", "float64", (0,))]
        told += ((f"{one.level}/{one.index}/{name}", dtype, shape) for name, dtype, shape in parts)
    return packed_bytes(told, whole)


def fixed_order_messages(
    compiler: Compiler, shards: int, cluster: Cluster, batches: Batches, rank: int | None = None
) -> list[Message]:
    """Return the messages of a step of these batches: each worker sends its partial sums.

    Sizes are those of worker `rank`; None: the mean over workers, since some send more sums than others.
    """
    names, ranks = [*compiler.names("gradient"), *moving_averages(compiler)], cluster.ranks
    found = [wish_to_stop(cluster, len(batches), every=1)]
    for (_, samples), times in Counter(batches).items():
        told = [sent_bytes(compiler, shards, one, ranks, samples) for one in (range(ranks) if rank is None else [rank])]
        nbytes = sum(told) / len(told)
        found.append(Message("parts", tuple(names), nbytes, gathered(nbytes, cluster), 1.0, times))
    return found


def _branches(told: Mapping[str, NDArray[Any]]) -> list[PartialSum]:
    """Return the branches that a worker sent, in their order."""
    found: dict[tuple[int, int], Found] = {}
    for key, array in told.items():
        level, index, name = key.split("/", 2)
        found.setdefault((int(level), int(index)), {})[name] = array
    return [PartialSum(*place, None if "" in arrays else arrays) for place, arrays in found.items()]
