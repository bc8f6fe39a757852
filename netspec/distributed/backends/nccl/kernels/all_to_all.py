"""Kernel of blocking collectives: blocks are packed, exchanged and unpacked in the step's stream."""

from __future__ import annotations

from functools import partial
from math import prod
from typing import Any

from netspec.backends.cuda.kernels.elementwise import bound, fill
from netspec.backends.cuda.side_stream import side_stream
from netspec.distributed import world
from netspec.distributed.backends.nccl.memory import address, all_of, copying, memory
from netspec.distributed.communicators.nccl import nccl_group
from netspec.graph.kernel import Buffers, Kernel, Thunk, kernel
from netspec.graph.ops.collectives import BlockingCollective
from netspec.graph.value import Node


@kernel(BlockingCollective, backend="nccl", rank=10)
class BlockingCollectiveKernel(Kernel):
    """Exchange blocks with all workers; blocks that overlap are added in the order of ranks."""

    def bind(self, node: Node, buffers: Buffers) -> Thunk:
        op, (out,), workers = node.op, buffers.outputs, world()
        assert isinstance(op, BlockingCollective)
        x, block, count = buffers.inputs[0], op.block_type(node.inputs[0].type), op.worker_partition.workers
        sent = _blocks(1 if op.is_broadcast else count, block.shape, x.dtype)  # gaps stay 0
        received = _blocks(count, block.shape, x.dtype)
        targets, sources = zip(*op.pack(x, sent), strict=True)
        rank = op.worker_partition.rank
        copy_own_block = copying([sent[0 if op.is_broadcast else rank]], [received[rank]])
        take = [fill(0.0, out)] * op.has_gaps(received, out)
        take += [_added(parts, target) for target, parts in op.unpack(received, out) if target.size]
        pack, unpack = copying(sources, targets), all_of(take)
        alone = all_of([fill(0.0, received), pack, copy_own_block, unpack])
        if workers.size == 1:
            return alone
        group = nccl_group(workers, blocking=True)
        begin = group.all_gather if op.is_broadcast else group.all_to_all
        send = all_of(
            [
                pack,
                side_stream().on_current_stream(partial(begin, address(sent), address(received), block.nbytes)),
                unpack,
            ]
        )
        return lambda: alone() if workers.silent else send()


def _blocks(count: int, shape: tuple[int, ...], dtype: Any) -> Any:
    return memory(count * prod(shape), dtype).reshape(count, *shape)


def _added(parts: Any, target: Any) -> Thunk:
    """Return a call that sums arrays in their order."""
    return bound(((), (" + ".join(f"a{number}" for number in range(len(parts))),)), parts, [target])
