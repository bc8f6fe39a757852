"""Regions of interest of images, each brought to one size: RoiAlign and MaxRoiPooling2D."""

from __future__ import annotations

from math import prod
from typing import Annotated, ClassVar, Literal

from pydantic import Field

from netspec.graph.ops.elementwise import Maximum, call_elementwise, cast
from netspec.graph.ops.grid_sample import Tap, add, clip, column, gather_taps, taps
from netspec.graph.ops.linear import MatMul
from netspec.graph.ops.reduce import BroadcastLike, ReduceMax, ReduceMean, ReduceSum, reshape_to
from netspec.graph.ops.roi_pooling import AxisWeights, MaxRoiPool, RoiAlignMax, near_image, region_sides
from netspec.graph.ops.shape import OneHot, Transpose
from netspec.graph.ops.source import constant
from netspec.graph.types import DType, batch_shape
from netspec.graph.value import Value, require_precomputable
from netspec.layers.base import Builder, LayerSpec, Sample
from netspec.layers.checks import PositiveInt, require, require_countable
from netspec.schema.specs.kinds import LAYERS

Scale = Annotated[float, Field(gt=0, allow_inf_nan=False)]


class RoiLayer(LayerSpec):
    """Base of layers that cut parts out of an image."""

    height: PositiveInt = 1
    """Cells of the result from top to bottom."""
    width: PositiveInt = 1
    """Cells of the result from left to right."""
    spatial_scale: Scale = 1.0
    """Factor from corner coordinates to pixels of this input: its size over the size of the image that corners refer
    to."""

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
                expected=f"integers {batch_shape(rois.shape[:2])}",
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
    """Number of sampling positions along each side of a cell; 0: as many as the cell has pixels."""
    mode: Literal["avg", "max"] = "avg"
    """The mean over a cell's sampling positions, or the maximum of all weighted elements around them."""
    aligned: bool = True
    """`true`: corners are coordinates of pixel edges; false: of pixel centers, and regions are at least one
    pixel wide."""

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
        sides = region_sides(rois, self.spatial_scale, self.aligned)
        if self.sampling_ratio == 0:
            return self._weighted_mean(x, sides, images)
        return self._sample(x, sides, images)

    def _sample(self, x: Value, sides: list[tuple[Value, Value]], images: Value | None) -> Value:
        """Sample the same number of positions in each cell of each region."""
        import numpy as np

        (count, regions), ratio, cells = sides[0][0].shape, self.sampling_ratio, (self.height, self.width)
        samples = (ratio * self.height, ratio * self.width)
        axis_taps = []
        for axis, (size, (begin, length)) in enumerate(zip(x.shape[-2:], sides, strict=True)):
            require_countable(samples[axis], axis - 2)
            fractions = (np.arange(samples[axis]) + 0.5) / samples[axis]
            positions = reshape_to(begin, (count, regions, 1)) + reshape_to(length, (count, regions, 1)) * constant(
                fractions.astype(str(x.dtype))
            )
            shape = [count, regions, 1, 1]
            shape[2 + axis] = samples[axis]
            require_precomputable(prod(samples), "positions in a region")
            zeros = constant(np.zeros((1, 1, *samples), str(x.dtype)))
            flat = reshape_to(reshape_to(positions, tuple(shape)) + zeros, (count, regions * prod(samples)))
            axis_taps.append(_region_taps(flat, size))
        image_index = None
        if images is not None:
            zeros = constant(np.zeros((1, 1, prod(samples)), "int64"))
            image_index = reshape_to(cast(images, DType.INT64), (count, regions, 1)) + zeros
            image_index = reshape_to(image_index, (count, regions * prod(samples)))
        elements = gather_taps(x, axis_taps, add if self.mode == "avg" else Maximum(), image_index)
        split = reshape_to(elements, (count, regions, cells[0], ratio, cells[1], ratio, x.shape[-3]))
        cells_reduced = (ReduceMean if self.mode == "avg" else ReduceMax)((3, 5))(split)
        return Transpose((0, 1, 4, 2, 3))(cells_reduced)

    def _weighted_mean(self, x: Value, sides: list[tuple[Value, Value]], images: Value | None) -> Value:
        """Compute the mean of each cell by two products: with row weights, then with column weights."""
        (count, regions), (channels, height, width) = sides[0][0].shape, x.shape[-3:]
        rows = _cell_weights(*sides[0], self.height, height)
        columns = _cell_weights(*sides[1], self.width, width)
        images_per_sample = x.shape[1] if images is not None else 1
        if images is not None:
            is_own_image = OneHot(images_per_sample, x.dtype)(images)
            rows = reshape_to(is_own_image, (count, regions, 1, images_per_sample, 1)) * reshape_to(
                rows, (count, regions, self.height, 1, height)
            )
        x = reshape_to(x, (count, images_per_sample, channels, height, width))
        x = reshape_to(Transpose((0, 1, 3, 2, 4))(x), (count, images_per_sample * height, channels * width))
        y = MatMul()(reshape_to(rows, (count, regions * self.height, images_per_sample * height)), x)
        y = reshape_to(y, (count, regions, self.height * channels, width))
        y = MatMul()(y, Transpose((0, 1, 3, 2))(columns))
        return Transpose((0, 1, 3, 2, 4))(reshape_to(y, (count, regions, self.height, channels, self.width)))


def _region_taps(positions: Value, size: int) -> list[Tap]:
    """The two elements around each position, with weight 0 for positions more than one element beyond the border."""
    neighbors = taps(clip(positions, 0, size - 1), size, "linear", "border", align_corners=False)
    inside = near_image(positions, size)
    return [Tap(tap.index, tap.weight * inside) for tap in neighbors]


def _cell_weights(begin: Value, length: Value, cells: int, size: int) -> Value:
    """Weights (N, R, cells, size) of each element in each cell, for regions given by begin and length (N, R)."""
    axis = AxisWeights.of(begin, length, cells, size)
    total = ReduceSum((4,))(axis.weight)
    return total / reshape_to(call_elementwise(Maximum(), axis.count, 1.0), (*total.shape[:2], 1, 1))


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
