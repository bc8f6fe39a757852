"""Regions of interest of images, each brought to one size: RoiAlign and MaxRoiPooling2D."""

from __future__ import annotations

from math import prod
from typing import Annotated, ClassVar, Literal

from pydantic import Field

from netspec.graph.ops.elementwise import Maximum, call_elementwise, cast
from netspec.graph.ops.grid_sample import Tap, add, clip, column, gather_taps, taps
from netspec.graph.ops.linear import MatMul
from netspec.graph.ops.reduce import BroadcastLike, ReduceMax, ReduceMean, ReduceSum, reshape_to
from netspec.graph.ops.roi_pooling import AxisWeights, MaxRoiPool, RoiAlignMax, counts, sides
from netspec.graph.ops.shape import OneHot, Transpose
from netspec.graph.ops.source import constant
from netspec.graph.types import DType
from netspec.graph.value import Value, require_precomputable
from netspec.layers.base import Builder, LayerSpec, Sample
from netspec.layers.checks import PositiveInt, require, require_countable
from netspec.schema.specs.kinds import LAYERS

Scale = Annotated[float, Field(gt=0, allow_inf_nan=False)]


class RoiLayer(LayerSpec):
    """Base of layers that cut parts out of an image."""

    height: PositiveInt = 1
    """cells of the result from top to bottom"""
    width: PositiveInt = 1
    """cells of the result from left to right"""
    spatial_scale: Scale = 1.0
    """factor from corner coordinates to pixels of this input: its size over the size of the image that corners refer
    to"""

    def require_regions(self, builder: Builder, x: Value, rois: Value, images: Value | None) -> None:
        """Raise a located error unless the inputs are an image, or several, and parts of it."""
        require(
            len(x.shape) == (4 if images is None else 5),
            "the first input is not an image",
            expected=f"(batch, {'' if images is None else 'images, '}channels, height, width)",
            got=x.type,
        )
        require(
            rois.dtype.is_float and len(rois.shape) == 3 and rois.shape[-1] == 4,
            "the second input does not hold regions",
            expected="floats (batch, regions, 4)",
            got=rois.type,
        )
        if images is not None:
            require(
                not images.dtype.is_float and images.dtype != DType.BOOL and images.shape == rois.shape[:2],
                "the third input does not hold one image index per region",
                expected=f"integers {list(rois.shape[:2])}",
                got=images.type,
            )
            builder.require_range(images, 0, x.shape[1], f"there are {x.shape[1]} images")


def with_image_axis(x: Value, rois: Value, images: Value | None) -> tuple[Value, Value]:
    """x as (N, images, C, H, W), and the image index (N, R) int64 of each region; 0 if there is a single image."""
    if images is not None:
        return x, cast(images, DType.INT64)
    import numpy as np

    first = BroadcastLike()(constant(np.zeros((1, 1), "int64")), column(rois, 0))
    return reshape_to(x, (x.shape[0], 1, *x.shape[1:])), first


