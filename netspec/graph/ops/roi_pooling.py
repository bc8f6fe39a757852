"""Pooling of regions of interest: maxima of pixels, and of interpolated elements, in each cell of a region."""

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

NEAR = 6
"""Places that may be less than one away from an element: they are more than ½ apart, or there is only one."""


def sides(rois: Value, spatial_scale: float, aligned: bool) -> list[tuple[Value, Value]]:
    """Begin and length (N, R) of parts (N, R, 4) along the rows and along the columns, counted in elements."""
    rois = rois * spatial_scale
    rois = rois - 0.5 if aligned else rois
    made = []
    for axis in range(2):
        begin, end = column(rois, 1 - axis), column(rois, 3 - axis)
        made.append((begin, end - begin if aligned else call_elementwise(Maximum(), end - begin, 1.0)))
    return made


def counts(at: Value, size: int) -> Value:
    """1 where a place is not further than one beyond the border, and 0 elsewhere."""
    return zero_outside(at * 0.0 + 1.0, at, -1, size)


@dataclass(frozen=True)
class AxisWeights:
    """Along an axis, where cells have as many places as elements: all that may be near each element, or counted.

    A cell of length s has ⌈s⌉ places, evenly spread. Of those that may be near an element the first is computed, so
    that it does not matter how many there are.
    """

    count: Value
    """How many there are (N, R, 1, 1, 1)."""
    at: Value
    """Where those are that may be near (N, R, cells, size, `NEAR`), as far as there are."""
    counted: Value
    """Which of them there are, and count: 1 or 0."""
    weight: Value
    """What the element counts at each."""
    ends: tuple[Value, Value]
    """The first and the last place of each cell (N, R, cells, 1, 1)."""

    @classmethod
    def of(cls, begin: Value, length: Value, cells: int, size: int) -> AxisWeights:
        """Of parts whose begin and length (N, R) are given."""
        import numpy as np

        for places in (cells, size):
            require_listable(places, "elements along axis -1")
        dtype = str(begin.dtype)

        def along(number: int, axis: int) -> Value:
            shape = [1] * 5
            shape[axis] = number
            return constant(np.arange(number, dtype=dtype).reshape(shape))

        begin, cell = (reshape_to(one, (*one.shape, 1, 1, 1)) for one in (begin, length * (1 / cells)))
        count = call_elementwise(Maximum(), Ceil()(cell), 0.0)
        there = call_elementwise(GreaterOrEqual(), count, 1.0)
        apart = call_elementwise(Where(), there, cell / call_elementwise(Maximum(), count, 1.0), 1.0)
        begin, element = begin + cell * along(cells, 2) + apart * 0.5, along(size, 3)
        first = Floor()((element - 1.0 - begin) / apart)
        first = call_elementwise(Maximum(), call_elementwise(Minimum(), first, count - 1.0), 0.0)
        number = first + along(NEAR, 4)
        at = begin + number * apart
        near = call_elementwise(Maximum(), 1.0 - Abs()(clip(at, 0, size - 1) - element), 0.0)
        counted = counts(at, size) * cast(call_elementwise(GreaterOrEqual(), count - 1.0, number), begin.dtype)
        return cls(count, at, counted, near * counted, (begin, begin + (count - 1.0) * apart))


CORNER_LIMIT = 2**24
"""Corners beyond this are as far outside as can be."""
CHUNK_ELEMENTS = 2**22
"""Numbers that are compared at a time, so that large images need no more memory."""


@dataclass(frozen=True)
class RoiCells(Op):
    """Base of ops that cut parts of images into cells, of which each gives one number."""

    height: int
    width: int
    spatial_scale: float

    def infer(self, x: TensorType, rois: TensorType, images: TensorType) -> ResultTypes:
        """The type of one number for each cell."""
        return self.of_cells(x, rois, images)

    def of_cells(self, x: TensorType, rois: TensorType, images: TensorType) -> TensorType:
        """x: (N, images, C, H, W), rois: (N, R, 4), images: (N, R) → (N, R, C, height, width)."""
        fits = x.rank == 5 and rois.shape == (x.shape[0], *rois.shape[1:2], 4) and images.shape == rois.shape[:2]
        self.check(fits, "the operands are not images and parts of them", got=f"{x}, {rois}, {images}")
        return x.with_shape(*images.shape, x.shape[2], self.height, self.width)

    def flops(self, x: TensorType, rois: TensorType, images: TensorType) -> int:
        return images.size * prod(x.shape[2:])


