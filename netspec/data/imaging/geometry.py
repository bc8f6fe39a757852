"""Geometric operations: windows of images, resizing, affine and perspective maps; on (H, W, C) of any type.

Maps are eight coefficients as Keras and TensorFlow have them: the result's pixel (x, y) is the image's at
((a·x + b·y + c) / k, (d·x + e·y + f) / k) with k = g·x + h·y + 1, in pixels from the centre of the first.
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
"""Pixels that are resized by a compiled loop of our own: what loads and compiles it once takes a second or two."""
_REACH = {"nearest": 0, "bilinear": 1, "bicubic": 2}
"""Number of pixels beyond a position that an interpolation reads."""


@lru_cache(maxsize=4096)
def _sources(start: int, count: int, size: int, fill_mode: str) -> Array:
    """Return the indices of the pixels at `count` positions from `start` on, in a line continued by `fill_mode`."""
    positions = np.arange(start, start + count)
    if fill_mode == "wrap":
        return positions % size
    if fill_mode == "nearest":
        return positions.clip(0, size - 1)
    positions = positions % (2 * size)  # reflect: d c b a | a b c d | d c b a
    return np.where(positions < size, positions, 2 * size - 1 - positions)


def cut(image: Array | PillowImage, top: int, left: int, height: int, width: int) -> Array | PillowImage:
    """The part of an image at (top, left), which lies within it: (height, width, C), not copied."""
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
    """The part of an image at (top, left), which may reach beyond it: (height, width, C)."""
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
    rows_taken = image.take(_sources(top, height, rows, fill_mode), axis=0)
    across = _sources(left, width, columns, fill_mode)
    after = max(before, end_column - left)
    parts = (rows_taken[:, across[:before]], rows_taken[:, max(0, left) : end_column], rows_taken[:, across[after:]])
    return np.concatenate([part for part in parts if part.shape[1]], axis=1)


def middle(image: Array | PillowImage, height: int, width: int) -> Array | PillowImage:
    """The middle of an image, (height, width, C); of an odd remainder the larger half is cut off below and right."""
    top, left = (image.shape[0] - height) // 2, (image.shape[1] - width) // 2
    return cut(image, top, left, height, width)


def cropped_to(image: Array | PillowImage, height: int, width: int) -> Array | PillowImage:
    """The largest middle part of an image that has the proportions of `height` and `width`."""
    return cut(image, *cropped_box(image.shape[0], image.shape[1], height, width))


def cropped_box(rows: int, columns: int, height: int, width: int) -> tuple[int, int, int, int]:
    """Top, left, height and width of the part of an image that `cropped_to` returns."""
    tall, wide = max(1, min(rows, columns * height // width)), max(1, min(columns, rows * width // height))
    return (rows - tall) // 2, (columns - wide) // 2, tall, wide


def padded_to(image: Array | PillowImage, height: int, width: int, fill_value: float) -> Array:
    """The smallest image of the proportions of `height` and `width` that has this one in its middle."""
    return window(image, *padded_box(image.shape[0], image.shape[1], height, width), "constant", fill_value)


def padded_box(rows: int, columns: int, height: int, width: int) -> tuple[int, int, int, int]:
    """Top, left (both up to 0), height and width of the window that `padded_to` returns."""
    tall, wide = max(rows, columns * height // width), max(columns, rows * width // height)
    return -((tall - rows) // 2), -((wide - columns) // 2), tall, wide


def resized(
    image: Array | PillowImage, height: int, width: int, interpolation: str, *, antialias: bool = True
) -> Array:
    """(H, W, C) → (height, width, C). With `antialias` each pixel is a mean of all that it stands for."""
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
    """Sample an image (H, W, C) at the map's positions; beyond the edges it is extended by `fill_mode`."""
    height, width = image.shape[:2]
    a, b, c, d, e, f, g, h = by
    if fill_mode != "constant":
        top, left, bottom, right = _reached(by, height, width, _REACH[interpolation])
        if top < 0 or left < 0 or bottom > height or right > width:
            top, left, bottom, right = min(top, 0), min(left, 0), max(bottom, height), max(right, width)
            image = window(image, top, left, bottom - top, right - left, fill_mode)
            # The same positions, counted from the new first pixel: x·k is moved by left·k.
            a, b, c = a - left * g, b - left * h, c - left
            d, e, f = d - top * g, e - top * h, f - top
    # Pillow puts the centre of the first pixel at ½, in what it reads and in what it makes.
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
            fillcolor=_colour(opened, fill_value),
        ),
    )


def points_in_box(points: Array, box: tuple[int, int, int, int], height: int, width: int) -> Array:
    """Positions (P, 2) of x, y after the box (top, left, height, width) of an image is resized to (height, width)."""
    top, left, tall, wide = box
    moved: Array = (points - (left, top)) * (width / wide, height / tall)
    return moved


def mapped_points(points: Array, by: Map) -> Array:
    """Positions (P, 2) of x, y, counted from the upper left edge, after `mapped`; NaN if it shows them nowhere."""
    a, b, c, d, e, f, g, h = by
    try:
        inverse = np.linalg.inv(np.array([[a, b, c], [d, e, f], [g, h, 1.0]]))
    except np.linalg.LinAlgError:
        return np.full(points.shape, np.nan)
    across, down, scale = inverse @ np.stack([*(points.T - 0.5), np.ones(len(points))])
    with np.errstate(divide="ignore", invalid="ignore"):
        moved: Array = np.where(scale > 0, np.stack([across, down]) / scale, np.nan)
    return moved.T + 0.5


def _colour(image: Image.Image, value: float) -> float | tuple[int, ...]:
    if image.mode == "F":
        return value
    return (round(value),) * len(image.getbands()) if len(image.getbands()) > 1 else round(value)


def _reached(by: Map, height: int, width: int, reach: int) -> tuple[int, int, int, int]:
    """First row and column that the map reads, and those behind the last; by the corners, as lines stay lines."""
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
