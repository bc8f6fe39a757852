"""Determinants and inverses: a block for each matrix, by elimination with partial pivoting."""

from __future__ import annotations

from typing import Any, ClassVar

from netspec.backends.cuda.kernels.elementwise import stored_type
from netspec.backends.cuda.launch import MAX_BLOCKS, WARP, Launch, pointer, sizes
from netspec.graph.kernel import Buffers, Example, Kernel, Thunk, kernel
from netspec.graph.layout import LayoutSignature
from netspec.graph.ops.linalg import Det, Inverse
from netspec.graph.types import DType, TensorType
from netspec.graph.value import Node

THREADS = 256
# Each block has a work matrix of `width` columns; for the inverse, the identity is stored next to the matrix. Row
# exchanges flip the sign; a column whose largest element is 0 or NaN ends the elimination for all threads.
BODY = """
__shared__ TYPE numbers[WARPS];
__shared__ int rows[WARPS];
TYPE *a = (TYPE *)work + blockIdx.x * (int64)side * width;
BLOCKS(unit, count) {
    TYPE odd = 0;
    for (int i = threadIdx.x; i < side * width; i += blockDim.x) {
        const int row = i / width, column = i % width;
        const TYPE one = column < side ? x[unit * side * side + row * side + column] : (TYPE)(column - side == row);
        odd += one != one;
        a[i] = one;
    }
    double product = of_block(odd, numbers, Add<TYPE>()) > 0 ? (double)NAN : 1.0;
    for (int k = 0; k < side && product == product && product != 0; ++k) {
        TYPE most = 0;
        for (int row = k + threadIdx.x; row < side; row += blockDim.x) {
            most = Greater<TYPE>()(most, fabs(a[row * width + k]));
        }
        most = of_block(most, numbers, Greater<TYPE>());
        int found = side;
        for (int row = k + threadIdx.x; row < side; row += blockDim.x) {
            if (fabs(a[row * width + k]) == most && row < found) found = row;
        }
        found = of_block(found, rows, Less<int>());
        if (found == side) { // no number any more
            product = (double)NAN;
            continue;
        }
        const TYPE pivot = a[found * width + k];
        product *= found == k ? (double)pivot : -(double)pivot;
        if (most == 0) product = 0;
        __syncthreads();
        for (int column = k + threadIdx.x; column < width; column += blockDim.x) {
            const TYPE one = a[found * width + column];
            a[found * width + column] = a[k * width + column];
            a[k * width + column] = SCALED;
        }
        __syncthreads();
        const int wide = width - k - 1;
        for (int i = threadIdx.x; i < (side - FIRST) * wide; i += blockDim.x) {
            const int row = FIRST + i / wide, column = k + 1 + i % wide;
            if (row != k) a[row * width + column] -= FACTOR * a[k * width + column];
        }
        __syncthreads();
    }
    WRITE
    __syncthreads();
}
"""
INVERSE = """
    for (int i = threadIdx.x; i < side * side; i += blockDim.x) {
        const TYPE one = a[i / side * width + side + i % side];
        y[unit * side * side + i] = product == product && product != 0 ? one : (TYPE)NAN;
    }
"""


class EliminationKernel(Kernel):
    """Base class."""

    replacements: ClassVar[dict[str, str]]
    """Code inserted into the body."""
    columns: ClassVar[int]
    """Width of the work matrix, in matrices."""

    def samples(self) -> tuple[Example, ...]:
        raise NotImplementedError  # abstract

    def reject_reason(self, op: Any, *types: TensorType) -> str | None:
        side = types[0].shape[-1]
        if not side or not types[0].size:
            return "no numbers"
        return "the matrices are too large" if self.columns * side * side >= 2**31 - MAX_BLOCKS else None

    def workspace(self, node: Node, signature: LayoutSignature) -> int:
        kind = node.inputs[0].type
        side = kind.shape[-1]
        blocks = min(MAX_BLOCKS, kind.size // (side * side))
        return blocks * self.columns * side * side * kind.dtype.itemsize

    def bind(self, node: Node, buffers: Buffers) -> Thunk:
        (x,), (y,), work = buffers.inputs, buffers.outputs, buffers.workspace
        side = x.shape[-1]
        count = x.size // (side * side)
        replacements = {**self.replacements, "TYPE": stored_type(x), "WARPS": THREADS // WARP}
        parameters = [
            pointer("x", x), pointer("y", y, written=True), pointer("work", work, written=True),
            *sizes(x.size, count=count, side=side, width=self.columns * side),
        ]  # fmt: skip
        return Launch(parameters, BODY, count, of_blocks=True, threads=THREADS, replacements=replacements).bind()


@kernel(Det, backend="cuda", rank=5)
class DetKernel(EliminationKernel):
    """The product of the pivots, in float64."""

    replacements: ClassVar = {
        "WRITE": "if (threadIdx.x == 0) y[unit] = (TYPE)product;", "SCALED": "one", "FIRST": "(k + 1)",
        "FACTOR": "(a[row * width + k] / pivot)",
    }  # fmt: skip
    columns: ClassVar = 1

    def samples(self) -> tuple[Example, ...]:
        return ((Det(), (TensorType((2, 37, 37), DType.FLOAT64),)),)


@kernel(Inverse, backend="cuda", rank=5)
class InverseKernel(EliminationKernel):
    """Rows above the pivot are cleared too: the identity next to the matrix becomes the inverse."""

    replacements: ClassVar = {"WRITE": INVERSE, "SCALED": "one / pivot", "FIRST": "0", "FACTOR": "a[row * width + k]"}
    columns: ClassVar = 2

    def samples(self) -> tuple[Example, ...]:
        return ((Inverse(), (TensorType((2, 37, 37), DType.FLOAT64),)),)
