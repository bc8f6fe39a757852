"""Recurrence kernels: at each step a matrix product, and the cell as one elementwise kernel.

A backend with faster products derives from these kernels with its own `product`.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, ClassVar

from netspec.backends.common import recurrence
from netspec.backends.common.copy_kernels import chain
from netspec.backends.common.trace import Code
from netspec.backends.cuda.kernels.elementwise import add, bound, copy, fill
from netspec.backends.cuda.kernels.matmul import matmul, tile_split
from netspec.backends.cuda.scalar_code import scalar_code, why_untraceable
from netspec.graph.kernel import Thunk, kernel
from netspec.graph.ops.linear import MatMul
from netspec.graph.ops.recurrence import Recurrence, RecurrenceGrad
from netspec.graph.types import TensorType


class TiledProduct:
    """The product of a step by our own tiled kernel."""

    def __init__(self, rows: int, matrix: TensorType, *, transposed: bool, biased: bool) -> None:
        self._op = MatMul(transpose_b=transposed)
        operand = matrix.with_shape(rows, matrix.shape[1 if transposed else 0])
        self.nbytes = tile_split(self._op, operand, matrix).nbytes(self._op.infer(operand, matrix))

    def bind(self, rows: Any, matrix: Any, bias: Any | None, result: Any, scratch: Any) -> tuple[list[Thunk], Thunk]:
        """See `StepProduct`."""
        multiply = matmul(self._op, rows, matrix, result, scratch)
        return [], multiply if bias is None else chain([multiply, add(result, bias, result)])


def _cell(code: Code) -> recurrence.Cell:
    """One elementwise kernel for all steps."""
    return partial(bound, code)


class CudaCellArithmetic:
    """Elementwise kernels as cell arithmetic."""

    cell = staticmethod(_cell)
    copy, fill, sum = staticmethod(copy), staticmethod(fill), staticmethod(add)
    scalar_code, why_untraceable = staticmethod(scalar_code), staticmethod(why_untraceable)


@kernel(Recurrence, backend="cuda", rank=5)
class RecurrenceKernel(recurrence.BaseRecurrenceKernel):
    """Two launches a step, or three with a bias."""

    product: ClassVar[Callable[..., recurrence.StepProduct]] = TiledProduct
    by: ClassVar[recurrence.CellArithmetic] = CudaCellArithmetic()


@kernel(RecurrenceGrad, backend="cuda", rank=5)
class RecurrenceGradKernel(recurrence.BaseRecurrenceGradKernel):
    """Two launches a step."""

    product: ClassVar[Callable[..., recurrence.StepProduct]] = TiledProduct
    by: ClassVar[recurrence.CellArithmetic] = CudaCellArithmetic()
