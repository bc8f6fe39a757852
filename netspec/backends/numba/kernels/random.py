"""Random numbers: Philox4x32-10, bit-identical to `graph.ops.random`."""

from __future__ import annotations

from math import prod
from typing import Any

from netspec.backends.numba import native
from netspec.backends.numba.native import Argument, CompiledFunction, Literal, Pointer, Size
from netspec.graph.kernel import Buffers, Kernel, Thunk, kernel
from netspec.graph.ops.random import LOW, RandomUniform
from netspec.graph.types import DType, TensorType
from netspec.graph.value import Node

WORK = 8
"""Loads and stores that take as long as a random number."""


def uniform(
    first: int, last: int, rng: Any, y: Any, word: Any, numbers: Any, low: int, stream: int, per_sample: int, count: int
) -> None:
    """Blocks of four values; the first and the last block may be partial. All words are uint64, converted by `word`."""
    mask, half = word(low), word(32)
    seed, step, start = word(rng[0]), word(rng[1]), rng[2] * per_sample
    offset, begin = start % 4, start // 4
    high, c2, c3, k0, k1 = step >> half, step & mask, word(stream), seed & mask, seed >> half
    first_full, cut = max(first, (offset + 3) // 4), min(last, (offset + count) // 4)
    for block in range(first_full, cut):
        counter, to = word(begin + block), 4 * block - offset
        y[to], y[to + 1], y[to + 2], y[to + 3] = numbers(counter & mask, (counter >> half) ^ high, c2, c3, k0, k1)
    for block in (first, max(first, last - 2), last - 1):  # the last block may be empty, the one before partial
        if first_full <= block < cut:
            continue
        counter, to = word(begin + block), 4 * block - offset
        n0, n1, n2, n3 = numbers(counter & mask, (counter >> half) ^ high, c2, c3, k0, k1)
        if 0 <= to < count:
            y[to] = n0
        if 0 <= to + 1 < count:
            y[to + 1] = n1
        if 0 <= to + 2 < count:
            y[to + 2] = n2
        if 0 <= to + 3 < count:
            y[to + 3] = n3


@kernel(RandomUniform, backend="numba", rank=5)
class RandomUniformKernel(Kernel):
    """Uniform values in [0, 1)."""

    def reject_reason(self, op: RandomUniform, *types: TensorType) -> str | None:
        return None if op.type.dtype.is_float else f"no random {op.type.dtype}"

    def bind(self, node: Node, buffers: Buffers) -> Thunk:
        op, kind = node.op, node.types[0]
        assert isinstance(op, RandomUniform)
        arguments: tuple[Argument, ...] = (
            Pointer(DType.INT64), Pointer(kind.dtype), native.Type("uint64"), CompiledFunction("uniform", kind.dtype),
            Literal(LOW), *(Size(),) * 3,
        )  # fmt: skip
        blocks = -(-kind.size // 4) + 1  # one more if the first is partial
        return native.of_function(uniform, arguments).bind(
            blocks, WORK * kind.size, buffers.inputs[0], buffers.outputs[0], op.stream & LOW, prod(kind.shape[1:]),
            kind.size,
        )  # fmt: skip
