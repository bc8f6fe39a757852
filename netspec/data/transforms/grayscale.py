"""`Grayscale`, `RandomGrayscale`, `RandomColorDegeneration`: remove color."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

from pydantic import Field

from netspec.data.base import Array
from netspec.data.imaging.base import BYTES, ColorTransform, Draw, ImageShape, ImageTransform
from netspec.data.imaging.fields import Fraction
from netspec.schema.specs.data import TRANSFORMS


def _grayed(image: Array) -> Array:
    """Convert an image to gray, (H, W, 1) of the same type."""
    from netspec.data.imaging.color import gray, like

    span = BYTES if image.dtype == "uint8" else (float("-inf"), float("inf"))
    return like(image, gray(image), span)


@TRANSFORMS.register
class Grayscale(ImageTransform):
    """Convert images to gray, as in torchvision: 0.2989 red + 0.587 green + 0.114 blue."""

    accepted_channels: ClassVar[tuple[int, ...]] = (1, 3)
    positions: ClassVar = "kept"

    type: Literal["Grayscale"] = "Grayscale"
    num_output_channels: Literal[1, 3] = 1
    """Number of channels of the result; with 3, all are equal."""

    samples: ClassVar = ({"num_output_channels": 1}, {"num_output_channels": 3})

    def result(self, shape: ImageShape) -> ImageShape:
        return shape._replace(channels=self.num_output_channels)

    def change(self, image: Array, draw: Draw) -> Array:
        gray = image if image.shape[2] == 1 else _grayed(image)
        return gray if self.num_output_channels == 1 else gray.repeat(3, axis=2)


@TRANSFORMS.register
class RandomGrayscale(ImageTransform):
    """Convert some images to gray, as in Keras: 0.2989 red + 0.587 green + 0.114 blue in all three channels."""

    foreign_fields: ClassVar[dict[str, str]] = {"p": "use `factor`"}

    random: ClassVar[bool] = True
    draws: ClassVar[int] = 1

    accepted_channels: ClassVar[tuple[int, ...]] = (3,)
    positions: ClassVar = "kept"

    type: Literal["RandomGrayscale"] = "RandomGrayscale"
    factor: Annotated[float, Field(ge=0, le=1)] = 0.5
    """Probability that an image is changed."""

    samples: ClassVar = ({"factor": 0.5}, {"factor": 1.0})

    def change(self, image: Array, draw: Draw) -> Array:
        return _grayed(image).repeat(3, axis=2) if draw.numbers[0] < self.factor else image


@TRANSFORMS.register
class RandomColorDegeneration(ColorTransform):
    """Reduce colors: y = x + d · (gray − x) with a random d per image, as in Keras. 1 gives gray images."""

    random: ClassVar[bool] = True
    accepted_channels: ClassVar[tuple[int, ...]] = (1, 3)
    draws: ClassVar[int] = 1

    type: Literal["RandomColorDegeneration"] = "RandomColorDegeneration"
    factor: Fraction
    """The range of d: `f` means 0 to f, or `[lowest, highest]`."""

    samples: ClassVar = ({"factor": 0.7},)

    def change(self, image: Array, draw: Draw) -> Array:
        from netspec.data.imaging.color import blended, gray

        if image.shape[2] == 1:
            return image
        return blended(image, gray(image), draw.between(0, self.factor), self.values)
