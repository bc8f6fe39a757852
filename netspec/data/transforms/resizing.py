"""`{type: Resizing}`: images of one size."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, Literal, Self

from pydantic import PositiveInt, model_validator

from netspec.data.imaging.base import Draw, ImageShape, ImageTransform
from netspec.schema.specs.data import TRANSFORMS
from netspec.schema.specs.spec import problem

if TYPE_CHECKING:
    from netspec.data.base import Array
    from netspec.data.imaging.arrays import Picture


@TRANSFORMS.register
class Resizing(ImageTransform):
    """Images resized to `[height, width]`, stretched unless one of the two `…_to_aspect_ratio` is set, as in Keras."""

    takes_pictures: ClassVar[bool] = True
    foreign_fields: ClassVar[dict[str, str]] = {"size": "here they are `height` and `width`"}

    type: Literal["Resizing"] = "Resizing"
    height: PositiveInt
    """height of the result, in pixels"""
    width: PositiveInt
    """width of the result, in pixels"""
    interpolation: Literal["bilinear", "nearest", "bicubic", "lanczos", "box"] = "bilinear"
    """the interpolation between pixels"""
    crop_to_aspect_ratio: bool = False
    """take the largest middle part of the image that has the proportions asked for"""
    pad_to_aspect_ratio: bool = False
    """put `fill_value` around the image until it has the proportions asked for"""
    fill_value: float = 0.0
    """the value of the border"""
    antialias: bool = True
    """make each pixel a mean of all that it stands for where an image becomes smaller, as Pillow and torchvision do;
    in Keras this is off by default. `lanczos` and `box` always do"""

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

    def result(self, shape: ImageShape) -> ImageShape:
        return ImageShape(shape.channels, self.height, self.width)

    def change(self, image: Array | Picture, draw: Draw) -> Array:
        from netspec.data.imaging.geometry import cropped_to, padded_to, resized

        if self.crop_to_aspect_ratio:
            image = cropped_to(image, self.height, self.width)
        elif self.pad_to_aspect_ratio:
            image = padded_to(image, self.height, self.width, self.fill_value)
        return resized(image, self.height, self.width, self.interpolation, antialias=self.antialias)
