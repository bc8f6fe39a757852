"""`RandomInvert`, `RandomPosterization`, `Solarization`, `AutoContrast`, `Equalization`: map pixel values."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

from pydantic import Field

from netspec.data.base import Array
from netspec.data.imaging.base import ColorTransform, Draw
from netspec.data.imaging.fields import Bits, Fraction
from netspec.schema.specs.data import TRANSFORMS


@TRANSFORMS.register
class RandomInvert(ColorTransform):
    """Invert some images: y = maximum − x, as in Keras, for ranges that begin with 0."""

    random: ClassVar[bool] = True
    draws: ClassVar[int] = 2

    type: Literal["RandomInvert"] = "RandomInvert"
    factor: Fraction = (0.0, 1.0)
    """Probability that an image is changed, drawn for each: `p` means from 0 to p, `[p, p]` exactly p."""

    samples: ClassVar = ({"factor": 0.5}, {"factor": [1, 1]})

    def change(self, image: Array, draw: Draw) -> Array:
        from netspec.data.imaging.color import inverted

        return inverted(image, self.values) if draw.happens(0, self.factor) else image


@TRANSFORMS.register
class RandomPosterization(ColorTransform):
    """Keep only the upper bits of each value, of 8 bits that span the range."""

    random: ClassVar[bool] = True
    draws: ClassVar[int] = 1

    type: Literal["RandomPosterization"] = "RandomPosterization"
    factor: Bits
    """Number of bits: a number, or `[fewest, most]`, all equally likely."""

    samples: ClassVar = ({"factor": [2, 4]}, {"factor": 3})

    def change(self, image: Array, draw: Draw) -> Array:
        from netspec.data.imaging.color import posterized

        fewest, most = self.factor
        return posterized(image, fewest + int(draw.numbers[0] * (most + 1 - fewest)), self.values)


@TRANSFORMS.register
class Solarization(ColorTransform):
    """Add a and invert values above a threshold, with a random a and threshold per image, as in Keras."""

    random: ClassVar[bool] = True
    draws: ClassVar[int] = 2

    type: Literal["Solarization"] = "Solarization"
    addition_factor: Fraction = (0.0, 0.0)
    """The range of a as a share of the value range: `f` means 0 to f, or `[lowest, highest]`."""
    threshold_factor: Fraction = (0.0, 0.0)
    """The threshold as a share of the value range: `f` means 0 to f, or `[lowest, highest]`. 0 inverts all values."""

    samples: ClassVar = (
        {"threshold_factor": [0.4, 0.6]},
        {"addition_factor": 0.3, "threshold_factor": 1},
    )

    def change(self, image: Array, draw: Draw) -> Array:
        from netspec.data.imaging.color import solarized

        addition, threshold = 255 * draw.between(0, self.addition_factor), 255 * draw.between(1, self.threshold_factor)
        return solarized(image, addition, threshold, self.values)


@TRANSFORMS.register
class AutoContrast(ColorTransform):
    """Stretch each channel of each image so that its values fill the range, as in Keras."""

    type: Literal["AutoContrast"] = "AutoContrast"

    samples: ClassVar = ({},)

    def change(self, image: Array, draw: Draw) -> Array:
        from netspec.data.imaging.color import stretched

        return stretched(image, self.values)


@TRANSFORMS.register
class Equalization(ColorTransform):
    """Equalize each channel's histogram, as in Keras: a value becomes the share of pixels with at most this value."""

    type: Literal["Equalization"] = "Equalization"
    bins: Annotated[int, Field(ge=2, le=65536)] = 256
    """Number of bins of the histogram."""

    samples: ClassVar = ({}, {"bins": 16})

    def change(self, image: Array, draw: Draw) -> Array:
        from netspec.data.imaging.color import equalized

        return equalized(image, self.bins, self.values)
