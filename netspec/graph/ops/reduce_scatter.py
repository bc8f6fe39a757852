"""Bucketed reduce-scatter and all-gather of flat arrays, for sharded optimizer states (ZeRO).

Each array is flattened and split at the same `bounds` on all workers. The arrays of a bucket are sent as one message;
if they are contiguous, so is each worker's shard. Each op computes its result as if the other workers added
nothing. Rajbhandari et al. 2020, "ZeRO", arXiv:1910.02054, section 7.1.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import ClassVar

from netspec.graph.onnx_map import NoOnnxForm
from netspec.graph.op import Array, NoGradient, Traits, Xp
from netspec.graph.ops.all_reduce import ORDER_TOKEN, OrderedCommunication
from netspec.graph.types import TensorType
from netspec.graph.value import Value

_NO_ONNX = NoOnnxForm("communication between workers has no ONNX operator")


@dataclass(frozen=True)
class ShardedBucket(OrderedCommunication, NoGradient):
    """Base of the ops that split a bucket of arrays into shards, or assemble one."""

    bounds: tuple[tuple[int, ...], ...]
    """For each array the boundaries of its shards: worker r has the elements from bound r to bound r + 1."""
    rank: int
    """Rank of this worker."""
    contents: tuple[str, ...] = ()
    encoding: ClassVar[str] = ""  # type: ignore[misc]  # never compressed
    contiguous: ClassVar[bool] = True
    onnx = _NO_ONNX

    @property
    def shard_spans(self) -> list[tuple[int, int, int]]:
        """This worker's shards: index of the array, start and stop; empty shards are left out."""
        spans = [(index, bounds[self.rank], bounds[self.rank + 1]) for index, bounds in enumerate(self.bounds)]
        return [span for span in spans if span[1] < span[2]]

    def _check_arrays(self, types: Sequence[TensorType]) -> list[TensorType]:
        """The types of this worker's shards of arrays of these types; raises `ShapeMismatch` if they do not match."""
        self.check(
            len(types) == len(self.bounds),
            "a bucket needs one array for each entry of `bounds`",
            expected=str(len(self.bounds)),
        )
        self.check(len({array.dtype for array in types}) == 1, "the arrays of a bucket must have one type")
        fit = all((bounds[0], bounds[-1]) == (0, array.size) for bounds, array in zip(self.bounds, types, strict=True))
        self.check(fit, "bounds must span the elements of the arrays", got=types[0])
        return [types[index].with_shape(stop - start) for index, start, stop in self.shard_spans]

    def _local_shards(self, arrays: Sequence[Array]) -> list[Array]:
        return [arrays[index].reshape(-1)[start:stop] for index, start, stop in self.shard_spans]

    def flops(self, *types: TensorType) -> int:
        return sum(prod(array.shape) for array in types[: len(self.bounds)])


@dataclass(frozen=True)
class BucketReduceScatter(ShardedBucket):
    """This worker's shards of the sums over all workers. Results: the shards, and an order token.

    The pass for bucketing splits it into a start and a join.
    """

    pattern: ClassVar[str] = "reduce_scatter"
    traits = Traits(pure=False)

    def infer(self, *types: TensorType) -> tuple[TensorType, ...]:
        """x₁ … xₙ → shards, order."""
        return *self._check_arrays(types), ORDER_TOKEN

    def forward(self, xp: Xp, *arrays: Array) -> tuple[Array, ...]:
        return *self._local_shards(arrays), xp.ones((), dtype=bool)


@dataclass(frozen=True)
class StartBucketReduceScatter(ShardedBucket):
    """Start to sum arrays. Results: this worker's shards, valid after the join, and an order token.

    A further operand is the order token of the preceding start: all workers start in the same order.
    """

    pattern: ClassVar[str] = "reduce_scatter"
    traits = Traits(pure=False, async_start=True)

    def infer(self, *types: TensorType) -> tuple[TensorType, ...]:
        """x₁ … xₙ[, order] → shards, order."""
        return *self._check_arrays(types[: len(self.bounds)]), ORDER_TOKEN

    def sent_types(self, types: Sequence[TensorType]) -> Sequence[TensorType]:
        return types[: len(self.bounds)]

    def contiguous_operands(self, inputs: Sequence[Value]) -> Sequence[Value]:
        return inputs[: len(self.bounds)]

    def forward(self, xp: Xp, *arrays: Array) -> tuple[Array, ...]:
        return *self._local_shards(arrays[: len(self.bounds)]), xp.ones((), dtype=bool)


@dataclass(frozen=True)
class JoinBucketReduceScatter(ShardedBucket):
    """Wait for the shards of sums. Results: the shards, and an order token.

    Operands are the shards, the order token of the start, and the arrays that are sent, which must stay unchanged until
    now.
    """

    pattern: ClassVar[str] = "reduce_scatter"
    traits = Traits(pure=False)

    def infer(self, *types: TensorType) -> tuple[TensorType, ...]:
        """shards, order, x₁ … xₙ → shards, order."""
        return *self._check_arrays(types[len(self.shard_spans) + 1 :]), ORDER_TOKEN

    def sent_types(self, types: Sequence[TensorType]) -> Sequence[TensorType]:
        return ()

    def contiguous_operands(self, inputs: Sequence[Value]) -> Sequence[Value]:
        return inputs[: len(self.shard_spans)]

    def inplace_operands(self, result: int, inputs: Sequence[Value]) -> Sequence[Value]:
        """Each shard overwrites its operand."""
        return inputs[result : result + 1] if result < len(self.shard_spans) else ()

    def forward(self, xp: Xp, *arrays: Array) -> tuple[Array, ...]:
        return *arrays[: len(self.shard_spans)], xp.ones((), dtype=bool)


@dataclass(frozen=True)
class BucketAllGather(ShardedBucket):
    """Assemble arrays from the shards of all workers in place of the old arrays. Results: the arrays, an order token.

    Operands are this worker's flat shards, the old arrays, and dependencies that are not read.
    """

    pattern: ClassVar[str] = "all_gather_parts"
    traits = Traits(pure=False)

    def infer(self, *types: TensorType) -> tuple[TensorType, ...]:
        """shards, x₁ … xₙ[, dependencies] → y₁ … yₙ, order."""
        count = len(self.shard_spans)
        shards, arrays = types[:count], types[count : count + len(self.bounds)]
        self.check(list(shards) == self._check_arrays(arrays), "shards do not match the arrays", got=arrays[0])
        return *arrays, ORDER_TOKEN

    def sent_types(self, types: Sequence[TensorType]) -> Sequence[TensorType]:
        return types[len(self.shard_spans) : len(self.shard_spans) + len(self.bounds)]

    def inplace_operands(self, result: int, inputs: Sequence[Value]) -> Sequence[Value]:
        """Each array overwrites the old one."""
        index = len(self.shard_spans) + result
        return inputs[index : index + 1] if result < len(self.bounds) else ()

    def forward(self, xp: Xp, *arrays: Array) -> tuple[Array, ...]:
        count = len(self.shard_spans)
        flat = [array.reshape(-1).copy() for array in arrays[count : count + len(self.bounds)]]
        for shard, (index, start, stop) in zip(arrays[:count], self.shard_spans, strict=True):
            flat[index][start:stop] = shard
        shaped = (new.reshape(old.shape) for new, old in zip(flat, arrays[count:], strict=False))
        return *shaped, xp.ones((), dtype=bool)
