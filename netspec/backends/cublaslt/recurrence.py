"""Recurrences whose products are cuBLASLt's; their cells are elementwise kernels of our own."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

from netspec.backends import recurrence
from netspec.backends.cublaslt.product import WORKSPACE, bound
from netspec.backends.cuda.recurrence import Arithmetic
from netspec.backends.moves import in_turn
from netspec.graph.kernel import Thunk, kernel
from netspec.graph.ops.recurrence import Recurrence, RecurrenceGrad
from netspec.graph.types import DType, TensorType


class Product:
    """The product of a step."""

    nbytes = WORKSPACE
    fast: ClassVar[bool] = False

    def __init__(self, rows: int, matrix: TensorType, *, transposed: bool, biased: bool) -> None:
        self._transposed = transposed

    def bind(self, rows: Any, matrix: Any, bias: Any | None, made: Any, scratch: Any) -> tuple[list[Thunk], Thunk]:
        """As `recurrence.Product`. Of a bias in float64 the library says nothing: it is added afterwards."""
        right = matrix.T if self._transposed else matrix
        if bias is None or made.dtype == "float32":
            flat = () if bias is None else (bias.reshape(-1),)
            return [], bound(rows, right, made, scratch, *flat, fast=self.fast)
        return [], in_turn([bound(rows, right, made, scratch), Arithmetic.sum(made, bias, made)])


class RoundedProduct(Product):
    """Of operands as tf32."""

    fast = True


@kernel(Recurrence, backend="cublaslt", rank=10)
class RecurrenceKernel(recurrence.RecurrenceKernel):
    """Two launches a step."""

    product: ClassVar[Callable[..., recurrence.Product]] = Product
    by: ClassVar[recurrence.Arithmetic] = Arithmetic()


@kernel(RecurrenceGrad, backend="cublaslt", rank=10)
class RecurrenceGradKernel(recurrence.RecurrenceGradKernel):
    """Two launches a step."""

    product: ClassVar[Callable[..., recurrence.Product]] = Product
    by: ClassVar[recurrence.Arithmetic] = Arithmetic()


@kernel(Recurrence, backend="cublaslt", rank=14)
class RoundedRecurrenceKernel(RecurrenceKernel):
    """As `RecurrenceKernel`, of operands as tf32."""

    tf32 = True
    product: ClassVar[Callable[..., recurrence.Product]] = RoundedProduct

    def why_not(self, op: Recurrence, *types: TensorType) -> str | None:
        return _not_rounded(types[0]) or super().why_not(op, *types)


@kernel(RecurrenceGrad, backend="cublaslt", rank=14)
class RoundedRecurrenceGradKernel(RecurrenceGradKernel):
    """As `RecurrenceGradKernel`, of operands as tf32."""

    tf32 = True
    product: ClassVar[Callable[..., recurrence.Product]] = RoundedProduct

    def why_not(self, op: RecurrenceGrad, *types: TensorType) -> str | None:
        return _not_rounded(types[0]) or super().why_not(op, *types)


def _not_rounded(x: TensorType) -> str | None:
    return None if x.dtype == DType.FLOAT32 else f"{x.dtype} is not rounded to tf32"
