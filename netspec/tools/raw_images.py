"""Images of any size as inputs of an exported model: resizing and cropping as operators.

ONNX Runtime resizes images of bytes with the same weights as Pillow; because Pillow rounds the weights, a few pixels
differ by 1 of 255. Pillow first resizes the axis that leaves less work for the other one, and rounds to bytes between
the axes. The operators therefore also resize along each axis separately, in the same order.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from netspec.data.base import FieldType, Transform
from netspec.data.transforms.cropping import CenterCrop
from netspec.data.transforms.resizing import Resizing
from netspec.exchange.formats.onnx.wrapper import NodeWriter, RawTensor, Wrapper

RESIZE_OPSET = 18
"""The first opset whose Resize has antialiasing: it averages over all pixels that a pixel of the result represents."""
TOLERANCE = 0.02
"""Largest difference of results, relative to the largest magnitude, that rounding of pixels may cause."""
_MODES = {"bilinear": "linear", "bicubic": "cubic"}
"""Interpolations that ONNX Runtime computes like Pillow. Its `nearest` takes the neighboring pixel in case of a tie."""


def has_operators(transform: Transform, field: FieldType) -> bool:
    """Return whether a transform of images of this type has a form in operators."""
    if field.dtype != "uint8" or len(field.shape) != 3 or field.shape[0] is None:
        return False
    if isinstance(transform, Resizing):
        return transform.interpolation in _MODES and transform.antialias
    return isinstance(transform, CenterCrop)


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
            x = writer.resizing(x, step) if isinstance(step, Resizing) else writer.center_crop(x, step)
        writer.node("Identity", x, output=self.name)


class _ImageWriter(NodeWriter):
    """Adds operators on images (N, channels, height, width) of uint8."""

    def __init__(self, wrapper: Wrapper, prefix: str) -> None:
        super().__init__(wrapper, wrapper.before, prefix)

    def resizing(self, x: str, step: Resizing) -> str:
        size = self._size(x)
        if step.crop_to_aspect_ratio:
            x = self._crop(x, size, self._fitting(size, step.height, step.width, "Min"))
        elif step.pad_to_aspect_ratio:
            x = self._pad(x, size, self._fitting(size, step.height, step.width, "Max"), step.fill_value)
        return self._resized(x, step.height, step.width, _MODES[step.interpolation])

    def center_crop(self, x: str, step: Transform) -> str:
        """Crop; images that are too small are cropped to the aspect ratio and enlarged."""
        assert isinstance(step, CenterCrop)
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

    def _resized(self, x: str, height: int, width: int, mode: str) -> str:
        rows, columns = (
            self.node("Gather", self._size(x), self.constant([axis]), axis=0) for axis in range(2)
        )  # (1) each
        new_rows, new_columns = self.constant([height]), self.constant([width])
        fewer = self.node("Sub", rows, new_rows)
        narrower = self.node("Mul", self.node("Sub", columns, new_columns), self.constant([2]))
        is_reduced = self.node("Greater", fewer, self.constant([0]))
        rows_first = self.node("And", is_reduced, self.node("Less", narrower, fewer))
        lower = self.node("Concat", new_rows, columns, axis=0)
        between = self.node("Where", rows_first, lower, self.node("Concat", rows, new_columns, axis=0))
        for size in (between, self.constant([height, width])):
            x = self.node(
                "Resize", x, "", "", size, mode=mode, antialias=1, axes=[2, 3], exclude_outside=1, cubic_coeff_a=-0.5,
                coordinate_transformation_mode="half_pixel",
            )  # fmt: skip
        return x
