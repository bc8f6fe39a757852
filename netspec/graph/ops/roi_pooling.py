"""Pooling of regions of interest (RoI): maxima of pixels or of weighted elements in each cell of a region.

Each region is divided into a grid of cells, each of which gives one element of the result.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import prod

from netspec.graph.onnx_map import Decomposed, Emitter, NoOnnxForm, OnnxExpansion
from netspec.graph.op import Array, Grads, NoGradient, Op, ResultTypes, Xp
from netspec.graph.ops.elementwise import (
    Equal,
    Greater,
    GreaterOrEqual,
    Maximum,
    Minimum,
    Where,
    call_elementwise,
    cast,
)
from netspec.graph.ops.grid_sample import Tap, clip, column, gather_taps, zero_outside
from netspec.graph.ops.indexing import GatherElements, GatherND, ScatterElements
from netspec.graph.ops.integer import Mod, floor_div
from netspec.graph.ops.logic import And
from netspec.graph.ops.reduce import BroadcastLike, ReduceMax, reshape_to
from netspec.graph.ops.rounding import Ceil, Floor
from netspec.graph.ops.shape import Concat, PadAxis, Slice, Transpose
from netspec.graph.ops.source import Fill, constant
from netspec.graph.ops.unary import Abs, Sign
from netspec.graph.types import DType, TensorType
from netspec.graph.value import Value, require_listable, require_precomputable

MAX_NEARBY_SAMPLES = 6
"""Sampling positions that may be less than 1 away from an element: they are more than ½ apart, or there is only one."""


def region_sides(rois: Value, spatial_scale: float, aligned: bool) -> list[tuple[Value, Value]]:
    """(begin, length) of regions (N, R, 4) along height and along width, in elements: (N, R) each."""
    rois = rois * spatial_scale
    rois = rois - 0.5 if aligned else rois
    by_axis = []
    for axis in range(2):
        begin, end = column(rois, 1 - axis), column(rois, 3 - axis)
        by_axis.append((begin, end - begin if aligned else call_elementwise(Maximum(), end - begin, 1.0)))
    return by_axis


def near_image(positions: Value, size: int) -> Value:
    """1 for positions at most 1 beyond the border of an axis, else 0."""
    return zero_outside(positions * 0.0 + 1.0, positions, -1, size)


@dataclass(frozen=True)
class AxisWeights:
    """Weights of the elements of an axis in each cell, whose number of sampling positions depends on its length.

    A cell of length s has ⌈s⌉ evenly spaced sampling positions. Only those that may be less than 1 away from an element
    are computed, so the number of positions does not matter.
    """

    count: Value
    """Number of sampling positions of a cell: (N, R, 1, 1, 1)."""
    positions: Value
    """The positions that may be near each element: (N, R, cells, size, `MAX_NEARBY_SAMPLES`)."""
    is_sampled: Value
    """1 for positions that exist and are sampled, 0 for others."""
    weight: Value
    """Interpolation weight of the element at each position."""
    ends: tuple[Value, Value]
    """The first and the last position of each cell: (N, R, cells, 1, 1)."""

    @classmethod
    def of(cls, begin: Value, length: Value, cells: int, size: int) -> AxisWeights:
        """Compute the weights for regions given by their begin and length (N, R)."""
        import numpy as np

        for elements in (cells, size):
            require_listable(elements, "elements along axis -1")
        dtype = str(begin.dtype)

        def arange(count: int, axis: int) -> Value:
            shape = [1] * 5
            shape[axis] = count
            return constant(np.arange(count, dtype=dtype).reshape(shape))

        begin, cell = (reshape_to(x, (*x.shape, 1, 1, 1)) for x in (begin, length * (1 / cells)))
        count = call_elementwise(Maximum(), Ceil()(cell), 0.0)
        has_samples = call_elementwise(GreaterOrEqual(), count, 1.0)
        spacing = call_elementwise(Where(), has_samples, cell / call_elementwise(Maximum(), count, 1.0), 1.0)
        begin, element = begin + cell * arange(cells, 2) + spacing * 0.5, arange(size, 3)
        first = Floor()((element - 1.0 - begin) / spacing)
        first = call_elementwise(Maximum(), call_elementwise(Minimum(), first, count - 1.0), 0.0)
        index = first + arange(MAX_NEARBY_SAMPLES, 4)
        positions = begin + index * spacing
        nearness = call_elementwise(Maximum(), 1.0 - Abs()(clip(positions, 0, size - 1) - element), 0.0)
        is_near = near_image(positions, size)
        is_sampled = is_near * cast(call_elementwise(GreaterOrEqual(), count - 1.0, index), begin.dtype)
        return cls(count, positions, is_sampled, nearness * is_sampled, (begin, begin + (count - 1.0) * spacing))


CORNER_LIMIT = 2**24
"""Corners are clipped to this distance, which is outside of any image."""
CHUNK_ELEMENTS = 2**22
"""Elements that are compared at a time, which limits the scratch memory for large images."""


@dataclass(frozen=True)
class RoiCells(Op):
    """Base of ops that divide regions of images into cells and reduce each cell to one element."""

    height: int
    width: int
    spatial_scale: float

    def infer(self, x: TensorType, rois: TensorType, images: TensorType) -> ResultTypes:
        """x: (N, images, C, H, W), rois: (N, R, 4), images: (N, R) → (N, R, C, height, width)."""
        return self.cells_type(x, rois, images)

    def cells_type(self, x: TensorType, rois: TensorType, images: TensorType) -> TensorType:
        """The type of one element for each cell of each region; raises `ShapeMismatch` if the operands do not match."""
        fits = x.rank == 5 and rois.shape == (x.shape[0], *rois.shape[1:2], 4) and images.shape == rois.shape[:2]
        self.check(fits, "the operands are not images, regions and image indices", got=f"{x}, {rois}, {images}")
        return x.with_shape(*images.shape, x.shape[2], self.height, self.width)

    def flops(self, x: TensorType, rois: TensorType, images: TensorType) -> int:
        return images.size * prod(x.shape[2:])


@dataclass(frozen=True)
class _AxisSamples:
    """The elements of an axis around the sampling positions of each cell of a region: arrays (cells, elements)."""

    element: Array
    weight: Array
    share: Array
    """Position in the region, from 0 at its begin to 1 at its end."""
    exists: Array
    """Whether there is such an element; beyond the border, or after the last element, it is 0."""

    @classmethod
    def of(cls, xp: Xp, begin: Array, length: Array, cells: int, size: int) -> _AxisSamples | None:
        """Sample a region as ONNX's RoiAlign does; None if a cell has no sampling positions.

        Positions are more than ½ apart, or there is only one. So all but about 2 · size are beyond the border, where
        their number does not matter.
        """
        cell = length / cells
        count = int(xp.ceil(cell))
        if count < 1:
            return None
        sampled = min(count, 2 * size + 8)
        begin = begin + xp.arange(cells, dtype=length.dtype).reshape(-1, 1) * cell
        index = xp.floor((-1 - begin) / (cell / count) - 0.5).clip(0, count - sampled)
        index = index + xp.arange(sampled, dtype=length.dtype) + 0.5
        positions = begin + index * cell / count
        share = (xp.arange(cells).reshape(-1, 1) + index / count) / cells
        low = xp.floor(positions.clip(0, size - 1)).astype("int64")
        fraction, inside = positions.clip(0, size - 1) - low, (positions >= -1) & (positions <= size)
        exists = xp.concatenate([inside, inside & (low < size - 1)], axis=1)
        element = xp.concatenate([low, low + 1], axis=1)
        weight = xp.concatenate([1 - fraction, fraction], axis=1)
        return cls(element * exists, weight * exists, xp.concatenate([share, share], axis=1), exists)


@dataclass(frozen=True)
class _CellMaxima:
    """The largest weighted element of each cell in each channel, and its position: arrays (C, height, width)."""

    maximum: Array
    index: Array
    """Index of the element in its channel of the image; -1 for the 0 beyond the border."""
    row_share: Array
    """Vertical position in the region, from 0 at its top to 1 at its bottom."""
    column_share: Array
    """Horizontal position in the region, from 0 to 1."""

    @classmethod
    def of(cls, xp: Xp, x: Array, rows: _AxisSamples, columns: _AxisSamples) -> _CellMaxima:
        """Find the maxima of an image x: (C, H, W), some channels at a time."""
        first, end = int(rows.element.min()), int(rows.element.max()) + 1
        step = max(1, CHUNK_ELEMENTS // ((end - first) * columns.element.shape[1]))
        chunks = [cls._of_channels(xp, x[k : k + step], first, end, rows, columns) for k in range(0, len(x), step)]
        names = ("maximum", "index", "row_share", "column_share")
        return cls(*(xp.concatenate([getattr(chunk, name) for chunk in chunks]) for name in names))

    @classmethod
    def _of_channels(
        cls, xp: Xp, x: Array, first: int, end: int, rows: _AxisSamples, columns: _AxisSamples
    ) -> _CellMaxima:
        """The maxima of some channels: first along each row from `first` to `end`, then across these rows.

        No weight is negative, so the maximum over a cell is among the maxima of its rows.
        """
        row_maxima, row_indices = [], []
        for element, weight in zip(columns.element, columns.weight, strict=True):
            weighted = x[:, first:end, element] * weight
            row_indices.append(weighted.argmax(axis=2))
            row_maxima.append(weighted.max(axis=2))
        row_maximum, row_index = xp.stack(row_maxima, axis=2), xp.stack(row_indices, axis=2)
        channel, cell = xp.arange(len(x)).reshape(-1, 1), xp.arange(len(row_maxima))
        by_cell_row: list[tuple[Array, ...]] = []
        for element, weight, share, exists in zip(rows.element, rows.weight, rows.share, rows.exists, strict=True):
            weighted = row_maximum[:, element - first] * weight.reshape(-1, 1)
            k = weighted.argmax(axis=1)
            j = row_index[channel, element[k] - first, cell]
            index = element[k] * x.shape[2] + columns.element[cell, j]
            index = xp.where(exists[k] & columns.exists[cell, j], index, -1)
            by_cell_row.append((weighted.max(axis=1), index, share[k], columns.share[cell, j]))
        return cls(*(xp.stack(arrays, axis=1) for arrays in zip(*by_cell_row, strict=True)))


@dataclass(frozen=True)
class RoiAlignMaxBase(RoiCells):
    """Base of the RoiAlign ops with mode `max`: cells of any size, with ⌈size⌉ sampling positions along each side."""

    aligned: bool

    def region_maxima(
        self, xp: Xp, x: Array, rois: Array, images: Array
    ) -> Iterator[tuple[tuple[int, int], _CellMaxima]]:
        """Yield ((sample, region), maxima) for each region that has sampling positions."""
        dtype = rois.dtype.type
        scaled = xp.nan_to_num((rois * dtype(self.spatial_scale)).clip(-CORNER_LIMIT, CORNER_LIMIT))
        begin, end = scaled[..., :2], scaled[..., 2:]
        begin, length = (
            (begin - dtype(0.5), end - begin) if self.aligned else (begin, xp.maximum(end - begin, dtype(1)))
        )
        for sample, region in zip(*map(xp.ravel, xp.indices(images.shape)), strict=True):
            index = int(sample), int(region)
            rows = _AxisSamples.of(xp, begin[index][1], length[index][1], self.height, x.shape[3])
            columns = _AxisSamples.of(xp, begin[index][0], length[index][0], self.width, x.shape[4])
            if rows is not None and columns is not None:
                yield index, _CellMaxima.of(xp, x[index[0], int(images[index])], rows, columns)


class RoiAlignMaxIndices(RoiAlignMaxBase, NoGradient):
    """The index in its image of each element of `RoiAlignMax` (-1: it is 0), and its position in the region, 0 to 1."""

    onnx = NoOnnxForm("only training graphs have it")

    def infer(self, x: TensorType, rois: TensorType, images: TensorType) -> ResultTypes:
        y = self.cells_type(x, rois, images)
        return y.with_dtype(DType.INT64), y, y

    def forward(self, xp: Xp, x: Array, rois: Array, images: Array) -> tuple[Array, ...]:
        shape = (*images.shape, x.shape[2], self.height, self.width)
        index = xp.full(shape, -1, "int64")
        row_share, column_share = xp.zeros(shape, x.dtype), xp.zeros(shape, x.dtype)
        for region, maxima in self.region_maxima(xp, x, rois, images):
            index[region] = maxima.index
            row_share[region], column_share[region] = maxima.row_share, maxima.column_share
        return index, row_share, column_share


def _to_onnx(g: Emitter, y: Value, x: str, rois: str, images: str) -> str:
    """Add ONNX's RoiAlign, which has one axis of images: the images of all samples are numbered consecutively."""
    op, (image, _, image_indices) = y.op, y.inputs
    assert isinstance(op, RoiAlignMax)
    images_per_sample, *sizes = image.shape[1:]
    samples = g.node("Gather", g.node("Shape", images), g.constant(0, "int64"), axis=0)
    first = g.node("Range", g.constant(0, "int64"), samples, g.constant(1, "int64"))
    first = g.node(
        "Mul", g.node("Reshape", first, g.constant([-1, 1], "int64")), g.constant(images_per_sample, "int64")
    )
    flat_index = g.node("Reshape", g.node("Add", images, first), g.constant([-1], "int64"))
    if op.aligned:  # ONNX Runtime fails for regions whose end precedes their begin
        begin, end = (
            g.node("Slice", rois, g.constant([k], "int64"), g.constant([k + 2], "int64"), g.constant([-1], "int64"))
            for k in (0, 2)
        )
        rois = g.node("Concat", begin, g.node("Max", begin, end), axis=-1)
    cells = g.node(
        "RoiAlign",
        g.node("Reshape", x, g.constant([-1, *sizes], "int64")),
        g.node("Reshape", rois, g.constant([-1, 4], "int64")),
        flat_index,
        coordinate_transformation_mode="half_pixel" if op.aligned else "output_half_pixel",
        mode="max", output_height=op.height, output_width=op.width, sampling_ratio=0, spatial_scale=op.spatial_scale,
    )  # fmt: skip
    return g.node("Reshape", cells, g.constant([-1, image_indices.shape[1], sizes[0], op.height, op.width], "int64"))


