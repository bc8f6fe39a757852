"""The effect of transforms on uint8 images as plain data, a lookup table and crops, for the device to apply."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from netspec.data.base import Array, FieldType, SampleKeys, Transform

BYTES = 256
MAX_CHANNELS = 64
"""Maximum number of channels of a field, to keep the table small."""


MAX_CROP_RATIO = 2.0
"""Largest ratio of an image to its crop, in bytes, to defer the crop: the bytes must be copied to the device."""


@dataclass(frozen=True)
class DeferredDecode:
    """Operations on uint8 images that the device has to apply."""

    table: Array
    """The final value of each byte, by channel: (C, 256) of float32, or (1, 256) for all channels."""
    shape: tuple[int, ...]
    """Shape of a sample, such as (C, H, W) of images."""
    parts: tuple[tuple[int, int, int], ...] = ()
    """Crops before the table is applied, in their order: height, width and padding byte."""
    position_fields: tuple[str, ...] = field(default=())
    """The fields that hold the positions of the crops, (N, 4) of int32."""


def lookup_table(field: FieldType, transforms: Sequence[Transform]) -> Array | None:
    """Return the value of each byte after pointwise transforms, (C, 256) of float32, bit-identical to applying them.

    (1, 256) if all channels are equal. None if there are too many channels, or if a byte has no finite value.
    """
    channels = field.shape[0] if field.shape else 1
    if channels is None or channels > MAX_CHANNELS:
        return None
    every = np.arange(BYTES)
    axes = (1,) * max(0, len(field.shape) - 1)
    all_bytes = np.ascontiguousarray(
        np.broadcast_to(every.reshape(BYTES, 1, *axes), (BYTES, channels, *axes)), np.uint8
    )
    values = all_bytes if field.shape else all_bytes.reshape(BYTES)
    with np.errstate(all="ignore"):
        for stage, transform in enumerate(transforms):
            changed = transform.apply(values, SampleKeys(0, 0, every, stage))
            assert not isinstance(changed, list)
            values = changed
    table: Array = np.ascontiguousarray(values.reshape(BYTES, channels).T)
    if not np.isfinite(table).all():
        return None
    return table[:1] if (table == table[0]).all() else table
