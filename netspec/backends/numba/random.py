"""Random numbers: Philox4x32-10, the very bits of `graph.ops.random`."""

from __future__ import annotations

from math import prod
from typing import Any

from netspec.backends.numba import native
from netspec.backends.numba.native import Argument, Literal, Number, Pointer, Size
from netspec.graph.kernel import Buffers, Kernel, Thunk, kernel
from netspec.graph.ops.random import LOW, MULTIPLIERS, ROUNDS, WEYL, RandomUniform
from netspec.graph.types import DType, TensorType
from netspec.graph.value import Node

WORK = 8
"""A number takes about as long as so many loads and stores."""


def uniform(
    first: int, last: int, rng: Any, y: Any, word: Any, number: Any, scale: float, rounds: int, multiplier0: int,
    multiplier1: int, weyl0: int, weyl1: int, low: int, stream: int, per_sample: int, count: int,
) -> None:  # fmt: skip
    """Blocks of four numbers; the first and the last block may be cut. All words are uint64, `word` makes them."""
    mask, half, drop = word(low), word(32), word(8)
    m0, m1, w0, w1 = word(multiplier0), word(multiplier1), word(weyl0), word(weyl1)
    seed, step, start = word(rng[0]), word(rng[1]), rng[2] * per_sample
    offset, begin = start % 4, start // 4
    for block in range(first, last):
        place = word(begin + block)
        c0, c1, c2, c3 = place & mask, (place >> half) ^ (step >> half), step & mask, word(stream)
        k0, k1 = seed & mask, seed >> half
        for _ in range(rounds):
            p0, p1 = m0 * c0, m1 * c2
            c0, c1, c2, c3 = (p1 >> half) ^ c1 ^ k0, p1 & mask, (p0 >> half) ^ c3 ^ k1, p0 & mask
            k0, k1 = (k0 + w0) & mask, (k1 + w1) & mask
        to = 4 * block - offset
        if 0 <= to < count:
            y[to] = number(c0 >> drop) * scale
        if 0 <= to + 1 < count:
            y[to + 1] = number(c1 >> drop) * scale
        if 0 <= to + 2 < count:
            y[to + 2] = number(c2 >> drop) * scale
        if 0 <= to + 3 < count:
            y[to + 3] = number(c3 >> drop) * scale


@kernel(RandomUniform, backend="numba", rank=5)
class RandomUniformKernel(Kernel):
    """Uniform numbers in [0, 1)."""

    def why_not(self, op: RandomUniform, *types: TensorType) -> str | None:
        return None if op.type.dtype.is_float else f"no random {op.type.dtype}"

    def bind(self, node: Node, buffers: Buffers) -> Thunk:
        op, kind = node.op, node.types[0]
        assert isinstance(op, RandomUniform)
        numbers = (ROUNDS, *MULTIPLIERS, *WEYL, LOW)
        arguments: tuple[Argument, ...] = (
            Pointer(DType.INT64), Pointer(kind.dtype), native.Type("uint64"), native.Type(str(kind.dtype)),
            Number(kind.dtype), *map(Literal, numbers), *(Size(),) * 3,
        )  # fmt: skip
        blocks = -(-kind.size // 4) + 1  # one more where the first is cut
        return native.of_function(uniform, arguments).bind(
            blocks, WORK * kind.size, buffers.inputs[0], buffers.outputs[0], 2.0**-24, op.stream & LOW,
            prod(kind.shape[1:]), kind.size,
        )  # fmt: skip