class RoiAlignMax(RoiAlignMaxBase):
    """The largest weighted element around the sampling positions of each cell; 0 for regions that have none.

    This is ONNX's RoiAlign with the mode `max` and `sampling_ratio` 0: the maximum is over each of the four elements
    around a position times its weight, not over interpolated elements. https://onnx.ai/onnx/operators/onnx__RoiAlign.html
    """

    onnx = OnnxExpansion(_to_onnx)

    def forward(self, xp: Xp, x: Array, rois: Array, images: Array) -> Array:
        y = xp.zeros((*images.shape, x.shape[2], self.height, self.width), x.dtype)
        for region, maxima in self.region_maxima(xp, x, rois, images):
            y[region] = maxima.maximum
        return y

    def vjp(self, y: Value, dy: Value) -> Grads:
        from netspec.graph.autodiff import pullback

        return pullback((self._gather_maxima(*y.inputs),), (dy,), y.inputs)

    def _gather_maxima(self, x: Value, rois: Value, images: Value) -> Value:
        """Compute the result again from the indices of the maxima: the elements times their weights."""
        (count, images_per_sample, channels, *size), regions = x.shape, images.shape[1]
        shape = (count, regions, channels, self.height, self.width)
        index, *shares = RoiAlignMaxIndices(self.height, self.width, self.spatial_scale, self.aligned).call_multi(
            x, rois, images
        )
        exists, index = call_elementwise(GreaterOrEqual(), index, 0), call_elementwise(Maximum(), index, 0)
        weight = None
        for k, (begin, length) in enumerate(region_sides(rois, self.spatial_scale, self.aligned)):
            begin, length = (reshape_to(side, (count, regions, 1, 1, 1)) for side in (begin, length))
            position = clip(begin + length * shares[k], 0, size[k] - 1)
            element = call_elementwise(Mod(), index, size[1]) if k else call_elementwise(floor_div, index, size[1])
            axis_weight = 1.0 - Abs()(position - cast(element, x.dtype))
            weight = axis_weight if weight is None else weight * axis_weight
        assert weight is not None, "there are two sides"
        swap_regions, last = Transpose((0, 2, 1, 3, 4)), prod(shape) // (count * channels)
        rows = reshape_to(swap_regions(x), (count, channels, images_per_sample * prod(size)))
        index = index + reshape_to(images, (count, regions, 1, 1, 1)) * prod(size)
        elements = GatherElements(2)(rows, reshape_to(swap_regions(index), (count, channels, last)))
        elements = swap_regions(reshape_to(elements, (count, channels, regions, self.height, self.width)))
        return call_elementwise(Where(), exists, elements * weight, 0.0)

    def decompose(self, x: Value, rois: Value, images: Value) -> Value:
        """Weight all elements with their largest and smallest weight in each cell: along rows, then across them."""
        (count, _, channels, height, width), regions = x.shape, images.shape[1]
        (top, region_height), (left, region_width) = region_sides(rois, self.spatial_scale, self.aligned)
        row_weights, column_weights = (
            AxisWeights.of(top, region_height, self.height, height),
            AxisWeights.of(left, region_width, self.width, width),
        )
        x = GatherND(1)(x, reshape_to(images, (count, regions, 1)))
        x = reshape_to(x, (count, regions, channels * height, 1, width))
        x = _weighted_maximum(x, column_weights, (count, regions, 1, self.width, width), width)
        x = reshape_to(x, (count, regions, channels, height, self.width))
        x = reshape_to(Transpose((0, 1, 2, 4, 3))(x), (count, regions, channels * self.width, 1, height))
        x = _weighted_maximum(x, row_weights, (count, regions, 1, self.height, height), height)
        x = Transpose((0, 1, 2, 4, 3))(reshape_to(x, (count, regions, channels, self.width, self.height)))
        has_samples = call_elementwise(
            GreaterOrEqual(), call_elementwise(Minimum(), row_weights.count, column_weights.count), 1.0
        )
        return call_elementwise(Where(), has_samples, x, 0.0)


