"""`RandomGaussianBlur`, `RandomSharpness`, `GaussianNoise`: less or more of what neighbouring pixels share."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, ClassVar, Literal

from pydantic import Field

from netspec.data.imaging.base import ColourTransform, Draw
from netspec.data.imaging.fields import Fraction, Odd, Width
from netspec.schema.specs.data import TRANSFORMS

if TYPE_CHECKING:
    from netspec.data.base import Array


@TRANSFORMS.register
class RandomGaussianBlur(ColourTransform):
    """Some images blurred: weighted means of neighbouring pixels, the image mirrored at its edges as in torchvision.

    Keras puts zeros around it, which darkens the edges; elsewhere the result is Keras's.
    """

    type: Literal["RandomGaussianBlur"] = "RandomGaussianBlur"
    factor: Fraction = (0.0, 1.0)
    """the chance that an image is changed, drawn for each: `p` means from 0 to p, `[p, p]` exactly p"""
    kernel_size: Odd = 3
    """how many pixels the means are over, down and across"""
    sigma: Width = (0.0, 1.0)
    """standard deviation of the weights in pixels, down and across drawn apart: `s` means 0 to s, or
    `[lowest, highest]`"""

    samples: ClassVar = (
        {"factor": [1, 1], "kernel_size": 5, "sigma": [0.5, 2]},
        {"kernel_size": 3, "sigma": 1},
    )

    @property
    def draws(self) -> int:
        return 4

    def change(self, image: Array, draw: Draw) -> Array:
        from netspec.data.imaging.filters import blurred

        if not draw.happens(0, self.factor):
            return image
        across, down = draw.between(2, self.sigma) + 1e-6, draw.between(3, self.sigma) + 1e-6
        return blurred(image, self.kernel_size, (down, across), self.values)


@TRANSFORMS.register
class RandomSharpness(ColourTransform):
    """y = x + (1 − 2 s) · (smooth − x) with a random s for each image, as in Keras; pixels at the edges stay.

    `smooth` are means of 3 × 3 pixels, the middle one counting five times. 0 smooths, 0.5 changes nothing, 1 sharpens.
    """

    type: Literal["RandomSharpness"] = "RandomSharpness"
    factor: Fraction
    """s: `f` means 0 to f, or `[lowest, highest]`"""

    samples: ClassVar = ({"factor": [0, 1]}, {"factor": 0.3})

    @property
    def draws(self) -> int:
        return 1

    def change(self, image: Array, draw: Draw) -> Array:
        from netspec.data.imaging.filters import sharpened

        return sharpened(image, 2 * draw.between(0, self.factor), self.values)


@TRANSFORMS.register
class GaussianNoise(ColourTransform):
    """y = x + noise of a normal distribution, another number for each value, cut off at the range, as in torchvision.

    The unit of `mean` and `sigma` is the width of the range: for images of 0 … 1 they are what torchvision has.
    """

    type: Literal["GaussianNoise"] = "GaussianNoise"
    mean: float = 0.0
    """mean of the noise, as a share of the range"""
    sigma: Annotated[float, Field(ge=0)] = 0.1
    """standard deviation of the noise, as a share of the range"""

    samples: ClassVar = ({"sigma": 0.05}, {"mean": 0.2, "sigma": 0.3})

    def change(self, image: Array, draw: Draw) -> Array:
        import numpy as np

        from netspec.data.imaging.color import floats, like

        low, high = self.values
        noise = draw.generator().standard_normal(image.shape, dtype=np.float32)
        noise *= self.sigma * (high - low)
        noise += self.mean * (high - low)
        return like(image, floats(image) + noise, self.values)
