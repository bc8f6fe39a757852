"""`{type: RandomErasing}`: replaces a part of each image."""

from __future__ import annotations

from collections.abc import Iterator
from math import ceil, sqrt
from typing import ClassVar, Literal

from netspec.data.base import Array
from netspec.data.imaging.base import ColorTransform, Draw, ImageShape
from netspec.data.imaging.fields import Fraction
from netspec.errors import Problem
from netspec.schema.specs.data import TRANSFORMS
from netspec.schema.specs.spec import describe


@TRANSFORMS.register
class RandomErasing(ColorTransform):
    """Replace a random rectangle of each image by noise or a value (Zhong et al., 2017), as in Keras.

    The noise is normally distributed around 0, with the maximum of the range as its standard deviation, and clipped to
    the range.
    """

    random: ClassVar[bool] = True
    draws: ClassVar[int] = 6

    type: Literal["RandomErasing"] = "RandomErasing"
    factor: Fraction = (0.0, 1.0)
    """Probability that an image is changed, drawn for each: `p` means from 0 to p, `[p, p]` exactly p."""
    scale: Fraction = (0.02, 0.33)
    """The sides of the rectangle are the square roots of two numbers from this range, as shares of width and height."""
    fill_value: float | list[float] | None = None
    """The replacement: a number, or one for each channel; by default noise."""

    samples: ClassVar = (
        {"factor": [1, 1]},
        {"scale": [0.3, 0.5], "fill_value": 128},
        {"factor": [1, 1], "fill_value": [1, 2, 3]},
    )

    def problems(self, shape: ImageShape, dtype: str) -> Iterator[Problem]:
        yield from super().problems(shape, dtype)
        fill = self.fill_value
        if isinstance(fill, list) and len(fill) not in (1, shape.channels):
            expected = f"a number, or one for each channel of the images: {shape.channels}"
            yield self.problem(
                "fill_value", "`fill_value` does not match the images", expected=expected, got=describe(fill)
            )

    def part(self, rows: int, columns: int, draw: Draw) -> tuple[int, int, int, int]:
        """Return first row, first column, and those after the last, of the pixels within the rectangle."""
        width, height = (sqrt(draw.between(index, self.scale)) * size for index, size in ((2, columns), (3, rows)))
        left, top = draw.numbers[4] * (columns - width), draw.numbers[5] * (rows - height)
        return ceil(top), ceil(left), ceil(top + height), ceil(left + width)

    def change(self, image: Array, draw: Draw) -> Array:
        import numpy as np

        if not draw.happens(0, self.factor):
            return image
        rows, columns, channels = image.shape
        top, left, bottom, right = self.part(rows, columns, draw)
        fill: Array | float | list[float]
        if self.fill_value is None:
            shape = (bottom - top, right - left, channels)
            fill = draw.generator().standard_normal(shape, dtype=np.float32) * self.values[1]
        else:
            fill = self.fill_value
        erased = image.copy()
        erased[top:bottom, left:right] = np.clip(fill, *self.values)
        return erased
