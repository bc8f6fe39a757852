"""Geometric operations on images (H, W, C) of any type: cropping, padding, resizing, affine and perspective maps.

Maps are eight coefficients, as in Keras and TensorFlow: pixel (x, y) of the result is the pixel of the image at
((a·x + b·y + c) / k, (d·x + e·y + f) / k) with k = g·x + h·y + 1, in pixels from the center of the upper left pixel.
"""

from __future__ import annotations

from functools import lru_cache
from math import ceil, floor
from typing import TYPE_CHECKING

import numpy as np
from PIL import Image

from netspec.data.base import Array
from netspec.data.imaging.arrays import PillowImage, pixels, through_pillow

if TYPE_CHECKING:
    from collections.abc import Sequence

    Map = tuple[float, float, float, float, float, float, float, float]


_FILTERS = {
    "nearest": Image.Resampling.NEAREST,
    "bilinear": Image.Resampling.BILINEAR,
    "bicubic": Image.Resampling.BICUBIC,
    "lanczos": Image.Resampling.LANCZOS,
    "box": Image.Resampling.BOX,
}
_QUICK = ("box", "bilinear")
MANY = 2**14
"""Number of pixels above which netspec's compiled loop resizes an image: loading it takes a second or two."""
_REACH = {"nearest": 0, "bilinear": 1, "bicubic": 2}
"""Number of pixels beyond a position that an interpolation reads."""


@lru_cache(maxsize=4096)
def _extended_indices(start: int, count: int, size: int, fill_mode: str) -> Array:
    """Return the pixel indices for `count` positions from `start` on, in a row of `size` extended by `fill_mode`."""
    positions = np.arange(start, start + count)
    if fill_mode == "wrap":
        return positions % size
    if fill_mode == "nearest":
        return positions.clip(0, size - 1)
    positions = positions % (2 * size)  # reflect: d c b a | a b c d | d c b a
    return np.where(positions < size, positions, 2 * size - 1 - positions)


def cut(image: Array | PillowImage, top: int, left: int, height: int, width: int) -> Array | PillowImage:
    """Crop an image at (top, left) to (height, width, C), without a copy. The crop must be within the image."""
    if isinstance(image, PillowImage):
        return image.window(top, left, height, width)
    return image[top : top + height, left : left + width]


def window(
    image: Array | PillowImage,
    top: int,
    left: int,
    height: int,
    width: int,
    fill_mode: str = "constant",
    fill_value: float = 0.0,
) -> Array:
    """Crop an image at (top, left) to (height, width, C). Beyond the edges it is extended by `fill_mode`."""
    rows, columns = image.shape[:2]
    above, before = max(0, -top), max(0, -left)
    end_row, end_column = min(rows, top + height), min(columns, left + width)
    if above == before == 0 and end_row == top + height and end_column == left + width:
        return pixels(cut(image, top, left, height, width))
    image = pixels(image)
    if fill_mode == "constant":
        result = np.empty((height, width, image.shape[2]), image.dtype)
        result.fill(fill_value)
        if end_row > max(0, top) and end_column > max(0, left):
            inside = image[max(0, top) : end_row, max(0, left) : end_column]
            result[above : above + inside.shape[0], before : before + inside.shape[1]] = inside
        return result
    rows_taken = image.take(_extended_indices(top, height, rows, fill_mode), axis=0)
    across = _extended_indices(left, width, columns, fill_mode)
    after = max(before, end_column - left)
    parts = (rows_taken[:, across[:before]], rows_taken[:, max(0, left) : end_column], rows_taken[:, across[after:]])
    return np.concatenate([part for part in parts if part.shape[1]], axis=1)


def middle(image: Array | PillowImage, height: int, width: int) -> Array | PillowImage:
    """Crop the center of an image, (height, width, C); an odd remainder is cut off at the bottom and right."""
    top, left = (image.shape[0] - height) // 2, (image.shape[1] - width) // 2
    return cut(image, top, left, height, width)


def cropped_to(image: Array | PillowImage, height: int, width: int) -> Array | PillowImage:
    """Return the largest center crop with the aspect ratio of `height` and `width`."""
    return cut(image, *cropped_box(image.shape[0], image.shape[1], height, width))


