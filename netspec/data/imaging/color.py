"""Color operations on an image (H, W, C), by Keras's formulas; results have the type of the image.

Values are computed in float32 (float64 if the image is float64); for uint8 they are rounded to the nearest integer.
"""

from __future__ import annotations

import numpy as np

from netspec.data.base import Array

GRAY = (0.2989, 0.587, 0.114)
"""The weights of red, green and blue in gray, as in Keras and TensorFlow (ITU-R BT.601)."""


def floats(image: Array) -> Array:
    """Return a copy as floats, contiguous in the order (H, W, C)."""
    return image.astype(_float_type(image), order="C")


def planes(image: Array) -> Array:
    """Return a copy as floats, contiguous in the order (C, H, W), in which operations on a channel are faster."""
    return np.ascontiguousarray(image.transpose(2, 0, 1)).astype(_float_type(image))


def _float_type(image: Array) -> type[np.float32 | np.float64]:
    return np.float64 if image.dtype == np.float64 else np.float32


def like(image: Array, values: Array, span: tuple[float, float]) -> Array:
    """Return values clipped to the range, in the type of `image`; `values` may be modified."""
    if image.dtype == np.uint8:
        np.rint(values, out=values)
    values.clip(*span, out=values)
    return values.astype(image.dtype, copy=False)


def brightened(image: Array, delta: float, span: tuple[float, float]) -> Array:
    """Return x + delta, clipped to the range."""
    values = floats(image)
    values += values.dtype.type(delta)
    return like(image, values, span)


def _as_pixel_row(channels: Array, width: int) -> Array:
    """Repeat one value per channel for a row of pixels: (C,) → (width · C,)."""
    row = np.empty((width, len(channels)), channels.dtype)
    row[:] = channels
    return row.reshape(-1)


def contrasted(image: Array, factor: float, span: tuple[float, float]) -> Array:
    """Return (x − mean) · factor + mean, with the mean of each channel, clipped to the range."""
    height, width, channels = image.shape
    values = floats(image).reshape(height, width * channels)  # long rows are faster
    means = values.sum(axis=0, dtype=np.float64).reshape(width, channels).sum(axis=0) / (height * width)
    values *= values.dtype.type(factor)
    values += _as_pixel_row((means * (1 - factor)).astype(values.dtype), width)
    return like(image, values.reshape(image.shape), span)


def blended(image: Array, other: Array, share: float, span: tuple[float, float]) -> Array:
    """Return x + share · (other − x), clipped to the range; a share below 0 extrapolates."""
    values = floats(image)
    values *= values.dtype.type(1 - share)
    values += values.dtype.type(share) * other
    return like(image, values, span)


def gray(image: Array) -> Array:
    """Return 0.2989 red + 0.587 green + 0.114 blue, (H, W, 1) of floats."""
    weights = np.array(GRAY, _float_type(image))
    if image.shape[2] == 1:
        return image.astype(weights.dtype)
    red, green, blue = (image[:, :, channel : channel + 1] for channel in range(3))
    gray: Array = red * weights[0]
    gray += green * weights[1]
    gray += blue * weights[2]
    return gray


def saturated(image: Array, factor: float, span: tuple[float, float]) -> Array:
    """Multiply the HSV saturation by `factor`, up to 1; hue and value do not change.

    In HSV, x = V · (1 − S · d), where d depends only on the hue and S = (V − min) / V: V − x is proportional to S.
    """
    values = planes(image)
    values -= span[0]
    highest = np.maximum(np.maximum(values[0], values[1]), values[2])
    spread = highest - np.minimum(np.minimum(values[0], values[1]), values[2])
    with np.errstate(divide="ignore", invalid="ignore"):
        times = np.minimum(values.dtype.type(factor), highest / spread)
    times[spread <= 0] = 0  # gray pixels do not change
    values -= highest
    values *= times
    values += highest
    values += span[0]
    return like(image, values.transpose(1, 2, 0), span)


