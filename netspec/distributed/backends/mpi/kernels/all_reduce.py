"""Kernels of all-reduces, gathered rows and blocking collectives.

Sums are computed in place: an operand that is not stored in its result's memory is copied first.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np

from netspec.distributed import Pending, world
from netspec.distributed.backends.mpi.buffers import (
    BucketBuffer,
    UnpackOnWait,
    address,
    copies_to_outputs,
    flat_view,
    join_call,
    start_call,
)
from netspec.distributed.communicators.compressed_allreduce import compressed_all_reduce
from netspec.distributed.communicators.encodings import between_hosts
from netspec.distributed.communicators.hierarchical import HierarchicalAllReduce
from netspec.graph.kernel import Buffers, Kernel, Thunk, kernel
from netspec.graph.ops.all_gather import JoinAllGatherRows, StartAllGatherRows
from netspec.graph.ops.all_reduce import AllReduce, JoinAllReduce, StartAllReduce
from netspec.graph.ops.collectives import BlockingCollective
from netspec.graph.value import Node


@kernel(AllReduce, backend="workers", rank=10)
class AllReduceKernel(Kernel):
    """All-reduce in the memory of the result, and wait."""

    def bind(self, node: Node, buffers: Buffers) -> Thunk:
        """Return a call that sums in the memory of the result."""
        (out,), workers = buffers.outputs, world()
        fill, flat = copies_to_outputs(buffers.inputs[:1], [out]), flat_view(out, node.types[0].size)

        def run() -> None:
            fill()
            if not workers.silent:
                workers.start_all_reduce(flat, blocking=True).wait()

        return run


@kernel(BlockingCollective, backend="workers", rank=10)
class BlockingCollectiveKernel(Kernel):
    """Exchange blocks with all workers, and wait."""

    def bind(self, node: Node, buffers: Buffers) -> Thunk:
        """Return a call that packs blocks, exchanges them, and unpacks the received blocks into the result."""
        op, (out,), workers = node.op, buffers.outputs, world()
        assert isinstance(op, BlockingCollective)
        x, block = buffers.inputs[0], op.block_type(node.inputs[0].type)
        assert out is not None
        received = np.empty((op.worker_partition.workers, *block.shape), str(block.dtype))
        begin = workers.start_all_gather if op.is_broadcast else workers.start_all_to_all
        alone = workers.size == 1

        def run() -> None:
            if alone or workers.silent:
                out[...] = op.forward(np, x)
                return
            begin(_bytes(op.pack_blocks(np, x), op.is_broadcast), _bytes(received, to_all=False), blocking=True).wait()
            op.unpack_blocks(received, out)

        return run


def _bytes(blocks: Any, to_all: bool) -> Any:
    """Return a block as bytes, or a row of bytes per block."""
    flat = blocks.reshape(-1).view(np.uint8)
    return flat if to_all else flat.reshape(len(blocks), -1)


@kernel(StartAllReduce, backend="workers", rank=10)
class StartAllReduceKernel(Kernel):
    """Start the all-reduce of a bucket, and progress earlier calls."""

    def bind(self, node: Node, buffers: Buffers) -> Thunk:
        """Return a call that sends the values as one buffer, without copies if the memory plan placed them so."""
        op = node.op
        assert isinstance(op, StartAllReduce)
        workers, outputs = world(), buffers.outputs[: op.count]
        read = [result for result in outputs if result is not None]
        fill, start = copies_to_outputs(buffers.inputs[: op.count], outputs), _sender(op.encoding, read)
        key = address(read[0]) if read else 0

        def run() -> None:
            fill()
            if not workers.silent:
                start_call(workers, key, start)

        return run


@kernel(StartAllGatherRows, backend="workers", rank=10)
class StartAllGatherRowsKernel(Kernel):
    """Start the all-gather of rows, and progress earlier calls."""

    def bind(self, node: Node, buffers: Buffers) -> Thunk:
        """Return a call that copies the rows into the result, pads them with zeros, and starts to gather the others."""
        op, own, workers = node.op, buffers.inputs[0], world()
        assert isinstance(op, StartAllGatherRows)
        gathered = buffers.outputs[0]
        if gathered is None:  # no node reads the rows
            return lambda: None
        parts, key = gathered.reshape(op.workers, op.max_rows, -1), address(gathered)
        own_rows, alone = parts[workers.rank], workers.size == 1

        def run() -> None:
            workers.finish(key)  # left by a step that was interrupted
            if alone or workers.silent:
                gathered[...] = 0
            own_rows[: len(own)] = own
            own_rows[len(own) :] = 0
            if not workers.silent:
                start_call(workers, key, lambda: [workers.start_all_gather(None, parts)])

        return run


@kernel(JoinAllReduce, JoinAllGatherRows, backend="workers", rank=10)
class JoinKernel(Kernel):
    """Wait for a started all-reduce or all-gather."""

    def bind(self, node: Node, buffers: Buffers) -> Thunk:
        """Return a call that waits."""
        return join_call(address(buffers.inputs[0]), copies_to_outputs(buffers.inputs, buffers.outputs))


def _sender(encoding: str, arrays: Sequence[Any]) -> Callable[[], list[Pending]]:
    """Return a call that starts to sum arrays, as one buffer or encoded."""
    if not arrays:
        return list
    workers, form = world(), between_hosts(encoding)
    by_host, encoding = (None, encoding) if form is None else (workers.host_groups, form)
    if encoding and by_host is None:
        compressed = compressed_all_reduce(workers, encoding, arrays)
        return lambda: [compressed.start()]
    bundle = BucketBuffer(arrays)
    start: Callable[[], Pending] = partial(workers.start_all_reduce, bundle.whole)
    if by_host is not None:
        start = HierarchicalAllReduce(workers, by_host, encoding, bundle.whole).start

    def run() -> list[Pending]:
        bundle.pack()
        return [UnpackOnWait(start(), bundle)]

    return run
