"""`OpCall`: an op with values for its operands, on which kernels are compared with the reference."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any
from zlib import crc32

import numpy as np

from netspec.graph.kernel import Kernel
from netspec.graph.op import Op, as_tuple
from netspec.graph.ops.source import Input
from netspec.graph.types import DType, TensorType
from netspec.graph.value import Node


@dataclass(frozen=True, eq=False)
class OpCall:
    """An op applied to inputs of the graph, and values for them."""

    node: Node
    operands: tuple[np.ndarray, ...]

    @property
    def op(self) -> Op:
        """The op."""
        return self.node.op

    @property
    def feeds(self) -> dict[str, np.ndarray]:
        """The operands, by the names of the inputs."""
        return {value.op.label: array for value, array in zip(self.node.inputs, self.operands, strict=True)}  # type: ignore[attr-defined]  # all are inputs

    @property
    def name(self) -> str:
        """The op and the shapes of its operands: `MatMul-5x3-3x4`."""
        return f"{self.op.name}-{'-'.join('x'.join(map(str, value.shape)) or 'scalar' for value in self.node.inputs)}"

    def results(self) -> list[np.ndarray]:
        """The results of the reference code."""
        with np.errstate(all="ignore"):
            return [np.asarray(result, order="C") for result in as_tuple(self.op.forward(np, *self.operands))]


def spread(
    random: np.random.Generator, shape: tuple[int, ...], low: float, high: float, offset: float = 0.37
) -> np.ndarray:
    """Values between low and high, no two of them close: a small step does not change their order or cross a kink.

    The offset keeps them away from 0, where piecewise functions have their kinks, and from arrays with another offset.
    """
    count = int(np.prod(shape))
    return ((random.permutation(count) + offset) / count * (high - low) + low).reshape(shape)


def generator(name: str) -> np.random.Generator:
    """A generator that is seeded by a name."""
    return np.random.default_rng(crc32(name.encode()))


def call(op: Op, *operands: Any) -> OpCall:
    """`op` applied to these arrays."""
    arrays = tuple(map(np.asarray, operands))
    inputs = [Input(f"x{i}", TensorType(x.shape, DType(str(x.dtype))))() for i, x in enumerate(arrays)]
    return OpCall(op.call_multi(*inputs)[0].node, arrays)


def numbers(*sizes: int, low: float = -2.0, high: float = 2.0, offset: float = 0.37) -> np.ndarray:
    """An array of this shape, as an operand of sample calls; a different offset gives different values."""
    return spread(generator(f"{sizes}{offset}"), sizes, low, high, offset)


def own_calls(kernel: Kernel) -> Iterator[OpCall]:
    """Calls of the kernel's samples."""
    for op, types in kernel.samples():
        yield call(op, *(numbers(*kind.shape, offset=0.1 * i).astype(str(kind.dtype)) for i, kind in enumerate(types)))


def is_double(call: OpCall) -> bool:
    """Whether an operand or a result is float64."""
    return any(value.dtype == DType.FLOAT64 for value in (*call.node.inputs, *call.node.outputs))


def code_of(call: OpCall) -> Any:
    """Return a key that is equal for calls whose compiled code has the same structure.

    Elementwise ops are all compiled by the same rules: their key is how operands and results are stored.
    """
    results, operands = call.node.outputs, call.node.inputs
    if not call.op.traits.elementwise:
        return call
    return tuple((value.dtype, value.shape == results[0].shape) for value in (*operands, *results))


def inplace_choices(call: OpCall) -> tuple[tuple[int, ...], ...]:
    """For each result, the indices of the operands that it may overwrite."""
    operands = call.node.inputs
    choices = (call.op.inplace_operands(result.index, operands) for result in call.node.outputs)
    return tuple(tuple(operands.index(operand) for operand in choice) for choice in choices)
