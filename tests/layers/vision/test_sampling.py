"""GridSample and RoiAlign against loops in NumPy; tests/exchange/backend has ONNX's cases."""

from __future__ import annotations

import numpy as np
import pytest

from tests.layers.apply import layer

RANDOM = np.random.default_rng(5)
IMAGE = RANDOM.normal(size=(2, 3, 4, 5))


def centers(size: int, align_corners: bool) -> np.ndarray:
    """Return the coordinates of all elements of an axis, from -1 to 1."""
    return np.linspace(-1, 1, size) if align_corners else (2 * np.arange(size) + 1) / size - 1


@pytest.mark.parametrize("mode", ["linear", "nearest", "cubic"])
@pytest.mark.parametrize("align_corners", [False, True])
def test_identity_grid_returns_the_image(mode, align_corners):
    x, y = np.meshgrid(centers(5, align_corners), centers(4, align_corners))
    grid = np.broadcast_to(np.stack([x, y], -1), (2, 4, 5, 2))
    applied = layer({"type": "GridSample", "mode": mode, "align_corners": align_corners}, IMAGE, grid).y
    np.testing.assert_allclose(applied, IMAGE, rtol=0, atol=1e-12)


@pytest.mark.parametrize(
    ("padding_mode", "align_corners", "expected"),
    [
        ("zeros", False, [0, 0, 0]),
        ("border", False, [0, 4, 4]),
        ("reflection", False, [2, 1, 4]),
        ("reflection", True, [3, 2, 4]),
    ],
)
def test_grid_sample_beyond_the_border(padding_mode, align_corners, expected):
    # Positions -3, 8 (or 6) and 5 (or 4) along elements 0 … 4, in the only row.
    where = np.array([-3, 8, 5] if not align_corners else [-3, 6, 4])
    indices = (2 * where + 1) / 5 - 1 if not align_corners else where / 2 - 1
    grid = np.stack([indices, np.zeros(3)], -1).reshape(1, 1, 3, 2)
    fields = {"type": "GridSample", "padding_mode": padding_mode, "align_corners": align_corners}
    applied = layer(fields, np.arange(5.0).reshape(1, 1, 1, 5), grid).y
    np.testing.assert_allclose(applied.reshape(-1), expected, rtol=0, atol=1e-12)


def test_grid_sample_at_nan_is_nan():
    with np.errstate(invalid="ignore"):
        applied = layer({"type": "GridSample"}, IMAGE[:1], np.array([[[[np.nan, 0.0], [0.0, 0.0]]]])).y
    assert np.isnan(applied[..., 0]).all()
    assert not np.isnan(applied[..., 1]).any()


def test_roi_align_of_a_plane_is_the_mean_of_each_cell():
    # The mean of a plane 10y + x over a cell is its value at the center of the cell.
    plane = (10.0 * np.arange(6)[:, None] + np.arange(6)).reshape(1, 1, 6, 6)
    applied = layer({"type": "RoiAlign", "height": 2, "width": 2}, plane, np.array([[[1.0, 2.0, 5.0, 4.0]]])).y
    np.testing.assert_allclose(applied[0, 0, 0], [[21.5, 23.5], [31.5, 33.5]])


def test_roi_align_selects_the_image_of_each_region():
    parts = np.array([[[0.5, 0.5, 3.5, 2.5], [1.0, 0.0, 2.0, 3.0]]] * 2)
    images = np.array([[1, 0], [0, 0]])
    several = np.stack([IMAGE, 2 * IMAGE], 1)
    applied = layer({"type": "RoiAlign", "height": 2}, several, parts, images).y
    single = layer({"type": "RoiAlign", "height": 2}, IMAGE, parts).y
    np.testing.assert_allclose(applied, single * (images + 1)[..., None, None, None])


def test_bit_cast_of_floats_reads_float32():
    applied = layer({"type": "BitCast", "dtype": "uint32"}, np.array([[1.0, -2.0]])).y
    np.testing.assert_array_equal(applied, [[0x3F800000, 0xC0000000]])
