"""The part of a picture that a net sees, in pixels of the picture: the inverse of transforms that move positions."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from netspec.data.base import SampleKeys, Transform
from netspec.data.imaging.base import Draw, ImageShape, ImageTransform

Window = tuple[float, float, float, float]
"""Left, top, right and bottom edge. A net may see more than the picture, such as a border."""


def moving_transforms(transforms: Sequence[Transform]) -> list[ImageTransform] | None:
    """Return the transforms that move positions in images; None if one of them moves them in an unknown way."""
    known = all(transform.positions is not None and not transform.random for transform in transforms)
    if not known:
        return None
    images = [transform for transform in transforms if isinstance(transform, ImageTransform)]
    return [transform for transform in images if transform.positions == "moved"]


def picture_window(
    transforms: Sequence[ImageTransform], size: tuple[int, int], read_size: tuple[int, int] | None
) -> Window | None:
    """Return the part of a picture of `size` (H, W) that is left after the transforms; None if axes are not kept.

    `read_size` is the size to which the picture is resized when it is read.
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
