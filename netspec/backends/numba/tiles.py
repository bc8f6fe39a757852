"""Tiles of convolutions whose innermost axis is the batch: sums over all taps, in vector registers.

A vector holds one position and channel of 16 samples, so channels need not fill a vector; weights are broadcast.
Imported only for compiling.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba import types
from numba.core import cgutils as untyped

from netspec.backends.numba.intrinsics import intrinsic

cgutils: Any = untyped

LANES = 16
SIDE_BY_SIDE = 4
"""Vectors of samples in a tile."""
WORD, FLOAT = ir.IntType(64), ir.FloatType()
VECTOR = ir.VectorType(FLOAT, LANES)
FLOATS = types.CPointer(types.float32)  # type: ignore[no-untyped-call]  # numba has no types
ZERO = ir.Constant(VECTOR, [0.0] * LANES)


def add_offsets(builder: Any, base: Any, *terms: tuple[Any, Any]) -> Any:
    """Return base + Σ index · step."""
    for index, step in terms:
        base = builder.add(base, builder.mul(index, step))
    return base


def number(value: int) -> Any:
    """An integer constant."""
    return ir.Constant(WORD, value)


def load(builder: Any, array: Any, at: Any) -> Any:
    """Load a vector from an array."""
    address = builder.bitcast(builder.gep(array, [at]), VECTOR.as_pointer())
    return builder.load(address, align=4)


def spread(builder: Any, array: Any, at: Any) -> Any:
    """Broadcast a scalar to a vector."""
    word = ir.IntType(32)
    nothing = ir.Constant(VECTOR, ir.Undefined)
    scalar = builder.insert_element(nothing, builder.load(builder.gep(array, [at])), ir.Constant(word, 0))
    return builder.shuffle_vector(scalar, nothing, ir.Constant(ir.VectorType(word, LANES), [0] * LANES))


def add_product(builder: Any, sums: Any, a: Any, b: Any) -> None:
    """sums += a · b, rounded once."""
    kind = ir.FunctionType(VECTOR, [VECTOR] * 3)
    fma = cgutils.get_or_insert_function(builder.module, kind, f"llvm.fma.v{LANES}f32")
    builder.store(builder.call(fma, [a, b, builder.load(sums)]), sums)


def taps(rows: int, relu: bool) -> Any:
    """y[r, n] = bias[r] + Σ_cij x[c, i, j, n] · w[r, c, i, j], then ReLU; for `rows` values of r and 64 adjacent n.

    Called with x, its first element and its steps along c, i, j; w, its first element and its steps along r, c, i, j;
    bias, its first element and its step; y, its first element and its step along r; the numbers of c, i and j.
    """

    @intrinsic
    def tile(
        typing_context: Any, x: Any, x0: Any, xc: Any, xi: Any, xj: Any, w: Any, w0: Any, wr: Any, wc: Any, wi: Any,
        wj: Any, bias: Any, b0: Any, br: Any, y: Any, y0: Any, yr: Any, c: Any, i: Any, j: Any,
    ) -> Any:  # fmt: skip
        def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            x, x0, xc, xi, xj, w, w0, wr, wc, wi, wj, bias, b0, br, y, y0, yr, c, i, j = args
            sums = []
            for r in range(rows):
                start = spread(builder, bias, add_offsets(builder, b0, (number(r), br)))
                sums.append([cgutils.alloca_once_value(builder, start) for _ in range(SIDE_BY_SIDE)])
            with cgutils.for_range(builder, c) as along_c:
                x_c = add_offsets(builder, x0, (along_c.index, xc))
                w_c = add_offsets(builder, w0, (along_c.index, wc))
                with cgutils.for_range(builder, i) as along_i:
                    x_i = add_offsets(builder, x_c, (along_i.index, xi))
                    w_i = add_offsets(builder, w_c, (along_i.index, wi))
                    with cgutils.for_range(builder, j) as along_j:
                        x_j = add_offsets(builder, x_i, (along_j.index, xj))
                        w_j = add_offsets(builder, w_i, (along_j.index, wj))
                        samples = [
                            load(builder, x, builder.add(x_j, number(LANES * side))) for side in range(SIDE_BY_SIDE)
                        ]
                        for r in range(rows):
                            weight = spread(builder, w, add_offsets(builder, w_j, (number(r), wr)))
                            for side in range(SIDE_BY_SIDE):
                                add_product(builder, sums[r][side], weight, samples[side])
            for r in range(rows):
                for side in range(SIDE_BY_SIDE):
                    total = builder.load(sums[r][side])
                    if relu:  # values that are not below 0 are kept, including NaN
                        total = builder.select(builder.fcmp_ordered("<", total, ZERO), ZERO, total)
                    at = builder.add(add_offsets(builder, y0, (number(r), yr)), number(LANES * side))
                    builder.store(total, builder.bitcast(builder.gep(y, [at]), VECTOR.as_pointer()), align=4)
            return context.get_dummy_value()

        arrays = {0: FLOATS, 5: FLOATS, 11: FLOATS, 14: FLOATS}
        return types.void(*(arrays.get(index, types.int64) for index in range(20))), generate

    return tile


def products(rows: int, columns: int) -> Any:
    """z[r, k] = Σ_in a[r, i, n] · b[k, i, n] for `rows` of r and `columns` of k, whose step in z is 1.

    Called with a, its first element and its steps along r, i; b, its first element and its steps along k, i; z, its
    first element and its step along r; the number of i; the number of n, which are adjacent, a multiple of 16.
    """

    @intrinsic
    def tile(
        typing_context: Any, a: Any, a0: Any, ar: Any, ai: Any, b: Any, b0: Any, bk: Any, bi: Any, z: Any, z0: Any,
        zr: Any, i: Any, n: Any,
    ) -> Any:  # fmt: skip
        def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            a, a0, ar, ai, b, b0, bk, bi, z, z0, zr, i, n = args
            sums = [[cgutils.alloca_once_value(builder, ZERO) for _ in range(columns)] for _ in range(rows)]
            with cgutils.for_range(builder, i) as along_i:
                a_i = add_offsets(builder, a0, (along_i.index, ai))
                b_i = add_offsets(builder, b0, (along_i.index, bi))
                with cgutils.for_range(builder, builder.sdiv(n, number(LANES))) as along_n:
                    a_n = add_offsets(builder, a_i, (along_n.index, number(LANES)))
                    b_n = add_offsets(builder, b_i, (along_n.index, number(LANES)))
                    others = [load(builder, b, add_offsets(builder, b_n, (number(k), bk))) for k in range(columns)]
                    for r in range(rows):
                        element = load(builder, a, add_offsets(builder, a_n, (number(r), ar)))
                        for k in range(columns):
                            add_product(builder, sums[r][k], element, others[k])
            kind = ir.FunctionType(FLOAT, [FLOAT, VECTOR])
            across = cgutils.get_or_insert_function(builder.module, kind, f"llvm.vector.reduce.fadd.v{LANES}f32")
            for r in range(rows):
                for k in range(columns):
                    product = builder.call(
                        across, [ir.Constant(FLOAT, -0.0), builder.load(sums[r][k])], fastmath=["reassoc"]
                    )
                    at = builder.add(add_offsets(builder, z0, (number(r), zr)), number(k))
                    builder.store(product, builder.gep(z, [at]))
            return context.get_dummy_value()

        arrays = {0: FLOATS, 4: FLOATS, 8: FLOATS}
        return types.void(*(arrays.get(index, types.int64) for index in range(13))), generate

    return tile
