"""Compiled functions of Winograd convolutions: transforms of tiles, and matrix products in vector registers.

A vector holds 16 channels. Imported only for compiling.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from llvmlite import ir
from numba import types
from numba.core import cgutils as untyped

from netspec.backends.numba.intrinsics import intrinsic
from netspec.backends.numba.tiles import FLOATS, LANES, VECTOR, ZERO, add_offsets, add_product, load, number, spread
from netspec.backends.numba.winograd.matrices import Matrix, MinimalFilter, transposed

cgutils: Any = untyped

MATRICES: dict[str, Callable[[MinimalFilter], Matrix]] = {
    "data": lambda f: f.data,
    "kernel": lambda f: f.kernel,
    "result": lambda f: f.result,
    "result_gradient": lambda f: transposed(f.result),
    "kernel_gradient": lambda f: transposed(f.kernel),
}


def transform(outputs: int, taps: int, matrix_name: str, gathered: bool = False, scattered: bool = False) -> Any:
    """z = M x Mᵀ for each of 16 vector lanes, where M is the matrix `matrix_name` of F(outputs, taps).

    Called with x, its first element, its steps along rows and columns and, if `gathered`, along the 16 (else 1);
    z, its first element, its steps along rows and columns and, if `scattered`, along the 16.
    """
    matrix = MATRICES[matrix_name](MinimalFilter(outputs, taps))

    @intrinsic
    def tile(
        typing_context: Any, x: Any, x0: Any, xi: Any, xj: Any, xn: Any, z: Any, z0: Any, zi: Any, zj: Any, zn: Any
    ) -> Any:
        def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            x, x0, xi, xj, xn, z, z0, zi, zj, zn = args
            groups = _groups(matrix)
            for group in groups:
                # each group of rows reads the operand again: 6 x 6 vectors would not stay in registers
                columns = []
                for j in range(len(matrix[0])):
                    at = add_offsets(builder, x0, (number(j), xj))
                    needed = [i for i in range(len(matrix[0])) if any(matrix[row][i] for row in group)]
                    indices = [add_offsets(builder, at, (number(i), xi)) for i in needed]
                    read = [
                        _gather(builder, x, index, xn) if gathered else load(builder, x, index) for index in indices
                    ]
                    columns.append(_combined(builder, matrix, group, dict(zip(needed, read, strict=True))))
                for k, i in enumerate(group):
                    row = {j: column[k] for j, column in enumerate(columns)}
                    at = add_offsets(builder, z0, (number(i), zi))
                    for other in groups:
                        for j, combined in zip(other, _combined(builder, matrix, other, row), strict=True):
                            to = add_offsets(builder, at, (number(j), zj))
                            if scattered:
                                _scatter(builder, combined, z, to, zn)
                            else:
                                builder.store(
                                    combined, builder.bitcast(builder.gep(z, [to]), VECTOR.as_pointer()), align=4
                                )
            return context.get_dummy_value()

        kinds = [FLOATS if index in (0, 5) else types.int64 for index in range(10)]
        return types.void(*kinds), generate

    return tile


def multiply(rows: int, vectors: int) -> Any:
    """z[r, m] = Σ_k a[r, k] · b[k, m], added to z if `more`; `rows` of r, 16 · `vectors` of m.

    Called with a, its first element and its steps along r, k; b, its first element and its step along k; z, its first
    element and its step along r; the number of k; whether `more`.
    """

    @intrinsic
    def tile(
        typing_context: Any, a: Any, a0: Any, ar: Any, ak: Any, b: Any, b0: Any, bk: Any, z: Any, z0: Any, zr: Any,
        count: Any, more: Any,
    ) -> Any:  # fmt: skip
        def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            a, a0, ar, ak, b, b0, bk, z, z0, zr, count, more = args
            indices = [
                [builder.add(add_offsets(builder, z0, (number(r), zr)), number(LANES * v)) for v in range(vectors)]
                for r in range(rows)
            ]
            sums = [[cgutils.alloca_once_value(builder, ZERO) for _ in range(vectors)] for _ in range(rows)]
            for line in sums:
                for factor in line:
                    builder.store(ZERO, factor)
            with cgutils.for_range(builder, count) as along:
                at_a = add_offsets(builder, a0, (along.index, ak))
                at_b = add_offsets(builder, b0, (along.index, bk))
                others = [load(builder, b, builder.add(at_b, number(LANES * v))) for v in range(vectors)]
                for r in range(rows):
                    factor = spread(builder, a, add_offsets(builder, at_a, (number(r), ar)))
                    for v in range(vectors):
                        add_product(builder, sums[r][v], factor, others[v])
            with builder.if_then(builder.icmp_signed("!=", more, number(0))):
                for r in range(rows):
                    for v in range(vectors):
                        previous = load(builder, z, indices[r][v])
                        builder.store(builder.fadd(previous, builder.load(sums[r][v])), sums[r][v])
            for r in range(rows):
                for v in range(vectors):
                    address = builder.bitcast(builder.gep(z, [indices[r][v]]), VECTOR.as_pointer())
                    builder.store(builder.load(sums[r][v]), address, align=4)
            return context.get_dummy_value()

        kinds = [FLOATS if index in (0, 4, 7) else types.int64 for index in range(12)]
        return types.void(*kinds), generate

    return tile


def _groups(matrix: Matrix) -> list[list[int]]:
    """Rows that are computed together: pairs that differ in signs only, or all if they are few."""
    if len(matrix) < len(matrix[0]):
        return [list(range(len(matrix)))]
    pieces: list[list[int]] = []
    for index, row in enumerate(matrix):
        mirror = next((group for group in pieces if _mirrored(matrix[group[0]], row)), None)
        if mirror is None:
            pieces.append([index])
        else:
            mirror.append(index)
    return pieces


def _combined(builder: Any, matrix: Matrix, group: Sequence[int], x: dict[int, Any]) -> list[Any]:
    """The rows `group` of M x. Common sums of rows or columns that differ in signs only are computed once."""
    rows = [list(matrix[row]) for row in group]
    if len(matrix) < len(matrix[0]):
        x, rows = _folded(builder, matrix, x)
    elif len(rows) == 2:
        row, mirror = rows
        alike = _sum(builder, [a if a == b else 0.0 for a, b in zip(row, mirror, strict=True)], x)
        unlike = _sum(builder, [a if a != b else 0.0 for a, b in zip(row, mirror, strict=True)], x)
        return [builder.fadd(alike, unlike), builder.fsub(alike, unlike)]
    return [_sum(builder, row, x) for row in rows]


def _folded(builder: Any, matrix: Matrix, x: dict[int, Any]) -> tuple[dict[int, Any], list[list[float]]]:
    """Sum and difference of operands whose columns differ in signs only, and the remaining part of M."""
    rows, columns, sums = [list(row) for row in matrix], transposed(matrix), dict(x)
    for index, column in enumerate(columns):
        other = next((k for k in range(index + 1, len(columns)) if _mirrored(column, columns[k])), None)
        if other is not None:
            sums[index], sums[other] = builder.fadd(x[index], x[other]), builder.fsub(x[index], x[other])
            for row in rows:
                row[index], row[other] = (row[index], 0.0) if row[index] == row[other] else (0.0, row[index])
    return sums, rows


def _mirrored(row: Sequence[float], other: Sequence[float]) -> bool:
    """Whether rows differ in signs only, and neither everywhere nor nowhere."""
    alike = [a == b for a, b in zip(row, other, strict=True) if a or b]
    return all(abs(a) == abs(b) for a, b in zip(row, other, strict=True)) and any(alike) and not all(alike)


def _sum(builder: Any, row: Sequence[float], x: dict[int, Any]) -> Any:
    """Σ row[k] · x[k]"""
    terms = [(factor, x[index]) for index, factor in enumerate(row) if factor]
    terms.sort(key=lambda term: term[0] != 1.0)
    (factor, total), *rest = terms
    if factor != 1.0:
        total = builder.fmul(_constant(factor), total)
    for factor, term in rest:
        if abs(factor) == 1.0:
            total = builder.fadd(total, term) if factor > 0 else builder.fsub(total, term)
        else:
            kind = ir.FunctionType(VECTOR, [VECTOR] * 3)
            fma = cgutils.get_or_insert_function(builder.module, kind, f"llvm.fma.v{LANES}f32")
            total = builder.call(fma, [_constant(factor), term, total])
    return total


@intrinsic
def expect(typing_context: Any, array: Any, at: Any) -> Any:
    """Prefetch the cache line of array[at], to be written soon; any index is allowed."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        word = ir.IntType(32)
        address = builder.bitcast(builder.gep(args[0], [args[1]]), ir.IntType(8).as_pointer())
        kind = ir.FunctionType(ir.VoidType(), [address.type, word, word, word])
        fetch = cgutils.get_or_insert_function(builder.module, kind, "llvm.prefetch.p0")
        to_write, closest, data = 1, 3, 1
        builder.call(fetch, [address, *(ir.Constant(word, value) for value in (to_write, closest, data))])
        return context.get_dummy_value()

    return types.void(array, types.int64), generate


