"""`RandomBrightness`, `RandomContrast`, `RandomSaturation`, `RandomHue`, `RandomColorJitter`: random color changes."""

from __future__ import annotations

from typing import Any, ClassVar, Literal

from pydantic import PrivateAttr

from netspec.data.base import Array
from netspec.data.imaging.base import ColorTransform, Draw
from netspec.data.imaging.fields import Around, Fraction, Signed
from netspec.schema.specs.data import TRANSFORMS


@TRANSFORMS.register
class RandomBrightness(ColorTransform):
    """Change the brightness: y = x + d · (maximum − minimum), clipped, with a random d per image, as in Keras."""

    random: ClassVar[bool] = True
    draws: ClassVar[int] = 1

    type: Literal["RandomBrightness"] = "RandomBrightness"
    factor: Signed
    """The range of d: `f` means −f to f, or `[lowest, highest]`."""

    samples: ClassVar = ({"factor": 0.2}, {"factor": [-1, -0.5]})

    def change(self, image: Array, draw: Draw) -> Array:
        from netspec.data.imaging.color import brightened

        low, high = self.values
        return brightened(image, draw.between(0, self.factor) * (high - low), self.values)


@TRANSFORMS.register
class RandomContrast(ColorTransform):
    """Change the contrast: y = (x − mean) · c + mean, clipped, with a random c per image and the mean of each channel.

    As documented by Keras: c is between 1 − lower and 1 + upper. (Keras 3.15 uses 0 for lower if one number is set.)
    """

    random: ClassVar[bool] = True
    draws: ClassVar[int] = 1

    type: Literal["RandomContrast"] = "RandomContrast"
    factor: Around
    """The range of c below and above 1: one number for both, or `[lower, upper]`."""

    samples: ClassVar = ({"factor": 0.5}, {"factor": [0.9, 0.1]})

    def change(self, image: Array, draw: Draw) -> Array:
        from netspec.data.imaging.color import contrasted

        lower, upper = self.factor
        return contrasted(image, draw.between(0, (1 - lower, 1 + upper)), self.values)


@TRANSFORMS.register
class RandomSaturation(ColorTransform):
    """Multiply the saturation (of HSV) of each image by f / (1 − f), at most 1, with a random f, as in Keras."""

    random: ClassVar[bool] = True
    accepted_channels: ClassVar[tuple[int, ...]] = (3,)
    draws: ClassVar[int] = 1

    type: Literal["RandomSaturation"] = "RandomSaturation"
    factor: Fraction
    """The range of f: `g` means 0 to g, or `[lowest, highest]`. 0 makes images gray, 0.5 changes nothing, 1 gives pure
    colors."""

    samples: ClassVar = ({"factor": [0.3, 0.7]}, {"factor": 1})

    def change(self, image: Array, draw: Draw) -> Array:
        from netspec.data.imaging.color import saturated

        factor = draw.between(0, self.factor)
        return saturated(image, factor / (1 - factor + 1e-7), self.values)


@TRANSFORMS.register
class RandomHue(ColorTransform):
    """Rotate the hue (of HSV) of each image by a random angle in either direction, as in Keras."""

    random: ClassVar[bool] = True
    accepted_channels: ClassVar[tuple[int, ...]] = (3,)
    draws: ClassVar[int] = 2

    type: Literal["RandomHue"] = "RandomHue"
    factor: Fraction
    """The angle as a share of half a circle: `f` means 0 to f, or `[lowest, highest]`."""

    samples: ClassVar = ({"factor": 0.2}, {"factor": [0.8, 1]})

    def change(self, image: Array, draw: Draw) -> Array:
        from netspec.data.imaging.color import hue_turned

        sign = -0.5 if draw.numbers[0] > 0.5 else 0.5
        return hue_turned(image, sign * draw.between(1, self.factor), self.values)


@TRANSFORMS.register
class RandomColorJitter(ColorTransform):
    """RandomBrightness, RandomContrast, RandomSaturation and RandomHue in this order, those whose factor is set."""

    foreign_fields: ClassVar[dict[str, str]] = {
        name: f"use `{name}_factor`" for name in ("brightness", "contrast", "saturation", "hue")
    }

    random: ClassVar[bool] = True

    type: Literal["RandomColorJitter"] = "RandomColorJitter"
    brightness_factor: Signed | None = None
    """The `factor` of RandomBrightness."""
    contrast_factor: Around | None = None
    """The `factor` of RandomContrast."""
    saturation_factor: Fraction | None = None
    """The `factor` of RandomSaturation: 0.5 changes nothing."""
    hue_factor: Fraction | None = None
    """The `factor` of RandomHue."""

    samples: ClassVar = (
        {"brightness_factor": 0.2, "contrast_factor": 0.3},
        {"saturation_factor": [0.3, 0.7], "hue_factor": 0.1},
    )

    _parts: tuple[ColorTransform, ...] = PrivateAttr(default=())

    def model_post_init(self, context: Any) -> None:
        """Build the transforms that this one applies."""
        super().model_post_init(context)
        transforms = (
            (RandomBrightness, self.brightness_factor),
            (RandomContrast, self.contrast_factor),
            (RandomSaturation, self.saturation_factor),
            (RandomHue, self.hue_factor),
        )
        self._parts = tuple(
            cls(factor=factor, value_range=self.value_range) for cls, factor in transforms if factor is not None
        )

    @property
    def draws(self) -> int:
        return sum(part.draws for part in self._parts)

    @property
    def accepted_channels(self) -> tuple[int, ...]:
        return (3,) if self.saturation_factor is not None or self.hue_factor is not None else ()

    def change(self, image: Array, draw: Draw) -> Array:
        start = 0
        for part in self._parts:
            image = part.change(image, draw.part(start, part.draws))
            start += part.draws
        return image
