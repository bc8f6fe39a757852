"""The effect of transforms on byte images, as plain data that does not depend on the transforms."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from netspec.data.base import FieldType, SampleKeys, Transform

if TYPE_CHECKING:
    from netspec.data.base import Array

BYTES = 256
MOST_CHANNELS = 64
"""Of a field: a table of more would be no small one."""


MOST_CUT = 2.0
"""How many times as many bytes images may have as their parts, to be cropped late: bytes have a way to go, too."""


@dataclass(frozen=True)
class Late:
    """Remaining work on byte images."""

    table: Array
    """What each byte stands for at last: (C, 256) of float32, or (1, 256) for all channels."""
    shape: tuple[int, ...]
    """(C, H, W) of images as they come, or what else a sample is."""
    parts: tuple[tuple[int, int, int], ...] = ()
    """Before that: height, width, and the byte around, of parts of parts of images."""
    places: tuple[str, ...] = field(default=())
    """The fields that hold the places of these, (N, 4) of int32."""


def table_of_bytes(field: FieldType, transforms: Sequence[Transform]) -> Array | None:
    """What each byte becomes, (C, 256) of float32, computed by the pointwise transforms themselves: bit-identical.

    (1, 256) where all channels are alike. None where there are many channels, or some bytes become no finite number.
    """
    channels = field.shape[0] if field.shape else 1
    if channels is None or channels > MOST_CHANNELS:
        return None
    every = np.arange(BYTES)
    axes = (1,) * max(0, len(field.shape) - 1)
    found = np.ascontiguousarray(np.broadcast_to(every.reshape(BYTES, 1, *axes), (BYTES, channels, *axes)), np.uint8)
    values = found if field.shape else found.reshape(BYTES)
    with np.errstate(all="ignore"):
        for stage, one in enumerate(transforms):
            changed = one.apply(values, SampleKeys(0, 0, every, stage))
            assert not isinstance(changed, list)
            values = changed
    table: Array = np.ascontiguousarray(values.reshape(BYTES, channels).T)
    if not np.isfinite(table).all():
        return None
    return table[:1] if (table == table[0]).all() else table
