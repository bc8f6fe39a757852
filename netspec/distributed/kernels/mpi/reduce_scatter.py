"""Kernels of pieces over workers: a bucket travels as one piece of memory, of which each worker has one stretch.

That is so since all cuts are at lines of memory or at the ends of arrays. A worker's share is received where the
results lie, unless these lie elsewhere than in a row.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any, Protocol

from netspec.distributed import Pending, world
from netspec.distributed.kernels.mpi.buffers import Bundle, address, filling, joining, send, span
from netspec.graph.kernel import Buffers, Kernel, Thunk, kernel
from netspec.graph.ops.reduce_scatter import (
    BucketAllGather,
    BucketReduceScatter,
    JoinBucketReduceScatter,
    ShardedBucket,
    StartBucketReduceScatter,
)
from netspec.graph.value import Node


class Piece(Protocol):
    """Arrays as one piece of memory."""

    starts: list[int]
    """Where each begins, in numbers."""
    size: int


def borders(op: ShardedBucket, arrays: Sequence[Any], bundle: Piece) -> list[int]:
    """Return the offset of each worker's share in a bundle of arrays, in elements, and the end of the last share."""

    def border(worker: int) -> int:
        """Return the offset of a worker's share: in the first array that earlier workers do not cover."""
        for cuts, array, start in zip(op.bounds, arrays, bundle.starts, strict=False):
            if cuts[worker] < array.size:
                return start + cuts[worker]
        return bundle.size

    return [0, *map(border, range(1, len(op.bounds[0]) - 1)), bundle.size]


class _Received:
    """A worker's share under way, that is to be taken apart."""

    def __init__(self, pending: Pending, parts: Sequence[tuple[Any, Any]]) -> None:
        self._pending, self._parts = pending, parts

    def advance(self) -> bool:
        """Whether it is there."""
        return self._pending.advance()

    def wait(self) -> None:
        """Put the parts where they belong."""
        self._pending.wait()
        for target, part in self._parts:
            target[...] = part


def _sender(op: ShardedBucket, arrays: Sequence[Any], results: Sequence[Any]) -> Callable[[], Pending]:
    """What sends a bucket on its way, and has this worker's share of the sums put into the results."""
    import numpy as np

    workers, bundle = world(), Bundle(arrays)
    ends = borders(op, arrays, bundle)
    counts = [stop - start for start, stop in pairwise(ends)]
    places = [bundle.starts[number] + start - ends[op.rank] for number, start, _ in op.shard_spans]
    if results and all(
        address(part) - address(results[0]) == place * part.itemsize
        for part, place in zip(results, places, strict=True)
    ):
        share, parts = span(results[0], counts[op.rank]), []
    else:
        share = np.empty(counts[op.rank], bundle.whole.dtype)
        parts = [(part, share[place : place + part.size]) for part, place in zip(results, places, strict=True)]

    def start() -> Pending:
        bundle.fill()
        return _Received(workers.start_reduce_scatter(bundle.whole, share, counts), parts)

    return start


def _alone(op: ShardedBucket, arrays: Sequence[Any], results: Sequence[Any]) -> Thunk:
    """What takes this worker's parts off its own arrays."""
    return filling([span(arrays[number], stop)[start:] for number, start, stop in op.shard_spans], results)


@kernel(StartBucketReduceScatter, backend="workers", rank=10)
class StartScatter(Kernel):
    """Send a bucket on its way, and look after what was sent before."""

    def bind(self, node: Node, buffers: Buffers) -> Thunk:
        """A thunk that sends it."""
        op, workers = node.op, world()
        assert isinstance(op, StartBucketReduceScatter)
        arrays, results = buffers.inputs[: len(op.bounds)], buffers.outputs[: len(op.shard_spans)]
        alone, key = _alone(op, arrays, results), address(arrays[0])
        if workers.size == 1:
            return alone
        start = _sender(op, arrays, results)

        def run() -> None:
            if workers.silent:
                alone()
            else:
                send(workers, key, lambda: [start()])

        return run


@kernel(JoinBucketReduceScatter, backend="workers", rank=10)
class JoinScatter(Kernel):
    """Wait for a bucket."""

    def bind(self, node: Node, buffers: Buffers) -> Thunk:
        """A thunk that waits."""
        op = node.op
        assert isinstance(op, JoinBucketReduceScatter)
        count = len(op.shard_spans)
        return joining(address(buffers.inputs[count + 1]), filling(buffers.inputs[:count], buffers.outputs[:count]))


@kernel(BucketReduceScatter, backend="workers", rank=10)
class Scatter(Kernel):
    """Send a bucket, and wait for it."""

    def bind(self, node: Node, buffers: Buffers) -> Thunk:
        """A thunk that waits."""
        op, workers = node.op, world()
        assert isinstance(op, BucketReduceScatter)
        results = buffers.outputs[: len(op.shard_spans)]
        alone = _alone(op, buffers.inputs, results)
        if workers.size == 1:
            return alone
        start = _sender(op, buffers.inputs, results)

        def run() -> None:
            if workers.silent:
                alone()
            else:
                start().wait()

        return run


@kernel(BucketAllGather, backend="workers", rank=10)
class Gather(Kernel):
    """Put this worker's parts where they belong, and have those of the others put there too."""

    def bind(self, node: Node, buffers: Buffers) -> Thunk:
        """A thunk that waits for all."""
        import numpy as np

        op, workers = node.op, world()
        assert isinstance(op, BucketAllGather)
        count = len(op.shard_spans)
        wholes = [  # the others send what nobody reads here too
            np.empty(kind.shape, str(kind.dtype)) if array is None else array
            for array, kind in zip(buffers.outputs[: len(op.bounds)], node.types, strict=False)
        ]
        keep = filling(buffers.inputs[count : count + len(op.bounds)], wholes)
        put = filling(
            buffers.inputs[:count], [span(wholes[number], stop)[start:] for number, start, stop in op.shard_spans]
        )

        def alone() -> None:
            keep()
            put()

        if workers.size == 1:
            return alone
        bundle = Bundle(wholes)
        counts = [stop - start for start, stop in pairwise(borders(op, wholes, bundle))]

        def run() -> None:
            if workers.silent:
                alone()
                return
            put()
            bundle.fill()
            workers.start_all_gather_parts(bundle.whole, counts).wait()
            bundle.empty()

        return run
