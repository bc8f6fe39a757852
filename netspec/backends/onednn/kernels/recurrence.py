"""Recurrence kernels: the products of the steps by oneDNN, with a matrix that is packed once per call; cells by numba.

The library's own LSTM and GRU do the same in one call each, for these cells only, and no faster (docs/performance.md).
"""

from __future__ import annotations

from typing import Any

from netspec.backends.backend import unavailable_reasons
from netspec.backends.numba.kernels.recurrence import RecurrenceGradKernel, RecurrenceKernel
from netspec.backends.onednn.constants import Arg
from netspec.backends.onednn.kernel import engine
from netspec.backends.onednn.memory import Memory, MemoryDesc
from netspec.backends.onednn.primitive_descs import matmul, reorder
from netspec.graph.execution_plan import align_up
from netspec.graph.kernel import Thunk, kernel
from netspec.graph.ops.recurrence import Recurrence, RecurrenceGrad
from netspec.graph.types import DType, TensorType


class PackedProduct:
    """The product of a step by a primitive; the matrix is reordered to the layout that the primitive prefers."""

    def __init__(self, rows: int, matrix: TensorType, *, transposed: bool, biased: bool) -> None:
        height, width = matrix.shape[::-1] if transposed else matrix.shape
        library = engine()
        self._matrix = MemoryDesc.strided(library, (height, width), (1, height) if transposed else (width, 1))
        self._bias = MemoryDesc.strided(library, (1, width)) if biased else None
        self._rows, self._made = (MemoryDesc.strided(library, (rows, size)) for size in (height, width))
        self._desc = matmul(self._rows, MemoryDesc.any(library, (height, width)), self._bias, self._made)
        self._packed = self._desc[Arg.WEIGHTS]
        self.nbytes = align_up(self._packed.nbytes) + self._desc.scratchpad_bytes

    def bind(self, rows: Any, matrix: Any, bias: Any | None, result: Any, scratch: Any) -> tuple[list[Thunk], Thunk]:
        """See `StepProduct`."""
        packed = Memory(self._packed, scratch)
        pack = reorder(self._matrix, self._packed).primitive()
        arguments = {
            Arg.SRC: Memory(self._rows, rows),
            Arg.WEIGHTS: packed,
            Arg.DST: Memory(self._made, result),
        }
        if self._bias is not None and bias is not None:
            arguments[Arg.BIAS] = Memory(self._bias, bias)
        if self._desc.scratchpad_bytes:
            arguments[Arg.SCRATCHPAD] = Memory(self._desc[Arg.SCRATCHPAD], scratch[align_up(self._packed.nbytes) :])
        once = pack.bind({Arg.SRC: Memory(self._matrix, matrix), Arg.DST: packed})
        return [once], self._desc.primitive().bind(arguments)


def _why_not(types: tuple[TensorType, ...]) -> str | None:
    if types[0].dtype != DType.FLOAT32:
        return f"oneDNN kernels compute in float32, not {types[0].dtype}"
    missing = unavailable_reasons(("numba",))
    return f"the cell would be compiled by numba: {missing['numba']}" if missing else None


@kernel(Recurrence, backend="onednn", rank=10)
class RecurrenceForwardKernel(RecurrenceKernel):
    """Product, then cell, at each step."""

    product = PackedProduct

    def reject_reason(self, op: Recurrence, *types: TensorType) -> str | None:
        return _why_not(types) or super().reject_reason(op, *types)


@kernel(RecurrenceGrad, backend="onednn", rank=10)
class RecurrenceGradientKernel(RecurrenceGradKernel):
    """Product, then the cell's gradient, from the last step to the first."""

    product = PackedProduct

    def reject_reason(self, op: RecurrenceGrad, *types: TensorType) -> str | None:
        return _why_not(types) or super().reject_reason(op, *types)
