"""Recurrence kernels with cuBLASLt's products; cells are our own elementwise kernels."""

from __future__ import annotations

from typing import Any, ClassVar

from netspec.backends.common import recurrence
from netspec.backends.common.copy_kernels import chain
from netspec.backends.cuda.cublaslt.matmul import WORKSPACE, bind_matmul
from netspec.backends.cuda.kernels.elementwise import add
from netspec.backends.cuda.kernels.recurrence import CudaCellArithmetic
from netspec.graph.kernel import Thunk, kernel
from netspec.graph.ops.recurrence import Recurrence, RecurrenceGrad
from netspec.graph.types import DType, TensorType
from netspec.graph.value import Node


class LtStepProduct:
    """The product of a step; `fast` allows rounding operands to tf32."""

    nbytes = WORKSPACE

    def __init__(self, *, transposed: bool, fast: bool) -> None:
        self._transposed, self._fast = transposed, fast

    def bind(self, rows: Any, matrix: Any, bias: Any | None, result: Any, scratch: Any) -> tuple[list[Thunk], Thunk]:
        """See `StepProduct`. The library's bias in float64 is undocumented: it is added afterwards."""
        right = matrix.T if self._transposed else matrix
        if bias is None or result.dtype == "float32":
            flat = () if bias is None else (bias.reshape(-1),)
            return [], bind_matmul(rows, right, result, scratch, *flat, fast=self._fast)
        return [], chain([bind_matmul(rows, right, result, scratch), add(result, bias, result)])


class LtSequenceKernel(recurrence.SequenceKernel):
    """Base class: two launches a step."""

    by: ClassVar[recurrence.CellArithmetic] = CudaCellArithmetic()

    def multiplier(self, node: Node) -> LtStepProduct:
        return LtStepProduct(transposed=isinstance(node.op, RecurrenceGrad), fast=self.tf32)

    def reject_reason(self, op: Any, *types: TensorType) -> str | None:
        if self.tf32 and types[0].dtype != DType.FLOAT32:
            return f"{types[0].dtype} is not rounded to tf32"
        return super().reject_reason(op, *types)


@kernel(Recurrence, backend="cublaslt", rank=10, tf32=True)
class RecurrenceKernel(LtSequenceKernel, recurrence.BaseRecurrenceKernel):
    """Forward."""


@kernel(RecurrenceGrad, backend="cublaslt", rank=10, tf32=True)
class RecurrenceGradKernel(LtSequenceKernel, recurrence.BaseRecurrenceGradKernel):
    """Gradient."""
