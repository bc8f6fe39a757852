"""Elements between places of images and volumes: what is around computed places, and GridSample.

Elements are weighted by how near they are, so that gradients flow to the elements and to the places.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import reduce
from itertools import product
from math import prod
from typing import ClassVar, Literal, TypeAlias

from netspec.graph.ops.elementwise import (
    GreaterOrEqual,
    LessOrEqual,
    Maximum,
    Minimum,
    cast,
    elementwise,
)
from netspec.graph.ops.indexing import GatherND
from netspec.graph.ops.reduce import BroadcastLike, reshape_to
from netspec.graph.ops.rounding import Floor, Round
from netspec.graph.ops.shape import Slice, Transpose
from netspec.graph.ops.source import constant
from netspec.graph.ops.whole import Mod
from netspec.graph.types import DType
from netspec.graph.value import Value
from netspec.layers.base import Builder, LayerSpec, Sample
from netspec.layers.checks import need
from netspec.schema.kinds import LAYERS

Interpolation: TypeAlias = Literal["linear", "nearest", "cubic"]
Beyond: TypeAlias = Literal["zeros", "border", "reflection"]
CUBIC = -0.75
"""Steepness of the cubic kernel, as in ONNX and PyTorch."""


@dataclass(frozen=True)
class Tap:
    """Of each place, one element near it along an axis: its number (int64), and what it counts."""

    number: Value
    weight: Value


def taps(at: Value, size: int, interpolation: Interpolation, beyond: Beyond, align_corners: bool) -> list[Tap]:
    """The elements of an axis around each place `at`, which is counted in elements."""
    first = Round()(at) if interpolation == "nearest" else Floor()(at)
    whole = cast(first, DType.INT64)
    steps = {"nearest": (0,), "linear": (0, 1), "cubic": (-1, 0, 1, 2)}[interpolation]
    made = []
    for step in steps:
        number = whole + step
        weight = _weight(at - first, step, interpolation)
        if beyond == "zeros":
            weight = within(weight, number, 0, size - 1)
        if beyond == "reflection":
            number = _reflected(number, size, align_corners)
        # A place that is no number has to have some element too: its weight is no number either.
        made.append(Tap(clipped(number, 0, size - 1), weight))
    return made


def clipped(x: Value, least: int, most: int) -> Value:
    """x, or the bound that it is beyond."""
    return elementwise(Minimum(), elementwise(Maximum(), x, least), most)


def within(weight: Value, x: Value, least: int, most: int) -> Value:
    """The weight where x is within the bounds, and 0 times it elsewhere."""
    inside = cast(elementwise(GreaterOrEqual(), x, least), weight.dtype)
    return weight * inside * cast(elementwise(LessOrEqual(), x, most), weight.dtype)


def _weight(beside: Value, step: int, interpolation: Interpolation) -> Value:
    """What the element `step` from the one below counts, of a place that is `beside` that one."""
    if interpolation == "nearest":
        return beside * 0.0 + 1.0
    if interpolation == "linear":
        return beside if step else 1.0 - beside
    x, a = (beside - float(step) if step <= 0 else float(step) - beside), CUBIC
    if step in (0, 1):
        return ((a + 2) * x - (a + 3)) * x * x + 1.0
    return ((a * x - 5 * a) * x + 8 * a) * x - 4 * a


def _reflected(number: Value, size: int, align_corners: bool) -> Value:
    """The element that it comes to after turning back at both ends: at their centers, or at their outer sides."""
    last = 2 * (size - 1) if align_corners else 2 * size - 1
    if last == 0:
        return number * 0
    turned = elementwise(Mod(), number, last if align_corners else last + 1)
    return elementwise(Minimum(), turned, last - turned)


def looked_up(
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
            number = tap.number if number is None else number * size + tap.number
        assert number is not None, "there is an axis"
        weight = reduce(lambda a, b: a * b, (tap.weight for tap in chosen))
        found = GatherND(1)(rows, reshape_to(number, (*number.shape, 1)))
        parts.append(found * reshape_to(weight, (*weight.shape, 1)))
    return reduce(join, parts)


def added(a: Value, b: Value) -> Value:
    """How `looked_up` joins what counts by its weight."""
    return a + b


@LAYERS.register
class GridSample(LayerSpec):
    """Look at places of an image, or a volume, that a second input names: PyTorch's `grid_sample`.

    Inputs (N, C, H, W) and places (N, OH, OW, 2), of which x is first; output (N, C, OH, OW). Of volumes (N, C, D, H,
    W) places are (N, OD, OH, OW, 3). -1 is the beginning of an axis, and 1 its end. Samples may be several images,
    each with places of its own: both inputs have that axis behind the batch.
    https://onnx.ai/onnx/operators/onnx__GridSample.html
    """

    foreign_fields: ClassVar[dict[str, str]] = {"interpolation": "here it is `mode`, as in ONNX"}
    one_way: ClassVar = "it is written as the elements that it looks up"

    type: Literal["GridSample"] = "GridSample"
    mode: Interpolation = "linear"
    """`linear`: weight the elements around by their nearness; `nearest`: take the nearest; `cubic`: weight four along
    each axis (of images)"""
    padding_mode: Beyond = "zeros"
    """what lies beyond the border: zeros, the element at the border, or what is as far on this side of it"""
    align_corners: bool = False
    """-1 and 1 are the centers of the first and the last element, not their outer sides"""

    samples: ClassVar = (
        Sample.of((2, 2, 3, 4), (2, 2, 3, 2)),
        Sample.of((1, 2, 4, 3), (1, 3, 1, 2), mode="cubic", padding_mode="reflection", align_corners=True),
        Sample.of((2, 1, 3, 5), (2, 2, 2, 2), mode="nearest", padding_mode="border"),
        Sample.of((1, 2, 2, 3, 2), (1, 2, 1, 2, 3), padding_mode="reflection"),
        Sample.of((2, 2, 1, 3, 4), (2, 2, 1, 2, 2)),
    )

    def build(self, net: Builder, x: Value, grid: Value) -> Value:
        """x: (N, [images,] C, …), grid: (N, [images,] out…, axes) → (N, [images,] C, out…)."""
        axes, lead = grid.shape[-1], len(grid.shape) - 1 - grid.shape[-1]
        need(
            grid.dtype.is_float and axes in (2, 3) and lead in (1, 2),
            "the second input does not name places",
            expected="floats (batch, …, …, 2), or of volumes (batch, …, …, …, 3)",
            got=grid.type,
        )
        need(
            len(x.shape) == lead + 1 + axes and x.shape[:lead] == grid.shape[:lead]
            and (axes == 2 or self.mode != "cubic"),
            "the first input is nothing to look at places of" + (" by `mode: cubic`" if self.mode == "cubic" else ""),
            expected=f"(batch, {'images, ' * (lead - 1)}channels, {'' if axes == 2 else 'depth, '}height, width)"
            if axes == 2 or self.mode != "cubic" else "images, not volumes",
            got=x.type,
        )  # fmt: skip
        x, grid, images = net.floating(x), net.floating(grid), x.shape[1:lead]
        channels, *sizes = x.shape[lead:]
        count, out = x.shape[0], grid.shape[lead:-1]
        rows = reshape_to(grid, (count, prod((*images, *out)), axes))
        along = []
        for axis, size in enumerate(sizes):
            place = column(rows, axes - 1 - axis)
            at = (place + 1.0) * ((size - 1) / 2) if self.align_corners else (place + 1.0) * (size / 2) - 0.5
            along.append(taps(at, size, self.mode, self.padding_mode, self.align_corners))
        # Each sample keeps its images: samples and images as one axis would mix what a batch is of.
        number = _numbers(images[0], prod(out), column(rows, 0)) if images else None
        found = reshape_to(looked_up(x, along, added, number), (count, *images, prod(out), channels))
        turned = Transpose((0, 2, 1) if not images else (0, 1, 3, 2))(found)
        return reshape_to(turned, (count, *images, channels, *out))


def _numbers(images: int, places: int, like: Value) -> Value:
    """Of each of so many places of each image of a sample (N, images · places) the number of the image."""
    import numpy as np

    return BroadcastLike()(constant(np.repeat(np.arange(images, dtype="int64"), places)[None]), like)


def column(rows: Value, k: int) -> Value:
    """Entry k of each row: (…, entries) → (…)."""
    return reshape_to(Slice(len(rows.shape) - 1, k, k + 1)(rows), rows.shape[:-1])
