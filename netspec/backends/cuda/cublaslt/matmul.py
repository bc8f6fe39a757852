"""`bind_matmul`: a call of y = a @ b, + bias, for row-major or column-major arrays, batched or not.

The library is column-major: it computes yᵀ = bᵀ @ aᵀ, which has the same memory.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

from netspec.backends.common.copy_kernels import chain
from netspec.backends.common.loops import merge_loops
from netspec.backends.cuda import launch
from netspec.backends.cuda.cublaslt.native import (
    ALIGNMENTS,
    REDUCTION_IN_ORDER,
    ComputeType,
    CublasLtError,
    CublasLtObject,
    CudaType,
    HeuristicResult,
    MatmulDesc,
    MatmulEpilogue,
    MatmulPreference,
    Pointer,
    call,
    context,
    matrix_layout,
)
from netspec.errors import RunError
from netspec.graph.kernel import Thunk
from netspec.graph.types import DType

ALIGNMENT = 256
"""The largest alignment that matters to the library, for matrices and workspace."""
WORKSPACE = (32 << 20) + ALIGNMENT
"""Bytes of workspace: NVIDIA's recommendation for Hopper, and bytes for alignment. All calls of a step share it."""


@dataclass(frozen=True)
class Matrix:
    """A matrix in memory: rows are contiguous, or columns if it is `column_major`."""

    address: int
    dtype: DType
    rows: int
    columns: int
    step: int
    """Elements between rows; between columns if it is `column_major`."""
    column_major: bool
    offset: int
    """Elements between the matrices of a batch."""

    @classmethod
    def of(cls, array: Any, sizes: tuple[int, int], steps: tuple[int, int], at: int, offset: int) -> Matrix:
        """Describe a matrix by its row and column strides, starting `at` elements into the array.

        Raises `ValueError` if neither rows nor columns are contiguous.
        """
        (rows, columns), (down, along) = sizes, steps
        address = launch.engine.address(array) + at * array.itemsize
        dtype = DType(str(array.dtype))
        if (along == 1 or columns == 1) and (rows == 1 or down >= columns):
            return cls(address, dtype, rows, columns, max(down if rows > 1 else 0, columns), False, offset)
        if (down == 1 or rows == 1) and (columns == 1 or along >= rows):
            return cls(address, dtype, rows, columns, max(along if columns > 1 else 0, rows), True, offset)
        raise ValueError(f"a matrix with steps of {down} and {along} elements lies neither in rows nor in columns")

    def layout(self, count: int) -> CublasLtObject:
        """The matrix as the library reads it: the transpose of a row-major matrix."""
        sizes = (self.rows, self.columns) if self.column_major else (self.columns, self.rows)
        return matrix_layout(context().library, self.dtype, *sizes, self.step, count, self.offset)

    @property
    def alignment(self) -> int:
        """The largest power of two that divides its address, up to the largest alignment that matters."""
        return min(ALIGNMENT, self.address & -self.address)


def bind_matmul(a: Any, b: Any, y: Any, workspace: Any, bias: Any | None = None, *, fast: bool = False) -> Thunk:
    """A call that writes a @ b, + bias, over the last two axes; leading axes broadcast. It uses `WORKSPACE` bytes.

    a: (…, M, K), b: (…, K, N), bias: (N), of y's element type, y: (…, M, N); all may be views. `fast` allows rounding
    operands to tf32. Raises `CublasLtError` if the library has no algorithm.
    """
    (m, n), k = y.shape[-2:], a.shape[-1]
    lead = y.shape[:-2]
    # Rows are like a leading axis along which b does not change: merge them with leading axes if possible.
    axes = [axis for axis, size in enumerate((*lead, m)) if size > 1]
    steps = [_steps(array, (*lead, m), row_axis) for array, row_axis in ((a, -2), (b, None), (y, -2))]
    loops = merge_loops([(*lead, m)[axis] for axis in axes], [[step[axis] for axis in axes] for step in steps])
    sizes, (of_a, of_b, of_y) = list(loops.sizes), map(list, loops.steps)
    rows, down_a, down_y = (1, 0, 0) if of_b[-1] else (sizes.pop(), of_a.pop(), of_y.pop())
    del of_b[len(sizes) :]
    batch = max(range(len(sizes)), key=sizes.__getitem__, default=None)
    count, *offsets = (1, 0, 0, 0) if batch is None else (values.pop(batch) for values in (sizes, of_a, of_b, of_y))
    calls = []
    for index in product(*map(range, sizes)):
        at_a, at_b, at_y = (
            sum(i * step for i, step in zip(index, steps_of, strict=True)) for steps_of in (of_a, of_b, of_y)
        )
        left = Matrix.of(a, (rows, k), (down_a, _step(a, -1)), at_a, offsets[0])
        right = Matrix.of(b, (k, n), (_step(b, -2), _step(b, -1)), at_b, offsets[1])
        result = Matrix.of(y, (rows, n), (down_y, _step(y, -1)), at_y, offsets[2])
        calls.append(_bind_matrix_product(left, right, result, count, workspace, bias, fast))
    vars(run := chain(calls))["kept"] = a, b, y, bias, workspace  # the calls hold plain addresses
    return run


