"""`{type: RandomFlip}`: mirrors images."""

from __future__ import annotations

from typing import ClassVar, Literal

from netspec.data.base import Array, FieldType, SampleKeys
from netspec.data.imaging.base import Draw, ImageTransform
from netspec.schema.specs.data import TRANSFORMS


@TRANSFORMS.register
class RandomFlip(ImageTransform):
    """Mirror each image with a probability of one half.

    With `horizontal_and_vertical` the directions are drawn separately (Keras 3 draws once for both, and rotates images
    by 180°).
    """

    random: ClassVar[bool] = True
    draws: ClassVar[int] = 2
    only_moves_values: ClassVar[bool] = True
    positions: ClassVar = "moved"

    type: Literal["RandomFlip"] = "RandomFlip"
    mode: Literal["horizontal", "vertical", "horizontal_and_vertical"] = "horizontal_and_vertical"
    """`horizontal` swaps left and right, `vertical` swaps top and bottom."""

    samples: ClassVar = ({"mode": "horizontal"}, {"mode": "vertical"}, {})

    def crop_size(self, field: FieldType) -> tuple[int, int, int] | None:
        _, rows, columns = field.shape
        return None if rows is None or columns is None else (rows, columns, 0)

    def crop_positions(self, field: FieldType, keys: SampleKeys) -> Array:
        import numpy as np

        across, down = (keys.uniform(self.draws) < 0.5).T
        positions = np.zeros((len(keys.indices), 4), np.int32)
        positions[:, 2], positions[:, 3] = down & (self.mode != "horizontal"), across & (self.mode != "vertical")
        return positions

    def change(self, image: Array, draw: Draw) -> Array:
        across, down = self._directions(draw)
        if across:
            image = image[:, ::-1]
        if down:
            image = image[::-1]
        return image

    def move_points(self, points: Array, size: tuple[int, int], draw: Draw) -> Array:
        height, width = size
        x, y = points.T
        across, down = self._directions(draw)
        moved = points.copy()
        moved[:, 0], moved[:, 1] = width - x if across else x, height - y if down else y
        return moved

    def _directions(self, draw: Draw) -> tuple[bool, bool]:
        """Return whether to swap left and right, and whether to swap top and bottom."""
        across, down = (number < 0.5 for number in draw.numbers)
        return across and self.mode != "vertical", down and self.mode != "horizontal"
