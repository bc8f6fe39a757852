"""Training steps that are bit-identical on any number of workers.

A batch is cut into a fixed number of parts. The gradients of each part are computed separately, and added in the order
of a fixed binary tree: neighbors in pairs, their sums in pairs, and so on. A worker computes consecutive parts, adds
those that are neighbors in the tree, and sends its partial sums to the other workers.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
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
from netspec.distributed.cost_model.comm_volume import CollectiveMessage, all_gather_exchanges, stop_vote
from netspec.distributed.cost_model.networks import Cluster
from netspec.schema.specs.train import TrainSpec
from netspec.training.diagnostics.call_record import CallRecord
from netspec.training.stepper import PartialStep, Stepper, moving_averages

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Arrays = dict[str, NDArray[Any]]

LOSS, WEIGHT = "$loss", "$weight"
"""Names among the arrays of a part: the sum of its samples' losses, and the number of its samples."""
LOSS_ARRAYS = [(name, "float64", ()) for name in (LOSS, WEIGHT)]
"""Names, types and shapes of these arrays."""


@dataclass(frozen=True)
class PartialSum:
    """A node of the sum tree: the sum of the 2^level parts that start with part `index · 2^level`."""

    level: int
    index: int
    arrays: Arrays | None
    """Sums of states by name; None if the parts have no samples."""

    def with_next(self, other: PartialSum) -> PartialSum | None:
        """Return the sum of this node and the next one; None if they do not have the same parent in the tree."""
        if self.level != other.level or self.index % 2 or other.index != self.index + 1:
            return None
        return PartialSum(self.level + 1, self.index // 2, add_arrays(self.arrays, other.arrays))


def add_arrays(left: Arrays | None, right: Arrays | None) -> Arrays | None:
    """Add arrays that have the same name; None counts as zero."""
    if left is None or right is None:
        return right if left is None else left
    return {name: array + right[name] for name, array in left.items()}


def merge_partial(branches: Sequence[PartialSum], more: PartialSum) -> list[PartialSum]:
    """Append a partial sum and merge neighbors as far up the tree as possible."""
    stack = [*branches, more]
    while len(stack) > 1 and (merged := stack[-2].with_next(stack[-1])) is not None:
        stack[-2:] = [merged]
    return stack


def total_of(branches: Sequence[PartialSum]) -> Arrays | None:
    """Return the sum of all parts. Branches that have no neighbor are added from the last to the first."""
    return reduce(lambda later, branch: add_arrays(branch.arrays, later), reversed(branches), None)


class FixedOrderStepper(Stepper):
    """Runs training steps part by part, and adds the parts in a fixed order."""

    def __init__(
        self, spec: TrainSpec, compiler: Compiler, loader: Loader, group: Communicator, shards: int, share: Share
    ) -> None:
        calls = CallRecord(compiler, unknown_reason="all gradients were finite, but the updated weights are not")
        super().__init__(spec, compiler, loader, calls=calls, restarts=group.size > 1)
        self._group, self._shards, self._share = group, shards, share
        self._sums, self._moving = compiler.names("gradient"), moving_averages(compiler)

    def _add(self, batch: Batch, step: int, part: PartialStep) -> tuple[float, int]:
        """Sum all parts of a batch over all workers; return the mean loss and the number of samples."""
        states = self._compiler.states
        before = {name: states[name] for name in self._sums} if part.batches else None
        start = {name: states[name] for name in self._moving}
        branches: list[PartialSum] = []
        failed: NonFiniteLoss | None = None
        for number, piece in self._parts(batch):
            arrays: Arrays | None = None
            if piece is not None:
                self._assign(start)
                try:
                    loss, samples = super()._add(piece, step, replace(part, batches=0))
                except NonFiniteLoss as error:
                    if failed is None:
                        self.calls.mark_failed()
                    failed, loss, samples = failed or error, np.nan, len(piece)
                arrays = {name: states[name] for name in self._sums}
                arrays |= {name: states[name] * array.dtype.type(samples) for name, array in start.items()}
                arrays |= {LOSS: np.array(loss * samples), WEIGHT: np.array(float(samples))}
            branches = merge_partial(branches, PartialSum(0, number, arrays))
        total = self._all_reduce(branches)
        samples = int(total[WEIGHT])
        loss = float(total[LOSS]) / samples
        wrong = next((name for name in self._sums if not np.isfinite(total[name]).all()), None)
        if failed is None and np.isfinite(loss) and wrong is not None:
            self._find_failed_part(batch, step, part, start)
            failed = NonFiniteLoss(None, wrong)
        if failed is not None or not np.isfinite(loss):
            self._assign({**start, **(before or {})})
            raise failed or NonFiniteLoss(None, None)
        self._assign({name: total[name] / array.dtype.type(samples) for name, array in start.items()})
        for name in self._sums:
            states.assign(name, total[name] if before is None else before[name] + total[name])
        return loss, samples

    def _find_failed_part(self, batch: Batch, step: int, part: PartialStep, start: Arrays) -> None:
        """Mark the first of this worker's parts whose gradients are not finite, if there is one."""
        for piece in (piece for _, piece in self._parts(batch) if piece is not None):
            self._assign(start)
            super()._add(piece, step, replace(part, batches=0))
            self._assign(start)
            with suppress(NonFiniteLoss):
                self.calls.check_gradients()
                continue
            return

    def _assign(self, arrays: Arrays) -> None:
        for name, array in arrays.items():
            self._compiler.states.assign(name, array)

    def _parts(self, batch: Batch) -> Iterator[tuple[int, Batch | None]]:
        """Yield the index and the samples of this worker's parts of a batch; None for a part without samples."""
        size = batch.end - batch.position
        for number in _part_indices(self._shards, self._share):
            start, stop = (size * n // self._shards - batch.offset for n in (number, number + 1))
            rows = slice(start, min(stop, len(batch)))
            if rows.stop <= start:
                yield number, None
                continue
            inputs = {name: array[rows] for name, array in batch.inputs.items()}
            yield number, replace(batch, inputs=inputs, indices=batch.indices[rows], offset=batch.offset + start)

    def _all_reduce(self, branches: Sequence[PartialSum]) -> Arrays:
        """Return the sum of the parts of all workers."""
        contributions = {
            f"{branch.level}/{branch.index}/{name}": array
            for branch in branches
            for name, array in (branch.arrays or {"": np.zeros(0)}).items()
        }
        stack: list[PartialSum] = []
        for message in self._group.all_gather_arrays(contributions):
            for branch in _unflatten(message):
                stack = merge_partial(stack, branch)
        total = total_of(stack)
        assert total is not None, "a batch has a sample"
        return total


def _part_indices(shards: int, share: Share) -> range:
    """Return the indices of a worker's parts of a batch."""
    return range(*(shards * number // share.count for number in (share.number, share.number + 1)))


def partial_sums_of(rank: int, shards: int, ranks: int, samples: int) -> list[PartialSum]:
    """Return the partial sums that a worker has of `samples` samples; their `arrays` are {}, or None if empty."""
    branches: list[PartialSum] = []
    for number in _part_indices(shards, Share(rank, ranks, shards)):
        start, stop = (samples * part // shards for part in (number, number + 1))
        branches = merge_partial(branches, PartialSum(0, number, {} if stop > start else None))
    return branches


def sent_bytes(compiler: Compiler, shards: int, rank: int, ranks: int, samples: int) -> int:
    """Return the bytes of the partial sums, with names, that a worker sends to each other worker for a batch."""
    types = {name: compiler.info[name].value.type for name in (*compiler.names("gradient"), *moving_averages(compiler))}
    kinds = [*((name, str(type_.dtype), type_.shape) for name, type_ in types.items()), *LOSS_ARRAYS]
    nbytes = sum(type_.nbytes for type_ in types.values()) + len(LOSS_ARRAYS) * np.dtype(np.float64).itemsize
    headers, total = list[tuple[str, str, Sequence[int]]](), 0
    for branch in partial_sums_of(rank, shards, ranks, samples):
        total += 0 if branch.arrays is None else nbytes
        arrays = kinds if branch.arrays is not None else [("", "float64", (0,))]
        headers += ((f"{branch.level}/{branch.index}/{name}", dtype, shape) for name, dtype, shape in arrays)
    return packed_bytes(headers, total)


def fixed_order_messages(
    compiler: Compiler, shards: int, cluster: Cluster, batches: Batches, rank: int | None = None
) -> list[CollectiveMessage]:
    """Return the messages of a step of these batches: each worker sends its partial sums.

    Sizes are for worker `rank`; if it is None, the mean over workers, since some send more sums than others.
    """
    names, ranks = [*compiler.names("gradient"), *moving_averages(compiler)], cluster.ranks
    messages = [stop_vote(cluster, len(batches), every=1)]
    for (_, samples), times in Counter(batches).items():
        senders = range(ranks) if rank is None else [rank]
        nbytes = sum(sent_bytes(compiler, shards, sender, ranks, samples) for sender in senders) / len(senders)
        messages.append(
            CollectiveMessage("parts", tuple(names), nbytes, all_gather_exchanges(nbytes, cluster), 1.0, times)
        )
    return messages


def _unflatten(message: Mapping[str, NDArray[Any]]) -> list[PartialSum]:
    """Return the branches that a worker sent, in the order in which it sent them."""
    branches: dict[tuple[int, int], Arrays] = {}
    for key, array in message.items():
        level, index, name = key.split("/", 2)
        branches.setdefault((int(level), int(index)), {})[name] = array
    return [PartialSum(*node, None if "" in arrays else arrays) for node, arrays in branches.items()]
