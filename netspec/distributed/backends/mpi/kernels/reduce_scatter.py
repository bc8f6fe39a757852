"""Kernels of sharded buckets: a bucket is sent as one buffer, of which each worker owns one contiguous share.

Shares are contiguous since all cuts are at cache lines or at the ends of arrays. A worker's share is received in the
memory of the results if these are contiguous.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any, Protocol

import numpy as np

from netspec.distributed import Pending, world
from netspec.distributed.backends.mpi.buffers import (
    BucketBuffer,
    address,
    copies_to_outputs,
    flat_view,
    join_call,
    start_call,
)
from netspec.graph.kernel import Buffers, Kernel, Thunk, kernel
from netspec.graph.ops.reduce_scatter import (
    BucketAllGather,
    BucketReduceScatter,
    JoinBucketReduceScatter,
    ShardedBucket,
    StartBucketReduceScatter,
)
from netspec.graph.value import Node


class BucketLayout(Protocol):
    """The layout of arrays in one buffer."""

    starts: list[int]
    """Offset of each array, in elements."""
    size: int


def borders(op: ShardedBucket, arrays: Sequence[Any], bundle: BucketLayout) -> list[int]:
    """Return the offset of each worker's share in a bundle of arrays, in elements, and the end of the last share."""

    def border(worker: int) -> int:
        """Return the offset of a worker's share, which starts in the first array that earlier shares do not cover."""
        for cuts, array, start in zip(op.bounds, arrays, bundle.starts, strict=False):
            if cuts[worker] < array.size:
                return start + cuts[worker]
        return bundle.size

    return [0, *map(border, range(1, len(op.bounds[0]) - 1)), bundle.size]


class _Received:
    """A pending receive of a worker's share, which is then copied to the results."""

    def __init__(self, pending: Pending, parts: Sequence[tuple[Any, Any]]) -> None:
        self._pending, self._parts = pending, parts

    def advance(self) -> bool:
        """Progress the call; return whether it is complete."""
        return self._pending.advance()

    def wait(self) -> None:
        """Wait, then copy the parts to the results."""
        self._pending.wait()
        for target, part in self._parts:
            target[...] = part


def _sender(op: ShardedBucket, arrays: Sequence[Any], results: Sequence[Any]) -> Callable[[], Pending]:
    """Return a call that starts the reduce-scatter of a bucket into the results."""
    workers, bundle = world(), BucketBuffer(arrays)
    ends = borders(op, arrays, bundle)
    counts = [stop - start for start, stop in pairwise(ends)]
    offsets = [bundle.starts[number] + start - ends[op.rank] for number, start, _ in op.shard_spans]
    if results and all(
        address(part) - address(results[0]) == offset * part.itemsize
        for part, offset in zip(results, offsets, strict=True)
    ):
        share, parts = flat_view(results[0], counts[op.rank]), []
    else:
        share = np.empty(counts[op.rank], bundle.whole.dtype)
        parts = [(part, share[offset : offset + part.size]) for part, offset in zip(results, offsets, strict=True)]

    def start() -> Pending:
        bundle.pack()
        return _Received(workers.start_reduce_scatter(bundle.whole, share, counts), parts)

    return start


def _copy_own_parts(op: ShardedBucket, arrays: Sequence[Any], results: Sequence[Any]) -> Thunk:
    """Return a call that copies this worker's parts from its own arrays to the results."""
    return copies_to_outputs(
        [flat_view(arrays[number], stop)[start:] for number, start, stop in op.shard_spans], results
    )


class _ReduceScatterBase(Kernel):
    """Base of the kernels that reduce-scatter a bucket."""

    waits = False
    """Whether the call waits for the sums."""

    def bind(self, node: Node, buffers: Buffers) -> Thunk:
        """Return a call that starts the reduce-scatter, and waits for it or progresses earlier calls."""
        op, workers = node.op, world()
        assert isinstance(op, ShardedBucket)
        arrays, results = buffers.inputs[: len(op.bounds)], buffers.outputs[: len(op.shard_spans)]
        copy_own, key = _copy_own_parts(op, arrays, results), address(arrays[0])
        if workers.size == 1:
            return copy_own
        start = _sender(op, arrays, results)

        def run() -> None:
            if workers.silent:
                copy_own()
            elif self.waits:
                start().wait()
            else:
                start_call(workers, key, lambda: [start()])

        return run


@kernel(StartBucketReduceScatter, backend="workers", rank=10)
class StartReduceScatterKernel(_ReduceScatterBase):
    """Start the reduce-scatter of a bucket, and progress earlier calls."""


@kernel(BucketReduceScatter, backend="workers", rank=10)
class ReduceScatterKernel(_ReduceScatterBase):
    """Reduce-scatter a bucket, and wait."""

    waits = True


@kernel(JoinBucketReduceScatter, backend="workers", rank=10)
class JoinReduceScatterKernel(Kernel):
    """Wait for a started reduce-scatter."""

    def bind(self, node: Node, buffers: Buffers) -> Thunk:
        """Return a call that waits."""
        op = node.op
        assert isinstance(op, JoinBucketReduceScatter)
        count = len(op.shard_spans)
        return join_call(
            address(buffers.inputs[count + 1]), copies_to_outputs(buffers.inputs[:count], buffers.outputs[:count])
        )


@kernel(BucketAllGather, backend="workers", rank=10)
class AllGatherKernel(Kernel):
    """All-gather a bucket from the parts of all workers, and wait."""

    def bind(self, node: Node, buffers: Buffers) -> Thunk:
        """Return a call that runs the all-gather."""
        op, workers = node.op, world()
        assert isinstance(op, BucketAllGather)
        count = len(op.shard_spans)
        full_arrays = [  # including arrays that this worker doesn't read, since the others send them
            np.empty(kind.shape, str(kind.dtype)) if array is None else array
            for array, kind in zip(buffers.outputs[: len(op.bounds)], node.types, strict=False)
        ]
        keep = copies_to_outputs(buffers.inputs[count : count + len(op.bounds)], full_arrays)
        store_own = copies_to_outputs(
            buffers.inputs[:count],
            [flat_view(full_arrays[number], stop)[start:] for number, start, stop in op.shard_spans],
        )

        def copy_own() -> None:
            keep()
            store_own()

        if workers.size == 1:
            return copy_own
        bundle = BucketBuffer(full_arrays)
        counts = [stop - start for start, stop in pairwise(borders(op, full_arrays, bundle))]

        def run() -> None:
            if workers.silent:
                copy_own()
                return
            store_own()
            bundle.pack()
            workers.start_all_gatherv(bundle.whole, counts).wait()
            bundle.unpack()

        return run
