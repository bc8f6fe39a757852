"""Photos resized by a compiled loop have Pillow's pixels, for any part, size and order of the axes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from PIL import Image

from netspec.data.imaging import geometry
from netspec.data.imaging.arrays import PillowImage, from_pillow
from netspec.data.imaging.resampling import resized_photo

PHOTO = Image.fromarray(np.random.default_rng(0).integers(0, 256, (300, 400, 3), np.uint8))
FILTERS = {"bilinear": Image.Resampling.BILINEAR, "box": Image.Resampling.BOX}


@pytest.mark.parametrize("interpolation", FILTERS)
@pytest.mark.parametrize(
    ("height", "width", "to"),
    [
        (300, 400, (224, 224)), (120, 90, (224, 224)), (300, 60, (224, 224)), (60, 400, (224, 224)), (1, 1, (9, 7)),
        (240, 231, (224, 224)), (240, 232, (224, 224)),  # the order of the axes changes between these sizes
        (224, 300, (224, 100)), (250, 224, (100, 224)), (299, 399, (1, 1)), (300, 400, (500, 10)), (7, 300, (80, 3)),
    ],
)  # fmt: skip
def test_pixels_equal_pillow(height, width, to, interpolation):
    top, left = (300 - height) // 2, (400 - width) // 3
    box = (left, top, left + width, top + height)
    expected = from_pillow(PHOTO.crop(box).resize(to[::-1], FILTERS[interpolation]))
    resized = resized_photo(PHOTO, box, to[0], to[1], interpolation)
    assert resized is not None
    assert resized.flags.c_contiguous
    assert np.array_equal(resized, expected)


def test_other_pillow_modes_are_resized_by_pillow():
    assert resized_photo(PHOTO.convert("L"), (0, 0, 400, 300), 9, 9, "bilinear") is None
    large = Image.new("RGB", (2100, 2100))  # larger than Pillow's blocks of 16 MB
    assert resized_photo(large, (0, 0, 2100, 2100), 9, 9, "bilinear") is None
    assert geometry.resized(PillowImage(large), 9, 9, "bilinear").shape == (9, 9, 3)


@pytest.mark.parametrize("interpolation", ["bilinear", "bicubic"])
def test_pillow_images_and_arrays_are_resized_equally(interpolation, monkeypatch):
    as_array = geometry.resized(np.asarray(PHOTO), 50, 60, interpolation)
    requests = []

    def noted(*args: Any) -> Any:
        requests.append(args[-1])
        return resized_photo(*args)

    monkeypatch.setattr("netspec.data.imaging.resampling.resized_photo", noted)
    assert np.array_equal(geometry.resized(PillowImage(PHOTO), 50, 60, interpolation), as_array)
    window = PillowImage(PHOTO).window(3, 4, 100, 100)  # too small for numba to be loaded
    part = geometry.resized(window, 50, 60, interpolation)
    assert np.array_equal(part, geometry.resized(np.asarray(PHOTO)[3:103, 4:104], 50, 60, interpolation))
    assert requests == ["bilinear"] * (interpolation == "bilinear")
