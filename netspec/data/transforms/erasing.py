"""`{type: RandomErasing}`: a part of each image is lost."""

from __future__ import annotations

from collections.abc import Iterator
from math import ceil, sqrt
from typing import TYPE_CHECKING, ClassVar, Literal

from netspec.data.imaging.base import ColourTransform, Draw, ImageShape
from netspec.data.imaging.fields import Fraction
from netspec.errors import Problem
from netspec.schema.specs.data import TRANSFORMS

if TYPE_CHECKING:
    from netspec.data.base import Array


@TRANSFORMS.register
class RandomErasing(ColourTransform):
    """A random rectangle of each image replaced by noise or a value (Zhong et al., 2017), as in Keras.

    Noise is that of a normal distribution around 0, the highest value of the range its deviation, cut off at the range.
    """

    type: Literal["RandomErasing"] = "RandomErasing"
    factor: Fraction = (0.0, 1.0)
    """the chance that an image is changed, drawn for each: `p` means from 0 to p, `[p, p]` exactly p"""
    scale: Fraction = (0.02, 0.33)
    """the sides of the rectangle are the roots of two numbers out of this range, as shares of width and height"""
    fill_value: float | list[float] | None = None
    """the replacement: a number, or one for each channel; default: noise"""

    samples: ClassVar = (
        {"factor": [1, 1]},
        {"scale": [0.3, 0.5], "fill_value": 128},
        {"factor": [1, 1], "fill_value": [1, 2, 3]},
    )

    @property
    def draws(self) -> int:
        return 6

    def problems(self, shape: ImageShape, dtype: str) -> Iterator[Problem]:
        yield from super().problems(shape, dtype)
        fill = self.fill_value
        if isinstance(fill, list) and len(fill) not in (1, shape.channels):
            expected, got = f"one number, or {shape.channels} for images of {shape}", f"a list of {len(fill)}"
            yield self.problem("fill_value", "`fill_value` does not fit the images", expected=expected, got=got)

    def part(self, rows: int, columns: int, draw: Draw) -> tuple[int, int, int, int]:
        """First row, first column, and those behind the last: of the pixels whose places are within the rectangle."""
        width, height = (sqrt(draw.between(place, self.scale)) * size for place, size in ((2, columns), (3, rows)))
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
        made = image.copy()
        made[top:bottom, left:right] = np.clip(fill, *self.values)
        return made