def hue_turned(image: Array, turn: float, span: tuple[float, float]) -> Array:
    """Rotate the HSV hue by `turn` of a full circle; saturation and value do not change."""
    values = planes(image)
    values -= span[0]
    red, green, blue = values
    highest = np.maximum(np.maximum(red, green), blue)
    spread = highest - np.minimum(np.minimum(red, green), blue)
    sixth = 1 / np.where(spread > 0, spread, 1)
    hue = np.where(highest == green, (blue - red) * sixth + 2, (red - green) * sixth + 4)
    hue = np.where(highest == red, (green - blue) * sixth, hue)
    hue += values.dtype.type(6 * turn)
    hue %= 6  # in sixths of the circle
    for channel, middle in enumerate((0, 2, 4)):  # distance from the hue of red, green, blue: up to a sixth, x = V
        away = np.abs(hue - middle)
        np.minimum(away, 6 - away, out=away)
        away -= 1
        away.clip(0, 1, out=away)
        away *= spread
        np.subtract(highest, away, out=values[channel])
    values += span[0]
    return like(image, values.transpose(1, 2, 0), span)


def inverted(image: Array, span: tuple[float, float]) -> Array:
    """Return highest − x."""
    highest = 255 if image.dtype == np.uint8 else image.dtype.type(span[1])
    inverted: Array = highest - image
    return inverted


def posterized(image: Array, bits: int, span: tuple[float, float]) -> Array:
    """Return the image with only the upper `bits` bits of its values, on the scale 0 … 255."""
    mask = np.uint8(256 - (1 << (8 - bits)))
    if image.dtype == np.uint8:
        return image & mask
    values = to_bytes(image, span)
    steps = values.astype(np.uint8) & mask
    return from_bytes(np.where(np.isnan(values), values, steps), image, span)


def solarized(image: Array, addition: float, threshold: float, span: tuple[float, float]) -> Array:
    """Return x + addition, clipped, with values from `threshold` on inverted; both are on the scale 0 … 255."""
    values = to_bytes(image, span)
    values += values.dtype.type(addition)
    values.clip(0, 255, out=values)
    np.subtract(255, values, out=values, where=values >= threshold)
    return like(image, values, span) if image.dtype == np.uint8 else from_bytes(values, image, span)


def to_bytes(image: Array, span: tuple[float, float]) -> Array:
    """Return the values scaled from the range to 0 … 255, as floats."""
    values = floats(image)
    if image.dtype != np.uint8:
        values -= values.dtype.type(span[0])
        values *= values.dtype.type(255 / (span[1] - span[0]))
    return values


def from_bytes(values: Array, image: Array, span: tuple[float, float]) -> Array:
    """Return the inverse of `to_bytes`, in the type of `image`."""
    result: Array = values.astype(_float_type(image))
    result *= result.dtype.type((span[1] - span[0]) / 255)
    result += result.dtype.type(span[0])
    return result.astype(image.dtype, copy=False)


def stretched(image: Array, span: tuple[float, float]) -> Array:
    """Scale each channel so that its values fill the range; a constant channel does not change."""
    height, width, channels = image.shape
    rows = np.ascontiguousarray(image).reshape(height, width * channels)
    low = rows.min(axis=0).reshape(width, channels).min(axis=0).astype(np.float64)
    high = rows.max(axis=0).reshape(width, channels).max(axis=0).astype(np.float64)
    flat = high <= low
    scale = np.where(flat, 1.0, (span[1] - span[0]) / np.where(flat, 1.0, high - low))
    offset = np.where(flat, 0.0, span[0] - low * scale)
    values = floats(image).reshape(height, width * channels)
    values *= _as_pixel_row(scale.astype(values.dtype), width)
    values += _as_pixel_row(offset.astype(values.dtype), width)
    return like(image, values.reshape(image.shape), span)


def equalized(image: Array, bins: int, span: tuple[float, float]) -> Array:
    """Equalize the histogram of each channel: a value becomes the share of pixels with at most this value."""
    equalized = np.empty(image.shape, image.dtype)
    for channel in range(image.shape[2]):
        plane = to_bytes(image[:, :, channel], span)
        bin_indices = (plane * ((bins - 1) / 255)).astype(np.int32).clip(0, bins - 1)
        counts = np.bincount(bin_indices.ravel(), minlength=bins)
        if np.count_nonzero(counts) < 2:
            equalized[:, :, channel] = image[:, :, channel]
            continue
        upto = counts.cumsum()
        first = upto[np.flatnonzero(counts)[0]]
        levels = np.rint((upto - first) * (255 / (upto[-1] - first))).clip(0, 255).astype(plane.dtype)
        if image.dtype != np.uint8:
            levels = levels * plane.dtype.type((span[1] - span[0]) / 255) + plane.dtype.type(span[0])
        equalized[:, :, channel] = (
            levels[bin_indices] if image.dtype == np.uint8 else np.where(np.isnan(plane), plane, levels[bin_indices])
        )
    return equalized
