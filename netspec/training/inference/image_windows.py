"""The part of an image that a net sees, in pixels of the image: the inverse of transforms that move positions."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from netspec.data.base import SampleKeys, Transform
from netspec.data.imaging.base import Draw, ImageShape, ImageTransform

Window = tuple[float, float, float, float]
"""Left, top, right and bottom edge. The window may extend beyond the image, such as over padding."""


def moving_transforms(transforms: Sequence[Transform]) -> list[ImageTransform] | None:
    """Return the transforms that move positions in images; None if a transform moves them in an unknown way."""
    invertible = all(transform.positions is not None and not transform.random for transform in transforms)
    if not invertible:
        return None
    images = [transform for transform in transforms if isinstance(transform, ImageTransform)]
    return [transform for transform in images if transform.positions == "moved"]


def image_window(
    transforms: Sequence[ImageTransform], size: tuple[int, int], read_size: tuple[int, int] | None
) -> Window | None:
    """Return the part of an image of `size` (H, W) that transforms keep; None if they turn or mirror it.

    `read_size` is the size to which the image is resized when it is read.
    """
    points = np.array([[0.0, 0.0], [size[1], size[0]]])
    if read_size is not None:
        points = points * [read_size[1] / size[1], read_size[0] / size[0]]
    now = read_size or size
    keys = SampleKeys(0, 0, np.zeros(1, np.int64), 0)
    for transform in transforms:
        points = transform.move_points(points, now, Draw([0.0] * transform.draws, keys, 0))
        _, height, width = transform.result(ImageShape(1, *now))
        assert height is not None
        assert width is not None
        now = height, width
    scale = (points[1] - points[0]) / [size[1], size[0]]
    if not (scale > 0).all():  # NaN, turned or mirrored
        return None
    (left, top), (right, bottom) = -points[0] / scale, (np.array([now[1], now[0]]) - points[0]) / scale
    return float(left), float(top), float(right), float(bottom)
