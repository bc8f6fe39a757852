"""`ReverseChannels`: converts between the channel orders red, green, blue and blue, green, red."""

from __future__ import annotations

from typing import ClassVar, Literal

from netspec.data.base import Array
from netspec.data.imaging.base import Draw, ImageTransform
from netspec.schema.specs.data import TRANSFORMS


@TRANSFORMS.register
class ReverseChannels(ImageTransform):
    """Reverse the channels of each image: red, green, blue become blue, green, red.

    For nets that were trained on images read by OpenCV, such as Caffe's.
    """

    foreign_fields: ClassVar[dict[str, str]] = {
        "order": "the order is always reversed: leave the transform out for red, green, blue"
    }

    positions: ClassVar = "kept"

    type: Literal["ReverseChannels"] = "ReverseChannels"

    samples: ClassVar = ({},)

    def change(self, image: Array, draw: Draw) -> Array:
        return image[:, :, ::-1]