def _step(array: Any, axis: int) -> int:
    return int(array.strides[axis]) // int(array.itemsize)


def _steps(array: Any, shape: Sequence[int], row: int | None) -> list[int]:
    """Strides of the leading axes, which broadcast, and of the rows."""
    lead = array.ndim - 2
    lead_steps = [0 if array.shape[axis] == 1 else _step(array, axis) for axis in range(lead)]
    return [0] * (len(shape) - 1 - lead) + lead_steps + [0 if row is None else _step(array, row)]


def _compute(dtype: DType, fast: bool) -> ComputeType:
    if dtype == DType.FLOAT64:
        return ComputeType.FLOAT64
    return ComputeType.FAST_TF32 if fast and dtype == DType.FLOAT32 else ComputeType.FLOAT32


def _bind_matrix_product(
    a: Matrix, b: Matrix, y: Matrix, count: int, workspace: Any, bias: Any | None, fast: bool
) -> Thunk:
    """A call for a batch of equally spaced matrices."""
    if y.column_major:
        raise ValueError("a product is written in rows")
    lt, library = context(), context().library
    compute = _compute(a.dtype, fast)
    scale = CudaType.FLOAT64 if compute == ComputeType.FLOAT64 else CudaType.FLOAT32
    desc = CublasLtObject(library, "MatmulDesc", ctypes.c_int(compute), ctypes.c_int(scale))
    desc.set(MatmulDesc.TRANSA, int(b.column_major))
    desc.set(MatmulDesc.TRANSB, int(a.column_major))
    if bias is not None:
        desc.set(MatmulDesc.EPILOGUE, MatmulEpilogue.BIAS)
        desc.set(MatmulDesc.BIAS_POINTER, launch.engine.address(bias))
        desc.set(MatmulDesc.BIAS_DATA_TYPE, CudaType.of(y.dtype))
    layouts = b.layout(count), a.layout(count), y.layout(count), y.layout(count)
    scratch = -(-launch.engine.address(workspace) // ALIGNMENT) * ALIGNMENT
    algorithm = _algorithm(lt, desc, layouts, (b, a, y, y), WORKSPACE - ALIGNMENT)
    number = ctypes.c_double if scale == CudaType.FLOAT64 else ctypes.c_float
    alpha, beta = number(1.0), number(0.0)
    left, right, c, d = (layout.pointer for layout in layouts)
    matmul = library.functions.cublasLtMatmul
    arguments = (
        lt.pointer, desc.pointer, ctypes.byref(alpha), Pointer(b.address), left, Pointer(a.address), right,
        ctypes.byref(beta), Pointer(y.address), c, Pointer(y.address), d, ctypes.byref(algorithm.algorithm),
        Pointer(scratch), ctypes.c_size_t(algorithm.workspace),
    )  # fmt: skip
    alive = lt, desc, layouts  # `held` keeps the objects alive whose pointers are used

    def run(stream: int, _: object = alive) -> None:
        code = matmul(*arguments, Pointer(stream))
        if code:
            raise CublasLtError(library, "cublasLtMatmul", code)

    return launch.engine.on_stream(run)


def _algorithm(
    lt: CublasLtObject, desc: CublasLtObject, layouts: Sequence[CublasLtObject], matrices: Sequence[Matrix], nbytes: int
) -> HeuristicResult:
    """The fastest algorithm with a fixed order of sums, as estimated by the library."""
    library = lt.library
    preference = CublasLtObject(library, "MatmulPreference")
    preference.set(MatmulPreference.MAX_WORKSPACE_BYTES, nbytes)
    preference.set(MatmulPreference.REDUCTION_SCHEME_MASK, REDUCTION_IN_ORDER)
    for attribute, matrix in zip(ALIGNMENTS, matrices, strict=True):
        preference.set(attribute, matrix.alignment)
    heuristic, count = HeuristicResult(), ctypes.c_int()
    pointers = (object_.pointer for object_ in (desc, *layouts, preference))
    call(
        library, "MatmulAlgoGetHeuristic", lt.pointer, *pointers, ctypes.c_int(1), ctypes.byref(heuristic),
        ctypes.byref(count),
    )  # fmt: skip
    if not count.value or heuristic.state:
        b, a, y, _ = matrices
        raise RunError(
            "cuBLASLt has no algorithm for a matrix product",
            got=f"{a.dtype} ({a.rows}, {a.columns}) @ {b.dtype} ({b.rows}, {b.columns}) as {y.dtype}",
        )
    return heuristic
