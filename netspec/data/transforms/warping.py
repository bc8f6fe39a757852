"""`RandomRotation`, `RandomTranslation`, `RandomZoom`, `RandomShear`, `RandomPerspective`: move pixels."""

from __future__ import annotations

from collections.abc import Iterator
from math import cos, pi, sin
from typing import TYPE_CHECKING, Annotated, ClassVar, Literal

from pydantic import Field

from netspec.data.base import Array
from netspec.data.imaging.base import Draw, ImageShape, ImageTransform
from netspec.data.imaging.fields import FillMode, Fraction, Interpolation, Signed, Zoom
from netspec.errors import Problem
from netspec.schema.specs.data import TRANSFORMS

if TYPE_CHECKING:
    from netspec.data.imaging.geometry import Map


class _Warp(ImageTransform):
    """Base of transforms that take each pixel from a position that a map computes."""

    positions: ClassVar = "moved"

    interpolation: Interpolation = "bilinear"
    """The interpolation between pixels."""
    fill_value: float = 0.0
    """The value beyond the edges with `fill_mode: constant`."""

    @property
    def beyond(self) -> str:
        """The extension of the image beyond its edges."""
        return "constant"

    def map(self, height: int, width: int, draw: Draw) -> Map | None:
        """Return the map of pixel positions for `geometry.mapped`; None if the image does not change."""
        raise NotImplementedError(f"{type(self).__name__} has no map")

    def problems(self, shape: ImageShape, dtype: str) -> Iterator[Problem]:
        if dtype == "uint8" and not 0 <= self.fill_value <= 255:
            expected, got = "0 to 255: the images are uint8", f"{self.fill_value:g}"
            message = "`fill_value` is out of the range of the images"
            yield self.problem("fill_value", message, expected=expected, got=got)

    def change(self, image: Array, draw: Draw) -> Array:
        from netspec.data.imaging.geometry import mapped

        mapping = self.map(image.shape[0], image.shape[1], draw)
        return image if mapping is None else mapped(image, mapping, self.interpolation, self.beyond, self.fill_value)

    def move_points(self, points: Array, size: tuple[int, int], draw: Draw) -> Array:
        from netspec.data.imaging.geometry import mapped_points

        mapping = self.map(*size, draw)
        return points if mapping is None else mapped_points(points, mapping)


class _Affine(_Warp):
    """Base of affine transforms, which keep lines parallel."""

    fill_mode: FillMode = "reflect"
    """Continuation of an image beyond its edges: mirrored (`reflect`), repeated (`wrap`), with its `nearest` pixel, or
    with `fill_value` (`constant`)."""

    @property
    def beyond(self) -> str:
        return self.fill_mode


@TRANSFORMS.register
class RandomRotation(_Affine):
    """Rotate each image around its center by a random angle, as in Keras."""

    foreign_fields: ClassVar[dict[str, str]] = {"degrees": "use `factor`, a share of the full circle: degrees / 360"}

    random: ClassVar[bool] = True
    draws: ClassVar[int] = 1

    type: Literal["RandomRotation"] = "RandomRotation"
    factor: Signed
    """The angle as a share of the full circle: `f` means −f to f, or `[lowest, highest]`; positive is
    counter-clockwise."""

    samples: ClassVar = (
        {"factor": 0.1},
        {"factor": [0.2, 0.3], "fill_mode": "constant", "fill_value": 50},
        {"factor": 0.5, "fill_mode": "nearest", "interpolation": "nearest"},
        {"factor": 1, "fill_mode": "wrap", "interpolation": "bicubic"},
    )

    def map(self, height: int, width: int, draw: Draw) -> Map:
        angle = 2 * pi * draw.between(0, self.factor)
        c, s = cos(angle), sin(angle)
        x, y = (width - 1) / 2, (height - 1) / 2
        return c, -s, x - x * c + y * s, s, c, y - x * s - y * c, 0.0, 0.0