def cropped_box(rows: int, columns: int, height: int, width: int) -> tuple[int, int, int, int]:
    """Return top, left, height and width of the crop that `cropped_to` returns."""
    tall, wide = max(1, min(rows, columns * height // width)), max(1, min(columns, rows * width // height))
    return (rows - tall) // 2, (columns - wide) // 2, tall, wide


def padded_to(image: Array | PillowImage, height: int, width: int, fill_value: float) -> Array:
    """Pad an image on both sides to the aspect ratio of `height` and `width`."""
    return window(image, *padded_box(image.shape[0], image.shape[1], height, width), "constant", fill_value)


def padded_box(rows: int, columns: int, height: int, width: int) -> tuple[int, int, int, int]:
    """Return top, left (both ≤ 0), height and width of the window that `padded_to` returns."""
    tall, wide = max(rows, columns * height // width), max(columns, rows * width // height)
    return -((tall - rows) // 2), -((wide - columns) // 2), tall, wide


def resized(
    image: Array | PillowImage, height: int, width: int, interpolation: str, *, antialias: bool = True
) -> Array:
    """Resize (H, W, C) → (height, width, C). With `antialias`, a pixel is a mean of all pixels that it covers."""
    if image.shape[:2] == (height, width):
        return pixels(image)
    resample = _FILTERS[interpolation]
    if antialias or interpolation not in _REACH:
        if isinstance(image, PillowImage) and image.shape[0] * image.shape[1] > MANY and interpolation in _QUICK:
            resized = image.resized(height, width, interpolation)
            if resized is not None:
                return resized
        return through_pillow(image, lambda opened: opened.resize((width, height), resample))
    rows, columns = image.shape[:2]
    scale = (columns / width, 0.0, 0.0, 0.0, rows / height, 0.0)
    return through_pillow(
        image, lambda opened: opened.transform((width, height), Image.Transform.AFFINE, scale, resample=resample)
    )


def mapped(image: Array, by: Map, interpolation: str, fill_mode: str, fill_value: float = 0.0) -> Array:
    """Sample an image (H, W, C) at the positions that `by` gives; beyond the edges it is extended by `fill_mode`."""
    height, width = image.shape[:2]
    a, b, c, d, e, f, g, h = by
    if fill_mode != "constant":
        top, left, bottom, right = _source_bounds(by, height, width, _REACH[interpolation])
        if top < 0 or left < 0 or bottom > height or right > width:
            top, left, bottom, right = min(top, 0), min(left, 0), max(bottom, height), max(right, width)
            image = window(image, top, left, bottom - top, right - left, fill_mode)
            # Count positions from the new upper left pixel: subtract left·k and top·k.
            a, b, c = a - left * g, b - left * h, c - left
            d, e, f = d - top * g, e - top * h, f - top
    # In Pillow, the center of the upper left pixel is at (½, ½), in the image and in the result.
    k = 1 - (g + h) / 2
    a, b, c = a + g / 2, b + h / 2, c - (a + b) / 2 + k / 2
    d, e, f = d + g / 2, e + h / 2, f - (d + e) / 2 + k / 2
    method, coefficients = Image.Transform.AFFINE, [a, b, c, d, e, f]
    if g or h:
        method, coefficients = (
            Image.Transform.PERSPECTIVE,
            [coefficient / k for coefficient in (a, b, c, d, e, f, g, h)],
        )
    return through_pillow(
        image,
        lambda opened: opened.transform(
            (width, height),
            method,
            coefficients,
            resample=_FILTERS[interpolation],
            fillcolor=_color(opened, fill_value),
        ),
    )


def points_in_box(points: Array, box: tuple[int, int, int, int], height: int, width: int) -> Array:
    """Map points (x, y), (P, 2), to an image that is the box (top, left, height, width) resized to (height, width)."""
    top, left, tall, wide = box
    moved: Array = (points - (left, top)) * (width / wide, height / tall)
    return moved


def mapped_points(points: Array, by: Map) -> Array:
    """Map points (x, y), (P, 2), to their positions after `mapped`; NaN for points that have none."""
    a, b, c, d, e, f, g, h = by
    try:
        inverse = np.linalg.inv(np.array([[a, b, c], [d, e, f], [g, h, 1.0]]))
    except np.linalg.LinAlgError:
        return np.full(points.shape, np.nan)
    across, down, scale = inverse @ np.stack([*(points.T - 0.5), np.ones(len(points))])
    with np.errstate(divide="ignore", invalid="ignore"):
        moved: Array = np.where(scale > 0, np.stack([across, down]) / scale, np.nan)
    return moved.T + 0.5


def _color(image: Image.Image, value: float) -> float | tuple[int, ...]:
    if image.mode == "F":
        return value
    return (round(value),) * len(image.getbands()) if len(image.getbands()) > 1 else round(value)


def _source_bounds(by: Map, height: int, width: int, reach: int) -> tuple[int, int, int, int]:
    """Return the bounds that the map reads: top, left, bottom, right. The corners suffice, since lines remain lines."""
    a, b, c, d, e, f, g, h = by
    across, down = [], []
    for x in (0, width - 1):
        for y in (0, height - 1):
            k = g * x + h * y + 1
            across.append((a * x + b * y + c) / k)
            down.append((d * x + e * y + f) / k)
    return (
        floor(min(down)) - reach,
        floor(min(across)) - reach,
        ceil(max(down)) + reach + 1,
        ceil(max(across)) + reach + 1,
    )


def homography(sources: Sequence[tuple[float, float]], targets: Sequence[tuple[float, float]]) -> Map | None:
    """Return the map that moves four positions `sources` (x, y) of an image to `targets`.

    None if three positions are on one line.
    """
    rows, right_side = [], []
    for (u, v), (x, y) in zip(sources, targets, strict=True):
        rows += [[x, y, 1, 0, 0, 0, -u * x, -u * y], [0, 0, 0, x, y, 1, -v * x, -v * y]]
        right_side += [u, v]
    try:
        a, b, c, d, e, f, g, h = np.linalg.solve(np.array(rows, np.float64), np.array(right_side, np.float64)).tolist()
    except np.linalg.LinAlgError:
        return None
    return a, b, c, d, e, f, g, h