LOWEST = -3e38
"""Less than all elements that are compared."""


def _weighted_maximum(x: Value, axis: AxisWeights, shape: tuple[int, ...], size: int) -> Value:
    """Largest weighted element of each cell along an axis: x (N, R, others, 1, size) → (N, R, others, cells).

    A position exactly on an element, or beyond the border, has a second neighbor of weight 0.
    """
    near = call_elementwise(Greater(), axis.weight, 0.0)
    weights = (
        call_elementwise(Where(), near, axis.weight, LOWEST),
        call_elementwise(Where(), near, axis.weight * -1.0, LOWEST),
    )
    largest, smallest = (reshape_to(ReduceMax((4,))(w), shape) for w in weights)
    has_weight = call_elementwise(GreaterOrEqual(), largest, 0.0)
    maximum = call_elementwise(
        Where(),
        has_weight,
        call_elementwise(Maximum(), x * clip(largest, 0, 1), x * clip(smallest * -1.0, 0, 1)),
        LOWEST,
    )
    maximum = ReduceMax((4,))(maximum)
    clipped = clip(axis.positions, 0, size - 1)
    exact = ReduceMax((3, 4))(axis.is_sampled * cast(Equal()(clipped, Floor()(clipped)), x.dtype))
    beyond = [1.0 - near_image(end, size) for end in axis.ends]
    has_zero = reshape_to(call_elementwise(Maximum(), *beyond), exact.shape)
    has_zero = call_elementwise(GreaterOrEqual(), call_elementwise(Maximum(), exact, has_zero), 1.0)
    has_zero = reshape_to(has_zero, (*exact.shape[:2], 1, exact.shape[2]))
    return call_elementwise(Where(), has_zero, call_elementwise(Maximum(), maximum, 0.0), maximum)


