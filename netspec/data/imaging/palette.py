"""Colors of classes in masks."""

from __future__ import annotations

from colorsys import hsv_to_rgb
from functools import cache

import numpy as np

from netspec.data.base import Array

HUE_STEP = 67
"""Distance of the hues of two classes, in degrees: neighbors differ clearly."""


@cache
def class_colors() -> Array:
    """Return the color of each class index, (256, 3) of uint8; class 0, mostly the background, is black."""
    colors = [hsv_to_rgb(HUE_STEP * index % 360 / 360, 0.8, 0.9 if index else 0.0) for index in range(256)]
    palette: Array = np.rint(255 * np.array(colors)).astype(np.uint8)
    return palette
