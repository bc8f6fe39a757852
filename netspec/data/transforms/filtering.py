"""`RandomGaussianBlur`, `RandomSharpness`, `GaussianNoise`: smoothing, sharpening and noise."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

from pydantic import Field

from netspec.data.base import Array
from netspec.data.imaging.base import ColorTransform, Draw
from netspec.data.imaging.fields import Fraction, Odd, Width
from netspec.schema.specs.data import TRANSFORMS


@TRANSFORMS.register
class RandomGaussianBlur(ColorTransform):
    """Blur some images with Gaussian weights, the image being mirrored at its edges as in torchvision.

    Keras pads with zeros, which darkens the edges; elsewhere the result equals Keras's.
    """

    random: ClassVar[bool] = True
    draws: ClassVar[int] = 4

    type: Literal["RandomGaussianBlur"] = "RandomGaussianBlur"
    factor: Fraction = (0.0, 1.0)
    """Probability that an image is changed, drawn for each: `p` means from 0 to p, `[p, p]` exactly p."""
    kernel_size: Odd = 3
    """Size of the window in pixels, vertically and horizontally."""
    sigma: Width = (0.0, 1.0)
    """Standard deviation of the weights in pixels, drawn separately for both axes: `s` means 0 to s, or `[lowest,
    highest]`."""

    samples: ClassVar = (
        {"factor": [1, 1], "kernel_size": 5, "sigma": [0.5, 2]},
        {"kernel_size": 3, "sigma": 1},
    )

    def change(self, image: Array, draw: Draw) -> Array:
        from netspec.data.imaging.filters import blurred

        if not draw.happens(0, self.factor):
            return image
        across, down = draw.between(2, self.sigma) + 1e-6, draw.between(3, self.sigma) + 1e-6
        return blurred(image, self.kernel_size, (down, across), self.values)


@TRANSFORMS.register
class RandomSharpness(ColorTransform):
    """Change the sharpness: y = x + (1 − 2 s) · (smooth − x) with a random s per image, as in Keras.

    `smooth` is the mean of 3 × 3 pixels with a weight of 5 for the center. Pixels at the edges do not change. 0
    smooths, 0.5 changes nothing, 1 sharpens.
    """

    random: ClassVar[bool] = True
    draws: ClassVar[int] = 1

    type: Literal["RandomSharpness"] = "RandomSharpness"
    factor: Fraction
    """The range of s: `f` means 0 to f, or `[lowest, highest]`."""

    samples: ClassVar = ({"factor": [0, 1]}, {"factor": 0.3})

    def change(self, image: Array, draw: Draw) -> Array:
        from netspec.data.imaging.filters import sharpened

        return sharpened(image, 2 * draw.between(0, self.factor), self.values)


@TRANSFORMS.register
class GaussianNoise(ColorTransform):
    """Add normally distributed noise to each value, and clip to the range, as in torchvision.

    The unit of `mean` and `sigma` is the width of the range: for images of 0 … 1 they are those of torchvision.
    """

    random: ClassVar[bool] = True

    type: Literal["GaussianNoise"] = "GaussianNoise"
    mean: float = 0.0
    """Mean of the noise, as a share of the range."""
    sigma: Annotated[float, Field(ge=0)] = 0.1
    """Standard deviation of the noise, as a share of the range."""

    samples: ClassVar = ({"sigma": 0.05}, {"mean": 0.2, "sigma": 0.3})

    def change(self, image: Array, draw: Draw) -> Array:
        import numpy as np

        from netspec.data.imaging.color import floats, like

        low, high = self.values
        noise = draw.generator().standard_normal(image.shape, dtype=np.float32)
        noise *= self.sigma * (high - low)
        noise += self.mean * (high - low)
        return like(image, floats(image) + noise, self.values)
