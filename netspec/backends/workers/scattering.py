"""Kernels of pieces over workers: a bucket travels as one piece of memory, of which each worker has one stretch.

That is so since all cuts are at lines of memory or at the ends of arrays. A worker's share is received where the
results lie, unless these lie elsewhere than in a row.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any, Protocol

from netspec.backends.workers.filling import filling
from netspec.backends.workers.spans import Bundle, address, span
from netspec.backends.workers.underway import joining, send
from netspec.graph.kernel import Buffers, Kernel, Thunk, kernel
from netspec.graph.ops.scattering import Cut, GatherPieces, JoinScatterSums, ScatterSums, StartScatterSums
from netspec.graph.value import Node
from netspec.parallel import Pending, world


class Piece(Protocol):
    """Arrays as one piece of memory."""

    starts: list[int]
    """Where each begins, in numbers."""
    size: int


def borders(op: Cut, arrays: Sequence[Any], bundle: Piece) -> list[int]:
    """Where the share of each worker begins in a bundle of arrays, in numbers; and one more, where the last ends."""

    def border(worker: int) -> int:
        """In the first array that those before it have not all of."""
        for cuts, array, start in zip(op.cuts, arrays, bundle.starts, strict=False):
            if cuts[worker] < array.size:
                return start + cuts[worker]
        return bundle.size

    return [0, *map(border, range(1, len(op.cuts[0]) - 1)), bundle.size]


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


def _sender(op: Cut, arrays: Sequence[Any], results: Sequence[Any]) -> Callable[[], Pending]:
    """What sends a bucket on its way, and has this worker's share of the sums put into the results."""
    import numpy as np

    workers, bundle = world(), Bundle(arrays)
    ends = borders(op, arrays, bundle)
    counts = [stop - start for start, stop in pairwise(ends)]
    places = [bundle.starts[number] + start - ends[op.rank] for number, start, _ in op.parts]
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


def _alone(op: Cut, arrays: Sequence[Any], results: Sequence[Any]) -> Thunk:
    """What takes this worker's parts off its own arrays."""
    return filling([span(arrays[number], stop)[start:] for number, start, stop in op.parts], results)


@kernel(StartScatterSums, backend="workers", rank=10)
class StartScatter(Kernel):
    """Send a bucket on its way, and look after what was sent before."""

    def bind(self, node: Node, buffers: Buffers) -> Thunk:
        """A thunk that sends it."""
        op, workers = node.op, world()
        assert isinstance(op, StartScatterSums)
        arrays, results = buffers.inputs[: len(op.cuts)], buffers.outputs[: len(op.parts)]
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


@kernel(JoinScatterSums, backend="workers", rank=10)
class JoinScatter(Kernel):
    """Wait for a bucket."""

    def bind(self, node: Node, buffers: Buffers) -> Thunk:
        """A thunk that waits."""
        op = node.op
        assert isinstance(op, JoinScatterSums)
        count = len(op.parts)
        return joining(address(buffers.inputs[count + 1]), filling(buffers.inputs[:count], buffers.outputs[:count]))


@kernel(ScatterSums, backend="workers", rank=10)
class Scatter(Kernel):
    """Send a bucket, and wait for it."""

    def bind(self, node: Node, buffers: Buffers) -> Thunk:
        """A thunk that waits."""
        op, workers = node.op, world()
        assert isinstance(op, ScatterSums)
        results = buffers.outputs[: len(op.parts)]
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


@kernel(GatherPieces, backend="workers", rank=10)
class Gather(Kernel):
    """Put this worker's parts where they belong, and have those of the others put there too."""

    def bind(self, node: Node, buffers: Buffers) -> Thunk:
        """A thunk that waits for all."""
        import numpy as np

        op, workers = node.op, world()
        assert isinstance(op, GatherPieces)
        count = len(op.parts)
        wholes = [  # the others send what nobody reads here too
            np.empty(kind.shape, str(kind.dtype)) if array is None else array
            for array, kind in zip(buffers.outputs[: len(op.cuts)], node.types, strict=False)
        ]
        keep = filling(buffers.inputs[count : count + len(op.cuts)], wholes)
        put = filling(buffers.inputs[:count], [span(wholes[number], stop)[start:] for number, start, stop in op.parts])

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
            workers.start_gather_parts(bundle.whole, counts).wait()
            bundle.empty()

        return run
