"""Kernels of sharded buckets: a bucket is sent as one buffer, of which each worker owns one contiguous share."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from itertools import pairwise
from typing import Any

from netspec.backends.cuda.side_stream import SideStreamCall, side_stream
from netspec.distributed import world
from netspec.distributed.backends.mpi.kernels.reduce_scatter import borders
from netspec.distributed.backends.nccl.memory import (
    BucketBuffer,
    address,
    all_of,
    copies_to_outputs,
    copying,
    join_call,
    memory,
)
from netspec.distributed.communicators.nccl import nccl_group
from netspec.graph.kernel import Buffers, Kernel, Thunk, kernel
from netspec.graph.ops.reduce_scatter import (
    BucketAllGather,
    BucketReduceScatter,
    JoinBucketReduceScatter,
    ShardedBucket,
    StartBucketReduceScatter,
)
from netspec.graph.value import Node


def _pieces(op: ShardedBucket, arrays: Sequence[Any]) -> list[Any]:
    """Return views of this worker's parts of its own arrays."""
    return [arrays[number].reshape(-1)[start:stop] for number, start, stop in op.shard_spans]


def _sum(op: ShardedBucket, arrays: Sequence[Any], results: Sequence[Any]) -> tuple[Thunk, SideStreamCall]:
    """Return a call that packs a bucket, and a call that reduce-scatters it into the results."""
    bundle = BucketBuffer(arrays)
    ends = borders(op, arrays, bundle)
    counts = [stop - start for start, stop in pairwise(ends)]
    offsets = [bundle.starts[number] + start - ends[op.rank] for number, start, _ in op.shard_spans]
    if results and all(
        address(part) - address(results[0]) == offset * part.itemsize
        for part, offset in zip(results, offsets, strict=True)
    ):
        share, unpack = address(results[0]), all_of(())
    else:
        beneath = memory(max(counts[op.rank], 1), arrays[0].dtype)
        parts = [beneath[offset : offset + part.size] for part, offset in zip(results, offsets, strict=True)]
        share, unpack = address(beneath), copying(parts, results)
    carry = partial(nccl_group(world()).reduce_scatter, bundle.address, share, counts, bundle.dtype)
    return bundle.pack, side_stream().call(address(arrays[0]), carry, unpack)


class _ReduceScatterBase(Kernel):
    """Base of the kernels that reduce-scatter a bucket."""

    waits = False
    """Whether the step's stream waits for the sums."""

    def bind(self, node: Node, buffers: Buffers) -> Thunk:
        op, workers = node.op, world()
        assert isinstance(op, ShardedBucket)
        arrays, results = buffers.inputs[: len(op.bounds)], buffers.outputs[: len(op.shard_spans)]
        alone = copies_to_outputs(_pieces(op, arrays), results)
        if workers.size == 1:
            return alone
        pack, call = _sum(op, arrays, results)
        join = partial(side_stream().join, address(arrays[0]))
        send = all_of([pack, call.start, join] if self.waits else [pack, call.start])
        return lambda: alone() if workers.silent else send()


@kernel(StartBucketReduceScatter, backend="nccl", rank=10)
class StartReduceScatterKernel(_ReduceScatterBase):
    """Start the reduce-scatter of a bucket."""


@kernel(BucketReduceScatter, backend="nccl", rank=10)
class ReduceScatterKernel(_ReduceScatterBase):
    """Reduce-scatter a bucket, and have the step's stream wait for it."""

    waits = True


@kernel(JoinBucketReduceScatter, backend="nccl", rank=10)
class JoinReduceScatterKernel(Kernel):
    """Have the step's stream wait for a started reduce-scatter."""

    def bind(self, node: Node, buffers: Buffers) -> Thunk:
        op = node.op
        assert isinstance(op, JoinBucketReduceScatter)
        count = len(op.shard_spans)
        return join_call(buffers.inputs[count + 1], copies_to_outputs(buffers.inputs[:count], buffers.outputs[:count]))


@kernel(BucketAllGather, backend="nccl", rank=10)
class AllGatherKernel(Kernel):
    """All-gather a bucket from the parts of all workers."""

    def bind(self, node: Node, buffers: Buffers) -> Thunk:
        op, workers = node.op, world()
        assert isinstance(op, BucketAllGather)
        count, olds = len(op.shard_spans), buffers.inputs[len(op.shard_spans) : len(op.shard_spans) + len(op.bounds)]
        full_arrays = [  # including arrays that this worker doesn't read, since the others send them
            memory(old.size, old.dtype).reshape(old.shape) if array is None else array
            for array, old in zip(buffers.outputs[: len(op.bounds)], olds, strict=True)
        ]
        alone = all_of(
            [copies_to_outputs(olds, full_arrays), copying(buffers.inputs[:count], _pieces(op, full_arrays))]
        )
        if workers.size == 1:
            return alone
        bundle = BucketBuffer(full_arrays)
        counts = [stop - start for start, stop in pairwise(borders(op, full_arrays, bundle))]
        key = address(full_arrays[0])
        carry = partial(nccl_group(workers).all_gatherv, bundle.address, counts, bundle.dtype)
        call = side_stream().call(key, carry, bundle.unpack)
        store_own = copying(buffers.inputs[:count], _pieces(op, full_arrays))
        send = all_of([store_own, bundle.pack, call.start, partial(side_stream().join, key)])
        return lambda: alone() if workers.silent else send()
