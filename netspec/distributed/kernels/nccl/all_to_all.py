"""Kernel of exchanges that all wait for: blocks are packed and unpacked by copies of our own, in the step's stream."""

from __future__ import annotations

from functools import partial
from math import prod
from typing import Any

from netspec.backends.cuda.kernels.elementwise import bound, fill
from netspec.backends.cuda.side_stream import side_stream
from netspec.distributed import world
from netspec.distributed.communicators.nccl import gpus
from netspec.distributed.kernels.nccl.memory import address, all_of, copying, memory
from netspec.graph.kernel import Buffers, Kernel, Thunk, kernel
from netspec.graph.ops.collectives import BlockingCollective
from netspec.graph.value import Node


@kernel(BlockingCollective, backend="nccl", rank=10)
class Exchanged(Kernel):
    """Send blocks to the others, and make the result of theirs, added up in the order of ranks."""

    def bind(self, node: Node, buffers: Buffers) -> Thunk:
        op, (out,), workers = node.op, buffers.outputs, world()
        assert isinstance(op, BlockingCollective)
        x, block, count = buffers.inputs[0], op.block_type(node.inputs[0].type), op.worker_partition.workers
        sent = _blocks(1 if op.is_broadcast else count, block.shape, x.dtype)  # what nothing is packed into stays 0
        came = _blocks(count, block.shape, x.dtype)
        targets, sources = zip(*op.pack(x, sent), strict=True)
        rank = op.worker_partition.rank
        own = copying([sent[0 if op.is_broadcast else rank]], [came[rank]])
        take = [fill(0.0, out)] * op.has_gaps(came, out)
        take += [_added(parts, target) for target, parts in op.unpack(came, out) if target.size]
        pack, unpack = copying(sources, targets), all_of(take)
        alone = all_of([fill(0.0, came), pack, own, unpack])
        if workers.size == 1:
            return alone
        group = gpus(workers, apart=True)
        begin = group.all_gather if op.is_broadcast else group.all_to_all
        send = all_of([pack, side_stream().here(partial(begin, address(sent), address(came), block.nbytes)), unpack])
        return lambda: alone() if workers.silent else send()


def _blocks(count: int, shape: tuple[int, ...], dtype: Any) -> Any:
    return memory(count * prod(shape), dtype).reshape(count, *shape)


def _added(parts: Any, target: Any) -> Thunk:
    """The sum of some arrays, in their order."""
    return bound(((), (" + ".join(f"a{number}" for number in range(len(parts))),)), parts, [target])
