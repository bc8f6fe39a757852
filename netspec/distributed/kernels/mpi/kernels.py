"""Kernels of communication between workers.

Sums are made in place: an operand that is not stored in its result's memory is copied first.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from netspec.distributed import Pending, world
from netspec.distributed.communicators.compressed_allreduce import compressed_all_reduce
from netspec.distributed.communicators.encodings import between_hosts
from netspec.distributed.communicators.hierarchical import HierarchicalAllReduce
from netspec.distributed.kernels.mpi import reduce_scatter, send_recv  # noqa: F401  # they register their kernels
from netspec.distributed.kernels.mpi.buffers import Bundle, Emptied, address, filling, joining, send, span
from netspec.graph.kernel import Buffers, Kernel, Thunk, kernel
from netspec.graph.ops.all_gather import JoinAllGatherRows, StartAllGatherRows
from netspec.graph.ops.all_reduce import AllReduce, JoinAllReduce, StartAllReduce
from netspec.graph.ops.collectives import BlockingCollective
from netspec.graph.value import Node


@kernel(AllReduce, backend="workers", rank=10)
class Sum(Kernel):
    """Ask the others, and wait for them."""

    def bind(self, node: Node, buffers: Buffers) -> Thunk:
        """A thunk that sums up in the result's memory."""
        (out,), workers = buffers.outputs, world()
        fill, whole = filling(buffers.inputs[:1], [out]), span(out, node.types[0].size)

        def run() -> None:
            fill()
            if not workers.silent:
                workers.start_all_reduce(whole, apart=True).wait()

        return run


@kernel(BlockingCollective, backend="workers", rank=10)
class Exchanged(Kernel):
    """Send blocks to the others, and wait for theirs."""

    def bind(self, node: Node, buffers: Buffers) -> Thunk:
        """A thunk that packs blocks, sends them, and makes the result of those that come."""
        import numpy as np

        op, (out,), workers = node.op, buffers.outputs, world()
        assert isinstance(op, BlockingCollective)
        x, block = buffers.inputs[0], op.block_type(node.inputs[0].type)
        assert out is not None
        came = np.empty((op.worker_partition.workers, *block.shape), str(block.dtype))
        begin = workers.start_all_gather if op.is_broadcast else workers.start_all_to_all
        alone = workers.size == 1

        def run() -> None:
            if alone or workers.silent:
                out[...] = op.forward(np, x)
                return
            begin(_bytes(op.pack_blocks(np, x), op.is_broadcast), _bytes(came, to_all=False), apart=True).wait()
            op.unpack_blocks(came, out)

        return run


def _bytes(blocks: Any, to_all: bool) -> Any:
    """A block as bytes, or a row of them for each block."""
    import numpy as np

    flat = blocks.reshape(-1).view(np.uint8)
    return flat if to_all else flat.reshape(len(blocks), -1)


@kernel(StartAllReduce, backend="workers", rank=10)
class Start(Kernel):
    """Send a bucket on its way, and look after those sent before."""

    def bind(self, node: Node, buffers: Buffers) -> Thunk:
        """A thunk that sends the values as one piece of memory, which they are if the plan could lay them in a row."""
        op = node.op
        assert isinstance(op, StartAllReduce)
        workers, outputs = world(), buffers.outputs[: op.count]
        read = [one for one in outputs if one is not None]
        fill, start = filling(buffers.inputs[: op.count], outputs), _sender(op.encoding, read)
        key = address(read[0]) if read else 0

        def run() -> None:
            fill()
            if not workers.silent:
                send(workers, key, start)

        return run


@kernel(StartAllGatherRows, backend="workers", rank=10)
class StartGather(Kernel):
    """Send rows on their way, and look after what was sent before."""

    def bind(self, node: Node, buffers: Buffers) -> Thunk:
        """A thunk that puts rows where those of all are to lie, zeros below them, and asks for the others'."""
        op, mine, workers = node.op, buffers.inputs[0], world()
        assert isinstance(op, StartAllGatherRows)
        whole = buffers.outputs[0]
        if whole is None:  # nobody wants the rows
            return lambda: None
        parts, key = whole.reshape(op.workers, op.max_rows, -1), address(whole)
        own, alone = parts[workers.rank], workers.size == 1

        def run() -> None:
            workers.finish(key)  # of a step that was broken off
            if alone or workers.silent:
                whole[...] = 0
            own[: len(mine)] = mine
            own[len(mine) :] = 0
            if not workers.silent:
                send(workers, key, lambda: [workers.start_all_gather(None, parts)])

        return run


@kernel(JoinAllReduce, JoinAllGatherRows, backend="workers", rank=10)
class Join(Kernel):
    """Wait for what was sent on its way."""

    def bind(self, node: Node, buffers: Buffers) -> Thunk:
        """A thunk that waits."""
        return joining(address(buffers.inputs[0]), filling(buffers.inputs, buffers.outputs))


def _sender(encoding: str, arrays: Sequence[Any]) -> Callable[[], list[Pending]]:
    """What sends arrays on their way to be summed up: as one piece of memory, or encoded."""
    if not arrays:
        return list
    workers, form = world(), between_hosts(encoding)
    by_host, encoding = (None, encoding) if form is None else (workers.host_groups, form)
    if encoding and by_host is None:
        whole = compressed_all_reduce(workers, encoding, arrays)
        return lambda: [whole.start()]
    bundle = Bundle(arrays)
    start: Callable[[], Pending] = partial(workers.start_all_reduce, bundle.whole)
    if by_host is not None:
        start = HierarchicalAllReduce(workers, by_host, encoding, bundle.whole).start

    def run() -> list[Pending]:
        bundle.fill()
        return [Emptied(start(), bundle)]

    return run
