from __future__ import annotations

from collections.abc import Callable
from math import pi, sin

import numpy as np
import pytest

from netspec.graph.value import ShapeMismatch
from tests.layers.apply import layer

X = np.random.default_rng(1).normal(size=(2, 3, 4, 5))


@pytest.mark.parametrize("rank", [1, 2, 3])
def test_upsampling_repeats_each_element(rank):
    x = np.random.default_rng(0).normal(size=(2, 2, 3, 2, 4)[: rank + 2])
    factors = [3, 2, 1][:rank]
    expected = x
    for axis, factor in enumerate(factors, 2):
        expected = expected.repeat(factor, axis)
    size = factors[0] if rank == 1 else factors
    np.testing.assert_array_equal(layer({"type": f"UpSampling{rank}D", "size": size}, x).y, expected)


def test_upsampling_is_linear_between_pixels_and_constant_at_borders():
    x = np.array([0.0, 4.0]).reshape(1, 1, 1, 2)
    y = layer({"type": "UpSampling2D", "size": [1, 4], "interpolation": "bilinear"}, x).y
    np.testing.assert_allclose(y.ravel(), [0, 0, 0.5, 1.5, 2.5, 3.5, 4, 4])


@pytest.mark.parametrize("sizes", [(7, 3), (2, 9), (4, 5), (1, 1)])
def test_resizing_matches_its_definition(sizes):
    expected = np.empty((2, 3, *sizes))
    for i, j in np.ndindex(*sizes):
        axes = zip((i, j), (4, 5), sizes, strict=True)
        indices = [min(max((k + 0.5) * have / target - 0.5, 0), have - 1) for k, have, target in axes]
        (a, s), (b, t) = ((int(index), index - int(index)) for index in indices)
        a1, b1 = min(a + 1, 3), min(b + 1, 4)
        above = X[:, :, a, b] * (1 - t) + X[:, :, a, b1] * t
        below = X[:, :, a1, b] * (1 - t) + X[:, :, a1, b1] * t
        expected[:, :, i, j] = above * (1 - s) + below * s
    y = layer({"type": "Resizing", "height": sizes[0], "width": sizes[1]}, X).y
    np.testing.assert_allclose(y, expected, rtol=1e-12, atol=1e-12)


def test_nearest_resizing_uses_pixel_centers():
    x = np.arange(5.0).reshape(1, 1, 1, 5)
    y = layer({"type": "Resizing", "height": 1, "width": 3, "interpolation": "nearest"}, x).y
    np.testing.assert_array_equal(y.ravel(), [0, 2, 4])


@pytest.mark.parametrize(("height", "width", "cut"), [(2, 2, np.s_[..., :4]), (1, 5, np.s_[:, :, 1:2])])
def test_crop_to_aspect_ratio_crops_both_sides(height, width, cut):
    fields = {"type": "Resizing", "height": height, "width": width}
    y = layer({**fields, "crop_to_aspect_ratio": True}, X).y
    np.testing.assert_allclose(y, layer(fields, X[cut]).y)


def test_integer_images_are_converted_to_float():
    assert (
        layer({"type": "Resizing", "height": 1, "width": 1}, np.array([[1, 2]], np.uint8).reshape(1, 1, 1, 2)).y == 1.5
    )


@pytest.mark.parametrize("name", ["UpSampling2D", "Resizing"])
def test_resizing_rejects_vectors(name):
    fields = {"height": 2, "width": 2} if name == "Resizing" else {}
    with pytest.raises(ShapeMismatch, match="not an image"):
        layer({"type": name, **fields}, np.zeros((2, 8)))


def keys(x: float) -> float:
    x = abs(x)
    return 1.5 * x**3 - 2.5 * x**2 + 1 if x < 1 else -0.5 * x**3 + 2.5 * x**2 - 4 * x + 2 if x < 2 else 0.0


def lanczos(x: float, reach: int) -> float:
    if x == 0:
        return 1.0
    return reach * sin(pi * x) * sin(pi * x / reach) / (pi * x) ** 2 if abs(x) < reach else 0.0


FILTERS: dict[str, Callable[[float], float]] = {
    "bilinear": lambda x: max(0.0, 1 - abs(x)),
    "bicubic": keys,
    "lanczos3": lambda x: lanczos(x, 3),
    "lanczos5": lambda x: lanczos(x, 5),
}


@pytest.mark.parametrize("antialias", [False, True])
@pytest.mark.parametrize("name", FILTERS)
@pytest.mark.parametrize("sizes", [(7, 3), (2, 9), (1, 1)])
def test_filter_weights_match_the_filter(name, sizes, antialias):
    expected = X
    for axis, new_size in enumerate(sizes, 2):
        have = X.shape[axis]
        stretch = max(1.0, have / new_size) if antialias else 1.0
        parts = []
        for i in range(new_size):
            shares = [FILTERS[name]((k - ((i + 0.5) * have / new_size - 0.5)) / stretch) for k in range(have)]
            rows = [expected.take(k, axis) * share / sum(shares) for k, share in enumerate(shares)]
            parts.append(np.sum(rows, axis=0))
        expected = np.stack(parts, axis)
    fields = {"type": "Resizing", "height": sizes[0], "width": sizes[1], "interpolation": name, "antialias": antialias}
    np.testing.assert_allclose(layer(fields, X).y, expected, rtol=1e-11, atol=1e-12)


def test_pad_to_aspect_ratio():
    y = layer({"type": "Resizing", "height": 3, "width": 9, "pad_to_aspect_ratio": True, "fill_value": 7.0}, X).y
    wide = np.pad(X, ((0, 0), (0, 0), (0, 0), (3, 3)), constant_values=7.0)  # 12 columns to 4 rows, as 9 to 3
    np.testing.assert_allclose(y, layer({"type": "Resizing", "height": 3, "width": 9}, wide).y, rtol=1e-12)
