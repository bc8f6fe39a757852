"""One kernel for every op: call `forward`, copy what it returns into the planned memory."""

from __future__ import annotations

from typing import Any

from netspec.graph.kernel import Buffers, Kernel, Thunk, kernel
from netspec.graph.op import Op, Xp
from netspec.graph.value import Node


def namespace(array: Any) -> Xp:
    """The array namespace that `array` belongs to: `numpy` or `cupy`."""
    if type(array).__module__.startswith("cupy"):
        import cupy  # only where the caller already has CuPy arrays

        return cupy
    import numpy

    return numpy


@kernel(Op, backend="reference", rank=0)
class Forward(Kernel):
    """Any op, by its reference code. Temporary arrays are NumPy's own: they are not in the memory plan."""

    def bind(self, node: Node, buffers: Buffers) -> Thunk:
        """A thunk that computes all results and copies those that are read."""
        forward, inputs = node.op.forward, buffers.inputs
        read = [(index, array) for index, array in enumerate(buffers.outputs) if array is not None]
        xp = namespace(read[0][1]) if read else namespace(inputs[0])
        if len(buffers.outputs) == 1:
            (out,) = buffers.outputs
            return lambda: xp.copyto(out, forward(xp, *inputs))

        def run() -> None:
            results = forward(xp, *inputs)
            for index, array in read:
                xp.copyto(array, results[index])

        return run
