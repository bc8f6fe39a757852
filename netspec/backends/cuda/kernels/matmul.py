"""Matrix products by tiles in shared memory, used if no library is available or accepts them.

If there are too few tiles to fill a GPU, the depth is split, by sizes alone, and the partial sums are added in order.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

from netspec.backends.common.copy_kernels import chain
from netspec.backends.common.loops import collapse_loops, element_strides
from netspec.backends.cuda.kernels.elementwise import ElementOffsets, stored_type
from netspec.backends.cuda.launch import THREADS, KernelParameter, Launch, pointer, sizes
from netspec.graph.kernel import Buffers, Example, Kernel, LowPrecision, Thunk, kernel
from netspec.graph.layout import LayoutSignature
from netspec.graph.ops.linear import MatMul
from netspec.graph.types import DType, TensorType
from netspec.graph.value import Node

TILE = 64
"""Rows and columns of a tile, see `product.cuh`."""
ENOUGH_BLOCKS = 264
"""Number of blocks that fill the largest GPU: two for each of its 132 multiprocessors."""
MIN_PIECE, MAX_PIECES = 128, 64
"""Minimum depth per block for a split, and the maximum number of parts."""
SLOWER = 8.0
"""Estimated duration relative to a library's kernel, so that layout costs never favour this one."""

PRODUCT = """
BLOCKS(block, count) {
    const Index tile = block % (high * wide), piece = block / (high * wide) % pieces;
    const Index unit = block / (high * wide) / pieces;
    const Index top = tile / wide * TILE, side = tile % wide * TILE;
    const Index last = (piece + 1) * length < depth ? (piece + 1) * length : depth;
    OFFSETS
    const auto left = LEFT;
    const auto right = RIGHT;
    NUMBER sums[4][4];
    tile_of_product<NUMBER, Index>(left, right, top, side, piece * length, last, sums);
    for (int i = 0; i < 4; ++i) {
        for (int j = 0; j < 4; ++j) {
            const Index row = top + threadIdx.x / 16 + 16 * i, column = side + threadIdx.x % 16 + 16 * j;
            if (row < rows && column < columns) store(y[piece * size + TARGET], sums[i][j]);
        }
    }
}
"""
TOGETHER = """
UNITS(unit, count) {
    NUMBER total = 0;
    for (int piece = 0; piece < pieces; ++piece) total += partial[piece * count + unit];
    store(y[unit], total);
}
"""


