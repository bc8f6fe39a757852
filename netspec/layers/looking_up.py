"""Elements between places of images and volumes: GridSample and RoiAlign.

Both weight the elements around computed places, so that gradients flow to the elements and to the places.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import reduce
from itertools import product
from math import prod
from typing import Annotated, ClassVar, Literal, TypeAlias

from pydantic import Field

from netspec.graph.ops.elementwise import (
    GreaterOrEqual,
    LessOrEqual,
    Maximum,
    Minimum,
    cast,
    elementwise,
)
from netspec.graph.ops.indexing import GatherND
from netspec.graph.ops.reduce import ReduceMax, ReduceMean, reshape_to
from netspec.graph.ops.rounding import Floor, Round
from netspec.graph.ops.shape import Slice, Transpose
from netspec.graph.ops.source import constant
from netspec.graph.ops.whole import Mod
from netspec.graph.types import DType
from netspec.graph.value import Value
from netspec.layers.base import Builder, LayerSpec, PositiveInt, Sample, need
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


def _added(a: Value, b: Value) -> Value:
    return a + b


@LAYERS.register
class GridSample(LayerSpec):
    """Look at places of an image, or a volume, that a second input names: PyTorch's `grid_sample`.

    Inputs (N, C, H, W) and places (N, OH, OW, 2), of which x is first; output (N, C, OH, OW). Of volumes (N, C, D, H,
    W) places are (N, OD, OH, OW, 3). -1 is the beginning of an axis, and 1 its end.
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
    )

    def build(self, net: Builder, x: Value, grid: Value) -> Value:
        """x: (N, C, …), grid: (N, out…, axes) → (N, C, out…)."""
        axes = len(x.shape) - 2
        need(
            axes in (2, 3) and (axes == 2 or self.mode != "cubic"),
            "the first input is nothing to look at places of" + (" by `mode: cubic`" if self.mode == "cubic" else ""),
            expected="(batch, channels, height, width)" + ("" if self.mode == "cubic" else ", or with a depth"),
            got=x.type,
        )
        need(
            grid.dtype.is_float and len(grid.shape) == axes + 2 and grid.shape[-1] == axes,
            "the second input does not name places",
            expected=f"floats (batch, {'…, ' * (axes - 1)}…, {axes})",
            got=grid.type,
        )
        x, grid, sizes, out = net.floating(x), net.floating(grid), x.shape[2:], grid.shape[1:-1]
        rows = reshape_to(grid, (grid.shape[0], prod(out), axes))
        along = []
        for axis, size in enumerate(sizes):
            place = _column(rows, axes - 1 - axis)
            at = (place + 1.0) * ((size - 1) / 2) if self.align_corners else (place + 1.0) * (size / 2) - 0.5
            along.append(taps(at, size, self.mode, self.padding_mode, self.align_corners))
        found = Transpose((0, 2, 1))(looked_up(x, along, _added))
        return reshape_to(found, (*x.shape[:2], *out))


def _column(rows: Value, k: int) -> Value:
    """Entry k of each row: (…, entries) → (…)."""
    return reshape_to(Slice(len(rows.shape) - 1, k, k + 1)(rows), rows.shape[:-1])


