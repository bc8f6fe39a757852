"""The kernel for any op: it calls `forward` and copies the results into planned memory."""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module
from typing import Any

from netspec.graph.kernel import Buffers, Kernel, LowPrecision, Thunk, kernel
from netspec.graph.op import Op, Xp
from netspec.graph.ops.shape import Reorder
from netspec.graph.types import TensorType
from netspec.graph.value import Node


def namespace(array: Any) -> Xp:
    """The array namespace of `array`: the module `numpy` or `cupy`, which is already loaded."""
    return import_module(type(array).__module__.partition(".")[0])


@kernel(Op, backend="reference", rank=0)
class ForwardKernel(Kernel):
    """Any op, by its reference code. Temporary arrays are NumPy's own: they are not in the memory plan.

    Operands stored in 16 bits are widened first; results are rounded as they are copied.
    """

    low_precision = LowPrecision.ALL
    uses_array_library = True

    def reject_reason(self, op: Op, *types: TensorType) -> str | None:
        opaque = isinstance(op, Reorder) and op.opaque
        return "only the backend that defined an opaque layout can read it" if opaque else None

    def bind(self, node: Node, buffers: Buffers) -> Thunk:
        """Return a thunk that computes all results and copies those that are read."""
        forward, inputs = node.op.forward, buffers.inputs
        read = [(index, array) for index, array in enumerate(buffers.outputs) if array is not None]
        xp = namespace(read[0][1])
        if any(layout.dtype is not None for layout in (*buffers.layouts.inputs, *buffers.layouts.outputs)):
            return _rounding(node, inputs, read, xp)
        copyto = xp.copyto
        if len(buffers.outputs) == 1:
            (out,) = buffers.outputs
            return lambda: copyto(out, forward(xp, *inputs))

        def run() -> None:
            results = forward(xp, *inputs)
            for index, array in read:
                copyto(array, results[index])

        return run


def _rounding(node: Node, inputs: Sequence[Any], read: Sequence[tuple[int, Any]], xp: Xp) -> Thunk:
    types = [str(value.dtype) for value in node.inputs]

    def run() -> None:
        results = node.op.forward(xp, *(x.astype(kind, copy=False) for x, kind in zip(inputs, types, strict=True)))
        for index, array in read:
            xp.copyto(array, results[index] if len(node.outputs) > 1 else results, casting="unsafe")

    return run
