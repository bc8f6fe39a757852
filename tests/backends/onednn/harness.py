"""Run primitives on plain NumPy arrays, in any layout that they prefer, and compare with a formula in float64."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from netspec.backends.onednn.constants import Arg, DataType, Query
from netspec.backends.onednn.memory import Memory, MemoryDesc
from netspec.backends.onednn.native import OneDnnEngine
from netspec.backends.onednn.primitive import PrimitiveDesc
from netspec.backends.onednn.primitive_descs import reorder
from netspec.graph.op import Array


def channels_last(shape: tuple[int, ...]) -> tuple[int, ...]:
    """Strides of (N, C, spatial…) stored as (N, spatial…, C)."""
    order = [0, *range(2, len(shape)), 1]
    strides, step = [0] * len(shape), 1
    for axis in reversed(order):
        strides[axis] = step
        step *= shape[axis]
    return tuple(strides)


def describe(
    engine: OneDnnEngine, shape: tuple[int, ...], layout: str = "plain", dtype: DataType = DataType.F32
) -> MemoryDesc:
    if layout == "any":
        return MemoryDesc.any(engine, shape, dtype)
    strides = channels_last(shape) if layout == "channels_last" and len(shape) > 2 else None
    return MemoryDesc.strided(engine, shape, strides, dtype)


def buffer(desc: MemoryDesc) -> Memory:
    """Return memory in the layout of `desc`, filled with NaN to notice elements that a primitive does not write."""
    return Memory(desc, np.full(desc.nbytes, 0xFF, np.uint8))


def stored(memory: Memory) -> Array:
    """The bytes of a memory."""
    return np.asarray(memory.array).reshape(-1).view(np.uint8)


def copy(source: Memory, target: Memory) -> None:
    """Reorder `source` into the layout and type of `target`."""
    desc = reorder(source.desc, target.desc)
    execute(desc, {Arg.SRC: source, Arg.DST: target})


def execute(desc: PrimitiveDesc, arguments: Mapping[Any, Memory]) -> None:
    scratch: dict[Any, Memory] = {Arg.SCRATCHPAD: buffer(desc[Arg.SCRATCHPAD])} if desc.scratchpad_bytes else {}
    desc.primitive().bind({**arguments, **scratch})()


def to_plain(memory: Memory) -> Array:
    """A C-ordered NumPy array of the float32 elements that a memory holds."""
    array = np.empty(memory.desc.shape, np.float32)
    copy(memory, Memory.of(memory.desc.engine, array))
    return array


class Run:
    """Run a primitive twice on the same operands, with bit-identical results. `result[Arg.DST]` is a plain array."""

    def __init__(self, desc: PrimitiveDesc, operands: Mapping[Any, Any]) -> None:
        engine = desc.engine
        described = desc.count(Query.INPUTS) + desc.count(Query.OUTPUTS)
        assert len(set(desc.arguments) - {Arg.SCRATCHPAD}) == described
        assert set(map(int, operands)) <= set(desc.arguments), "an operand that the primitive does not take"
        self.memories: dict[int, Memory] = {}
        for argument in desc.arguments:
            operand = operands.get(argument)
            if isinstance(operand, Memory):
                self.memories[argument] = operand
                continue
            self.memories[argument] = buffer(desc[argument])
            if operand is not None:
                copy(Memory.of(engine, np.ascontiguousarray(operand)), self.memories[argument])
        before = self._bytes()
        thunk = desc.primitive().bind(self.memories)
        thunk()
        after = self._bytes()
        for argument, memory in self.memories.items():
            stored(memory)[:] = before[argument]
        thunk()
        again = self._bytes()
        for argument in set(self.memories) - {Arg.SCRATCHPAD}:
            assert np.array_equal(after[argument], again[argument]), "the second run differs from the first"

    def _bytes(self) -> dict[int, Array]:
        return {argument: stored(memory).copy() for argument, memory in self.memories.items()}

    def __getitem__(self, argument: int) -> Array:
        return to_plain(self.memories[argument])


def uniform(*shape: int, seed: int = 0) -> Array:
    """Return random values in [-1, 1): a product of two is at most 1, so the error of a sum of n has a bound in n."""
    return np.random.default_rng((seed, *shape)).uniform(-1, 1, shape).astype(np.float32)


def assert_close(actual: Array, expected: Array, terms: int = 8) -> None:
    """Equal within the rounding of a float32 sum of `terms` terms of size 1.

    Partial sums of n random signs stay near √n; each is rounded by at most 2⁻²⁴ of it, and n such errors of random sign
    add up to √n · √n · 2⁻²⁴: twice that is allowed, and a few units in the last place of the result.
    """
    assert actual.shape == expected.shape
    np.testing.assert_allclose(actual, expected, rtol=2e-6, atol=max(terms, 8) * 2.0**-23)