@TRANSFORMS.register
class RandomTranslation(_Affine):
    """Shift each image by random shares of its height and width, as in Keras."""

    random: ClassVar[bool] = True
    draws: ClassVar[int] = 2

    type: Literal["RandomTranslation"] = "RandomTranslation"
    height_factor: Signed
    """The shift down, as a share of the height: `f` means −f to f, or `[lowest, highest]`; negative is up."""
    width_factor: Signed
    """The shift to the right, as a share of the width: `f` means −f to f, or `[lowest, highest]`; negative is left."""

    samples: ClassVar = (
        {"height_factor": 0.2, "width_factor": 0.2},
        {"height_factor": [0.3, 1], "width_factor": -0.5, "fill_mode": "wrap"},
        {"height_factor": 1, "width_factor": 1, "fill_mode": "constant"},
    )

    def map(self, height: int, width: int, draw: Draw) -> Map:
        down = height * draw.between(0, self.height_factor)
        right = width * draw.between(1, self.width_factor)
        return 1.0, 0.0, -right, 0.0, 1.0, -down, 0.0, 0.0


@TRANSFORMS.register
class RandomZoom(_Affine):
    """Zoom each image around its center, keeping its size, as in Keras."""

    random: ClassVar[bool] = True
    draws: ClassVar[int] = 2

    type: Literal["RandomZoom"] = "RandomZoom"
    height_factor: Zoom
    """The change of the visible height: `f` means −f to f, or `[lowest, highest]`. 0.3 shows 30 % more of the height
    (objects get smaller), −0.3 shows 30 % less."""
    width_factor: Zoom | None = None
    """The same for the width; by default that of the height, which keeps the aspect ratio."""

    samples: ClassVar = (
        {"height_factor": 0.3},
        {"height_factor": [0.5, 1], "width_factor": -0.5, "fill_mode": "constant"},
    )

    def map(self, height: int, width: int, draw: Draw) -> Map:
        tall = 1 + draw.between(0, self.height_factor)
        wide = tall if self.width_factor is None else 1 + draw.between(1, self.width_factor)
        return wide, 0.0, (width - 1) / 2 * (1 - wide), 0.0, tall, (height - 1) / 2 * (1 - tall), 0.0, 0.0


@TRANSFORMS.register
class RandomShear(_Affine):
    """Shear each image along its width, its height or both, as in Keras. The upper left corner stays."""

    random: ClassVar[bool] = True
    draws: ClassVar[int] = 3

    type: Literal["RandomShear"] = "RandomShear"
    x_factor: Fraction = (0.0, 0.0)
    """Number of pixels by which a row moves against the row above it: `f` means 0 to f, or `[lowest, highest]`; in
    either direction."""
    y_factor: Fraction = (0.0, 0.0)
    """The same for columns."""

    samples: ClassVar = ({"x_factor": 0.3}, {"x_factor": [0.2, 0.9], "y_factor": 0.5, "fill_mode": "constant"})

    def map(self, height: int, width: int, draw: Draw) -> Map:
        sign = -1 if draw.numbers[0] > 0.5 else 1
        across, down = sign * draw.between(1, self.x_factor), sign * draw.between(2, self.y_factor)
        return 1.0, across, 0.0, down, 1.0, 0.0, 0.0, 0.0


@TRANSFORMS.register
class RandomPerspective(_Warp):
    """Apply a random perspective: the corners of each image are moved, as in Keras.

    The position of a corner, in pixels from the upper left one, is multiplied by random factors.
    """

    random: ClassVar[bool] = True
    draws: ClassVar[int] = 10

    type: Literal["RandomPerspective"] = "RandomPerspective"
    factor: Fraction = (0.0, 1.0)
    """Probability that an image is changed, drawn for each: `p` means from 0 to p, `[p, p]` exactly p."""
    scale: Annotated[float, Field(ge=0, le=1)] = 1.0
    """Strength: the factors are between 1 − scale / 2 and 1 + scale / 2."""

    samples: ClassVar = ({"factor": [1, 1], "scale": 0.3}, {"fill_value": 99, "interpolation": "nearest"})

    def map(self, height: int, width: int, draw: Draw) -> Map | None:
        from netspec.data.imaging.geometry import homography

        if (
            not draw.happens(0, self.factor) or min(height, width) < 2
        ):  # an image of one row or column has no perspective
            return None
        corners = [(0.0, 0.0), (width - 1.0, 0.0), (0.0, height - 1.0), (width - 1.0, height - 1.0)]
        half = (-self.scale / 2, self.scale / 2)
        moved = [
            (x * (1 + draw.between(2 + 2 * index, half)), y * (1 + draw.between(3 + 2 * index, half)))
            for index, (x, y) in enumerate(corners)
        ]
        return homography(corners, moved)
