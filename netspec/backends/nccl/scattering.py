"""Kernels of pieces over workers' GPUs: a bucket travels as one piece of memory, of which each has one stretch."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from itertools import pairwise
from typing import Any

from netspec.backends.cuda.beside import Call, beside
from netspec.backends.nccl.memory import Bundle, address, all_of, copying, filling, joining, memory
from netspec.backends.workers.scattering import borders
from netspec.graph.kernel import Buffers, Kernel, Thunk, kernel
from netspec.graph.ops.scattering import Cut, GatherPieces, JoinScatterSums, ScatterSums, StartScatterSums
from netspec.graph.value import Node
from netspec.parallel import world
from netspec.parallel.nccl import gpus


def _pieces(op: Cut, arrays: Sequence[Any]) -> list[Any]:
    """This worker's parts of its own arrays, in their memory."""
    return [arrays[number].reshape(-1)[start:stop] for number, start, stop in op.parts]


def _sum(op: Cut, arrays: Sequence[Any], results: Sequence[Any]) -> tuple[Thunk, Call]:
    """What packs a bucket, and what sends it and has this worker's share of the sums put into the results."""
    bundle = Bundle(arrays)
    ends = borders(op, arrays, bundle)
    counts = [stop - start for start, stop in pairwise(ends)]
    places = [bundle.starts[number] + start - ends[op.rank] for number, start, _ in op.parts]
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
    return bundle.fill, beside().call(address(arrays[0]), carry, unpack)


class _Scattering(Kernel):
    """Base of the kernels that send a bucket."""

    waits = False
    """Whether what follows needs the sums."""

    def bind(self, node: Node, buffers: Buffers) -> Thunk:
        op, workers = node.op, world()
        assert isinstance(op, Cut)
        arrays, results = buffers.inputs[: len(op.cuts)], buffers.outputs[: len(op.parts)]
        alone = filling(_pieces(op, arrays), results)
        if workers.size == 1:
            return alone
        pack, call = _sum(op, arrays, results)
        join = partial(beside().join, address(arrays[0]))
        send = all_of([pack, call.start, join] if self.waits else [pack, call.start])
        return lambda: alone() if workers.silent else send()


@kernel(StartScatterSums, backend="nccl", rank=10)
class StartScatter(_Scattering):
    """Send a bucket on its way."""


@kernel(ScatterSums, backend="nccl", rank=10)
class Scatter(_Scattering):
    """Send a bucket, and have what follows wait for it."""

    waits = True


@kernel(JoinScatterSums, backend="nccl", rank=10)
class JoinScatter(Kernel):
    """Have what follows wait for a bucket."""

    def bind(self, node: Node, buffers: Buffers) -> Thunk:
        op = node.op
        assert isinstance(op, JoinScatterSums)
        count = len(op.parts)
        return joining(buffers.inputs[count + 1], filling(buffers.inputs[:count], buffers.outputs[:count]))


@kernel(GatherPieces, backend="nccl", rank=10)
class Gather(Kernel):
    """Put this worker's parts where they belong, and have those of the others put there too."""

    def bind(self, node: Node, buffers: Buffers) -> Thunk:
        op, workers = node.op, world()
        assert isinstance(op, GatherPieces)
        count, olds = len(op.parts), buffers.inputs[len(op.parts) : len(op.parts) + len(op.cuts)]
        wholes = [  # the others send what nobody reads here too
            memory(old.size, old.dtype).reshape(old.shape) if array is None else array
            for array, old in zip(buffers.outputs[: len(op.cuts)], olds, strict=True)
        ]
        alone = all_of([filling(olds, wholes), copying(buffers.inputs[:count], _pieces(op, wholes))])
        if workers.size == 1:
            return alone
        bundle = Bundle(wholes)
        counts = [stop - start for start, stop in pairwise(borders(op, wholes, bundle))]
        key = address(wholes[0])
        carry = partial(gpus(workers).gather_parts, bundle.place, counts, bundle.dtype)
        call = beside().call(key, carry, bundle.empty)
        put = copying(buffers.inputs[:count], _pieces(op, wholes))
        send = all_of([put, bundle.fill, call.start, partial(beside().join, key)])
        return lambda: alone() if workers.silent else send()
