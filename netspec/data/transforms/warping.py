"""`RandomRotation`, `RandomTranslation`, `RandomZoom`, `RandomShear`, `RandomPerspective`: pixels moved."""

from __future__ import annotations

from collections.abc import Iterator
from math import cos, pi, sin
from typing import TYPE_CHECKING, Annotated, ClassVar, Literal

from pydantic import Field

from netspec.data.imaging.base import Draw, ImageShape, ImageTransform
from netspec.data.imaging.fields import FillMode, Fraction, Interpolation, Signed, Zoom
from netspec.errors import Problem
from netspec.schema.specs.data import TRANSFORMS

if TYPE_CHECKING:
    from netspec.data.base import Array
    from netspec.data.imaging.geometry import Map


class _Warp(ImageTransform):
    """Each pixel is taken from where a map says."""

    interpolation: Interpolation = "bilinear"
    """the interpolation between pixels"""
    fill_value: float = 0.0
    """the value beyond the edges with `fill_mode: constant`"""

    @property
    def beyond(self) -> str:
        """How the image goes on beyond its edges."""
        return "constant"

    def map(self, height: int, width: int, draw: Draw) -> Map | None:
        """Where the pixels of an image come from, as `geometry.mapped` takes it; None: it stays."""
        raise NotImplementedError(f"{type(self).__name__} has no map")

    def problems(self, shape: ImageShape, dtype: str) -> Iterator[Problem]:
        if dtype == "uint8" and not 0 <= self.fill_value <= 255:
            expected, got = "0 to 255: the images are of uint8", f"{self.fill_value:g}"
            yield self.problem("fill_value", "no value of the images", expected=expected, got=got)

    def change(self, image: Array, draw: Draw) -> Array:
        from netspec.data.imaging.geometry import mapped

        found = self.map(image.shape[0], image.shape[1], draw)
        return image if found is None else mapped(image, found, self.interpolation, self.beyond, self.fill_value)


class _Affine(_Warp):
    """Lines stay parallel."""

    fill_mode: FillMode = "reflect"
    """how an image goes on beyond its edges: mirrored (`reflect`), repeated (`wrap`), with its `nearest` pixel, or with
    `fill_value` (`constant`)"""

    @property
    def beyond(self) -> str:
        return self.fill_mode


@TRANSFORMS.register
class RandomRotation(_Affine):
    """Each image turned around its middle by a random angle, as in Keras."""

    foreign_fields: ClassVar[dict[str, str]] = {
        "degrees": "here it is `factor`, a share of the full circle: degrees / 360"
    }

    type: Literal["RandomRotation"] = "RandomRotation"
    factor: Signed
    """the angle as a share of the full circle: `f` means −f to f, or `[lowest, highest]`; positive is
    counter-clockwise"""

    samples: ClassVar = (
        {"factor": 0.1},
        {"factor": [0.2, 0.3], "fill_mode": "constant", "fill_value": 50},
        {"factor": 0.5, "fill_mode": "nearest", "interpolation": "nearest"},
        {"factor": 1, "fill_mode": "wrap", "interpolation": "bicubic"},
    )

    @property
    def draws(self) -> int:
        return 1

    def map(self, height: int, width: int, draw: Draw) -> Map:
        angle = 2 * pi * draw.between(0, self.factor)
        c, s = cos(angle), sin(angle)
        x, y = (width - 1) / 2, (height - 1) / 2
        return c, -s, x - x * c + y * s, s, c, y - x * s - y * c, 0.0, 0.0


@TRANSFORMS.register
class RandomTranslation(_Affine):
    """Each image moved by random shares of its height and width, as in Keras."""

    type: Literal["RandomTranslation"] = "RandomTranslation"
    height_factor: Signed
    """how far down, as a share of the height: `f` means −f to f, or `[lowest, highest]`; negative is up"""
    width_factor: Signed
    """how far to the right, as a share of the width: `f` means −f to f, or `[lowest, highest]`; negative is left"""

    samples: ClassVar = (
        {"height_factor": 0.2, "width_factor": 0.2},
        {"height_factor": [0.3, 1], "width_factor": -0.5, "fill_mode": "wrap"},
        {"height_factor": 1, "width_factor": 1, "fill_mode": "constant"},
    )

    @property
    def draws(self) -> int:
        return 2

    def map(self, height: int, width: int, draw: Draw) -> Map:
        down = height * draw.between(0, self.height_factor)
        right = width * draw.between(1, self.width_factor)
        return 1.0, 0.0, -right, 0.0, 1.0, -down, 0.0, 0.0


