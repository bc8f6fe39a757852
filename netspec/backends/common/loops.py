"""Nested loops over several arrays: as few as possible, in the order of memory."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np

from netspec.graph.types import DType


@dataclass(frozen=True)
class Loops:
    """Sizes from the outermost loop to the innermost, and for each array its step along each, in elements."""

    sizes: tuple[int, ...]
    steps: tuple[tuple[int, ...], ...]

    @property
    def size(self) -> int:
        """Number of elements visited."""
        return prod(self.sizes)


def element_strides(array: Any) -> list[int]:
    """Strides of an array, in elements."""
    return [step // array.itemsize for step in array.strides]


def broadcast_strides(array: Any, shape: Sequence[int]) -> list[int]:
    """Steps, in elements, of an array that broadcasts to `shape`; 0 along axes where it repeats."""
    lead = len(shape) - array.ndim
    strides = [0 if size == 1 else step for size, step in zip(array.shape, element_strides(array), strict=True)]
    return [0] * lead + strides


def collapse_loops(shape: Sequence[int], arrays: Sequence[Any]) -> Loops:
    """Loops over `shape` in the memory order of the first array; the others broadcast to it."""
    steps = [broadcast_strides(array, shape) for array in arrays]
    axes = sorted((axis for axis, size in enumerate(shape) if size != 1), key=lambda axis: (-steps[0][axis], axis))
    return merge_loops([shape[axis] for axis in axes], [[step[axis] for axis in axes] for step in steps])


def merge_loops(sizes: Sequence[int], steps: Sequence[Sequence[int]]) -> Loops:
    """Merge adjacent loops that are contiguous in all arrays."""
    merged_sizes: list[int] = []
    merged_steps: list[list[int]] = [[] for _ in steps]
    for axis, size in enumerate(sizes):
        if merged_sizes and all(
            merged[-1] == array_steps[axis] * size for merged, array_steps in zip(merged_steps, steps, strict=True)
        ):
            merged_sizes[-1] *= size
            for merged, array_steps in zip(merged_steps, steps, strict=True):
                merged[-1] = array_steps[axis]
        else:
            merged_sizes.append(size)
            for merged, array_steps in zip(merged_steps, steps, strict=True):
                merged.append(array_steps[axis])
    if not merged_sizes:
        merged_sizes, merged_steps = [1], [[0] for _ in steps]
    return Loops(tuple(merged_sizes), tuple(map(tuple, merged_steps)))


@dataclass(frozen=True)
class TransposedCopy:
    """A copy that transposes matrices: rows are contiguous in x, columns in y."""

    matrices: int
    inner: int
    """Iterations of the inner of the two loops over matrices."""
    rows: int
    columns: int
    x: tuple[int, int, int]
    """Steps of x: of the two loops, and from column to column."""
    y: tuple[int, int, int]
    """Steps of y: of the two loops, and from row to row."""

    @classmethod
    def of(cls, source: Any, target: Any) -> TransposedCopy | None:
        """The copy of an array into another of the same shape; None if it is not a transposition."""
        loops = collapse_loops(target.shape, [target, source])
        y, x = loops.steps
        side = next((axis for axis in range(len(x) - 1) if x[axis] == 1), None)
        if side is None or y[-1] != 1 or len(x) > 4:
            return None
        outer = [axis for axis in range(len(x) - 1) if axis != side]
        (n0, x0, y0), (n1, x1, y1) = [(1, 0, 0)] * (2 - len(outer)) + [(loops.sizes[k], x[k], y[k]) for k in outer]
        return cls(n0 * n1, n1, loops.sizes[side], loops.sizes[-1], (x0, x1, x[-1]), (y0, y1, y[side]))


def empty_array_like(array: Any, dtype: DType) -> Any:
    """A new array with the shape and memory order of `array`."""
    return np.empty_like(array, dtype=str(dtype))
