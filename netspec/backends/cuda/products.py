"""Matrix products by tiles in shared memory: what runs where no library takes them, or none is there.

Where tiles are too few to fill a GPU the depth is cut into pieces, by sizes alone, whose sums are added in their order.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

from netspec.backends.cuda.elementwise import Places, stored_type
from netspec.backends.cuda.launch import THREADS, Launch, Parameter, pointer, sizes
from netspec.backends.loops import collapsed
from netspec.backends.moves import in_turn
from netspec.graph.kernel import Buffers, Example, Kernel, Thunk, kernel
from netspec.graph.layout import Signature
from netspec.graph.ops.linear import MatMul
from netspec.graph.types import DType, TensorType
from netspec.graph.value import Node

TILE = 64
"""Rows and columns of a tile: `product.cuh`."""
ENOUGH_BLOCKS = 264
"""So many keep the largest GPU busy: two for each of its 132 processors."""
LEAST_PIECE, MOST_PIECES = 128, 64
"""Steps of the depth that a block adds at least before it pays to cut, and the pieces that are added up."""
SLOWER = 8.0
"""How much longer than a library's kernel it takes, about: where the costs of layouts are weighed, it never wins."""

PRODUCT = """
BLOCKS(block, count) {
    const Index tile = block % (high * wide), piece = block / (high * wide) % pieces;
    const Index unit = block / (high * wide) / pieces;
    const Index top = tile / wide * TILE, side = tile % wide * TILE;
    const Index last = (piece + 1) * length < depth ? (piece + 1) * length : depth;
    PLACES
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
class Cut:
    """How products of one shape are shared out among blocks."""

    rows: int
    columns: int
    depth: int
    units: int
    """How many products there are."""

    @property
    def tiles(self) -> int:
        """Of a product."""
        return -(-self.rows // TILE) * -(-self.columns // TILE)

    @property
    def length(self) -> int:
        """Steps of the depth in a piece, from sizes alone."""
        wanted = min(-(-ENOUGH_BLOCKS // (self.tiles * self.units)), self.depth // LEAST_PIECE, MOST_PIECES)
        return -(-self.depth // max(1, wanted))

    @property
    def pieces(self) -> int:
        """Of the depth."""
        return -(-self.depth // self.length)

    def nbytes(self, y: TensorType) -> int:
        """Scratch memory for the pieces of a result."""
        return self.pieces * y.nbytes if self.pieces > 1 else 0


def bound(
    cut: Cut, parameters: Sequence[Parameter], words: dict[str, str], numbers: dict[str, int], large: int, y: Any,
    workspace: Any | None,
) -> Thunk:  # fmt: skip
    """The call of a product; `words` say what the operands are (LEFT, RIGHT), and where in y a sum lies (TARGET).

    `numbers` are what the words name besides, `large` the most that is counted in an operand; y is dense.
    """
    dtype = DType(str(y.dtype)).computed
    high, wide = -(-cut.rows // TILE), -(-cut.columns // TILE)
    blocks, size = cut.tiles * cut.pieces * cut.units, y.size
    body = PRODUCT
    for word, meaning in ({"PLACES": ""} | words | {"NUMBER": str(dtype)}).items():
        body = body.replace(word, meaning)
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
        body, blocks, of_blocks=True, threads=THREADS,
    ).bind()  # fmt: skip
    if cut.pieces == 1:
        return first
    added = [pointer("partial", result), pointer("y", y, written=True)]
    limits = sizes(most, count=size, pieces=cut.pieces)
    return in_turn([first, Launch([*added, *limits], TOGETHER.replace("NUMBER", str(dtype)), size).bind()])


def matrix(name: str, array: Any, lines: str, from_line: int, from_step: int) -> tuple[str, dict[str, int]]:
    """An array as an operand of a product, at the place `at_NAME` in it: text, and the numbers that it names."""
    along = str(from_step <= from_line).lower()
    numbers = {f"{name}_line": from_line, f"{name}_step": from_step}
    kind = f"Matrix<{stored_type(array)}, Index, {along}>"
    return f"{kind}{{{name} + at_{name}, {lines}, {name}_line, {name}_step}}", numbers


def steps(array: Any) -> list[int]:
    """Of an array, in elements."""
    return [step // array.itemsize for step in array.strides]


def cut_of(op: MatMul, a: TensorType, b: TensorType) -> Cut:
    """How a product is shared out; rows that all are multiplied with one matrix are those of one product."""
    *lead, rows, columns = op.infer(a, b).shape
    depth = a.shape[-2] if op.transpose_a else a.shape[-1]
    if b.rank == 2 and not op.transpose_a:
        return Cut(prod(lead) * rows, columns, depth, 1)
    return Cut(rows, columns, depth, prod(lead))


def matmul(op: MatMul, a: Any, b: Any, y: Any, workspace: Any | None = None) -> Thunk:
    """The call y = a @ b of arrays; those of one product may lie anyhow, those of several are plain."""
    cut = cut_of(op, *(TensorType(one.shape, DType(str(one.dtype)).computed) for one in (a, b)))
    if b.ndim == 2 and not op.transpose_a and a.ndim > 2:
        a, y = a.reshape(-1, a.shape[-1]), y.reshape(-1, y.shape[-1])
    along_a, along_b, along_y = (steps(one)[-2:] for one in (a, b, y))
    left, numbers = matrix("a", a, "rows", *(along_a[::-1] if op.transpose_a else along_a))
    right, others = matrix("b", b, "columns", *(along_b if op.transpose_b else along_b[::-1]))
    loops = collapsed(y.shape[:-2], [one[..., 0, 0] for one in (y, a, b)])
    found = Places.of(loops, 1)
    names = zip(("y", "a", "b"), found.at, strict=True)
    words = {
        "PLACES": "\n    ".join([*found.lines, *(f"const Index at_{name} = {at};" for name, at in names)]),
        "LEFT": left, "RIGHT": right, "TARGET": "at_y + row * y_row + column * y_column",
    }  # fmt: skip
    numbers |= others | found.numbers | {"y_row": along_y[0], "y_column": along_y[1]}
    parameters = [pointer("a", a), pointer("b", b)]
    return bound(cut, parameters, words, numbers, max(a.size, b.size), y, workspace)


@kernel(MatMul, backend="cuda", rank=1)
class MatMulKernel(Kernel):
    """Products of plain matrices."""

    def samples(self) -> Sequence[Example]:
        # Several tiles, none of them full, and two pieces of the depth: of one product, and of two that share a matrix.
        def types(*shapes: tuple[int, ...]) -> tuple[TensorType, ...]:
            return tuple(TensorType(shape, DType.FLOAT32) for shape in shapes)

        return (
            (MatMul(), types((70, 300), (300, 65))),
            (MatMul(transpose_a=True, transpose_b=True), types((2, 1, 260, 5), (3, 66, 260))),
        )

    def why_not(self, op: MatMul, *types: TensorType) -> str | None:
        return None if types[0].dtype.is_float else f"no products of {types[0].dtype}"

    def narrowed(self, node: Node, wanted: Signature) -> Signature:
        return wanted

    def seconds(self, node: Node, lying: Signature) -> float:
        return SLOWER * super().seconds(node, lying)

    def workspace(self, node: Node, layouts: Signature) -> int:
        assert isinstance(node.op, MatMul)
        return cut_of(node.op, *(value.type for value in node.inputs)).nbytes(node.types[0])

    def bind(self, node: Node, buffers: Buffers) -> Thunk:
        (a, b), (y,) = buffers.inputs, buffers.outputs
        assert isinstance(node.op, MatMul)
        return matmul(node.op, a, b, y, buffers.workspace)
