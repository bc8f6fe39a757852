"""The greatest weighted elements around places within each cell of parts, as many places as the cell has pixels."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import prod

from netspec.graph.onnx_map import Emitter, NoOnnx, OnnxExpansion
from netspec.graph.op import Array, Grads, Infer, NoGradient, Op, Xp
from netspec.graph.ops.elementwise import Equal, Greater, GreaterOrEqual, Maximum, Minimum, Where, cast, elementwise
from netspec.graph.ops.functions import Abs
from netspec.graph.ops.indexing import GatherElements, GatherND
from netspec.graph.ops.reduce import ReduceMax, reshape_to
from netspec.graph.ops.rounding import Floor
from netspec.graph.ops.shape import Transpose
from netspec.graph.ops.whole import Mod, floor_div
from netspec.graph.types import DType, TensorType
from netspec.graph.value import Value
from netspec.layers.looking_up import clipped
from netspec.layers.roi_places import Around, counts, sides

FURTHEST = 2**24
"""Corners beyond this are as far outside as can be."""
AT_ONCE = 2**22
"""Numbers that are compared at a time, so that large images need no more memory."""


@dataclass(frozen=True)
class Cells(Op):
    """Base of ops that cut parts of images into cells, of which each gives one number."""

    height: int
    width: int
    spatial_scale: float

    def infer(self, x: TensorType, rois: TensorType, images: TensorType) -> Infer:
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
        step = max(1, AT_ONCE // ((end - first) * along.element.shape[1]))
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
class OfPlaces(Cells):
    """Base of the two ops here: cells of any size, with ⌈size⌉ places along each side."""

    aligned: bool

    def each(self, xp: Xp, x: Array, rois: Array, images: Array) -> Iterator[tuple[tuple[int, int], _Greatest]]:
        """The parts that have places: the number of the sample and of the part in it, and what is found."""
        kind = rois.dtype.type
        scaled = xp.nan_to_num((rois * kind(self.spatial_scale)).clip(-FURTHEST, FURTHEST))
        begin, end = scaled[..., :2], scaled[..., 2:]
        begin, length = (begin - kind(0.5), end - begin) if self.aligned else (begin, xp.maximum(end - begin, kind(1)))
        for sample, part in zip(*map(xp.ravel, xp.indices(images.shape)), strict=True):
            at = int(sample), int(part)
            down = _Near.of(xp, begin[at][1], length[at][1], self.height, x.shape[3])
            along = _Near.of(xp, begin[at][0], length[at][0], self.width, x.shape[4])
            if down is not None and along is not None:
                yield at, _Greatest.of(xp, x[at[0], int(images[at])], down, along)


class RoiMaximaPlaces(OfPlaces, NoGradient):
    """Where each number of `RoiMaxima` is: in its image (-1: it is 0), and in its part, from 0 to 1 along each side."""

    onnx = NoOnnx("only training graphs have it")

    def infer(self, x: TensorType, rois: TensorType, images: TensorType) -> Infer:
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
    assert isinstance(op, RoiMaxima)
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


class RoiMaxima(OfPlaces):
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
        number, *shares = RoiMaximaPlaces(self.height, self.width, self.spatial_scale, self.aligned).many(
            x, rois, images
        )
        there, number = elementwise(GreaterOrEqual(), number, 0), elementwise(Maximum(), number, 0)
        made = None
        for k, (begin, length) in enumerate(sides(rois, self.spatial_scale, self.aligned)):
            begin, length = (reshape_to(one, (count, parts, 1, 1, 1)) for one in (begin, length))
            at = clipped(begin + length * shares[k], 0, size[k] - 1)
            element = elementwise(Mod(), number, size[1]) if k else elementwise(floor_div, number, size[1])
            weight = 1.0 - Abs()(at - cast(element, x.dtype))
            made = weight if made is None else made * weight
        assert made is not None, "there are two sides"
        turn, last = Transpose((0, 2, 1, 3, 4)), prod(shape) // (count * channels)
        rows = reshape_to(turn(x), (count, channels, several * prod(size)))
        index = number + reshape_to(images, (count, parts, 1, 1, 1)) * prod(size)
        found = GatherElements(2)(rows, reshape_to(turn(index), (count, channels, last)))
        found = turn(reshape_to(found, (count, channels, parts, self.height, self.width)))
        return elementwise(Where(), there, found * made, 0.0)

    def decompose(self, x: Value, rois: Value, images: Value) -> Value:
        """All elements with what each counts at most, and at least, in each cell: first along rows, then of these."""
        (count, _, channels, height, width), parts = x.shape, images.shape[1]
        (top, tall), (left, wide) = sides(rois, self.spatial_scale, self.aligned)
        down, along = Around.of(top, tall, self.height, height), Around.of(left, wide, self.width, width)
        x = GatherND(1)(x, reshape_to(images, (count, parts, 1)))
        x = reshape_to(x, (count, parts, channels * height, 1, width))
        x = _greatest(x, along, (count, parts, 1, self.width, width), width)
        x = reshape_to(x, (count, parts, channels, height, self.width))
        x = reshape_to(Transpose((0, 1, 2, 4, 3))(x), (count, parts, channels * self.width, 1, height))
        x = _greatest(x, down, (count, parts, 1, self.height, height), height)
        x = Transpose((0, 1, 2, 4, 3))(reshape_to(x, (count, parts, channels, self.width, self.height)))
        there = elementwise(GreaterOrEqual(), elementwise(Minimum(), down.count, along.count), 1.0)
        return elementwise(Where(), there, x, 0.0)


NONE = -3e38
"""Less than all numbers that are compared."""


def _greatest(x: Value, around: Around, shape: tuple[int, ...], size: int) -> Value:
    """Of elements (N, R, others, 1, size) the greatest weighted in each cell: (N, R, others, cells).

    A place on an element, or beyond the border, has a 0 beside it.
    """
    near = elementwise(Greater(), around.weight, 0.0)
    weights = (elementwise(Where(), near, around.weight, NONE), elementwise(Where(), near, around.weight * -1.0, NONE))
    most, least = (reshape_to(ReduceMax((4,))(one), shape) for one in weights)
    there = elementwise(GreaterOrEqual(), most, 0.0)
    made = elementwise(
        Where(), there, elementwise(Maximum(), x * clipped(most, 0, 1), x * clipped(least * -1.0, 0, 1)), NONE
    )
    made = ReduceMax((4,))(made)
    held = clipped(around.at, 0, size - 1)
    exact = ReduceMax((3, 4))(around.counted * cast(Equal()(held, Floor()(held)), x.dtype))
    beyond = [1.0 - counts(one, size) for one in around.ends]
    zero = reshape_to(elementwise(Maximum(), *beyond), exact.shape)
    zero = elementwise(GreaterOrEqual(), elementwise(Maximum(), exact, zero), 1.0)
    zero = reshape_to(zero, (*exact.shape[:2], 1, exact.shape[2]))
    return elementwise(Where(), zero, elementwise(Maximum(), made, 0.0), made)
