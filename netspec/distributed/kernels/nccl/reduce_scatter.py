"""Kernels of pieces over workers' GPUs: a bucket travels as one piece of memory, of which each has one stretch."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from itertools import pairwise
from typing import Any

from netspec.backends.cuda.side_stream import SideStreamCall, side_stream
from netspec.distributed import world
from netspec.distributed.communicators.nccl import gpus
from netspec.distributed.kernels.mpi.reduce_scatter import borders
from netspec.distributed.kernels.nccl.memory import Bundle, address, all_of, copying, filling, joining, memory
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
    """This worker's parts of its own arrays, in their memory."""
    return [arrays[number].reshape(-1)[start:stop] for number, start, stop in op.shard_spans]


def _sum(op: ShardedBucket, arrays: Sequence[Any], results: Sequence[Any]) -> tuple[Thunk, SideStreamCall]:
    """What packs a bucket, and what sends it and has this worker's share of the sums put into the results."""
    bundle = Bundle(arrays)
    ends = borders(op, arrays, bundle)
    counts = [stop - start for start, stop in pairwise(ends)]
    places = [bundle.starts[number] + start - ends[op.rank] for number, start, _ in op.shard_spans]
    if results and all(
        address(part) - address(results[0]) == place * part.itemsize
        for part, place in zip(results, places, strict=True)
    ):
        share, unpack = address(results[0]), all_of(())
    else:
        beneath = memory(max(counts[op.rank], 1), arrays[0].dtype)
        parts = [beneath[place : place + part.size] for part, place in zip(results, places, strict=True)]
        share, unpack = address(beneath), copying(parts, results)
    carry = partial(gpus(world()).reduce_scatter, bundle.place, share, counts, bundle.dtype)
    return bundle.fill, side_stream().call(address(arrays[0]), carry, unpack)


class _Scattering(Kernel):
    """Base of the kernels that send a bucket."""

    waits = False
    """Whether what follows needs the sums."""

    def bind(self, node: Node, buffers: Buffers) -> Thunk:
        op, workers = node.op, world()
        assert isinstance(op, ShardedBucket)
        arrays, results = buffers.inputs[: len(op.bounds)], buffers.outputs[: len(op.shard_spans)]
        alone = filling(_pieces(op, arrays), results)
        if workers.size == 1:
            return alone
        pack, call = _sum(op, arrays, results)
        join = partial(side_stream().join, address(arrays[0]))
        send = all_of([pack, call.start, join] if self.waits else [pack, call.start])
        return lambda: alone() if workers.silent else send()


@kernel(StartBucketReduceScatter, backend="nccl", rank=10)
class StartScatter(_Scattering):
    """Send a bucket on its way."""


@kernel(BucketReduceScatter, backend="nccl", rank=10)
class Scatter(_Scattering):
    """Send a bucket, and have what follows wait for it."""

    waits = True


@kernel(JoinBucketReduceScatter, backend="nccl", rank=10)
class JoinScatter(Kernel):
    """Have what follows wait for a bucket."""

    def bind(self, node: Node, buffers: Buffers) -> Thunk:
        op = node.op
        assert isinstance(op, JoinBucketReduceScatter)
        count = len(op.shard_spans)
        return joining(buffers.inputs[count + 1], filling(buffers.inputs[:count], buffers.outputs[:count]))


@kernel(BucketAllGather, backend="nccl", rank=10)
class Gather(Kernel):
    """Put this worker's parts where they belong, and have those of the others put there too."""

    def bind(self, node: Node, buffers: Buffers) -> Thunk:
        op, workers = node.op, world()
        assert isinstance(op, BucketAllGather)
        count, olds = len(op.shard_spans), buffers.inputs[len(op.shard_spans) : len(op.shard_spans) + len(op.bounds)]
        wholes = [  # the others send what nobody reads here too
            memory(old.size, old.dtype).reshape(old.shape) if array is None else array
            for array, old in zip(buffers.outputs[: len(op.bounds)], olds, strict=True)
        ]
        alone = all_of([filling(olds, wholes), copying(buffers.inputs[:count], _pieces(op, wholes))])
        if workers.size == 1:
            return alone
        bundle = Bundle(wholes)
        counts = [stop - start for start, stop in pairwise(borders(op, wholes, bundle))]
        key = address(wholes[0])
        carry = partial(gpus(workers).gather_parts, bundle.place, counts, bundle.dtype)
        call = side_stream().call(key, carry, bundle.empty)
        put = copying(buffers.inputs[:count], _pieces(op, wholes))
        send = all_of([put, bundle.fill, call.start, partial(side_stream().join, key)])
        return lambda: alone() if workers.silent else send()
