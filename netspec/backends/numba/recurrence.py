"""Recurrences: at each step one matrix product of NumPy's, and the cell as one compiled loop."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, ClassVar

from netspec.backends import recurrence
from netspec.backends.moves import in_turn
from netspec.backends.numba.elementwise import binder, bound, copy, fill
from netspec.backends.numba.trace import scalar_code, why_untraceable
from netspec.backends.trace import Code
from netspec.graph.kernel import Thunk, kernel
from netspec.graph.ops.recurrence import Recurrence, RecurrenceGrad
from netspec.graph.types import TensorType


class NumpyProduct:
    """By NumPy."""

    nbytes = 0

    def __init__(self, rows: int, matrix: TensorType, *, transposed: bool, biased: bool) -> None:
        self._transposed = transposed

    def bind(self, rows: Any, matrix: Any, bias: Any | None, made: Any, scratch: Any) -> tuple[list[Thunk], Thunk]:
        """As `recurrence.Product`."""
        import numpy as np

        multiply = partial(np.matmul, rows, matrix.T if self._transposed else matrix, out=made)
        return [], multiply if bias is None else in_turn([multiply, partial(np.add, made, bias, out=made)])


class Steps:
    """Calls of a cell, one for each step: the arrays of all of them lie alike."""

    def __init__(self, code: Code) -> None:
        self._code = code
        self._bind: Callable[..., Thunk] | None = None

    def __call__(self, inputs: Sequence[Any], outputs: Sequence[Any | None]) -> Thunk:
        """The call for the arrays of a step."""
        if self._bind is None:
            # So many arrays are read and written that they, not the arithmetic, take the time.
            work = inputs[0].size * (len(inputs) + len(outputs))
            self._bind = binder(self._code, inputs, outputs, work)
        return self._bind(inputs, outputs)


class Arithmetic:
    """Compiled loops."""

    cell, copy, fill = Steps, staticmethod(copy), staticmethod(fill)
    scalar_code, why_untraceable = staticmethod(scalar_code), staticmethod(why_untraceable)

    def sum(self, one: Any, other: Any, target: Any) -> Thunk:
        """In one loop."""
        return bound((("t0 = a0 + a1",), ("t0",)), [one, other], [target])


@kernel(Recurrence, backend="numba", rank=5)
class RecurrenceKernel(recurrence.RecurrenceKernel):
    """Cells as compiled loops."""

    product: ClassVar[Callable[..., recurrence.Product]] = NumpyProduct
    by: ClassVar[recurrence.Arithmetic] = Arithmetic()


@kernel(RecurrenceGrad, backend="numba", rank=5)
class RecurrenceGradKernel(recurrence.RecurrenceGradKernel):
    """Gradients of cells as compiled loops."""

    product: ClassVar[Callable[..., recurrence.Product]] = NumpyProduct
    by: ClassVar[recurrence.Arithmetic] = Arithmetic()
