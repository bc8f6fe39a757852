"""Batches of images as (H, W, C) views, and back; images between NumPy and Pillow."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from PIL import Image

from netspec.data.base import Array, Raw, Samples

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence


_MODES = {1: "L", 3: "RGB", 4: "CMYK"}  # Pillow multiplies the colours of RGBA by its fourth channel when it resizes


class PillowImage:
    """A decoded image that is still Pillow's, grey or of three colours, or a window of one: in place of (H, W, C).

    To bring a photograph into an array takes half as long as to decode it. Of one that is cropped and resized first,
    only the result needs to be brought.
    """

    __slots__ = ("_box", "_image", "shape")

    def __init__(self, image: Image.Image, box: tuple[int, int, int, int] | None = None) -> None:
        self._image = image
        self._box = box or (0, 0, *image.size)  # left, top, and the first column and row behind
        left, top, right, bottom = self._box
        self.shape = (bottom - top, right - left, len(image.getbands()))

    def window(self, top: int, left: int, height: int, width: int) -> PillowImage:
        """A part that lies within; nothing is copied."""
        left, top = self._box[0] + left, self._box[1] + top
        return PillowImage(self._image, (left, top, left + width, top + height))

    def resized(self, height: int, width: int, interpolation: str) -> Array | None:
        """(height, width, C), `box` or `bilinear`; None if it must go through Pillow, to the same pixels."""
        from netspec.data.imaging.resampling import resized_photo  # numba takes a while to load

        return resized_photo(self._image, self._box, height, width, interpolation)

    def pillow(self) -> Image.Image:
        """Return the window as an image of its own."""
        return self._image if self._box == (0, 0, *self._image.size) else self._image.crop(self._box)


def pixels(image: Array | PillowImage) -> Array:
    """Return an image as a read-only array (H, W, C)."""
    return from_pillow(image.pillow()) if isinstance(image, PillowImage) else image


def images_of(batch: Raw) -> list[Array | PillowImage]:
    """The images of a batch, each (H, W, C), without a copy."""
    if isinstance(batch, list):
        return [image if isinstance(image, PillowImage) else image.transpose(1, 2, 0) for image in batch]
    return list(batch.transpose(0, 2, 3, 1))


def batched(images: Sequence[Array], *, ragged: bool) -> Samples:
    """Images (H, W, C) as one batch (N, C, H, W), in the order in memory that they have; or as a list of (C, H, W)."""
    if ragged:
        return [image.transpose(2, 0, 1) for image in images]
    first = images[0]
    height, width, channels = first.shape
    if abs(first.strides[2]) > abs(first.strides[1]):  # planes: reading and writing go in the same order
        planes = np.empty((len(images), channels, height, width), first.dtype)
        for row, image in enumerate(images):
            planes[row] = image.transpose(2, 0, 1)
        return planes
    batch = np.empty((len(images), *first.shape), first.dtype)
    for row, image in enumerate(images):
        if image.strides[1] < 0:  # mirrored: plane by plane, since three values at a time are slow to turn round
            for channel in range(channels):
                batch[row, :, :, channel] = image[:, :, channel]
        else:
            batch[row] = image
    return batch.transpose(0, 3, 1, 2)


def through_pillow(image: Array | PillowImage, change: Callable[[Image.Image], Image.Image]) -> Array:
    """Apply `change`, which treats all bands alike, to an image (H, W, C).

    One of uint8 goes in one piece if it has 1, 3 or 4 channels; else channel by channel, floats as float32.
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
    """An image (H, W, C) of uint8 with 1, 3 or 4 channels."""
    height, width, channels = image.shape
    return Image.frombytes(_MODES[channels], (width, height), image.tobytes())


def from_pillow(image: Image.Image) -> Array:
    """(H, W, C) of uint8, not to be written to."""
    width, height = image.size
    return np.frombuffer(image.tobytes(), np.uint8).reshape(height, width, -1)
