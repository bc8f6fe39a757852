"""Images of any size as inputs of an exported model: resizing and cropping as operators.

Resize of ONNX Runtime has the same weights as Pillow's bilinear and bicubic filters; because Pillow rounds the weights,
a few pixels differ by 1 of 255. Pillow first resizes the axis that leaves less work for the other one, and rounds to
bytes between the axes. The operators therefore also resize along each axis separately, in the same order.

ONNX has no other filter of Pillow. Operators compute their weights from the size of the image, in float64 and rounded
as Pillow rounds them, and multiply the images by matrices of these. `nearest` gathers the pixels that Pillow takes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from netspec.data.base import FieldType, Transform
from netspec.data.imaging.color import GRAY
from netspec.data.transforms.cropping import CenterCrop
from netspec.data.transforms.grayscale import Grayscale
from netspec.data.transforms.resizing import Resizing
from netspec.exchange.formats.onnx.wrapper import NodeWriter, RawTensor, Wrapper

RESIZE_OPSET = 18
"""The first opset whose Resize has antialiasing: it averages over all pixels that a pixel of the result represents."""
TOLERANCE = 0.02
"""Largest difference of results, relative to the largest magnitude, that rounding of pixels may cause."""
_MODES = {"bilinear": "linear", "bicubic": "cubic"}
"""Interpolations that Resize computes like Pillow."""
_REACH = {"lanczos": 3.0, "box": 0.5}
"""Other filters of Pillow, with the number of pixels of the result that they reach on either side."""
_WEIGHT_BITS = 22
"""Number of binary digits after the point to which Pillow rounds weights."""


def has_operator_form(transform: Transform, field: FieldType) -> bool:
    """Return whether a transform of images of this type has a form in operators."""
    if field.dtype != "uint8" or len(field.shape) != 3 or field.shape[0] is None:
        return False
    if isinstance(transform, Grayscale) and field.shape[0] != 3:
        return False
    return isinstance(transform, (Resizing, CenterCrop, Grayscale))


def sets_size(transform: Transform) -> bool:
    """Return whether a transform with a form in operators gives images of any size one size."""
    return isinstance(transform, (Resizing, CenterCrop))


def is_exact(transform: Transform) -> bool:
    """Return whether the operators of a transform give the pixels of the data, without exception."""
    if isinstance(transform, Resizing):
        return not transform.antialias or transform.interpolation not in _MODES
    return isinstance(transform, Grayscale)


@dataclass(frozen=True)
class RawImages:
    """Images (N, channels, height, width) from which an input of the net is computed."""

    name: str
    """Name of the input."""
    type: FieldType
    """Type of an image; axes of any size are None."""
    steps: Sequence[Transform]
    """Transforms with a form in operators, in their order."""

    @property
    def shape(self) -> tuple[int | str, ...]:
        """Shape of an image; an axis of any size has a name."""
        names = ("channels", "height", "width")
        return tuple(name if size is None else size for size, name in zip(self.type.shape, names, strict=True))

    def add_to(self, wrapper: Wrapper) -> None:
        """Add the operators."""
        wrapper.inputs[self.name] = RawTensor("uint8", self.shape)
        wrapper.computed.append(self.name)
        writer = _ImageWriter(wrapper, f"images/{self.name}")
        x = self.name
        for step in self.steps:
            x = writer.transformed(x, step)
        writer.node("Identity", x, output=self.name)


class _ImageWriter(NodeWriter):
    """Adds operators on images (N, channels, height, width) of uint8."""

    def __init__(self, wrapper: Wrapper, prefix: str) -> None:
        super().__init__(wrapper, wrapper.before, prefix)

    def number(self, value: Any) -> str:
        """Add a constant of float64, and return its name."""
        return self.constant(value, "float64")

    def transformed(self, x: str, step: Transform) -> str:
        """Return images after a transform."""
        match step:
            case Resizing():
                return self.resizing(x, step)
            case CenterCrop():
                return self.center_crop(x, step)
            case Grayscale():
                return self.grayscale(x, step)
        raise TypeError(step)

    def grayscale(self, x: str, step: Grayscale) -> str:
        """Weight the colors in float32, one after the other like the data, and round."""
        parts = [
            self.node("Mul", self.cast(self.node("Gather", x, self.constant([channel]), axis=1), "float32"),
                      self.constant(weight, "float32"))
            for channel, weight in enumerate(GRAY)
        ]  # fmt: skip
        sums = self.node("Add", self.node("Add", parts[0], parts[1]), parts[2])
        gray = self.cast(self.node("Round", sums), "uint8")
        return gray if step.num_output_channels == 1 else self.node("Concat", gray, gray, gray, axis=1)

    def resizing(self, x: str, step: Resizing) -> str:
        size = self._size(x)
        if step.crop_to_aspect_ratio:
            x = self._crop(x, size, self._fitting(size, step.height, step.width, "Min"))
        elif step.pad_to_aspect_ratio:
            x = self._pad(x, size, self._fitting(size, step.height, step.width, "Max"), step.fill_value)
        if step.interpolation == "nearest":
            return self._nearest(self._nearest(x, 2, step.height), 3, step.width)
        if step.interpolation in _REACH:
            return self._filtered(x, step.height, step.width, step.interpolation)
        if not step.antialias:
            return self._sampled(x, step.height, step.width, step.interpolation)
        return self._resized(x, step.height, step.width, _MODES[step.interpolation])

    def center_crop(self, x: str, step: CenterCrop) -> str:
        """Crop; images that are too small are cropped to the aspect ratio and enlarged."""
        size, crop = self._size(x), self.constant([step.height, step.width])
        smaller = self.cast(self.node("Less", size, crop), "int64")
        is_small = self.cast(self.node("ReduceMax", smaller, keepdims=1), "bool")
        part = self.node("Where", is_small, self._fitting(size, step.height, step.width, "Min"), crop)
        return self._resized(self._crop(x, size, part), step.height, step.width, "linear")

    def _size(self, x: str) -> str:
        """Return height and width: (2)."""
        return self.node("Shape", x, start=2, end=4)

    def _fitting(self, size: str, height: int, width: int, bound: str) -> str:
        """Return the size of the largest part (`Min`), or of the smallest frame (`Max`), with an aspect ratio."""
        turned = self.node("Gather", size, self.constant([1, 0]), axis=0)
        scaled = self.node("Mul", turned, self.constant([height, width]))
        fitting = self.node(bound, size, self.node("Div", scaled, self.constant([width, height])))
        return self.node("Max", fitting, self.constant([1, 1]))

    def _crop(self, x: str, size: str, part: str) -> str:
        """Return the center of images."""
        start = self.node("Div", self.node("Sub", size, part), self.constant([2, 2]))
        return self.node("Slice", x, start, self.node("Add", start, part), self.constant([2, 3]))

    def _pad(self, x: str, size: str, frame: str, fill_value: float) -> str:
        """Return images in the center of a frame."""
        around = self.node("Sub", frame, size)
        before = self.node("Div", around, self.constant([2, 2]))
        pads = self.node("Concat", before, self.node("Sub", around, before), axis=0)
        fill = self.constant(np.array(fill_value).astype(np.uint8), "uint8")
        return self.node("Pad", x, pads, fill, self.constant([2, 3]))

    def _length(self, x: str, axis: int) -> str:
        """Return the size of an axis: (1) of float64."""
        return self.cast(self.node("Shape", x, start=axis, end=axis + 1), "float64")

    def _nearest(self, x: str, axis: int, size: int) -> str:
        """Resize an axis to the nearest pixels. Pillow sums up the steps between them, and rounds each sum."""
        step = self.node("Div", self._length(x, axis), self.number(size))
        steps = self.node("Mul", step, self.number([0.5, *[1] * (size - 1)]))
        positions = self.node("CumSum", steps, self.constant(0))
        return self.node("Gather", x, self.cast(self.node("Floor", positions), "int64"), axis=axis)

    def _sampled(self, x: str, height: int, width: int, interpolation: str) -> str:
        """Interpolate between neighboring pixels, also in a reduced image. Pillow rounds the result down."""
        (rows, down), (columns, right) = (
            self._neighbors(x, axis, size, interpolation) for axis, size in ((2, height), (3, width))
        )
        lines = [self.node("Gather", x, row, axis=2) for row in rows]
        down = self.node("Unsqueeze", down, self.constant([1]))
        values = [
            self._between(
                [self.cast(self.node("Gather", line, column, axis=3), "float64") for column in columns], right
            )
            for line in lines
        ]
        return self._as_bytes(self._between(values, down))

    def _neighbors(self, x: str, axis: int, size: int, interpolation: str) -> tuple[list[str], str]:
        """Return the indices of the pixels around each of `size` positions, and its distance from the pixel before."""
        length = self._length(x, axis)
        positions = self.node("Mul", self.number(np.arange(size) + 0.5),
                              self.node("Div", length, self.number(size)))  # fmt: skip
        positions = self.node("Sub", positions, self.number(0.5))
        before = self.node("Floor", positions)
        last = self.node("Sub", self.node("Squeeze", length, self.constant([0])), self.number(1))
        indices = [
            self.node("Clip", self.node("Add", before, self.number(step)), self.number(0), last)
            for step in ((0, 1) if interpolation == "bilinear" else (-1, 0, 1, 2))
        ]
        return [self.cast(index, "int64") for index in indices], self.node("Sub", positions, before)

    def _between(self, values: Sequence[str], distance: str) -> str:
        """Return the value at a distance behind the first of two, or the second of four values, as Pillow does."""
        node = self.node
        if len(values) == 2:
            first, second = values
            return node("Add", first, node("Mul", node("Sub", second, first), distance))
        a, b, c, d = values
        linear, difference = node("Sub", c, a), node("Sub", a, b)
        square = node("Sub", node("Add", node("Mul", difference, self.number(2)), c), d)
        cube = node("Add", node("Sub", node("Sub", b, a), c), d)
        result = node("Add", square, node("Mul", distance, cube))
        result = node("Add", linear, node("Mul", distance, result))
        return node("Add", b, node("Mul", distance, result))

    def _filtered(self, x: str, height: int, width: int, interpolation: str) -> str:
        """Resize by Pillow's filter, in its order of the axes, with bytes between the two.

        Operators cannot swap axes if a condition holds. They compute both orders, one of them of a single pixel.
        """
        rows_first, size, pixel = self._reduces_rows_first(x, height, width), self._size(x), self.constant([1, 1])

        def part(size: str) -> str:
            return self.node("Slice", x, self.constant([0, 0]), size, self.constant([2, 3]))

        along_rows = self._along_rows(part(self.node("Where", rows_first, size, pixel)), height, interpolation)
        along_columns = self._along_columns(part(self.node("Where", rows_first, pixel, size)), width, interpolation)
        return self.node(
            "Where", rows_first, self._along_columns(along_rows, width, interpolation),
            self._along_rows(along_columns, height, interpolation),
        )  # fmt: skip

    def _along_rows(self, x: str, height: int, interpolation: str) -> str:
        weights = self._weights(self._length(x, 2), height, interpolation)
        return self._rounded(self.node("MatMul", weights, self.cast(x, "float64")))

    def _along_columns(self, x: str, width: int, interpolation: str) -> str:
        weights = self.node("Transpose", self._weights(self._length(x, 3), width, interpolation), perm=[1, 0])
        return self._rounded(self.node("MatMul", self.cast(x, "float64"), weights))

    def _rounded(self, sums: str) -> str:
        """Return sums of pixels by weights as bytes."""
        half, one = (self.number(2.0**power) for power in (_WEIGHT_BITS - 1, _WEIGHT_BITS))
        return self._as_bytes(self.node("Floor", self.node("Div", self.node("Add", sums, half), one)))

    def _as_bytes(self, x: str) -> str:
        """Return numbers from 0 to 255, rounded down."""
        return self.cast(self.node("Clip", x, *(self.number(edge) for edge in (0, 255))), "uint8")

    def _weights(self, length: str, size: int, interpolation: str) -> str:
        """Return the weights of `length` pixels in each of `size` pixels, as integers of float64: (size, length)."""
        node, number = self.node, self.number
        scale = node("Div", length, number(size))
        wide = node("Max", scale, number(1))  # an enlarged image is interpolated, a reduced one averaged
        centers = node("Mul", number(np.arange(size)[:, None] + 0.5), scale)
        reach = node("Mul", wide, number(_REACH[interpolation]))
        first = node("Floor", node("Add", node("Sub", centers, reach), number(0.5)))
        behind = node("Floor", node("Add", node("Add", centers, reach), number(0.5)))
        end = node("Squeeze", length, self.constant([0]))
        pixels = node("Range", number(0), end, number(1))
        distances = node("Add", node("Sub", pixels, centers), number(0.5))
        distances = node("Mul", distances, node("Div", number(1), wide))
        values = self._lanczos(distances) if interpolation == "lanczos" else self._box(distances)
        within = node("And", node("GreaterOrEqual", pixels, first), node("Less", pixels, behind))
        values = node("Where", within, values, number(0))
        values = node("Div", values, node("ReduceSum", values, self.constant([1]), keepdims=1))
        rounded = node("Floor", node("Add", node("Mul", node("Abs", values), number(2.0**_WEIGHT_BITS)), number(0.5)))
        return node("Mul", node("Sign", values), rounded)

    def _box(self, x: str) -> str:
        inside = self.node("And", self.node("Greater", x, self.number(-0.5)),
                           self.node("LessOrEqual", x, self.number(0.5)))  # fmt: skip
        return self.cast(inside, "float64")

    def _lanczos(self, x: str) -> str:
        """Return sinc(x) · sinc(x / 3)."""
        node, number = self.node, self.number
        third = node("Div", x, number(3))
        waves = [
            node("Div", node("Sin", angle), angle)
            for angle in (node("Mul", part, number(np.pi)) for part in (x, third))
        ]
        return node("Where", node("Equal", x, number(0)), number(1), node("Mul", *waves))

    def _reduces_rows_first(self, x: str, height: int, width: int) -> str:
        """Return whether Pillow resizes rows before columns: (1) of bool."""
        fewer, narrower = (
            self.node("Sub", self.node("Shape", x, start=axis, end=axis + 1), self.constant([size]))
            for axis, size in ((2, height), (3, width))
        )
        is_reduced = self.node("Greater", fewer, self.constant([0]))
        return self.node("And", is_reduced, self.node("Less", self.node("Mul", narrower, self.constant([2])), fewer))

    def _resized(self, x: str, height: int, width: int, mode: str) -> str:
        """Resize by Resize."""
        rows, columns = (self.node("Shape", x, start=axis, end=axis + 1) for axis in (2, 3))
        lower = self.node("Concat", self.constant([height]), columns, axis=0)
        narrower = self.node("Concat", rows, self.constant([width]), axis=0)
        between = self.node("Where", self._reduces_rows_first(x, height, width), lower, narrower)
        for size in (between, self.constant([height, width])):
            x = self.node(
                "Resize", x, "", "", size, mode=mode, antialias=1, axes=[2, 3], exclude_outside=1, cubic_coeff_a=-0.5,
                coordinate_transformation_mode="half_pixel",
            )  # fmt: skip
        return x
