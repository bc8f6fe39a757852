"""Convert between batches and (H, W, C) views of images, and between NumPy and Pillow."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from PIL import Image

from netspec.data.base import Array, Raw, Samples

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence


_MODES = {1: "L", 3: "RGB", 4: "CMYK"}  # not RGBA, whose colors Pillow multiplies by alpha when it resizes


class PillowImage:
    """A decoded gray or RGB image in Pillow's memory, or a window of one, in place of an array (H, W, C).

    Copying a photo to an array takes half as long as decoding it. If it is first cropped and resized, only the result
    has to be copied.
    """

    __slots__ = ("_box", "_image", "shape")

    def __init__(self, image: Image.Image, box: tuple[int, int, int, int] | None = None) -> None:
        self._image = image
        self._box = box or (0, 0, *image.size)  # left, top, right, bottom
        left, top, right, bottom = self._box
        self.shape = (bottom - top, right - left, len(image.getbands()))

    def window(self, top: int, left: int, height: int, width: int) -> PillowImage:
        """Return a part within the bounds, without a copy."""
        left, top = self._box[0] + left, self._box[1] + top
        return PillowImage(self._image, (left, top, left + width, top + height))

    def resized(self, height: int, width: int, interpolation: str) -> Array | None:
        """Resize to (height, width, C) by `box` or `bilinear`; None if only Pillow can, with the same pixels."""
        from netspec.data.imaging.resampling import resized_photo  # numba is slow to import

        return resized_photo(self._image, self._box, height, width, interpolation)

    def pillow(self) -> Image.Image:
        """Return the window as a separate image."""
        return self._image if self._box == (0, 0, *self._image.size) else self._image.crop(self._box)


def pixels(image: Array | PillowImage) -> Array:
    """Return an image as a read-only array (H, W, C)."""
    return from_pillow(image.pillow()) if isinstance(image, PillowImage) else image


def images_of(batch: Raw) -> list[Array | PillowImage]:
    """Return the images of a batch as views (H, W, C)."""
    if isinstance(batch, list):
        return [image if isinstance(image, PillowImage) else image.transpose(1, 2, 0) for image in batch]
    return list(batch.transpose(0, 2, 3, 1))


def batched(images: Sequence[Array], *, ragged: bool) -> Samples:
    """Return images (H, W, C) as a batch (N, C, H, W), in their memory order, or as a list of (C, H, W) if `ragged`."""
    if ragged:
        return [image.transpose(2, 0, 1) for image in images]
    first = images[0]
    height, width, channels = first.shape
    if abs(first.strides[2]) > abs(first.strides[1]):  # planar: keep that order, to read and write contiguously
        planes = np.empty((len(images), channels, height, width), first.dtype)
        for row, image in enumerate(images):
            planes[row] = image.transpose(2, 0, 1)
        return planes
    batch = np.empty((len(images), *first.shape), first.dtype)
    for row, image in enumerate(images):
        if image.strides[1] < 0:  # mirrored: copying channel by channel is faster
            for channel in range(channels):
                batch[row, :, :, channel] = image[:, :, channel]
        else:
            batch[row] = image
    return batch.transpose(0, 3, 1, 2)


def through_pillow(image: Array | PillowImage, change: Callable[[Image.Image], Image.Image]) -> Array:
    """Apply `change`, which treats all bands alike, to an image (H, W, C).

    A uint8 image with 1, 3 or 4 channels is converted as a whole; others channel by channel, floats as float32.
    """
    if isinstance(image, PillowImage):
        return from_pillow(change(image.pillow()))
    if image.dtype == np.uint8 and image.shape[2] in _MODES:
        return from_pillow(change(to_pillow(image)))
    planes = []
    for channel in range(image.shape[2]):
        plane = image[:, :, channel]
        changed = change(
            Image.fromarray(np.ascontiguousarray(plane if plane.dtype == np.uint8 else plane.astype("f4")))
        )
        planes.append(np.asarray(changed))
    return np.stack(planes, axis=2).astype(image.dtype, copy=False)


def to_pillow(image: Array) -> Image.Image:
    """Convert an image (H, W, C) of uint8 with 1, 3 or 4 channels."""
    height, width, channels = image.shape
    return Image.frombytes(_MODES[channels], (width, height), image.tobytes())


def from_pillow(image: Image.Image) -> Array:
    """Convert to a read-only array (H, W, C) of uint8."""
    width, height = image.size
    return np.frombuffer(image.tobytes(), np.uint8).reshape(height, width, -1)