@dataclass(frozen=True)
class _Near:
    """Along an axis the elements around all places of each cell of a part: arrays (cells, elements)."""

    element: Array
    weight: Array
    share: Array
    """Where the place is in the part, which goes from 0 to 1."""
    there: Array
    """Whether there is one: what is beyond the border, or behind the last one, is a 0."""

    @classmethod
    def of(cls, xp: Xp, begin: Array, length: Array, cells: int, size: int) -> _Near | None:
        """Of a part from `begin`, as ONNX's RoiAlign has them; None where it has no places.

        They are more than ½ apart, or there is only one: more than about 2 · size are beyond the border, and of those
        it does not matter how many there are.
        """
        cell = length / cells
        count = int(xp.ceil(cell))
        if count < 1:
            return None
        kept = min(count, 2 * size + 8)
        begin = begin + xp.arange(cells, dtype=length.dtype).reshape(-1, 1) * cell
        number = xp.floor((-1 - begin) / (cell / count) - 0.5).clip(0, count - kept)
        number = number + xp.arange(kept, dtype=length.dtype) + 0.5
        at = begin + number * cell / count
        share = (xp.arange(cells).reshape(-1, 1) + number / count) / cells
        low = xp.floor(at.clip(0, size - 1)).astype("int64")
        beside, counts = at.clip(0, size - 1) - low, (at >= -1) & (at <= size)
        there = xp.concatenate([counts, counts & (low < size - 1)], axis=1)
        element = xp.concatenate([low, low + 1], axis=1)
        weight = xp.concatenate([1 - beside, beside], axis=1)
        return cls(element * there, weight * there, xp.concatenate([share, share], axis=1), there)


