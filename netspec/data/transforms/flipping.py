"""`{type: RandomFlip}`: mirrors images."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, Literal

from netspec.data.imaging.base import Draw, ImageTransform
from netspec.schema.specs.data import TRANSFORMS

if TYPE_CHECKING:
    from netspec.data.base import Array, FieldType, SampleKeys


@TRANSFORMS.register
class RandomFlip(ImageTransform):
    """Mirror each image with a probability of one half.

    With `horizontal_and_vertical` the directions are drawn separately (Keras 3 draws once for both, and rotates images
    by 180°).
    """

    random: ClassVar[bool] = True

    type: Literal["RandomFlip"] = "RandomFlip"
    mode: Literal["horizontal", "vertical", "horizontal_and_vertical"] = "horizontal_and_vertical"
    """`horizontal` swaps left and right, `vertical` swaps top and bottom."""

    samples: ClassVar = ({"mode": "horizontal"}, {"mode": "vertical"}, {})

    @property
    def only_moves_values(self) -> bool:
        return True

    @property
    def draws(self) -> int:
        return 2

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
        across, down = (number < 0.5 for number in draw.numbers)
        if across and self.mode != "vertical":
            image = image[:, ::-1]
        if down and self.mode != "horizontal":
            image = image[::-1]
        return image