class MaxRoiPoolIndices(RoiCells, NoGradient):
    """Index of each element of `MaxRoiPool` in its channel of all images of a sample, as int64; -1 for empty cells."""

    onnx = NoOnnxForm("only training graphs have it")

    def infer(self, x: TensorType, rois: TensorType, images: TensorType) -> ResultTypes:
        return self.cells_type(x, rois, images).with_dtype(DType.INT64)

    def forward(self, xp: Xp, x: Array, rois: Array, images: Array) -> Array:
        height, width = x.shape[3:]
        index = xp.full((*images.shape, x.shape[2], self.height, self.width), -1, "int64")
        scaled = xp.nan_to_num(xp.clip(rois * rois.dtype.type(self.spatial_scale), -CORNER_LIMIT, CORNER_LIMIT))
        corners = xp.sign(scaled) * xp.floor(xp.abs(scaled) + 0.5)
        for sample, region in zip(*map(xp.ravel, xp.indices(images.shape)), strict=True):
            left, top, right, bottom = map(int, corners[sample, region])
            image = int(images[sample, region])
            for row, (first, last) in enumerate(_cells(top, bottom, self.height, height)):
                for col, (begin, end) in enumerate(_cells(left, right, self.width, width)):
                    if first < last and begin < end:
                        in_cell = x[sample, image, :, first:last, begin:end].reshape(x.shape[2], -1).argmax(axis=1)
                        down, along = in_cell // (end - begin), in_cell % (end - begin)
                        index[sample, region, :, row, col] = (image * height + first + down) * width + begin + along
        return index


