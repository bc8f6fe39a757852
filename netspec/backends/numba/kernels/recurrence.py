"""Recurrence kernels: at each step a matrix product by NumPy, and the cell as one compiled loop."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, ClassVar

import numpy as np

from netspec.backends.common import recurrence
from netspec.backends.common.copy_kernels import chain
from netspec.backends.common.trace import Code
from netspec.backends.numba.kernels.elementwise import add, binder, copy, fill
from netspec.backends.numba.scalar_code import scalar_code, why_untraceable
from netspec.graph.kernel import Thunk, kernel
from netspec.graph.ops.recurrence import Recurrence, RecurrenceGrad
from netspec.graph.types import TensorType


class NumpyProduct:
    """Products by NumPy."""

    nbytes = 0

    def __init__(self, rows: int, matrix: TensorType, *, transposed: bool, biased: bool) -> None:
        self._transposed = transposed

    def bind(self, rows: Any, matrix: Any, bias: Any | None, result: Any, scratch: Any) -> tuple[list[Thunk], Thunk]:
        """See `StepProduct`."""
        multiply = partial(np.matmul, rows, matrix.T if self._transposed else matrix, out=result)
        return [], multiply if bias is None else chain([multiply, partial(np.add, result, bias, out=result)])


class StepThunks:
    """Binds a cell to the arrays of each step, which have the same layout in all steps."""

    def __init__(self, code: Code) -> None:
        self._code = code
        self._bind: Callable[..., Thunk] | None = None

    def __call__(self, inputs: Sequence[Any], outputs: Sequence[Any | None]) -> Thunk:
        """The call for the arrays of a step."""
        if self._bind is None:
            # with this many arrays, memory traffic takes more time than arithmetic
            work = inputs[0].size * (len(inputs) + len(outputs))
            self._bind = binder(self._code, inputs, outputs, work)
        return self._bind(inputs, outputs)


class NumbaCellArithmetic:
    """Compiled loops."""

    cell, copy, fill, sum = StepThunks, staticmethod(copy), staticmethod(fill), staticmethod(add)
    scalar_code, why_untraceable = staticmethod(scalar_code), staticmethod(why_untraceable)


@kernel(Recurrence, backend="numba", rank=5)
class RecurrenceKernel(recurrence.BaseRecurrenceKernel):
    """Cells as compiled loops."""

    product: ClassVar[Callable[..., recurrence.StepProduct]] = NumpyProduct
    by: ClassVar[recurrence.CellArithmetic] = NumbaCellArithmetic()


@kernel(RecurrenceGrad, backend="numba", rank=5)
class RecurrenceGradKernel(recurrence.BaseRecurrenceGradKernel):
    """Gradients of cells as compiled loops."""

    product: ClassVar[Callable[..., recurrence.StepProduct]] = NumpyProduct
    by: ClassVar[recurrence.CellArithmetic] = NumbaCellArithmetic()