def _tagged(builder: Any, instruction: Any, kind: str) -> None:
    """Assign an access to one of two kinds of memory (LLVM's scoped alias analysis)."""
    module = builder.module
    domain = module.add_metadata([ir.MetaDataString(module, "netspec")])
    scope = module.add_metadata([ir.MetaDataString(module, "netspec.result"), domain])
    instruction.set_metadata(kind, module.add_metadata([scope]))


@intrinsic
def read(typing_context: Any, array: Any, at: Any) -> Any:
    """array[at], which no `write` overlaps: loops need not compare pointers."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        loaded = builder.load(builder.gep(args[0], [args[1]]))
        _tagged(builder, loaded, "noalias")
        return loaded

    return array.dtype(array, types.int64), generate


@intrinsic
def write(typing_context: Any, array: Any, at: Any, value: Any) -> Any:
    """array[at] = value, which no `read` overlaps."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        store = builder.store(args[2], builder.gep(args[0], [args[1]]))
        _tagged(builder, store, "alias.scope")
        return context.get_dummy_value()

    return types.void(array, types.int64, array.dtype), generate


def _constant(value: float) -> Any:
    return ir.Constant(VECTOR, [value] * LANES)


def _gather(builder: Any, array: Any, at: Any, step: Any) -> Any:
    """A vector of strided elements."""
    vector = ir.Constant(VECTOR, ir.Undefined)
    for lane in range(LANES):
        element = builder.load(builder.gep(array, [add_offsets(builder, at, (number(lane), step))]))
        vector = builder.insert_element(vector, element, ir.Constant(ir.IntType(32), lane))
    return vector


def _scatter(builder: Any, vector: Any, array: Any, at: Any, step: Any) -> None:
    for lane in range(LANES):
        element = builder.extract_element(vector, ir.Constant(ir.IntType(32), lane))
        builder.store(element, builder.gep(array, [add_offsets(builder, at, (number(lane), step))]))