def _cells(first: int, last: int, count: int, size: int) -> list[tuple[int, int]]:
    """Begin and end of each cell of the pixels `first` … `last`, clipped to the image; cells may share a pixel."""
    length = max(last - first + 1, 1)
    bounds = ((cell * length // count, -(-(cell + 1) * length // count)) for cell in range(count))
    return [(min(max(first + begin, 0), size), min(max(first + end, 0), size)) for begin, end in bounds]


class MaxRoiPool(RoiCells):
    """The maximum of each cell of each region; 0 for empty cells. Girshick 2015, arXiv:1504.08083."""

    onnx = Decomposed()  # ONNX Runtime supports MaxRoiPool only in opsets before 22

    def forward(self, xp: Xp, x: Array, rois: Array, images: Array) -> Array:
        indices = self.indices_op().forward(xp, x, rois, images)
        rows = xp.moveaxis(x, 2, 1).reshape(x.shape[0], x.shape[2], -1)
        index = xp.moveaxis(indices, 2, 1)
        elements = xp.take_along_axis(rows, xp.maximum(index, 0).reshape(*rows.shape[:2], -1), axis=2)
        y = xp.where(index < 0, x.dtype.type(0), elements.reshape(index.shape))
        return xp.ascontiguousarray(xp.moveaxis(y, 1, 2))

    def indices_op(self) -> MaxRoiPoolIndices:
        """The op that returns the indices of the maxima."""
        return MaxRoiPoolIndices(self.height, self.width, self.spatial_scale)

    def vjp(self, y: Value, dy: Value) -> Grads:
        x, rois, images = y.inputs
        (count, images_per_sample, channels, *image), swap_images = x.shape, Transpose((0, 2, 1, 3, 4))
        rows = (count, channels, images_per_sample * prod(image))
        indices, dy = (
            reshape_to(swap_images(value), (count, channels, dy.type.size // (count * channels)))
            for value in (self.indices_op()(x, rois, images), dy)
        )
        exists = call_elementwise(GreaterOrEqual(), indices, 0)
        dx = ScatterElements(2, "add")(
            Fill(0.0, x.type.with_shape(*rows))(),
            call_elementwise(Maximum(), indices, 0),
            call_elementwise(Where(), exists, dy, 0.0),
        )
        return swap_images(reshape_to(dx, (count, channels, images_per_sample, *image))), None, None

    def decompose(self, x: Value, rois: Value, images: Value) -> Value:
        # A sparse table: the maximum of any range is the larger of the maxima of two overlapping ranges whose length is
        # a power of 2. Each table holds the maxima of all ranges of one height and width.
        import numpy as np

        (count, images_per_sample, channels, *image), regions = x.shape, images.shape[1]
        rows = [x]
        while 2 ** len(rows) <= image[0]:
            rows.append(_double_ranges(rows[-1], 3, 2 ** (len(rows) - 1)))
        tables = []
        for table in rows:
            columns = [table]
            while 2 ** len(columns) <= image[1]:
                columns.append(_double_ranges(columns[-1], 4, 2 ** (len(columns) - 1)))
            tables += columns
        sparse_table = Concat(2)(
            *(reshape_to(table, (count, images_per_sample, 1, channels, *image)) for table in tables)
        )
        sparse_table = reshape_to(sparse_table, (count, images_per_sample * len(tables), channels, *image))
        scaled = clip(rois * self.spatial_scale, -CORNER_LIMIT, CORNER_LIMIT)
        corners = cast(Sign()(scaled) * Floor()(Abs()(scaled) + 0.5), DType.INT64)
        sides = [
            _AxisRanges.of(column(corners, 1), column(corners, 3), (self.height, 1), image[0]),
            _AxisRanges.of(column(corners, 0), column(corners, 2), (1, self.width), image[1]),
        ]
        table_index = reshape_to(images, (count, regions, 1, 1)) * len(tables)
        table_index = table_index + sides[0].level * (len(tables) // len(rows)) + sides[1].level

        def for_each_cell(x: Value) -> Value:
            return reshape_to(BroadcastLike()(x, table_index), (count, regions * self.height * self.width))

        weight = constant(np.ones((1, 1), str(x.dtype)))
        taps = [[Tap(for_each_cell(start), weight) for start in side.starts] for side in sides]
        maxima = gather_taps(sparse_table, taps, Maximum(), for_each_cell(table_index))
        maxima = reshape_to(maxima, (count, regions, self.height, self.width, channels))
        has_pixels = reshape_to(
            And()(sides[0].has_pixels, sides[1].has_pixels), (count, regions, self.height, self.width, 1)
        )
        return Transpose((0, 1, 4, 2, 3))(call_elementwise(Where(), has_pixels, maxima, 0.0))


@dataclass(frozen=True)
class _AxisRanges:
    """Two ranges of 2ᵏ pixels that together cover each cell along an axis: (N, R, cells, 1) or (N, R, 1, cells)."""

    has_pixels: Value
    """Whether the cell contains pixels."""
    level: Value
    """The table that holds ranges of this cell's length: 2 ** level pixels."""
    starts: tuple[Value, Value]
    """The beginnings of the two ranges that cover the cell."""

    @classmethod
    def of(cls, begin: Value, end: Value, cells: tuple[int, int], size: int) -> _AxisRanges:
        """Compute the ranges for regions from `begin` to `end`, integers (N, R), divided into cells as in `_cells`."""
        import numpy as np

        shape = (*begin.shape, 1, 1)
        require_precomputable(prod(cells), "cells of a region")
        count, cell_index = prod(cells), constant(np.arange(prod(cells)).reshape(cells))
        begin = reshape_to(begin, shape)
        length = call_elementwise(Maximum(), reshape_to(end, shape) - begin + 1, 1)
        first = clip(begin + call_elementwise(floor_div, cell_index * length, count), 0, size)
        last = clip(begin - call_elementwise(floor_div, (cell_index + 1) * length * -1, count), 0, size)
        level, power = first * 0, first * 0 + 1
        for exponent in range(1, size.bit_length()):
            is_longer = cast(call_elementwise(GreaterOrEqual(), last - first, 2**exponent), DType.INT64)
            level, power = level + is_longer, power + is_longer * 2 ** (exponent - 1)
        starts = clip(first, 0, size - 1), clip(last - power, 0, size - 1)
        return cls(call_elementwise(GreaterOrEqual(), last - first, 1), level, starts)


def _double_ranges(table: Value, axis: int, length: int) -> Value:
    """Return the maxima of 2 · `length` adjacent elements along an axis from those of `length`, with zeros beyond."""
    size = table.shape[axis]
    left, right = (Slice(axis, start, size - length + start)(table) for start in (0, length))
    return PadAxis(axis, 0, length)(Maximum()(left, right))
