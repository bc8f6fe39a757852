"""`CenterCrop`, `RandomCrop`, `RandomResizedCrop`: parts of images."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from math import exp, log, sqrt
from typing import TYPE_CHECKING, ClassVar, Literal, Self

from pydantic import NonNegativeInt, PositiveInt, PrivateAttr

from netspec.data.base import Array, FieldType, SampleKeys, Transform
from netspec.data.imaging.base import Draw, ImageShape, ImageTransform
from netspec.data.imaging.fields import FillMode, Ratios, Shares
from netspec.data.transforms.resizing import Resizing
from netspec.errors import Problem, SettingHint
from netspec.schema.specs.data import TRANSFORMS

if TYPE_CHECKING:
    from netspec.data.imaging.arrays import PillowImage

_SIZE = {"size": "use `height` and `width`"}


class _Crop(ImageTransform):
    """Base of transforms that crop images to `[height, width]`."""

    accepts_pillow_images: ClassVar[bool] = True
    positions: ClassVar = "moved"

    foreign_fields: ClassVar[dict[str, str]] = _SIZE

    height: PositiveInt
    """Height of the crop, in pixels."""
    width: PositiveInt
    """Width of the crop, in pixels."""

    _enlarged_by: str = PrivateAttr(default="bilinear")
    """The interpolation of images that are too small for the crop."""

    def for_masks(self, fill: int) -> Self:
        transform = super().for_masks(fill)
        transform._enlarged_by = "nearest"
        return transform

    def enlarged(self, image: Array | PillowImage) -> Array:
        """Resize an image that is too small for the crop, after cropping it to the aspect ratio of the crop."""
        from netspec.data.imaging.geometry import cropped_to, resized

        return resized(cropped_to(image, self.height, self.width), self.height, self.width, self._enlarged_by)

    def box(self, rows: int, columns: int, draw: Draw) -> tuple[int, int, int, int] | None:
        """Return top, left, height and width of the crop of an image; None if the image is too small."""
        raise NotImplementedError(f"{type(self).__name__} has no box")

    def move_points(self, points: Array, size: tuple[int, int], draw: Draw) -> Array:
        from netspec.data.imaging.geometry import cropped_box, points_in_box

        box = self.box(*size, draw) or cropped_box(*size, self.height, self.width)
        return points_in_box(points, box, self.height, self.width)

    def result(self, shape: ImageShape) -> ImageShape:
        return ImageShape(shape.channels, self.height, self.width)

    def within(self, shape: ImageShape, around: int = 0) -> Iterator[Problem]:
        """Yield a problem for each side of the crop that is longer than in images padded by `around` pixels."""
        for name, size in (("height", shape.height), ("width", shape.width)):
            if size is not None and getattr(self, name) > size + 2 * around:
                yield self.problem(
                    name,
                    f"`{name}` is larger than the images",
                    expected=f"at most {size + 2 * around}" + f", including {around} on each side" * bool(around),
                    got=str(getattr(self, name)),
                    hint=SettingHint("the transform Resizing enlarges images", data="enlarge the image"),
                )


@TRANSFORMS.register
class CenterCrop(_Crop):
    """Crop the center of each image, as in Keras. If images differ in size, smaller ones are resized.

    Those are first cropped to the aspect ratio of `[height, width]`.
    """

    only_moves_values: ClassVar[bool] = True

    type: Literal["CenterCrop"] = "CenterCrop"

    samples: ClassVar = ({"height": 28, "width": 28}, {"height": 10, "width": 13})

    def crop_size(self, field: FieldType) -> tuple[int, int, int] | None:
        return self.height, self.width, 0

    def crop_positions(self, field: FieldType, keys: SampleKeys) -> Array:
        import numpy as np

        _, rows, columns = field.shape
        assert rows is not None
        assert columns is not None
        position = (rows - self.height) // 2, (columns - self.width) // 2, 0, 0
        return np.tile(np.array(position, np.int32), (len(keys.indices), 1))

    def problems(self, shape: ImageShape, dtype: str) -> Iterator[Problem]:
        yield from self.within(shape)

    def change(self, image: Array | PillowImage, draw: Draw) -> Array:
        from netspec.data.imaging.geometry import window

        box = self.box(image.shape[0], image.shape[1], draw)
        return self.enlarged(image) if box is None else window(image, *box)

    def box(self, rows: int, columns: int, draw: Draw) -> tuple[int, int, int, int] | None:
        if rows < self.height or columns < self.width:
            return None
        return (rows - self.height) // 2, (columns - self.width) // 2, self.height, self.width


@TRANSFORMS.register
class RandomCrop(_Crop):
    """Crop each image at a random position, all positions being equally likely.

    With `padding`, that many pixels are first added on each side, as in torchvision. If images differ in size, those
    that are still too small are cropped to the aspect ratio of `[height, width]` and resized, as in Keras.
    """

    random: ClassVar[bool] = True
    draws: ClassVar[int] = 2

    type: Literal["RandomCrop"] = "RandomCrop"
    padding: NonNegativeInt = 0
    """Width of the border that is first added to each image, in pixels."""
    fill_mode: FillMode = "constant"
    """The border: `fill_value`, the `nearest` pixel, the image mirrored (`reflect`) or repeated (`wrap`)."""
    fill_value: float = 0.0
    """The value of the border with `fill_mode: constant`."""

    samples: ClassVar = (
        {"height": 28, "width": 28, "padding": 2},
        {"height": 9, "width": 12},
        {"height": 16, "width": 20, "padding": 4, "fill_mode": "reflect"},
        {"height": 16, "width": 20, "padding": 4, "fill_value": 99},
    )

    def for_evaluation(self, fields: Mapping[str, FieldType]) -> Transform:
        """Return a crop of the center."""
        return CenterCrop(height=self.height, width=self.width, apply_to=self.apply_to)

    @property
    def only_moves_values(self) -> bool:
        return not self.padding or self.fill_mode != "constant"

    def crop_size(self, field: FieldType) -> tuple[int, int, int] | None:
        if not self.padding:
            return self.height, self.width, 0
        byte = self.fill_mode == "constant" and self.fill_value in range(256)
        return (self.height, self.width, int(self.fill_value)) if byte else None

    def crop_positions(self, field: FieldType, keys: SampleKeys) -> Array:
        import numpy as np

        _, rows, columns = field.shape
        assert rows is not None
        assert columns is not None
        choices = rows + 2 * self.padding - self.height + 1, columns + 2 * self.padding - self.width + 1
        positions = np.zeros((len(keys.indices), 4), np.int32)
        positions[:, :2] = (keys.uniform(self.draws) * choices).astype(np.int32) - self.padding
        return positions

    def problems(self, shape: ImageShape, dtype: str) -> Iterator[Problem]:
        yield from self.within(shape, self.padding)

    def change(self, image: Array | PillowImage, draw: Draw) -> Array:
        from netspec.data.imaging.geometry import window

        box = self.box(image.shape[0], image.shape[1], draw)
        return self.enlarged(image) if box is None else window(image, *box, self.fill_mode, self.fill_value)

    def box(self, rows: int, columns: int, draw: Draw) -> tuple[int, int, int, int] | None:
        choices = rows + 2 * self.padding - self.height + 1, columns + 2 * self.padding - self.width + 1
        if min(choices) < 1:
            return None
        top, left = (int(number * count) - self.padding for number, count in zip(draw.numbers, choices, strict=True))
        return top, left, self.height, self.width


_ATTEMPTS = 10


@TRANSFORMS.register
class RandomResizedCrop(ImageTransform):
    """Crop each image with random area and aspect ratio, and resize it to `[height, width]`, as in torchvision.

    Draws an area and the logarithm of an aspect ratio up to ten times; the first crop that fits into the image is
    placed at random. If none fits, the largest centered crop with an allowed aspect ratio is used.
    """

    accepts_pillow_images: ClassVar[bool] = True
    foreign_fields: ClassVar[dict[str, str]] = _SIZE

    random: ClassVar[bool] = True
    draws: ClassVar[int] = 2 * _ATTEMPTS + 2
    positions: ClassVar = "moved"

    type: Literal["RandomResizedCrop"] = "RandomResizedCrop"
    height: PositiveInt
    """Height of the result, in pixels."""
    width: PositiveInt
    """Width of the result, in pixels."""
    scale: Shares = (0.08, 1.0)
    """Smallest and largest area of the crop, as a share of the image's area."""
    ratio: Ratios = (3 / 4, 4 / 3)
    """Smallest and largest aspect ratio of the crop, width by height."""
    interpolation: Literal["bilinear", "nearest", "bicubic", "lanczos", "box"] = "bilinear"
    """The interpolation between pixels."""
    antialias: bool = True
    """Whether a pixel is the mean of all pixels that it represents when a crop is reduced."""

    samples: ClassVar = (
        {"height": 28, "width": 28},
        {"height": 9, "width": 21, "scale": [0.5, 1], "ratio": [0.2, 8], "antialias": False},
    )

    def for_evaluation(self, fields: Mapping[str, FieldType]) -> Transform:
        """Return the largest crop of the center with the aspect ratio of the result, resized."""
        return Resizing(
            height=self.height, width=self.width, interpolation=self.interpolation, antialias=self.antialias,
            crop_to_aspect_ratio=True, apply_to=self.apply_to,
        )  # fmt: skip

    def result(self, shape: ImageShape) -> ImageShape:
        return ImageShape(shape.channels, self.height, self.width)

    def part(self, rows: int, columns: int, draw: Draw) -> tuple[int, int, int, int]:
        """Return top, left, height and width of the crop of an image."""
        ratios = log(self.ratio[0]), log(self.ratio[1])
        for attempt in range(_ATTEMPTS):
            area = rows * columns * draw.between(2 * attempt, self.scale)
            ratio = exp(draw.between(2 * attempt + 1, ratios))
            height, width = round(sqrt(area / ratio)), round(sqrt(area * ratio))
            if 0 < height <= rows and 0 < width <= columns:
                down, across = draw.numbers[-2:]
                return int(down * (rows - height + 1)), int(across * (columns - width + 1)), height, width
        height, width = rows, columns
        if columns / rows < self.ratio[0]:
            height = round(columns / self.ratio[0])
        elif columns / rows > self.ratio[1]:
            width = round(rows * self.ratio[1])
        return (rows - height) // 2, (columns - width) // 2, height, width

    def change(self, image: Array | PillowImage, draw: Draw) -> Array:
        from netspec.data.imaging.geometry import cut, resized

        part = cut(image, *self.part(image.shape[0], image.shape[1], draw))
        return resized(part, self.height, self.width, self.interpolation, antialias=self.antialias)

    def move_points(self, points: Array, size: tuple[int, int], draw: Draw) -> Array:
        from netspec.data.imaging.geometry import points_in_box

        return points_in_box(points, self.part(*size, draw), self.height, self.width)
