"""Weighted elements around computed positions of images and volumes.

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
    """Of each place, one element near it along an axis: its number (int64), and what it counts."""

    index: Value
    weight: Value


def taps(at: Value, size: int, interpolation: Interpolation, beyond: PaddingMode, align_corners: bool) -> list[Tap]:
    """The elements of an axis around each place `at`, which is counted in elements."""
    first = Round()(at) if interpolation == "nearest" else Floor()(at)
    whole = cast(first, DType.INT64)
    steps = {"nearest": (0,), "linear": (0, 1), "cubic": (-1, 0, 1, 2)}[interpolation]
    made = []
    for step in steps:
        number = whole + step
        weight = _weight(at - first, step, interpolation)
        if beyond == "zeros":
            weight = zero_outside(weight, number, 0, size - 1)
        if beyond == "reflection":
            number = _reflected(number, size, align_corners)
        # A NaN position needs a valid index too: its weight is NaN as well.
        made.append(Tap(clip(number, 0, size - 1), weight))
    return made


def clip(x: Value, least: int, most: int) -> Value:
    """x, or the bound that it is beyond."""
    return call_elementwise(Minimum(), call_elementwise(Maximum(), x, least), most)


def zero_outside(weight: Value, x: Value, least: int, most: int) -> Value:
    """The weight where x is within the bounds, and 0 times it elsewhere."""
    inside = cast(call_elementwise(GreaterOrEqual(), x, least), weight.dtype)
    return weight * inside * cast(call_elementwise(LessOrEqual(), x, most), weight.dtype)


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


def _reflected(number: Value, size: int, align_corners: bool) -> Value:
    """The element that it comes to after turning back at both ends: at their centers, or at their outer sides."""
    last = 2 * (size - 1) if align_corners else 2 * size - 1
    if last == 0:
        return number * 0
    turned = call_elementwise(Mod(), number, last if align_corners else last + 1)
    return call_elementwise(Minimum(), turned, last - turned)


def gather_taps(
    x: Value, along: Sequence[Sequence[Tap]], join: Callable[[Value, Value], Value], image: Value | None = None
) -> Value:
    """The weighted elements around each place, joined: x (N, C, …), taps (N, P) of each axis → (N, P, C).

    With `image` (N, P), x is (N, images, C, …), and that says which one each place is in.
    """
    lead = 1 if image is None else 2
    rank = len(x.shape)
    sizes = x.shape[lead + 1 :]
    last = Transpose((*range(lead), *range(lead + 1, rank), lead))(x)
    rows = reshape_to(last, (x.shape[0], prod(x.shape[1:]) // x.shape[lead], x.shape[lead]))
    parts = []
    for chosen in product(*along):
        number = image if image is not None else None
        for tap, size in zip(chosen, sizes, strict=True):
            number = tap.index if number is None else number * size + tap.index
        assert number is not None, "there is an axis"
        weight = reduce(lambda a, b: a * b, (tap.weight for tap in chosen))
        found = GatherND(1)(rows, reshape_to(number, (*number.shape, 1)))
        parts.append(found * reshape_to(weight, (*weight.shape, 1)))
    return reduce(join, parts)


def add(a: Value, b: Value) -> Value:
    """How `looked_up` joins what counts by its weight."""
    return a + b


def _numbers(images: int, places: int, like: Value) -> Value:
    """Image index of each of the `places` positions of each image of a sample: (N, images · places)."""
    import numpy as np

    require_precomputable(images * places, "positions to sample")
    return BroadcastLike()(constant(np.repeat(np.arange(images, dtype="int64"), places)[None]), like)


def column(rows: Value, k: int) -> Value:
    """Entry k of each row: (…, entries) → (…)."""
    return reshape_to(Slice(len(rows.shape) - 1, k, k + 1)(rows), rows.shape[:-1])