@LAYERS.register
class RoiAlign(LayerSpec):
    """Cut parts out of an image, each brought to one size: the mean, or the greatest, of places within each cell.

    Inputs (N, C, H, W) and parts (N, R, 4) as left, top, right and bottom; output (N, R, C, height, width). With a
    third input, whole numbers (N, R) that say which image each part is of, the first is (N, images, C, H, W).
    https://onnx.ai/onnx/operators/onnx__RoiAlign.html
    """

    one_way: ClassVar = "it is written as the elements that it looks up"

    type: Literal["RoiAlign"] = "RoiAlign"
    height: PositiveInt = 1
    """cells of the result from top to bottom"""
    width: PositiveInt = 1
    """cells of the result from left to right"""
    sampling_ratio: PositiveInt = 2
    """how many places are looked at along each side of a cell"""
    spatial_scale: Annotated[float, Field(gt=0, allow_inf_nan=False)] = 1.0
    """what the corners of parts are multiplied with: the size of this image by that of the one they are of"""
    mode: Literal["avg", "max"] = "avg"
    """the mean of the places of a cell; or the greatest of all weighted elements around them"""
    aligned: bool = True
    """corners are those of pixels, as everywhere else; else half a pixel less, and no part is smaller than a pixel"""

    samples: ClassVar = (
        Sample.of((2, 2, 5, 4), (2, 3, 4), height=2, width=3, spatial_scale=0.5, ranges=(None, (0.0, 8.0))),
        Sample.of((1, 2, 6, 6), (1, 1, 4), width=2, mode="max", aligned=False, ranges=(None, (0.0, 4.0))),
        Sample.of((2, 3, 2, 4, 3), (2, 2, 4), (2, 2), dtypes=("float32", "float32", "int64"), high=3,
                  sampling_ratio=1, ranges=(None, (0.0, 4.0))),
    )  # fmt: skip

    def build(self, net: Builder, x: Value, rois: Value, images: Value | None = None) -> Value:
        """x: (N, [images,] C, H, W), rois: (N, R, 4), images: (N, R) → (N, R, C, height, width)."""
        import numpy as np

        rank = 4 if images is None else 5
        need(
            len(x.shape) == rank,
            "the first input is nothing to cut parts out of",
            expected=f"(batch, {'' if images is None else 'images, '}channels, height, width)",
            got=x.type,
        )
        need(
            rois.dtype.is_float and len(rois.shape) == 3 and rois.shape[-1] == 4,
            "the second input does not name parts",
            expected="floats (batch, parts, 4)",
            got=rois.type,
        )
        if images is not None:
            need(
                not images.dtype.is_float and images.dtype != DType.BOOL and images.shape == rois.shape[:2],
                "the third input does not say which image each part is of",
                expected=f"whole numbers {list(rois.shape[:2])}",
                got=images.type,
            )
            net.require_range(images, 0, x.shape[1], f"there are {x.shape[1]} images")
        x, rois = net.floating(x), net.floating(rois) * self.spatial_scale
        rois = rois - 0.5 if self.aligned else rois
        count, parts, ratio = rois.shape[0], rois.shape[1], self.sampling_ratio
        cells = (self.height, self.width)
        inside = (ratio * self.height, ratio * self.width)
        along = []
        for axis, size in enumerate(x.shape[-2:]):
            begin, end = _column(rois, 1 - axis), _column(rois, 3 - axis)
            length = end - begin if self.aligned else elementwise(Maximum(), end - begin, 1.0)
            shares = (np.arange(inside[axis]) + 0.5) / inside[axis]
            at = reshape_to(begin, (count, parts, 1)) + reshape_to(length, (count, parts, 1)) * constant(
                shares.astype(str(rois.dtype))
            )
            shape = [count, parts, 1, 1]
            shape[2 + axis] = inside[axis]
            spread = constant(np.zeros((1, 1, *inside), str(rois.dtype)))
            place = reshape_to(reshape_to(at, tuple(shape)) + spread, (count, parts * prod(inside)))
            along.append(_of_part(place, size))
        number = None
        if images is not None:
            spread = constant(np.zeros((1, 1, prod(inside)), "int64"))
            each = reshape_to(cast(images, DType.INT64), (count, parts, 1)) + spread
            number = reshape_to(each, (count, parts * prod(inside)))
        found = looked_up(x, along, _added if self.mode == "avg" else Maximum(), number)
        channels = x.shape[rank - 3]
        split = reshape_to(found, (count, parts, cells[0], ratio, cells[1], ratio, channels))
        joined = (ReduceMean if self.mode == "avg" else ReduceMax)((3, 5))(split)
        return Transpose((0, 1, 4, 2, 3))(joined)


def _of_part(at: Value, size: int) -> list[Tap]:
    """The two elements around each place; up to one beyond the border is that at the border, and further on nothing."""
    counts = within(at * 0.0 + 1.0, at, -1, size)
    made = taps(clipped(at, 0, size - 1), size, "linear", "border", align_corners=False)
    return [Tap(tap.number, tap.weight * counts) for tap in made]
