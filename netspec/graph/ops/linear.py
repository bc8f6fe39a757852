"""Matrix products, row lookup (`Gather`) and its gradient."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

from netspec.graph.onnx_map import GRADIENT, Emitter, OnnxExpansion
from netspec.graph.op import Array, Grads, NoGradient, Op, Traits, Xp
from netspec.graph.ops.reduce import factor_along_axis, reshape_to, sum_to
from netspec.graph.ops.shape import Reshape
from netspec.graph.types import DType, TensorType, broadcast_shapes
from netspec.graph.value import Value


def _matmul_to_onnx(g: Emitter, y: Value, a: str, b: str) -> str:
    op = y.op
    assert isinstance(op, MatMul)

    def transposed(name: str, operand: Value, transpose: bool) -> str:
        rank = len(operand.shape)
        order = [*range(rank - 2), rank - 1, rank - 2]
        return g.node("Transpose", name, perm=order) if transpose else name

    left, right = y.inputs
    return g.node("MatMul", transposed(a, left, op.transpose_a), transposed(b, right, op.transpose_b))


@dataclass(frozen=True)
class MatMul(Op):
    """a @ b over the last two axes, each optionally transposed; leading axes broadcast."""

    transpose_a: bool = False
    transpose_b: bool = False
    traits = Traits(anchor=True, is_contraction=True)
    onnx = OnnxExpansion(_matmul_to_onnx)

    def infer(self, a: TensorType, b: TensorType) -> TensorType:
        self.check(a.rank >= 2 and b.rank >= 2, "a matrix product needs matrices", expected="2 axes or more")
        rows, inner = a.shape[-2:][:: -1 if self.transpose_a else 1]
        inner_b, columns = b.shape[-2:][:: -1 if self.transpose_b else 1]
        fits = inner == inner_b and a.dtype == b.dtype
        self.check(
            fits,
            "inner sizes of a matrix product differ",
            expected=f"{inner} rows on the right",
            got=f"{a} @ {b}",
        )
        lead = broadcast_shapes(a.shape[:-2], b.shape[:-2])
        self.check(lead is not None, "leading axes of a matrix product do not broadcast", got=f"{a} @ {b}")
        assert lead is not None
        return a.with_shape(*lead, rows, columns)

    def forward(self, xp: Xp, a: Array, b: Array) -> Array:
        left = a.swapaxes(-1, -2) if self.transpose_a else a
        right = b.swapaxes(-1, -2) if self.transpose_b else b
        if left.ndim > 2 and right.ndim == 2:  # one large product instead of many small ones
            return xp.matmul(left.reshape(-1, left.shape[-1]), right).reshape(*left.shape[:-1], right.shape[-1])
        return xp.matmul(left, right)

    def vjp(self, y: Value, dy: Value) -> Grads:
        a, b = y.inputs
        if self.transpose_a:
            da = MatMul(self.transpose_b, True)(b, dy)
        else:
            da = MatMul(False, not self.transpose_b)(dy, b)
        if len(b.shape) == 2 and not self.transpose_a:
            # One product over all rows, instead of one for each leading index and a sum over them.
            a, dy = _flatten_rows(a), _flatten_rows(dy)
        if self.transpose_b:
            db = MatMul(True, self.transpose_a)(dy, a)
        else:
            db = MatMul(not self.transpose_a, False)(a, dy)
        return sum_to(da, y.inputs[0].shape), sum_to(db, b.shape)

    def simplify(self, a: Value, b: Value) -> Value | None:
        # Multiply each row of the table once instead of each time that it is looked up.
        if len(b.shape) != 2:
            return None
        gather_a, gather_b = _gather_operands(a), _gather_operands(b)
        if gather_a is not None and not self.transpose_a:
            table, index = gather_a
            return reshape_to(Gather()(self(table, b), index), self.infer(a.type, b.type).shape)
        if not self.transpose_a or self.transpose_b or len(a.shape) != 2:
            return None
        if gather_a is not None:
            table, index = gather_a
            return self(table, _scatter_matrix(b, index, table.shape[0]))
        if gather_b is not None:
            table, index = gather_b
            return self(_scatter_matrix(a, index, table.shape[0]), table)
        return None

    def fold_scale(self, factor: Value, a: Value, b: Value) -> Sequence[Value] | None:
        rank = max(len(a.shape), len(b.shape))
        columns = factor_along_axis(factor, rank, -1, -2 if self.transpose_b else -1, len(b.shape))
        return None if columns is None else (a, b * columns)

    def flops(self, a: TensorType, b: TensorType) -> int:
        inner = a.shape[-2] if self.transpose_a else a.shape[-1]
        return 2 * self.infer(a, b).size * inner


def _flatten_rows(x: Value) -> Value:
    """Flatten all leading axes: a matrix."""
    return reshape_to(x, (prod(x.shape[:-1]), x.shape[-1]))


def _skip_reshapes(x: Value) -> Value:
    """The value that x is a reshaped view of."""
    while isinstance(x.op, Reshape):
        (x,) = x.inputs
    return x


def _gather_operands(x: Value) -> tuple[Value, Value] | None:
    """The table and index of the `Gather` that computes x, if the table has fewer rows than are looked up."""
    y = _skip_reshapes(x)
    if not isinstance(y.op, Gather):
        return None
    table, index = y.inputs
    rows_intact = len(table.shape) == 2 and x.shape[-1] == table.shape[1]
    return (table, index) if rows_intact and table.shape[0] < prod(index.shape) else None


def _scatter_matrix(values: Value, index: Value, rows: int) -> Value:
    """`ScatterRows` of a matrix, always in the same form, so that equal results are computed once."""
    count = prod(index.shape)
    matrix = reshape_to(_skip_reshapes(values), (count, values.shape[-1]))
    return ScatterRows(rows)(matrix, reshape_to(index, (count,)))


def apply_before_gather(op: Op, a: Value, b: Value) -> Value | None:
    """Apply an elementwise op of looked-up rows `a` and a broadcast `b` to the table instead; None if impossible."""
    table_and_index = _gather_operands(a)
    if table_and_index is None or a.op != Gather() or len(b.shape) > 1 or b.shape not in ((), a.shape[-1:]):
        return None
    table, index = table_and_index
    return Gather()(op(table, b), index)


def _gather_to_onnx(g: Emitter, y: Value, table: str, index: str) -> str:
    if y.inputs[1].dtype not in (DType.INT32, DType.INT64):  # the operator supports only these types
        index = g.node("Cast", index, to=DType.INT64)
    return g.node("Gather", table, index, axis=0)


class Gather(Op):
    """Rows of `table` by index: (V, …) and integers of any shape I → (I…, …)."""

    onnx = OnnxExpansion(_gather_to_onnx)

    def infer(self, table: TensorType, index: TensorType) -> TensorType:
        self.check(not index.dtype.is_float, "row indices must be integers", expected="an integer index", got=index)
        self.check(table.rank >= 1, "there are no rows to look up in a scalar", got=table)
        return table.with_shape(*index.shape, *table.shape[1:])

    def forward(self, xp: Xp, table: Array, index: Array) -> Array:
        return table[index]

    def vjp(self, y: Value, dy: Value) -> Grads:
        table, index = y.inputs
        return ScatterRows(table.shape[0])(dy, index), None

    def flops(self, table: TensorType, index: TensorType) -> int:
        return 0


def _rows_of_batch_to_onnx(g: Emitter, y: Value, index: str) -> str:
    op, rank = y.op, len(y.shape)
    assert isinstance(op, BatchRowIndices)
    samples = g.node("Gather", g.node("Shape", index), g.constant(0, "int64"), axis=0)
    sample_indices = g.node("Range", g.constant(0, "int64"), samples, g.constant(1, "int64"))
    first = g.node("Mul", sample_indices, g.constant(op.rows, "int64"))
    column = g.node("Reshape", first, g.constant([-1] + [1] * (rank - 1), "int64"))
    return g.node("Add", g.node("Cast", index, to=y.dtype), column)


@dataclass(frozen=True)
class BatchRowIndices(NoGradient):
    """Row indices within samples, (N, …) → indices into the table of all samples, `rows` rows each, int64."""

    rows: int
    onnx = OnnxExpansion(_rows_of_batch_to_onnx)

    def infer(self, index: TensorType) -> TensorType:
        return index.with_dtype(DType.INT64)

    def forward(self, xp: Xp, index: Array) -> Array:
        first = self.rows * xp.arange(len(index), dtype="int64")
        return index + first.reshape(-1, *(1,) * (index.ndim - 1))


@dataclass(frozen=True)
class ScatterRows(Op):
    """Add rows into a table of `rows` zeros at their indices: the gradient of `Gather`."""

    rows: int
    onnx = GRADIENT

    def infer(self, values: TensorType, index: TensorType) -> TensorType:
        return values.with_shape(self.rows, *values.shape[index.rank :])

    def forward(self, xp: Xp, values: Array, index: Array) -> Array:
        table = xp.zeros((self.rows, *values.shape[index.ndim :]), values.dtype)
        xp.add.at(table, index.reshape(-1), values.reshape(-1, *table.shape[1:]))
        return table

    def simplify(self, values: Value, index: Value) -> Value | None:
        # Add rows of a product before the multiplication if that leaves fewer of them.
        product, count = _skip_reshapes(values), prod(index.shape)
        if not isinstance(product.op, MatMul) or product.op.transpose_a or self.rows >= count:
            return None
        a, b = product.inputs
        if len(b.shape) != 2 or prod(a.shape[:-1]) != count or values.shape[len(index.shape) :] != product.shape[-1:]:
            return None
        return MatMul(transpose_b=product.op.transpose_b)(_scatter_matrix(a, index, self.rows), b)

    def vjp(self, y: Value, dy: Value) -> Grads:
        return Gather()(dy, y.inputs[1]), None
