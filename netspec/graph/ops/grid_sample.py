"""Weighted sums of the elements around computed positions of images and volumes.

Elements are weighted by their distance, so gradients flow to the elements and to the positions.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import reduce
from itertools import product
from math import prod
from typing import Literal, TypeAlias

from netspec.graph.ops.elementwise import GreaterOrEqual, LessOrEqual, Maximum, Minimum, call_elementwise, cast
from netspec.graph.ops.indexing import GatherND
from netspec.graph.ops.integer import Mod
from netspec.graph.ops.reduce import BroadcastLike, reshape_to
from netspec.graph.ops.rounding import Floor, Round
from netspec.graph.ops.shape import Slice, Transpose
from netspec.graph.ops.source import constant
from netspec.graph.types import DType
from netspec.graph.value import Value, require_precomputable

Interpolation: TypeAlias = Literal["linear", "nearest", "cubic"]
PaddingMode: TypeAlias = Literal["zeros", "border", "reflection"]
CUBIC = -0.75
"""Steepness of the cubic kernel, as in ONNX and PyTorch."""


@dataclass(frozen=True)
class Tap:
    """For each sampled position, one element near it along an axis: its index (int64) and its weight."""

    index: Value
    weight: Value


def taps(
    positions: Value, size: int, interpolation: Interpolation, padding_mode: PaddingMode, align_corners: bool
) -> list[Tap]:
    """The elements of an axis of `size` elements around each position, which is in units of elements."""
    first = Round()(positions) if interpolation == "nearest" else Floor()(positions)
    first_index = cast(first, DType.INT64)
    steps = {"nearest": (0,), "linear": (0, 1), "cubic": (-1, 0, 1, 2)}[interpolation]
    result = []
    for step in steps:
        index = first_index + step
        weight = _weight(positions - first, step, interpolation)
        if padding_mode == "zeros":
            weight = zero_outside(weight, index, 0, size - 1)
        if padding_mode == "reflection":
            index = _reflect(index, size, align_corners)
        # A NaN position also needs a valid index; its weight is NaN anyway.
        result.append(Tap(clip(index, 0, size - 1), weight))
    return result


def clip(x: Value, low: int, high: int) -> Value:
    """Limit x to the interval from `low` to `high`."""
    return call_elementwise(Minimum(), call_elementwise(Maximum(), x, low), high)


def zero_outside(weight: Value, x: Value, low: int, high: int) -> Value:
    """The weight if x is between `low` and `high`, else 0 times the weight."""
    inside = cast(call_elementwise(GreaterOrEqual(), x, low), weight.dtype)
    return weight * inside * cast(call_elementwise(LessOrEqual(), x, high), weight.dtype)


def _weight(offset: Value, step: int, interpolation: Interpolation) -> Value:
    """Weight of the element `step` above the lower neighbor, for a position `offset` above that neighbor."""
    if interpolation == "nearest":
        return offset * 0.0 + 1.0
    if interpolation == "linear":
        return offset if step else 1.0 - offset
    x, a = (offset - float(step) if step <= 0 else float(step) - offset), CUBIC
    if step in (0, 1):
        return ((a + 2) * x - (a + 3)) * x * x + 1.0
    return ((a * x - 5 * a) * x + 8 * a) * x - 4 * a


def _reflect(index: Value, size: int, align_corners: bool) -> Value:
    """Reflect indices at both ends of an axis: the centers of its end elements (`align_corners`) or their edges."""
    last = 2 * (size - 1) if align_corners else 2 * size - 1
    if last == 0:
        return index * 0
    wrapped = call_elementwise(Mod(), index, last if align_corners else last + 1)
    return call_elementwise(Minimum(), wrapped, last - wrapped)


def gather_taps(
    x: Value, axis_taps: Sequence[Sequence[Tap]], join: Callable[[Value, Value], Value], image: Value | None = None
) -> Value:
    """Combine the weighted elements around each position: x (N, C, …), taps (N, P) of each axis → (N, P, C).

    With `image` (N, P), the index of the image that each position is in, x is (N, images, C, …).
    """
    lead = 1 if image is None else 2
    rank = len(x.shape)
    sizes = x.shape[lead + 1 :]
    channels_last = Transpose((*range(lead), *range(lead + 1, rank), lead))(x)
    rows = reshape_to(channels_last, (x.shape[0], prod(x.shape[1:]) // x.shape[lead], x.shape[lead]))
    weighted = []
    for corner in product(*axis_taps):
        index = image if image is not None else None
        for tap, size in zip(corner, sizes, strict=True):
            index = tap.index if index is None else index * size + tap.index
        assert index is not None, "there is an axis"
        weight = reduce(lambda a, b: a * b, (tap.weight for tap in corner))
        elements = GatherND(1)(rows, reshape_to(index, (*index.shape, 1)))
        weighted.append(elements * reshape_to(weight, (*weight.shape, 1)))
    return reduce(join, weighted)


def add(a: Value, b: Value) -> Value:
    """Sum two values: the `join` of interpolation in `gather_taps`."""
    return a + b


def image_indices(images: int, positions: int, like: Value) -> Value:
    """Image index of each of the `positions` of each image of a sample: (N, images · positions)."""
    import numpy as np

    require_precomputable(images * positions, "positions to sample")
    return BroadcastLike()(constant(np.repeat(np.arange(images, dtype="int64"), positions)[None]), like)


def column(rows: Value, k: int) -> Value:
    """Element k of each row: (…, elements) → (…)."""
    return reshape_to(Slice(len(rows.shape) - 1, k, k + 1)(rows), rows.shape[:-1])