@TRANSFORMS.register
class RandomZoom(_Affine):
    """Each image made smaller or larger around its middle, its size kept, as in Keras."""

    type: Literal["RandomZoom"] = "RandomZoom"
    height_factor: Zoom
    """`f` means −f to f, or `[lowest, highest]`: 0.3 shows 30 % more of the height (smaller), −0.3 shows 30 % less"""
    width_factor: Zoom | None = None
    """the same for the width; default: that of the height, so that proportions are kept"""

    samples: ClassVar = (
        {"height_factor": 0.3},
        {"height_factor": [0.5, 1], "width_factor": -0.5, "fill_mode": "constant"},
    )

    @property
    def draws(self) -> int:
        return 2

    def map(self, height: int, width: int, draw: Draw) -> Map:
        tall = 1 + draw.between(0, self.height_factor)
        wide = tall if self.width_factor is None else 1 + draw.between(1, self.width_factor)
        return wide, 0.0, (width - 1) / 2 * (1 - wide), 0.0, tall, (height - 1) / 2 * (1 - tall), 0.0, 0.0


@TRANSFORMS.register
class RandomShear(_Affine):
    """Each image slanted along its width, its height or both, as in Keras: the upper left corner stays."""

    type: Literal["RandomShear"] = "RandomShear"
    x_factor: Fraction = (0.0, 0.0)
    """how many pixels to the side a row moves against that above it: `f` means 0 to f, or `[lowest, highest]`; in
    either direction"""
    y_factor: Fraction = (0.0, 0.0)
    """the same for columns"""

    samples: ClassVar = ({"x_factor": 0.3}, {"x_factor": [0.2, 0.9], "y_factor": 0.5, "fill_mode": "constant"})

    @property
    def draws(self) -> int:
        return 3

    def map(self, height: int, width: int, draw: Draw) -> Map:
        sign = -1 if draw.numbers[0] > 0.5 else 1
        across, down = sign * draw.between(1, self.x_factor), sign * draw.between(2, self.y_factor)
        return 1.0, across, 0.0, down, 1.0, 0.0, 0.0, 0.0


@TRANSFORMS.register
class RandomPerspective(_Warp):
    """Each image as if seen from the side: its corners are moved at random, as in Keras.

    A corner's place, in pixels from the upper left one, is multiplied by random factors.
    """

    type: Literal["RandomPerspective"] = "RandomPerspective"
    factor: Fraction = (0.0, 1.0)
    """the chance that an image is changed, drawn for each: `p` means from 0 to p, `[p, p]` exactly p"""
    scale: Annotated[float, Field(ge=0, le=1)] = 1.0
    """how far corners move: the factors are between 1 − scale / 2 and 1 + scale / 2"""

    samples: ClassVar = ({"factor": [1, 1], "scale": 0.3}, {"fill_value": 99, "interpolation": "nearest"})

    @property
    def draws(self) -> int:
        return 10

    def map(self, height: int, width: int, draw: Draw) -> Map | None:
        from netspec.data.imaging.geometry import homography

        if not draw.happens(0, self.factor) or min(height, width) < 2:  # a line has no other sides
            return None
        corners = [(0.0, 0.0), (width - 1.0, 0.0), (0.0, height - 1.0), (width - 1.0, height - 1.0)]
        half = (-self.scale / 2, self.scale / 2)
        moved = [
            (x * (1 + draw.between(2 + 2 * place, half)), y * (1 + draw.between(3 + 2 * place, half)))
            for place, (x, y) in enumerate(corners)
        ]
        return homography(corners, moved)
