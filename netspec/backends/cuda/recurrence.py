"""Recurrences: at each step a matrix product, and the cell as one elementwise kernel.

A backend that has better products derives from these kernels with a `product` of its own.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, ClassVar

from netspec.backends import recurrence
from netspec.backends.cuda.elementwise import bound, copy, fill
from netspec.backends.cuda.products import cut_of, matmul
from netspec.backends.cuda.scalar import scalar_code, why_untraceable
from netspec.backends.moves import in_turn
from netspec.backends.trace import Code
from netspec.graph.kernel import Thunk, kernel
from netspec.graph.ops.linear import MatMul
from netspec.graph.ops.recurrence import Recurrence, RecurrenceGrad
from netspec.graph.types import TensorType


class OwnProduct:
    """By tiles of our own."""

    def __init__(self, rows: int, matrix: TensorType, *, transposed: bool, biased: bool) -> None:
        self._op = MatMul(transpose_b=transposed)
        given = matrix.with_shape(rows, matrix.shape[1 if transposed else 0])
        self.nbytes = cut_of(self._op, given, matrix).nbytes(self._op.infer(given, matrix))

    def bind(self, rows: Any, matrix: Any, bias: Any | None, made: Any, scratch: Any) -> tuple[list[Thunk], Thunk]:
        """As `recurrence.Product`."""
        multiply = matmul(self._op, rows, matrix, made, scratch)
        return [], multiply if bias is None else in_turn([multiply, _sum(made, bias, made)])


def _cell(code: Code) -> recurrence.Cell:
    """An elementwise kernel: the same for all steps."""
    return partial(bound, code)


def _sum(one: Any, other: Any, target: Any) -> Thunk:
    return bound(((), ("a0 + a1",)), [one, other], [target])


class Arithmetic:
    """Elementwise kernels."""

    cell, sum = staticmethod(_cell), staticmethod(_sum)
    copy, fill = staticmethod(copy), staticmethod(fill)
    scalar_code, why_untraceable = staticmethod(scalar_code), staticmethod(why_untraceable)


@kernel(Recurrence, backend="cuda", rank=5)
class RecurrenceKernel(recurrence.RecurrenceKernel):
    """Two launches a step, or three with a bias."""

    product: ClassVar[Callable[..., recurrence.Product]] = OwnProduct
    by: ClassVar[recurrence.Arithmetic] = Arithmetic()


@kernel(RecurrenceGrad, backend="cuda", rank=5)
class RecurrenceGradKernel(recurrence.RecurrenceGradKernel):
    """Two launches a step."""

    product: ClassVar[Callable[..., recurrence.Product]] = OwnProduct
    by: ClassVar[recurrence.Arithmetic] = Arithmetic()