@dataclass(frozen=True)
class TileSplit:
    """The split of a batch of matrix products into blocks."""

    rows: int
    columns: int
    depth: int
    units: int
    """Number of products."""

    @property
    def tiles(self) -> int:
        """Number of tiles of a product."""
        return -(-self.rows // TILE) * -(-self.columns // TILE)

    @property
    def length(self) -> int:
        """Depth of a part, from sizes alone."""
        count = min(-(-ENOUGH_BLOCKS // (self.tiles * self.units)), self.depth // MIN_PIECE, MAX_PIECES)
        return -(-self.depth // max(1, count))

    @property
    def pieces(self) -> int:
        """Number of parts of the depth."""
        return -(-self.depth // self.length)

    def nbytes(self, y: TensorType) -> int:
        """Bytes of scratch memory for partial results."""
        return self.pieces * y.nbytes if self.pieces > 1 else 0


def bound(
    cut: TileSplit, parameters: Sequence[KernelParameter], replacements: dict[str, str], numbers: dict[str, int],
    large: int, y: Any,
    workspace: Any | None,
) -> Thunk:  # fmt: skip
    """The call of a product; `replacements` define the operands (LEFT, RIGHT) and the position of a sum in y (TARGET).

    `numbers` are the variables that these use, `large` is the largest index of an operand; y is contiguous.
    """
    dtype = DType(str(y.dtype)).compute_dtype
    high, wide = -(-cut.rows // TILE), -(-cut.columns // TILE)
    blocks, size = cut.tiles * cut.pieces * cut.units, y.size
    result = y
    if cut.pieces > 1:
        assert workspace is not None
        result = workspace[: cut.nbytes(TensorType(y.shape, dtype))].view(str(dtype))
    most = max(large, cut.pieces * size, blocks, cut.depth + cut.length, cut.rows + TILE, cut.columns + TILE)
    first = Launch(
        [
            *parameters, pointer("y", result, written=True),
            *sizes(
                most, count=blocks, high=high, wide=wide, pieces=cut.pieces, length=cut.length, depth=cut.depth,
                rows=cut.rows, columns=cut.columns, size=size, **numbers,
            ),
        ],
        PRODUCT, blocks, of_blocks=True, threads=THREADS, replacements={"OFFSETS": "", **replacements, "NUMBER": dtype},
    ).bind()  # fmt: skip
    if cut.pieces == 1:
        return first
    added = [pointer("partial", result), pointer("y", y, written=True)]
    limits = sizes(most, count=size, pieces=cut.pieces)
    return chain([first, Launch([*added, *limits], TOGETHER, size, replacements={"NUMBER": dtype}).bind()])


def matrix(name: str, array: Any, lines: str, from_line: int, from_step: int) -> tuple[str, dict[str, int]]:
    """An array as an operand at the index `at_NAME`: its C++ expression, and the variables that it uses."""
    along = str(from_step <= from_line).lower()
    numbers = {f"{name}_line": from_line, f"{name}_step": from_step}
    kind = f"Matrix<{stored_type(array)}, Index, {along}>"
    return f"{kind}{{{name} + at_{name}, {lines}, {name}_line, {name}_step}}", numbers


def tile_split(op: MatMul, a: TensorType, b: TensorType) -> TileSplit:
    """Return the split of a product; batches that share one right matrix are one product."""
    *lead, rows, columns = op.infer(a, b).shape
    depth = a.shape[-2] if op.transpose_a else a.shape[-1]
    if b.rank == 2 and not op.transpose_a:
        return TileSplit(prod(lead) * rows, columns, depth, 1)
    return TileSplit(rows, columns, depth, prod(lead))


def matmul(op: MatMul, a: Any, b: Any, y: Any, workspace: Any | None = None) -> Thunk:
    """The call y = a @ b. Operands may have any strides if they are single matrices; batches are plain."""
    cut = tile_split(op, *(TensorType(array.shape, DType(str(array.dtype)).compute_dtype) for array in (a, b)))
    if b.ndim == 2 and not op.transpose_a and a.ndim > 2:
        a, y = a.reshape(-1, a.shape[-1]), y.reshape(-1, y.shape[-1])
    along_a, along_b, along_y = (element_strides(array)[-2:] for array in (a, b, y))
    left, numbers = matrix("a", a, "rows", *(along_a[::-1] if op.transpose_a else along_a))
    right, others = matrix("b", b, "columns", *(along_b if op.transpose_b else along_b[::-1]))
    loops = collapse_loops(y.shape[:-2], [array[..., 0, 0] for array in (y, a, b)])
    offsets = ElementOffsets.of(loops, 1)
    names = zip(("y", "a", "b"), offsets.at, strict=True)
    replacements = {
        "OFFSETS": "\n    ".join([*offsets.lines, *(f"const Index at_{name} = {at};" for name, at in names)]),
        "LEFT": left, "RIGHT": right, "TARGET": "at_y + row * y_row + column * y_column",
    }  # fmt: skip
    numbers |= others | offsets.numbers | {"y_row": along_y[0], "y_column": along_y[1]}
    parameters = [pointer("a", a), pointer("b", b)]
    return bound(cut, parameters, replacements, numbers, max(a.size, b.size), y, workspace)


@kernel(MatMul, backend="cuda", rank=1)
class MatMulKernel(Kernel):
    """Products of plain matrices."""

    low_precision = LowPrecision.ALL

    def samples(self) -> Sequence[Example]:
        # Several partly filled tiles and two parts of the depth: one product, and two that share a matrix.
        def types(*shapes: tuple[int, ...]) -> tuple[TensorType, ...]:
            return tuple(TensorType(shape, DType.FLOAT32) for shape in shapes)

        return (
            (MatMul(), types((70, 300), (300, 65))),
            (MatMul(transpose_a=True, transpose_b=True), types((2, 1, 260, 5), (3, 66, 260))),
        )

    def reject_reason(self, op: MatMul, *types: TensorType) -> str | None:
        return None if types[0].dtype.is_float else f"no products of {types[0].dtype}"

    def estimated_seconds(self, node: Node, signature: LayoutSignature) -> float:
        return SLOWER * super().estimated_seconds(node, signature)

    def workspace(self, node: Node, signature: LayoutSignature) -> int:
        assert isinstance(node.op, MatMul)
        return tile_split(node.op, *(value.type for value in node.inputs)).nbytes(node.types[0])

    def bind(self, node: Node, buffers: Buffers) -> Thunk:
        (a, b), (y,) = buffers.inputs, buffers.outputs
        assert isinstance(node.op, MatMul)
        return matmul(node.op, a, b, y, buffers.workspace)
