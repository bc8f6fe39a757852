"""Recurrence kernels with cuBLASLt's products; cells are our own elementwise kernels."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

from netspec.backends.common import recurrence
from netspec.backends.common.copy_kernels import chain
from netspec.backends.cuda.cublaslt.matmul import WORKSPACE, bind_matmul
from netspec.backends.cuda.kernels.recurrence import CudaCellArithmetic
from netspec.graph.kernel import Thunk, kernel
from netspec.graph.ops.recurrence import Recurrence, RecurrenceGrad
from netspec.graph.types import DType, TensorType


class LtStepProduct:
    """The product of a step."""

    nbytes = WORKSPACE
    fast: ClassVar[bool] = False

    def __init__(self, rows: int, matrix: TensorType, *, transposed: bool, biased: bool) -> None:
        self._transposed = transposed

    def bind(self, rows: Any, matrix: Any, bias: Any | None, result: Any, scratch: Any) -> tuple[list[Thunk], Thunk]:
        """See `StepProduct`. The library's bias in float64 is undocumented: it is added afterwards."""
        right = matrix.T if self._transposed else matrix
        if bias is None or result.dtype == "float32":
            flat = () if bias is None else (bias.reshape(-1),)
            return [], bind_matmul(rows, right, result, scratch, *flat, fast=self.fast)
        return [], chain([bind_matmul(rows, right, result, scratch), CudaCellArithmetic.sum(result, bias, result)])


class Tf32StepProduct(LtStepProduct):
    """The product of a step, with operands rounded to tf32."""

    fast = True


@kernel(Recurrence, backend="cublaslt", rank=10)
class RecurrenceKernel(recurrence.BaseRecurrenceKernel):
    """Two launches a step."""

    product: ClassVar[Callable[..., recurrence.StepProduct]] = LtStepProduct
    by: ClassVar[recurrence.CellArithmetic] = CudaCellArithmetic()


@kernel(RecurrenceGrad, backend="cublaslt", rank=10)
class RecurrenceGradKernel(recurrence.BaseRecurrenceGradKernel):
    """Two launches a step."""

    product: ClassVar[Callable[..., recurrence.StepProduct]] = LtStepProduct
    by: ClassVar[recurrence.CellArithmetic] = CudaCellArithmetic()


@kernel(Recurrence, backend="cublaslt", rank=14)
class Tf32RecurrenceKernel(RecurrenceKernel):
    """Like `RecurrenceKernel`, with operands rounded to tf32."""

    tf32 = True
    product: ClassVar[Callable[..., recurrence.StepProduct]] = Tf32StepProduct

    def reject_reason(self, op: Recurrence, *types: TensorType) -> str | None:
        return _not_rounded(types[0]) or super().reject_reason(op, *types)


@kernel(RecurrenceGrad, backend="cublaslt", rank=14)
class Tf32RecurrenceGradKernel(RecurrenceGradKernel):
    """Like `RecurrenceGradKernel`, with operands rounded to tf32."""

    tf32 = True
    product: ClassVar[Callable[..., recurrence.StepProduct]] = Tf32StepProduct

    def reject_reason(self, op: RecurrenceGrad, *types: TensorType) -> str | None:
        return _not_rounded(types[0]) or super().reject_reason(op, *types)


def _not_rounded(x: TensorType) -> str | None:
    return None if x.dtype == DType.FLOAT32 else f"{x.dtype} is not rounded to tf32"
