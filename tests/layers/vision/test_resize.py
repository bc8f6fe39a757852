"""Sampling positions of Resize, by examples calculated by hand."""

from __future__ import annotations

import numpy as np
import pytest

from tests.layers.apply import layer

RISING = np.arange(4.0).reshape(1, 1, 4)


@pytest.mark.parametrize(
    ("where", "scale", "expected"),
    [
        ("half_pixel", 2.0, [0, 0.25, 0.75, 1.25, 1.75, 2.25, 2.75, 3]),
        ("align_corners", 1.75, [0, 0.5, 1, 1.5, 2, 2.5, 3]),
        ("asymmetric", 2.0, [0, 0.5, 1, 1.5, 2, 2.5, 3, 3]),
        ("pytorch_half_pixel", 0.25, [0]),
        ("half_pixel", 0.25, [1.5]),
        ("half_pixel_symmetric", 0.875, [1.5 - 8 / 7, 1.5, 1.5 + 8 / 7]),  # centered, though 3.5 elements became 3
    ],
)
def test_resize_preserves_lines(where: str, scale: float, expected: list[float]) -> None:
    fields = {"type": "Resize", "mode": "linear", "coordinate_transformation_mode": where, "scales": [scale]}
    np.testing.assert_allclose(layer(fields, RISING).y.ravel(), expected)


@pytest.mark.parametrize(
    ("mode", "where", "scale", "expected"),
    [
        ("linear", "align_corners", 1.7, [0, 0.571429, 1.428572, 3.142857, 3.428571, 2.285714, 2.428571, 3]),
        ("cubic", "align_corners", 1.7, [0, 0.265307, 1.467931, 3.470845, 3.75656, 2.202623, 2.209913, 3]),
        ("linear", "align_corners", 0.5, [0, 3]),
        ("cubic", "pytorch_half_pixel", 0.35, [0]),
    ],
)
def test_resize_sizes_match_onnxruntime(mode: str, where: str, scale: float, expected: list[float]) -> None:
    """Recorded from onnxruntime 1.31.1; for align_corners, PyTorch's interpolate agrees."""
    fields = {"type": "Resize", "mode": mode, "coordinate_transformation_mode": where, "scales": [scale]}
    x = np.array([0, 1, 4, 2, 3], np.float32).reshape(1, 1, 5)
    np.testing.assert_allclose(layer(fields, x).y.ravel(), expected, atol=2e-6)


@pytest.mark.parametrize(
    ("rounding", "halves", "thirds"),
    [
        ("round_prefer_floor", [0, 0, 1, 1, 2, 2], [0, 1, 1, 2]),
        ("round_prefer_ceil", [0, 1, 1, 2, 2, 2], [0, 1, 1, 2]),
        ("floor", [0, 0, 1, 1, 2, 2], [0, 0, 1, 2]),
        ("ceil", [0, 1, 1, 2, 2, 2], [0, 1, 2, 2]),
    ],
)
def test_nearest_mode_rounding(rounding: str, halves: list[int], thirds: list[int]) -> None:
    x = np.arange(3.0).reshape(1, 1, 3)
    fields = {"type": "Resize", "nearest_mode": rounding}
    at_halves = layer({**fields, "coordinate_transformation_mode": "asymmetric", "scales": [2.0]}, x).y
    at_thirds = layer({**fields, "coordinate_transformation_mode": "align_corners", "sizes": [4]}, x).y
    np.testing.assert_array_equal(at_halves.ravel(), halves)
    np.testing.assert_array_equal(at_thirds.ravel(), thirds)


def test_antialias_uses_all_elements() -> None:
    y = layer({"type": "Resize", "mode": "linear", "sizes": [1], "antialias": True}, RISING).y
    np.testing.assert_allclose(y, 1.5)  # a weighted mean of all elements
    near = layer({"type": "Resize", "mode": "nearest", "sizes": [1]}, RISING).y
    np.testing.assert_array_equal(near, 1)


def test_roi_beyond_the_input_is_extrapolated() -> None:
    fields = {"type": "Resize", "mode": "linear", "coordinate_transformation_mode": "tf_crop_and_resize",
              "sizes": [3], "roi": [0.5, 1.5], "extrapolation_value": -7.0}  # fmt: skip
    np.testing.assert_allclose(layer(fields, RISING).y.ravel(), [1.5, 3, -7])


@pytest.mark.parametrize(("policy", "shape"), [("not_larger", (4, 2)), ("not_smaller", (8, 4)), ("stretch", (4, 4))])
def test_aspect_ratio_policy_uses_one_scale(policy: str, shape: tuple[int, int]) -> None:
    fields = {"type": "Resize", "sizes": [4, 4], "keep_aspect_ratio_policy": policy}
    assert layer(fields, np.ones((1, 1, 6, 3))).y.shape == (1, 1, *shape)
