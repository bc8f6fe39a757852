"""Kernels of sums over workers, in place: an operand that lies elsewhere than its result is copied first."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any

from netspec.graph.kernel import Buffers, Kernel, Thunk, kernel
from netspec.graph.ops.communication import AllReduce, JoinAllReduce, StartAllReduce
from netspec.graph.ops.gathering import JoinGatherRows, StartGatherRows
from netspec.graph.plan import ALIGNMENT
from netspec.graph.value import Node
from netspec.parallel import Pending, world
from netspec.parallel.sums import encoded_sum

_sent: dict[int, list[Pending]] = {}
"""What was started and not joined, by the address of its first array."""


@kernel(AllReduce, backend="workers", rank=10)
class Sum(Kernel):
    """Ask the others, and wait for them."""

    def bind(self, node: Node, buffers: Buffers) -> Thunk:
        """A thunk that sums up in the result's memory."""
        (out,), workers = buffers.outputs, world()
        fill, (whole,) = _fill(buffers.inputs[:1], [out]), _pieces([out])

        def run() -> None:
            fill()
            if not workers.silent:
                workers.start_all_reduce(whole, apart=True).wait()

        return run


@kernel(StartAllReduce, backend="workers", rank=10)
class Start(Kernel):
    """Send a bucket on its way, and look after those sent before."""

    def bind(self, node: Node, buffers: Buffers) -> Thunk:
        """A thunk that sends the pieces of memory in which the values lie: one, if the plan could lay them in a row."""
        op = node.op
        assert isinstance(op, StartAllReduce)
        workers, outputs = world(), buffers.outputs[: op.count]
        read = [one for one in outputs if one is not None]
        fill, start = _fill(buffers.inputs[: op.count], outputs), _sender(op.encoding, read)
        key = _address(read[0]) if read else 0

        def run() -> None:
            fill()
            if not workers.silent:
                _send(key, start)

        return run


@kernel(StartGatherRows, backend="workers", rank=10)
class StartGather(Kernel):
    """Send rows on their way, and look after what was sent before."""

    def bind(self, node: Node, buffers: Buffers) -> Thunk:
        """A thunk that puts rows where those of all are to lie, zeros below them, and asks for the others'."""
        op, mine, workers = node.op, buffers.inputs[0], world()
        assert isinstance(op, StartGatherRows)
        whole = buffers.outputs[0]
        assert whole is not None
        parts, key = whole.reshape(op.workers, op.most, -1), _address(whole)
        own, alone = parts[workers.rank], workers.size == 1

        def run() -> None:
            _finish(key)  # of a step that was broken off
            if alone or workers.silent:
                whole[...] = 0
            own[: len(mine)] = mine
            own[len(mine) :] = 0
            if not workers.silent:
                _send(key, lambda: [workers.start_all_gather(None, parts)])

        return run


@kernel(JoinAllReduce, JoinGatherRows, backend="workers", rank=10)
class Join(Kernel):
    """Wait for what was sent on its way."""

    def bind(self, node: Node, buffers: Buffers) -> Thunk:
        """A thunk that waits."""
        key = _address(buffers.inputs[0])
        fill = _fill(buffers.inputs, buffers.outputs)

        def run() -> None:
            _finish(key)
            fill()

        return run


def _send(key: int, start: Callable[[], list[Pending]]) -> None:
    """Set something going, and let MPI go on with what is under way."""
    for others in _sent.values():
        for one in others:
            one.advance()
    _finish(key)  # of a step that was broken off
    _sent[key] = start()


def _finish(key: int) -> None:
    """Wait for what was sent from that address, if anything was."""
    for one in _sent.pop(key, ()):
        one.wait()


def _sender(encoding: str, arrays: Sequence[Any]) -> Callable[[], list[Pending]]:
    """What sends arrays on their way to be summed up: as pieces of memory, or encoded."""
    workers = world()
    if encoding:
        whole = encoded_sum(workers, encoding, arrays)
        return lambda: [whole.start()]
    pieces = _pieces(arrays)
    return lambda: [workers.start_all_reduce(piece) for piece in pieces]


def _address(array: Any) -> int:
    return int(array.ctypes.data)


def _fill(inputs: Sequence[Any], outputs: Sequence[Any]) -> Thunk:
    """What copies operands to where their results lie; nothing to do where they lie there already."""
    apart = [
        (target, source)
        for source, target in zip(inputs, outputs, strict=True)
        if target is not None and _address(target) != _address(source)
    ]

    def run() -> None:
        for target, source in apart:
            target[...] = source

    return run


def _pieces(arrays: Sequence[Any]) -> list[Any]:
    """Flat arrays that span those which lie side by side, gaps of the alignment included."""
    import numpy as np

    runs = [[one] for one in arrays[:1]]
    for before, after in pairwise(arrays):
        gap = _address(after) - _address(before) - before.nbytes
        if 0 <= gap < ALIGNMENT and _memory(after) is _memory(before):
            runs[-1].append(after)
        else:
            runs.append([after])
    found = []
    for run in runs:
        memory, begin = _memory(run[0]), _address(run[0])
        end = _address(run[-1]) + run[-1].nbytes
        start = begin - _address(memory)
        found.append(memory.view(np.uint8)[start : start + end - begin].view(run[0].dtype))
    return found


def _memory(array: Any) -> Any:
    """The array that the memory of a view belongs to, flat."""
    import numpy as np

    while isinstance(array.base, np.ndarray):
        array = array.base
    return array.reshape(-1)