@dataclass(frozen=True)
class _Greatest:
    """Of each channel and each cell (C, height, width) the greatest weighted element, and where it is."""

    found: Array
    number: Array
    """Its place in the image, in its channel; -1 where it is the 0 beyond the border."""
    down: Array
    """Where the place is in the part, which goes from 0 to 1."""
    along: Array

    @classmethod
    def of(cls, xp: Xp, x: Array, down: _Near, along: _Near) -> _Greatest:
        """x: (C, H, W). No weight is negative: what is the greatest of its row, or is the least, stays so of all."""
        first, end = int(down.element.min()), int(down.element.max()) + 1
        step = max(1, CHUNK_ELEMENTS // ((end - first) * along.element.shape[1]))
        parts = [cls._of_some(xp, x[k : k + step], first, end, down, along) for k in range(0, len(x), step)]
        names = ("found", "number", "down", "along")
        return cls(*(xp.concatenate([getattr(one, name) for one in parts]) for name in names))

    @classmethod
    def _of_some(cls, xp: Xp, x: Array, first: int, end: int, down: _Near, along: _Near) -> _Greatest:
        """Of some channels: within the rows from `first`, and then of these."""
        rows, chosen = [], []
        for element, weight in zip(along.element, along.weight, strict=True):
            weighted = x[:, first:end, element] * weight
            chosen.append(weighted.argmax(axis=2))
            rows.append(weighted.max(axis=2))
        inner, of_row = xp.stack(rows, axis=2), xp.stack(chosen, axis=2)
        channel, cell = xp.arange(len(x)).reshape(-1, 1), xp.arange(len(rows))
        made: list[tuple[Array, ...]] = []
        for element, weight, share, there in zip(down.element, down.weight, down.share, down.there, strict=True):
            weighted = inner[:, element - first] * weight.reshape(-1, 1)
            k = weighted.argmax(axis=1)
            j = of_row[channel, element[k] - first, cell]
            number = element[k] * x.shape[2] + along.element[cell, j]
            number = xp.where(there[k] & along.there[cell, j], number, -1)
            made.append((weighted.max(axis=1), number, share[k], along.share[cell, j]))
        return cls(*(xp.stack(one, axis=1) for one in zip(*made, strict=True)))


@dataclass(frozen=True)
class RoiAlignMaxBase(RoiCells):
    """Base of the two ops here: cells of any size, with ⌈size⌉ places along each side."""

    aligned: bool

    def each(self, xp: Xp, x: Array, rois: Array, images: Array) -> Iterator[tuple[tuple[int, int], _Greatest]]:
        """The parts that have places: the number of the sample and of the part in it, and what is found."""
        kind = rois.dtype.type
        scaled = xp.nan_to_num((rois * kind(self.spatial_scale)).clip(-CORNER_LIMIT, CORNER_LIMIT))
        begin, end = scaled[..., :2], scaled[..., 2:]
        begin, length = (begin - kind(0.5), end - begin) if self.aligned else (begin, xp.maximum(end - begin, kind(1)))
        for sample, part in zip(*map(xp.ravel, xp.indices(images.shape)), strict=True):
            at = int(sample), int(part)
            down = _Near.of(xp, begin[at][1], length[at][1], self.height, x.shape[3])
            along = _Near.of(xp, begin[at][0], length[at][0], self.width, x.shape[4])
            if down is not None and along is not None:
                yield at, _Greatest.of(xp, x[at[0], int(images[at])], down, along)


class RoiAlignMaxIndices(RoiAlignMaxBase, NoGradient):
    """Index in its image of each element of `RoiAlignMax` (-1: it is 0), and its position in the region, 0 to 1."""

    onnx = NoOnnxForm("only training graphs have it")

    def infer(self, x: TensorType, rois: TensorType, images: TensorType) -> ResultTypes:
        made = self.of_cells(x, rois, images)
        return made.with_dtype(DType.INT64), made, made

    def forward(self, xp: Xp, x: Array, rois: Array, images: Array) -> tuple[Array, ...]:
        shape = (*images.shape, x.shape[2], self.height, self.width)
        number, down, along = xp.full(shape, -1, "int64"), xp.zeros(shape, x.dtype), xp.zeros(shape, x.dtype)
        for at, one in self.each(xp, x, rois, images):
            number[at], down[at], along[at] = one.number, one.down, one.along
        return number, down, along


def _to_onnx(g: Emitter, y: Value, x: str, rois: str, images: str) -> str:
    """ONNX's takes parts of any of all images: those of a sample come one after the other."""
    op, (image, _, numbers) = y.op, y.inputs
    assert isinstance(op, RoiAlignMax)
    several, *sizes = image.shape[1:]
    samples = g.node("Gather", g.node("Shape", images), g.constant(0, "int64"), axis=0)
    first = g.node("Range", g.constant(0, "int64"), samples, g.constant(1, "int64"))
    first = g.node("Mul", g.node("Reshape", first, g.constant([-1, 1], "int64")), g.constant(several, "int64"))
    number = g.node("Reshape", g.node("Add", images, first), g.constant([-1], "int64"))
    if op.aligned:  # of parts that are turned around it has a negative number of places, and fails
        begin, end = (
            g.node("Slice", rois, g.constant([k], "int64"), g.constant([k + 2], "int64"), g.constant([-1], "int64"))
            for k in (0, 2)
        )
        rois = g.node("Concat", begin, g.node("Max", begin, end), axis=-1)
    made = g.node(
        "RoiAlign",
        g.node("Reshape", x, g.constant([-1, *sizes], "int64")),
        g.node("Reshape", rois, g.constant([-1, 4], "int64")),
        number,
        coordinate_transformation_mode="half_pixel" if op.aligned else "output_half_pixel",
        mode="max", output_height=op.height, output_width=op.width, sampling_ratio=0, spatial_scale=op.spatial_scale,
    )  # fmt: skip
    return g.node("Reshape", made, g.constant([-1, numbers.shape[1], sizes[0], op.height, op.width], "int64"))


class RoiAlignMax(RoiAlignMaxBase):
    """Of each cell of each part the greatest weighted element around its places; 0 of parts that have none.

    As ONNX's RoiAlign has it with the mode `max` and as many places as pixels: one of the four elements around a place
    times its weight, not what is between them. https://onnx.ai/onnx/operators/onnx__RoiAlign.html
    """

    onnx = OnnxExpansion(_to_onnx)

    def forward(self, xp: Xp, x: Array, rois: Array, images: Array) -> Array:
        made = xp.zeros((*images.shape, x.shape[2], self.height, self.width), x.dtype)
        for at, one in self.each(xp, x, rois, images):
            made[at] = one.found
        return made

    def vjp(self, y: Value, dy: Value) -> Grads:
        from netspec.graph.autodiff import pullback

        return pullback((self._looked_up(*y.inputs),), (dy,), y.inputs)

    def _looked_up(self, x: Value, rois: Value, images: Value) -> Value:
        """The elements at the places that are known, times their weights."""
        (count, several, channels, *size), parts = x.shape, images.shape[1]
        shape = (count, parts, channels, self.height, self.width)
        number, *shares = RoiAlignMaxIndices(self.height, self.width, self.spatial_scale, self.aligned).call_multi(
            x, rois, images
        )
        there, number = call_elementwise(GreaterOrEqual(), number, 0), call_elementwise(Maximum(), number, 0)
        made = None
        for k, (begin, length) in enumerate(sides(rois, self.spatial_scale, self.aligned)):
            begin, length = (reshape_to(one, (count, parts, 1, 1, 1)) for one in (begin, length))
            at = clip(begin + length * shares[k], 0, size[k] - 1)
            element = call_elementwise(Mod(), number, size[1]) if k else call_elementwise(floor_div, number, size[1])
            weight = 1.0 - Abs()(at - cast(element, x.dtype))
            made = weight if made is None else made * weight
        assert made is not None, "there are two sides"
        turn, last = Transpose((0, 2, 1, 3, 4)), prod(shape) // (count * channels)
        rows = reshape_to(turn(x), (count, channels, several * prod(size)))
        index = number + reshape_to(images, (count, parts, 1, 1, 1)) * prod(size)
        found = GatherElements(2)(rows, reshape_to(turn(index), (count, channels, last)))
        found = turn(reshape_to(found, (count, channels, parts, self.height, self.width)))
        return call_elementwise(Where(), there, found * made, 0.0)

    def decompose(self, x: Value, rois: Value, images: Value) -> Value:
        """All elements with what each counts at most, and at least, in each cell: first along rows, then of these."""
        (count, _, channels, height, width), parts = x.shape, images.shape[1]
        (top, tall), (left, wide) = sides(rois, self.spatial_scale, self.aligned)
        down, along = AxisWeights.of(top, tall, self.height, height), AxisWeights.of(left, wide, self.width, width)
        x = GatherND(1)(x, reshape_to(images, (count, parts, 1)))
        x = reshape_to(x, (count, parts, channels * height, 1, width))
        x = _greatest(x, along, (count, parts, 1, self.width, width), width)
        x = reshape_to(x, (count, parts, channels, height, self.width))
        x = reshape_to(Transpose((0, 1, 2, 4, 3))(x), (count, parts, channels * self.width, 1, height))
        x = _greatest(x, down, (count, parts, 1, self.height, height), height)
        x = Transpose((0, 1, 2, 4, 3))(reshape_to(x, (count, parts, channels, self.width, self.height)))
        there = call_elementwise(GreaterOrEqual(), call_elementwise(Minimum(), down.count, along.count), 1.0)
        return call_elementwise(Where(), there, x, 0.0)


NONE = -3e38
"""Less than all numbers that are compared."""


def _greatest(x: Value, around: AxisWeights, shape: tuple[int, ...], size: int) -> Value:
    """Of elements (N, R, others, 1, size) the greatest weighted in each cell: (N, R, others, cells).

    A position exactly on an element, or beyond the border, has a second neighbor of weight 0.
    """
    near = call_elementwise(Greater(), around.weight, 0.0)
    weights = (
        call_elementwise(Where(), near, around.weight, NONE),
        call_elementwise(Where(), near, around.weight * -1.0, NONE),
    )
    most, least = (reshape_to(ReduceMax((4,))(one), shape) for one in weights)
    there = call_elementwise(GreaterOrEqual(), most, 0.0)
    made = call_elementwise(
        Where(), there, call_elementwise(Maximum(), x * clip(most, 0, 1), x * clip(least * -1.0, 0, 1)), NONE
    )
    made = ReduceMax((4,))(made)
    held = clip(around.at, 0, size - 1)
    exact = ReduceMax((3, 4))(around.counted * cast(Equal()(held, Floor()(held)), x.dtype))
    beyond = [1.0 - counts(one, size) for one in around.ends]
    zero = reshape_to(call_elementwise(Maximum(), *beyond), exact.shape)
    zero = call_elementwise(GreaterOrEqual(), call_elementwise(Maximum(), exact, zero), 1.0)
    zero = reshape_to(zero, (*exact.shape[:2], 1, exact.shape[2]))
    return call_elementwise(Where(), zero, call_elementwise(Maximum(), made, 0.0), made)


class MaxRoiPoolIndices(RoiCells, NoGradient):
    """Where in all images of a sample each number of `MaxRoiPool` is, in its channel, as int64; -1 of empty cells."""

    onnx = NoOnnxForm("only training graphs have it")

    def infer(self, x: TensorType, rois: TensorType, images: TensorType) -> ResultTypes:
        return self.of_cells(x, rois, images).with_dtype(DType.INT64)

    def forward(self, xp: Xp, x: Array, rois: Array, images: Array) -> Array:
        height, width = x.shape[3:]
        made = xp.full((*images.shape, x.shape[2], self.height, self.width), -1, "int64")
        scaled = xp.nan_to_num(xp.clip(rois * rois.dtype.type(self.spatial_scale), -CORNER_LIMIT, CORNER_LIMIT))
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


class MaxRoiPool(RoiCells):
    """The greatest number of each cell of each part; 0 of empty cells. Girshick 2015, arXiv:1504.08083."""

    onnx = Decomposed()  # ONNX Runtime has MaxRoiPool of the opsets before 22 alone

    def forward(self, xp: Xp, x: Array, rois: Array, images: Array) -> Array:
        places = self.places().forward(xp, x, rois, images)
        rows = xp.moveaxis(x, 2, 1).reshape(x.shape[0], x.shape[2], -1)
        index = xp.moveaxis(places, 2, 1)
        found = xp.take_along_axis(rows, xp.maximum(index, 0).reshape(*rows.shape[:2], -1), axis=2)
        made = xp.where(index < 0, x.dtype.type(0), found.reshape(index.shape))
        return xp.ascontiguousarray(xp.moveaxis(made, 1, 2))

    def places(self) -> MaxRoiPoolIndices:
        """The op that says where the numbers are."""
        return MaxRoiPoolIndices(self.height, self.width, self.spatial_scale)

    def vjp(self, y: Value, dy: Value) -> Grads:
        x, rois, images = y.inputs
        (count, several, channels, *image), turn = x.shape, Transpose((0, 2, 1, 3, 4))
        rows = (count, channels, several * prod(image))
        places, dy = (
            reshape_to(turn(one), (count, channels, dy.type.size // (count * channels)))
            for one in (self.places()(x, rois, images), dy)
        )
        there = call_elementwise(GreaterOrEqual(), places, 0)
        dx = ScatterElements(2, "add")(
            Fill(0.0, x.type.with_shape(*rows))(),
            call_elementwise(Maximum(), places, 0),
            call_elementwise(Where(), there, dy, 0.0),
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
        scaled = clip(rois * self.spatial_scale, -CORNER_LIMIT, CORNER_LIMIT)
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
        found = gather_taps(looked_at, along, Maximum(), each(number))
        found = reshape_to(found, (count, parts, self.height, self.width, channels))
        there = reshape_to(And()(sides[0].there, sides[1].there), (count, parts, self.height, self.width, 1))
        return Transpose((0, 1, 4, 2, 3))(call_elementwise(Where(), there, found, 0.0))


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
        require_precomputable(prod(cells), "cells of a region")
        count, number = prod(cells), constant(np.arange(prod(cells)).reshape(cells))
        begin = reshape_to(begin, shape)
        length = call_elementwise(Maximum(), reshape_to(end, shape) - begin + 1, 1)
        first = clip(begin + call_elementwise(floor_div, number * length, count), 0, size)
        last = clip(begin - call_elementwise(floor_div, (number + 1) * length * -1, count), 0, size)
        level, power = first * 0, first * 0 + 1
        for known in range(1, size.bit_length()):
            more = cast(call_elementwise(GreaterOrEqual(), last - first, 2**known), DType.INT64)
            level, power = level + more, power + more * 2 ** (known - 1)
        starts = clip(first, 0, size - 1), clip(last - power, 0, size - 1)
        return cls(call_elementwise(GreaterOrEqual(), last - first, 1), level, starts)


def _doubled(table: Value, axis: int, length: int) -> Value:
    """Of the maxima of `length` neighbours along an axis those of twice as many, as far as there are; then zeros."""
    size = table.shape[axis]
    left, right = (Slice(axis, start, size - length + start)(table) for start in (0, length))
    return PadAxis(axis, 0, length)(Maximum()(left, right))
