"""`ImageTransform`: base of the transforms of images. This module does not import NumPy."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Literal, NamedTuple, Self

from netspec.data.base import Array, FieldType, Raw, SampleKeys, Samples, Transform
from netspec.data.imaging.fields import Values
from netspec.errors import InputError, Problem

if TYPE_CHECKING:
    from numpy.random import Generator


BYTES = (0.0, 255.0)
"""The values of an image of uint8."""


@dataclass(slots=True)
class Draw:
    """The random numbers of one sample."""

    numbers: Sequence[float]
    """Random numbers in [0, 1), as many as the transform `draws`."""
    keys: SampleKeys
    row: int

    def between(self, index: int, span: tuple[float, float]) -> float:
        """Return the number at `index`, scaled to the range."""
        return span[0] + (span[1] - span[0]) * self.numbers[index]

    def happens(self, index: int, span: tuple[float, float]) -> bool:
        """Decide whether to act, as in Keras: the number at `index` draws the probability from the range."""
        return self.numbers[index + 1] < self.between(index, span)

    def part(self, start: int, count: int) -> Draw:
        """Return `count` of the numbers, for a nested transform."""
        return Draw(self.numbers[start : start + count], self.keys, self.row)

    def generator(self) -> Generator:
        """Return a generator for whole arrays of noise."""
        return self.keys.generator(self.row)


class ImageShape(NamedTuple):
    """Known sizes of the images of a field; None if images differ."""

    channels: int
    height: int | None
    width: int | None

    def __str__(self) -> str:
        return f"[{self.channels}, {self.height or '?'}, {self.width or '?'}]"


class ImageTransform(Transform):
    """Base of transforms of single images: `change` gets an image as (H, W, C) and its random numbers.

    Images are `[channels, H, W]` of uint8 or floats, and keep that type; sizes may differ from sample to sample.
    """

    @property
    def draws(self) -> int:
        """Number of random numbers per sample."""
        return 0

    @property
    def accepted_channels(self) -> tuple[int, ...]:
        """Numbers of channels that images may have; empty if any number is accepted."""
        return ()

    def change(self, image: Array, draw: Draw) -> Array:
        """Return the changed image, (H, W, C) → (H', W', C'): a new array or a view; `image` is not modified."""
        raise NotImplementedError(f"{type(self).__name__} does not say what it makes of an image")

    def result(self, shape: ImageShape) -> ImageShape:
        """Return channels and size of a changed image."""
        return shape

    def for_masks(self, fill: int) -> Self:
        """Return the transform that moves class numbers as this one moves pixels, with the same random numbers.

        It does not interpolate, and takes `fill` beyond the edges if this transform fills with a constant.
        """
        fields = {"interpolation": "nearest", "antialias": False, "fill_value": fill}
        return self.model_copy(update={name: fields[name] for name in fields.keys() & type(self).model_fields})

    def move_points(self, points: Array, size: tuple[int, int], draw: Draw) -> Array:
        """Map points (x, y) of an image to their positions in the changed image: (P, 2) of float64 → (P, 2).

        Coordinates are in pixels from the upper left corner: the image of `size` (H, W) covers 0 to W and 0 to H.
        Results may be outside the image; NaN if a point has no position. Required if `positions` is `moved`.
        """
        raise NotImplementedError(f"{type(self).__name__} does not say where it moves points")

    def problems(self, shape: ImageShape, dtype: str) -> Iterator[Problem]:
        """Yield problems of images with this shape and type."""
        yield from ()

    def infer(self, field: FieldType) -> FieldType:
        """(C, H, W) of uint8 or floats → the same type. Raises InputError for unsupported fields."""
        shape = self._image(field)
        if problems := [*self.problems(shape, field.dtype), *self._channel_problems(shape)]:
            raise InputError(problems)
        return FieldType(tuple(self.result(shape)), field.dtype)

    def apply(self, batch: Raw, keys: SampleKeys) -> Samples:
        """x: (N, C, H, W), or a list of (C, H, W) → the changed images; a list if they differ in size."""
        import numpy as np

        from netspec.data.imaging.arrays import batched, images_of

        images: list[Any] = images_of(batch)  # Pillow images only if `change` accepts them
        # Non-finite values are kept, and reported once after all transforms: NumPy need not warn of each.
        with np.errstate(all="ignore"):
            changed = [self.change(image, draw) for image, draw in zip(images, self.drawn(keys), strict=True)]
        differ = isinstance(batch, list) and None in self.result(ImageShape(images[0].shape[2], None, None))
        return batched(changed, ragged=differ)

    def drawn(self, keys: SampleKeys) -> list[Draw]:
        """Return the random numbers of each sample. Every call returns the same, so that several fields move alike."""
        rows, count = len(keys.indices), self.draws
        numbers = keys.uniform(count).tolist() if count else [()] * rows
        return [Draw(numbers[row], keys, row) for row in range(rows)]

    def _image(self, field: FieldType) -> ImageShape:
        fits = len(field.shape) == 3 and field.shape[0] is not None
        if not fits or not (field.dtype == "uint8" or field.dtype.startswith("float")):
            raise InputError(
                f"{type(self).__name__} changes images",
                location=self.where("type"),
                path="type",
                expected="[channels, height, width] of uint8 or floats",
                got=str(field),
            )
        channels, height, width = field.shape
        assert channels is not None
        return ImageShape(channels, height, width)

    def _channel_problems(self, shape: ImageShape) -> Iterator[Problem]:
        if self.accepted_channels and shape.channels not in self.accepted_channels:
            yield Problem(
                f"{type(self).__name__} needs color images",
                self.where("type"),
                "type",
                expected="images of 3 channels (red, green, blue)" + " or 1 (gray)" * (1 in self.accepted_channels),
                got=str(shape),
            )

    def problem(
        self, name: str, message: str, *, expected: str | None = None, got: str, hint: str | None = None
    ) -> Any:
        """Return a problem with the value of the field `name`."""
        return Problem(message, self.where(name) or self.where("type"), name, expected=expected, got=got, hint=hint)


class ColorTransform(ImageTransform):
    """Base of transforms of pixel values, which need to know their range."""

    positions: ClassVar[Literal["kept", "moved"] | None] = "kept"

    value_range: Values | None = None
    """Lowest and highest value of an image; required if images hold floats. Those of uint8 have `[0, 255]`."""

    def problems(self, shape: ImageShape, dtype: str) -> Iterator[Problem]:
        """Yield a problem if the range of values is unknown, or does not match the type."""
        if dtype == "uint8" and self.value_range not in (None, BYTES):
            expected, got = (
                "[0, 255], or no `value_range`: these images hold uint8",
                "[{:g}, {:g}]".format(*self.values),
            )
            yield self.problem(
                "value_range", "`value_range` is not the range of the images", expected=expected, got=got
            )
        if dtype != "uint8" and self.value_range is None:
            yield Problem(
                "the range of the images' values is not known",
                self.where("type"),
                "value_range",
                expected="`value_range: [0, 1]`, or the range that the transforms before it produce",
                got=f"{dtype} images",
                hint="put this transform before those that convert uint8 to floats",
            )

    @property
    def values(self) -> tuple[float, float]:
        """Return the lowest and the highest value."""
        return self.value_range or BYTES
