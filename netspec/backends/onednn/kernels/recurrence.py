"""Recurrences: the products of the steps by oneDNN, on a matrix that is packed once a call; the cell by numba.

The library's own LSTM and GRU do the same in one call each, for these cells alone, and no faster (docs/performance.md).
"""

from __future__ import annotations

from typing import Any

from netspec.backends.base import missing_backends
from netspec.backends.numba.recurrence import RecurrenceGradKernel, RecurrenceKernel
from netspec.backends.onednn.constants import Arg
from netspec.backends.onednn.kernels.base import engine
from netspec.backends.onednn.memory import Memory, MemoryDesc
from netspec.backends.onednn.pointwise import reorder
from netspec.backends.onednn.products import matmul
from netspec.graph.kernel import Thunk, kernel
from netspec.graph.ops.recurrence import Recurrence, RecurrenceGrad
from netspec.graph.plan import aligned
from netspec.graph.types import DType, TensorType


class PackedProduct:
    """The product of a step by a primitive, whose matrix is brought into the layout that it likes first."""

    def __init__(self, rows: int, matrix: TensorType, *, transposed: bool, biased: bool) -> None:
        height, width = matrix.shape[::-1] if transposed else matrix.shape
        one = engine()
        self._matrix = MemoryDesc.strided(one, (height, width), (1, height) if transposed else (width, 1))
        self._bias = MemoryDesc.strided(one, (1, width)) if biased else None
        self._rows, self._made = (MemoryDesc.strided(one, (rows, size)) for size in (height, width))
        self._desc = matmul(self._rows, MemoryDesc.any(one, (height, width)), self._bias, self._made)
        self._packed = self._desc[Arg.WEIGHTS]
        self.nbytes = aligned(self._packed.nbytes) + self._desc.scratchpad_bytes

    def bind(self, rows: Any, matrix: Any, bias: Any | None, made: Any, scratch: Any) -> tuple[list[Thunk], Thunk]:
        """As `netspec.backends.recurrence.Product`."""
        packed = Memory(self._packed, scratch)
        pack = reorder(self._matrix, self._packed).primitive()
        arguments = {
            Arg.SRC: Memory(self._rows, rows),
            Arg.WEIGHTS: packed,
            Arg.DST: Memory(self._made, made),
        }
        if self._bias is not None and bias is not None:
            arguments[Arg.BIAS] = Memory(self._bias, bias)
        if self._desc.scratchpad_bytes:
            arguments[Arg.SCRATCHPAD] = Memory(self._desc[Arg.SCRATCHPAD], scratch[aligned(self._packed.nbytes) :])
        once = pack.bind({Arg.SRC: Memory(self._matrix, matrix), Arg.DST: packed})
        return [once], self._desc.primitive().bind(arguments)


def _why_not(types: tuple[TensorType, ...]) -> str | None:
    if types[0].dtype != DType.FLOAT32:
        return f"oneDNN kernels compute in float32, not {types[0].dtype}"
    missing = missing_backends(("numba",))
    return f"the cell would be compiled by numba: {missing['numba']}" if missing else None


@kernel(Recurrence, backend="onednn", rank=10)
class Scan(RecurrenceKernel):
    """The steps in turn: product, cell."""

    product = PackedProduct

    def why_not(self, op: Recurrence, *types: TensorType) -> str | None:
        return _why_not(types) or super().why_not(op, *types)


@kernel(RecurrenceGrad, backend="onednn", rank=10)
class ScanGrad(RecurrenceGradKernel):
    """The steps from the last to the first: product, cell's gradient."""

    product = PackedProduct

    def why_not(self, op: RecurrenceGrad, *types: TensorType) -> str | None:
        return _why_not(types) or super().why_not(op, *types)
