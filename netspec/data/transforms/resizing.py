"""`{type: Resizing}`: gives images one size."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, Literal, Self

from pydantic import PositiveInt, model_validator

from netspec.data.base import Array
from netspec.data.imaging.base import Draw, ImageShape, ImageTransform
from netspec.schema.specs.data import TRANSFORMS
from netspec.schema.specs.spec import problem

if TYPE_CHECKING:
    from netspec.data.imaging.arrays import PillowImage


@TRANSFORMS.register
class Resizing(ImageTransform):
    """Resize images to `[height, width]`, stretched unless one of the two `…_to_aspect_ratio` is set, as in Keras."""

    accepts_pillow_images: ClassVar[bool] = True
    positions: ClassVar = "moved"
    foreign_fields: ClassVar[dict[str, str]] = {"size": "use `height` and `width`"}

    type: Literal["Resizing"] = "Resizing"
    height: PositiveInt
    """Height of the result, in pixels."""
    width: PositiveInt
    """Width of the result, in pixels."""
    interpolation: Literal["bilinear", "nearest", "bicubic", "lanczos", "box"] = "bilinear"
    """The interpolation between pixels."""
    crop_to_aspect_ratio: bool = False
    """Whether to crop the image to the largest centered part with the aspect ratio of the result."""
    pad_to_aspect_ratio: bool = False
    """Whether to add a border of `fill_value` until the image has the aspect ratio of the result."""
    fill_value: float = 0.0
    """The value of the border."""
    antialias: bool = True
    """Whether a pixel is the mean of all pixels that it represents when an image is reduced, as in Pillow and
    torchvision; Keras's default is false. `lanczos` and `box` always do so."""

    samples: ClassVar = (
        {"height": 28, "width": 28},
        {"height": 20, "width": 14},
        {"height": 8, "width": 24, "interpolation": "bicubic", "crop_to_aspect_ratio": True},
        {"height": 8, "width": 24, "interpolation": "nearest", "pad_to_aspect_ratio": True, "fill_value": 7},
        {"height": 5, "width": 40, "antialias": False},
    )

    @model_validator(mode="after")
    def _one_of_two(self) -> Self:
        if self.crop_to_aspect_ratio and self.pad_to_aspect_ratio:
            raise problem(
                "an image is either cropped or padded",
                field="pad_to_aspect_ratio",
                expected="one of `crop_to_aspect_ratio` and `pad_to_aspect_ratio`",
                got="both",
            )
        return self

    @property
    def stretches(self) -> bool:
        """Whether the result shows exactly the whole image."""
        return not (self.crop_to_aspect_ratio or self.pad_to_aspect_ratio)

    def result(self, shape: ImageShape) -> ImageShape:
        return ImageShape(shape.channels, self.height, self.width)

    def change(self, image: Array | PillowImage, draw: Draw) -> Array:
        from netspec.data.imaging.geometry import cropped_to, padded_to, resized

        if self.crop_to_aspect_ratio:
            image = cropped_to(image, self.height, self.width)
        elif self.pad_to_aspect_ratio:
            image = padded_to(image, self.height, self.width, self.fill_value)
        return resized(image, self.height, self.width, self.interpolation, antialias=self.antialias)

    def move_points(self, points: Array, size: tuple[int, int], draw: Draw) -> Array:
        from netspec.data.imaging.geometry import cropped_box, padded_box, points_in_box

        box = 0, 0, *size
        if self.crop_to_aspect_ratio:
            box = cropped_box(*size, self.height, self.width)
        elif self.pad_to_aspect_ratio:
            box = padded_box(*size, self.height, self.width)
        return points_in_box(points, box, self.height, self.width)