@LAYERS.register
class RoiAlign(RoiLayer):
    """Cut regions of interest out of an image, each resized to one size: mean or maximum of samples in each cell.

    Inputs (N, C, H, W) and regions (N, R, 4) as left, top, right and bottom; output (N, R, C, height, width). With a
    third input, integers (N, R) with the image index of each region, the first is (N, images, C, H, W).
    https://onnx.ai/onnx/operators/onnx__RoiAlign.html
    """

    onnx_roundtrip_blocker: ClassVar = (
        "it is written as gathered elements, or with reshapes, since ONNX's operator has no axis of samples"
    )

    type: Literal["RoiAlign"] = "RoiAlign"
    sampling_ratio: Annotated[int, Field(ge=0)] = 2
    """number of sampling positions along each side of a cell; 0: as many as the cell has pixels"""
    mode: Literal["avg", "max"] = "avg"
    """the mean over a cell's sampling positions, or the maximum of all weighted elements around them"""
    aligned: bool = True
    """true: corners are coordinates of pixel edges; false: of pixel centers, and regions are at least one pixel wide"""

    samples: ClassVar = (
        Sample.of((2, 2, 5, 4), (2, 3, 4), height=2, width=3, spatial_scale=0.5, ranges=(None, (0.0, 8.0))),
        Sample.of((1, 2, 6, 6), (1, 1, 4), width=2, mode="max", aligned=False, ranges=(None, (0.0, 4.0))),
        Sample.of((2, 3, 2, 4, 3), (2, 2, 4), (2, 2), dtypes=("float32", "float32", "int64"), high=3,
                  sampling_ratio=1, ranges=(None, (0.0, 4.0))),
        Sample.of((2, 2, 2, 5, 4), (2, 3, 4), (2, 3), dtypes=("float32", "float32", "int64"), high=2, height=2,
                  sampling_ratio=0, ranges=(None, (-2.0, 8.0))),
        Sample.of((2, 2, 5, 4), (2, 3, 4), height=2, width=3, mode="max", sampling_ratio=0, ranges=(None, (-2.0, 8.0))),
        Sample.of((2, 2, 2, 5, 4), (2, 2, 4), (2, 2), dtypes=("float32", "float32", "int64"), high=2, mode="max",
                  sampling_ratio=0, aligned=False, spatial_scale=0.75, ranges=(None, (0.0, 6.0))),
    )  # fmt: skip

    def build(self, builder: Builder, x: Value, rois: Value, images: Value | None = None) -> Value:
        """x: (N, [images,] C, H, W), rois: (N, R, 4), images: (N, R) → (N, R, C, height, width)."""
        self.require_regions(builder, x, rois, images)
        x, rois = builder.floating(x), builder.floating(rois)
        if self.sampling_ratio == 0 and self.mode == "max":
            x, images = with_image_axis(x, rois, images)
            for cells, size in ((self.height, x.shape[3]), (self.width, x.shape[4])):
                require_countable(cells, -1)
                require_countable(size, -1)
            return RoiAlignMax(self.height, self.width, self.spatial_scale, self.aligned)(x, rois, images)
        along = sides(rois, self.spatial_scale, self.aligned)
        if self.sampling_ratio == 0:
            return self._by_shares(x, along, images)
        return self._by_places(x, along, images)

    def _by_places(self, x: Value, sides: list[tuple[Value, Value]], images: Value | None) -> Value:
        """Sample the same number of positions in each cell of each region."""
        import numpy as np

        (count, parts), ratio, cells = sides[0][0].shape, self.sampling_ratio, (self.height, self.width)
        inside = (ratio * self.height, ratio * self.width)
        along = []
        for axis, (size, (begin, length)) in enumerate(zip(x.shape[-2:], sides, strict=True)):
            require_countable(inside[axis], axis - 2)
            shares = (np.arange(inside[axis]) + 0.5) / inside[axis]
            at = reshape_to(begin, (count, parts, 1)) + reshape_to(length, (count, parts, 1)) * constant(
                shares.astype(str(x.dtype))
            )
            shape = [count, parts, 1, 1]
            shape[2 + axis] = inside[axis]
            require_precomputable(prod(inside), "positions in a region")
            spread = constant(np.zeros((1, 1, *inside), str(x.dtype)))
            place = reshape_to(reshape_to(at, tuple(shape)) + spread, (count, parts * prod(inside)))
            along.append(_of_part(place, size))
        number = None
        if images is not None:
            spread = constant(np.zeros((1, 1, prod(inside)), "int64"))
            each = reshape_to(cast(images, DType.INT64), (count, parts, 1)) + spread
            number = reshape_to(each, (count, parts * prod(inside)))
        found = gather_taps(x, along, add if self.mode == "avg" else Maximum(), number)
        split = reshape_to(found, (count, parts, cells[0], ratio, cells[1], ratio, x.shape[-3]))
        joined = (ReduceMean if self.mode == "avg" else ReduceMax)((3, 5))(split)
        return Transpose((0, 1, 4, 2, 3))(joined)

    def _by_shares(self, x: Value, sides: list[tuple[Value, Value]], images: Value | None) -> Value:
        """The mean over each cell, from the weights of each row and each column in it: two products."""
        (count, parts), (channels, height, width) = sides[0][0].shape, x.shape[-3:]
        rows = _shares(*sides[0], self.height, height)
        columns = _shares(*sides[1], self.width, width)
        several = x.shape[1] if images is not None else 1
        if images is not None:
            own = OneHot(several, x.dtype)(images)
            rows = reshape_to(own, (count, parts, 1, several, 1)) * reshape_to(
                rows, (count, parts, self.height, 1, height)
            )
        x = reshape_to(x, (count, several, channels, height, width))
        x = reshape_to(Transpose((0, 1, 3, 2, 4))(x), (count, several * height, channels * width))
        made = MatMul()(reshape_to(rows, (count, parts * self.height, several * height)), x)
        made = reshape_to(made, (count, parts, self.height * channels, width))
        made = MatMul()(made, Transpose((0, 1, 3, 2))(columns))
        return Transpose((0, 1, 3, 2, 4))(reshape_to(made, (count, parts, self.height, channels, self.width)))


def _of_part(at: Value, size: int) -> list[Tap]:
    """The two elements around each position; the border's up to one element beyond it, and nothing further out."""
    made = taps(clip(at, 0, size - 1), size, "linear", "border", align_corners=False)
    inside = counts(at, size)
    return [Tap(tap.index, tap.weight * inside) for tap in made]


def _shares(begin: Value, length: Value, cells: int, size: int) -> Value:
    """begin and length of regions (N, R) along an axis → weights (N, R, cells, size) of each element in each cell."""
    around = AxisWeights.of(begin, length, cells, size)
    total = ReduceSum((4,))(around.weight)
    return total / reshape_to(call_elementwise(Maximum(), around.count, 1.0), (*total.shape[:2], 1, 1))


@LAYERS.register
class MaxRoiPooling2D(RoiLayer):
    """Cut regions of interest out of an image, each resized to one size: the maximum over the pixels of each cell.

    Inputs (N, C, H, W) and regions (N, R, 4) as left, top, right and bottom, both ends included; output (N, R, C,
    height, width). With a third input, integers (N, R) with the image index of each region, the first is (N, images, C,
    H, W). No gradient flows to the regions. https://onnx.ai/onnx/operators/onnx__MaxRoiPool.html
    """

    onnx_roundtrip_blocker: ClassVar = "it is written as gathered elements"

    type: Literal["MaxRoiPooling2D"] = "MaxRoiPooling2D"

    samples: ClassVar = (
        Sample.of((2, 2, 5, 4), (2, 3, 4), height=2, width=3, spatial_scale=0.5, ranges=(None, (-2.0, 9.0))),
        Sample.of((2, 2, 3, 4, 3), (2, 2, 4), (2, 2), dtypes=("float32", "float32", "int64"), high=2,
                  width=2, ranges=(None, (0.0, 4.0))),
    )  # fmt: skip

    def build(self, builder: Builder, x: Value, rois: Value, images: Value | None = None) -> Value:
        """x: (N, [images,] C, H, W), rois: (N, R, 4), images: (N, R) → (N, R, C, height, width)."""
        self.require_regions(builder, x, rois, images)
        x, rois = builder.floating(x), builder.floating(rois)
        x, images = with_image_axis(x, rois, images)
        return MaxRoiPool(self.height, self.width, self.spatial_scale)(x, rois, images)
