"""`ReverseChannels`: red, green, blue as blue, green, red."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, Literal

from netspec.data.imaging.base import Draw, ImageTransform
from netspec.schema.specs.data import TRANSFORMS

if TYPE_CHECKING:
    from netspec.data.base import Array


@TRANSFORMS.register
class ReverseChannels(ImageTransform):
    """The channels of each image from the last to the first: red, green, blue become blue, green, red.

    For nets that were trained on images read by OpenCV, as Caffe's are.
    """

    foreign_fields: ClassVar[dict[str, str]] = {
        "order": "the order is always turned round: leave the transform out for red, green, blue"
    }

    type: Literal["ReverseChannels"] = "ReverseChannels"

    samples: ClassVar = ({},)

    def change(self, image: Array, draw: Draw) -> Array:
        return image[:, :, ::-1]
