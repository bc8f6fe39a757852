"""The greatest numbers of parts cut out of images, each brought to one size: MaxRoiPooling2D."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import ClassVar, Literal

from netspec.graph.onnx_map import Decomposed, NoOnnx
from netspec.graph.op import Array, Grads, Infer, NoGradient, Xp
from netspec.graph.ops.elementwise import GreaterOrEqual, Maximum, Where, cast, elementwise
from netspec.graph.ops.functions import Abs, Sign
from netspec.graph.ops.indexing import ScatterElements
from netspec.graph.ops.logic import And
from netspec.graph.ops.reduce import BroadcastLike, reshape_to
from netspec.graph.ops.rounding import Floor
from netspec.graph.ops.shape import Concat, PadAxis, Slice, Transpose
from netspec.graph.ops.source import Fill, constant
from netspec.graph.ops.whole import floor_div
from netspec.graph.types import DType, TensorType
from netspec.graph.value import Value
from netspec.layers.base import Builder, Sample
from netspec.layers.looking_up import Tap, clipped, column, looked_up
from netspec.layers.regions import Regions, of_images
from netspec.layers.roi_maxima import FURTHEST, Cells
from netspec.schema.kinds import LAYERS


class MaxRoiPlaces(Cells, NoGradient):
    """Where in all images of a sample each number of `MaxRoiPool` is, in its channel, as int64; -1 of empty cells."""

    onnx = NoOnnx("only training graphs have it")

    def infer(self, x: TensorType, rois: TensorType, images: TensorType) -> Infer:
        return self.of_cells(x, rois, images).with_dtype(DType.INT64)

    def forward(self, xp: Xp, x: Array, rois: Array, images: Array) -> Array:
        height, width = x.shape[3:]
        made = xp.full((*images.shape, x.shape[2], self.height, self.width), -1, "int64")
        scaled = xp.nan_to_num(xp.clip(rois * rois.dtype.type(self.spatial_scale), -FURTHEST, FURTHEST))
        corners = xp.sign(scaled) * xp.floor(xp.abs(scaled) + 0.5)
        for sample, part in zip(*map(xp.ravel, xp.indices(images.shape)), strict=True):
            left, top, right, bottom = map(int, corners[sample, part])
            image = int(images[sample, part])
            for row, (first, last) in enumerate(_cells(top, bottom, self.height, height)):
                for col, (begin, end) in enumerate(_cells(left, right, self.width, width)):
                    if first < last and begin < end:
                        inside = x[sample, image, :, first:last, begin:end].reshape(x.shape[2], -1).argmax(axis=1)
                        down, along = inside // (end - begin), inside % (end - begin)
                        made[sample, part, :, row, col] = (image * height + first + down) * width + begin + along
        return made


def _cells(first: int, last: int, count: int, size: int) -> list[tuple[int, int]]:
    """Begin and end of each cell of the pixels `first` … `last`, as far as there are such; they may share a pixel."""
    length = max(last - first + 1, 1)
    bounds = ((cell * length // count, -(-(cell + 1) * length // count)) for cell in range(count))
    return [(min(max(first + begin, 0), size), min(max(first + end, 0), size)) for begin, end in bounds]


class MaxRoiPool(Cells):
    """The greatest number of each cell of each part; 0 of empty cells. Girshick 2015, arXiv:1504.08083."""

    onnx = Decomposed()  # ONNX Runtime has MaxRoiPool of the opsets before 22 alone

    def forward(self, xp: Xp, x: Array, rois: Array, images: Array) -> Array:
        places = self.places().forward(xp, x, rois, images)
        rows = xp.moveaxis(x, 2, 1).reshape(x.shape[0], x.shape[2], -1)
        index = xp.moveaxis(places, 2, 1)
        found = xp.take_along_axis(rows, xp.maximum(index, 0).reshape(*rows.shape[:2], -1), axis=2)
        made = xp.where(index < 0, x.dtype.type(0), found.reshape(index.shape))
        return xp.ascontiguousarray(xp.moveaxis(made, 1, 2))

    def places(self) -> MaxRoiPlaces:
        """The op that says where the numbers are."""
        return MaxRoiPlaces(self.height, self.width, self.spatial_scale)

    def vjp(self, y: Value, dy: Value) -> Grads:
        x, rois, images = y.inputs
        (count, several, channels, *image), turn = x.shape, Transpose((0, 2, 1, 3, 4))
        rows = (count, channels, several * prod(image))
        places, dy = (
            reshape_to(turn(one), (count, channels, dy.type.size // (count * channels)))
            for one in (self.places()(x, rois, images), dy)
        )
        there = elementwise(GreaterOrEqual(), places, 0)
        dx = ScatterElements(2, "add")(
            Fill(0.0, x.type.with_shape(*rows))(),
            elementwise(Maximum(), places, 0),
            elementwise(Where(), there, dy, 0.0),
        )
        return turn(reshape_to(dx, (count, channels, several, *image))), None, None

    def decompose(self, x: Value, rois: Value, images: Value) -> Value:
        # The maximum of a range of any length is that of two whose length is a power of 2, which a table has for each
        # place (a sparse table): here for ranges of rows and of columns.
        import numpy as np

        (count, several, channels, *image), parts = x.shape, images.shape[1]
        rows = [x]
        while 2 ** len(rows) <= image[0]:
            rows.append(_doubled(rows[-1], 3, 2 ** (len(rows) - 1)))
        tables = []
        for table in rows:
            columns = [table]
            while 2 ** len(columns) <= image[1]:
                columns.append(_doubled(columns[-1], 4, 2 ** (len(columns) - 1)))
            tables += columns
        looked_at = Concat(2)(*(reshape_to(one, (count, several, 1, channels, *image)) for one in tables))
        looked_at = reshape_to(looked_at, (count, several * len(tables), channels, *image))
        scaled = clipped(rois * self.spatial_scale, -FURTHEST, FURTHEST)
        corners = cast(Sign()(scaled) * Floor()(Abs()(scaled) + 0.5), DType.INT64)
        sides = [
            _Side.of(column(corners, 1), column(corners, 3), (self.height, 1), image[0]),
            _Side.of(column(corners, 0), column(corners, 2), (1, self.width), image[1]),
        ]
        number = reshape_to(images, (count, parts, 1, 1)) * len(tables)
        number = number + sides[0].level * (len(tables) // len(rows)) + sides[1].level

        def each(one: Value) -> Value:
            return reshape_to(BroadcastLike()(one, number), (count, parts * self.height * self.width))

        alone = constant(np.ones((1, 1), str(x.dtype)))
        along = [[Tap(each(one), alone) for one in side.starts] for side in sides]
        found = looked_up(looked_at, along, Maximum(), each(number))
        found = reshape_to(found, (count, parts, self.height, self.width, channels))
        there = reshape_to(And()(sides[0].there, sides[1].there), (count, parts, self.height, self.width, 1))
        return Transpose((0, 1, 4, 2, 3))(elementwise(Where(), there, found, 0.0))


@dataclass(frozen=True)
class _Side:
    """The cells of parts along an axis: (N, R, cells, 1) or (N, R, 1, cells)."""

    there: Value
    """Whether there are pixels in the cell."""
    level: Value
    """Which table, of ranges of 2 ** level pixels, has the two that cover it."""
    starts: tuple[Value, Value]
    """Where these begin."""

    @classmethod
    def of(cls, begin: Value, end: Value, cells: tuple[int, int], size: int) -> _Side:
        """Of the parts from `begin` to `end` (N, R), which are whole numbers; see `_cells`."""
        import numpy as np

        shape = (*begin.shape, 1, 1)
        count, number = prod(cells), constant(np.arange(prod(cells)).reshape(cells))
        begin = reshape_to(begin, shape)
        length = elementwise(Maximum(), reshape_to(end, shape) - begin + 1, 1)
        first = clipped(begin + elementwise(floor_div, number * length, count), 0, size)
        last = clipped(begin - elementwise(floor_div, (number + 1) * length * -1, count), 0, size)
        level, power = first * 0, first * 0 + 1
        for known in range(1, size.bit_length()):
            more = cast(elementwise(GreaterOrEqual(), last - first, 2**known), DType.INT64)
            level, power = level + more, power + more * 2 ** (known - 1)
        starts = clipped(first, 0, size - 1), clipped(last - power, 0, size - 1)
        return cls(elementwise(GreaterOrEqual(), last - first, 1), level, starts)


def _doubled(table: Value, axis: int, length: int) -> Value:
    """Of the maxima of `length` neighbours along an axis those of twice as many, as far as there are; then zeros."""
    size = table.shape[axis]
    left, right = (Slice(axis, start, size - length + start)(table) for start in (0, length))
    return PadAxis(axis, 0, length)(Maximum()(left, right))


@LAYERS.register
class MaxRoiPooling2D(Regions):
    """Cut parts out of an image, each brought to one size: the greatest number in each cell of whole pixels.

    Inputs (N, C, H, W) and parts (N, R, 4) as left, top, right and bottom, both ends included; output (N, R, C,
    height, width). With a third input, whole numbers (N, R) that say which image each part is of, the first is
    (N, images, C, H, W). No gradient flows to the parts. https://onnx.ai/onnx/operators/onnx__MaxRoiPool.html
    """

    one_way: ClassVar = "it is written as the elements that it looks up"

    type: Literal["MaxRoiPooling2D"] = "MaxRoiPooling2D"

    samples: ClassVar = (
        Sample.of((2, 2, 5, 4), (2, 3, 4), height=2, width=3, spatial_scale=0.5, ranges=(None, (-2.0, 9.0))),
        Sample.of((2, 2, 3, 4, 3), (2, 2, 4), (2, 2), dtypes=("float32", "float32", "int64"), high=2,
                  width=2, ranges=(None, (0.0, 4.0))),
    )  # fmt: skip

    def build(self, net: Builder, x: Value, rois: Value, images: Value | None = None) -> Value:
        """x: (N, [images,] C, H, W), rois: (N, R, 4), images: (N, R) → (N, R, C, height, width)."""
        self.need_parts(net, x, rois, images)
        x, rois = net.floating(x), net.floating(rois)
        x, images = of_images(x, rois, images)
        return MaxRoiPool(self.height, self.width, self.spatial_scale)(x, rois, images)
