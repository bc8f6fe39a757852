"""Blurring and sharpening of an image (H, W, C)."""

from __future__ import annotations

import numpy as np

from netspec.data.base import Array
from netspec.data.imaging.color import blended, floats, like


def gaussian_weights(size: int, sigma: float) -> Array:
    """Return exp(−½ (i / sigma)²), with i counted from the center, normalized to the sum 1: (size,)."""
    away = (np.arange(size) - (size - 1) / 2) / sigma
    weights = np.exp(-0.5 * away**2)
    normalized: Array = weights / weights.sum()
    return normalized


def blurred(image: Array, size: int, sigma: tuple[float, float], span: tuple[float, float]) -> Array:
    """Blur with a Gaussian kernel of `size` × `size` and `sigma` (vertical, horizontal); edges are mirrored."""
    half = size // 2
    values = np.pad(floats(image), ((half, half), (half, half), (0, 0)), mode="reflect")
    for axis, (length, deviation) in enumerate(zip(image.shape[:2], sigma, strict=True)):
        weights = gaussian_weights(size, deviation).astype(values.dtype)
        total = np.zeros((*values.shape[:axis], length, *values.shape[axis + 1 :]), values.dtype)
        for offset, weight in enumerate(weights):
            part = values[offset : offset + length] if axis == 0 else values[:, offset : offset + length]
            total += weight * part
        values = total
    return like(image, values, span)


def smoothed(image: Array) -> Array:
    """Return means of 3 × 3 pixels, the center weighted by 5, as floats. As in Pillow, edge pixels do not change."""
    values = floats(image)
    if min(image.shape[:2]) < 3:
        return values
    across = values[:, :-2] + values[:, 1:-1]
    across += values[:, 2:]
    total = across[:-2] + across[1:-1]
    total += across[2:]
    middle = values[1:-1, 1:-1]
    total += 4 * middle
    total *= values.dtype.type(1 / 13)
    values[1:-1, 1:-1] = total
    return values


def sharpened(image: Array, factor: float, span: tuple[float, float]) -> Array:
    """Extrapolate from the smoothed image: factor 0 smooths, 1 changes nothing, 2 sharpens."""
    return blended(image, smoothed(image), 1 - factor, span)
