from __future__ import annotations

from itertools import product
from math import ceil
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from netspec.graph.value import ShapeMismatch
from tests.layers.apply import layer

PAIR = st.tuples(st.integers(1, 3), st.integers(1, 3))
SIDES = st.tuples(st.integers(0, 2), st.integers(0, 2))


def windows(x: Any, size: Any, strides: Any, pads: Any) -> Any:
    """Return the elements in each window, without padding, by the index of the output; and the output's shape."""
    (N, C, H, W), (KH, KW), (sh, sw), ((top, bottom), (left, right)) = x.shape, size, strides, pads
    OH, OW = (H + top + bottom - KH) // sh + 1, (W + left + right - KW) // sw + 1
    actual = {}
    for n, c, i, j in product(range(N), range(C), range(OH), range(OW)):
        rows = [row for row in range(i * sh - top, i * sh - top + KH) if 0 <= row < H]
        columns = [column for column in range(j * sw - left, j * sw - left + KW) if 0 <= column < W]
        actual[n, c, i, j] = [x[n, c, row, column] for row in rows for column in columns]
    return actual, (N, C, OH, OW)


@given(size=PAIR, strides=PAIR, pads=st.tuples(SIDES, SIDES), seed=st.integers(0, 2**16))
def test_matches_its_definition_for_any_geometry(size, strides, pads, seed):
    assume(all(max(side) < length for side, length in zip(pads, size, strict=True)))
    x = np.random.default_rng(seed).normal(size=(2, 2, 5, 6))
    under, shape = windows(x, size, strides, pads)
    fields = {"pool_size": list(size), "strides": list(strides), "padding": [list(side) for side in pads]}
    for name, function in (("MaxPooling2D", max), ("AveragePooling2D", np.mean)):
        expected = np.array([function(under[index]) for index in np.ndindex(shape)]).reshape(shape)
        np.testing.assert_allclose(layer({"type": name, **fields}, x).y, expected, rtol=1e-12)


@given(size=PAIR, strides=PAIR, pads=st.tuples(SIDES, SIDES), seed=st.integers(0, 2**16))
def test_ceil_mode_and_counted_padding_match_pytorch(size, strides, pads, seed):
    """PyTorch's rule: the last window starts inside the input, and counts elements up to the end of the padding."""
    assume(all(max(side) < length for side, length in zip(pads, size, strict=True)))
    x = np.random.default_rng(seed).normal(size=(1, 2, 5, 6))
    axes = []
    for length, window, stride, (begin, end) in zip(x.shape[2:], size, strides, pads, strict=True):
        starts = [start for start in range(-begin, length + end, stride) if start < length]
        while len(starts) > 1 and starts[-2] + window >= length + end:  # the previous window already reaches the end
            starts.pop()
        axes.append([(start, min(start + window, length + end)) for start in starts])
    fields = {"pool_size": list(size), "strides": list(strides), "padding": [list(side) for side in pads]}
    maxima, means = np.zeros((2, 1, 2, *map(len, axes)))
    for (i, (top, bottom)), (j, (left, right)) in product(*map(enumerate, axes)):
        under = x[:, :, max(top, 0) : max(bottom, 0), max(left, 0) : max(right, 0)]
        maxima[:, :, i, j] = under.max((2, 3))
        means[:, :, i, j] = under.sum((2, 3)) / ((bottom - top) * (right - left))
    rounded = {**fields, "ceil_mode": True}
    np.testing.assert_array_equal(layer({"type": "MaxPooling2D", **rounded}, x).y, maxima)
    counted = layer({"type": "AveragePooling2D", **rounded, "count_include_pad": True}, x).y
    np.testing.assert_allclose(counted, means, rtol=1e-12)


def windows_of(size: int, count: int) -> list[slice]:
    return [slice(i * size // count, -(-(i + 1) * size // count)) for i in range(count)]


@pytest.mark.parametrize("rank", [1, 2, 3])
@pytest.mark.parametrize("sizes", [(3, 2, 4), (1, 1, 1), (6, 5, 3), (2, 5, 2), (7, 8, 1)])
def test_adaptive_windows_partition_the_input(rank, sizes):
    x = np.random.default_rng(7).normal(size=(2, 2, 6, 5, 4)[: rank + 2])
    output_size = sizes[:rank]
    average, maximum = (
        layer(
            {"type": f"Adaptive{name}Pooling{rank}D", "output_size": list(output_size) if rank > 1 else output_size[0]},
            x,
        ).y
        for name in ("Average", "Max")
    )
    assert average.shape == maximum.shape == (2, 2, *output_size)
    axes = tuple(range(2, rank + 2))
    for index in np.ndindex(output_size):
        spans = [windows_of(size, count)[i] for size, count, i in zip(x.shape[2:], output_size, index, strict=True)]
        under = x[(slice(None), slice(None), *spans)]
        np.testing.assert_allclose(average[(..., *index)], under.mean(axes), rtol=1e-12)
        np.testing.assert_array_equal(maximum[(..., *index)], under.max(axes))


@pytest.mark.parametrize("function", ["max", "average"])
def test_pyramid_pooling_matches_caffe(function):
    """Caffe's geometry: adjacent windows of ⌈size / bins⌉, with half of the padding before the input."""
    x = np.random.default_rng(8).normal(size=(2, 3, 5, 7))
    expected = []
    for bins in (1, 2, 3):
        high, wide = -(-5 // bins), -(-7 // bins)
        top, left = (high * bins - 5 + 1) // 2, (wide * bins - 7 + 1) // 2
        level = np.zeros((2, 3, bins, bins))
        for i, j in np.ndindex(bins, bins):
            rows, columns = i * high - top, j * wide - left
            under = x[:, :, max(rows, 0) : rows + high, max(columns, 0) : columns + wide]
            level[:, :, i, j] = under.max((2, 3)) if function == "max" else under.sum((2, 3)) / (high * wide)
        expected.append(level.reshape(2, -1))
    actual = layer({"type": "SpatialPyramidPooling", "levels": [1, 2, 3], "pool": function}, x).y
    np.testing.assert_allclose(actual, np.concatenate(expected, 1), rtol=1e-12)
    pyramid = layer({"type": "SpatialPyramidPooling", "levels": 3}, np.zeros((1, 2, 8, 8)))
    assert pyramid.y.shape == (1, 2 * (1 + 4 + 16))


def test_stochastic_pooling_samples_proportionally():
    x = np.broadcast_to(np.array([[1.0, 0.0], [2.0, 5.0]]), (400, 5, 2, 2))
    picked = layer("StochasticPooling2D", x, training=True).y.ravel()
    shares = [(picked == number).mean() for number in (0.0, 1.0, 2.0, 5.0)]
    # 2,000 draws: the standard error of a share is at most 1.1 %
    np.testing.assert_allclose(shares, [0, 1 / 8, 2 / 8, 5 / 8], atol=0.04)
    other = layer("StochasticPooling2D", x, training=True, rng=(1, 2, 0)).y.ravel()
    assert (picked != other).any()


def test_stochastic_pooling_in_inference_is_a_weighted_mean():
    x = np.random.default_rng(9).uniform(0, 1, (2, 3, 4, 6))
    blocks = x.reshape(2, 3, 2, 2, 3, 2)
    expected = (blocks**2).sum((3, 5)) / blocks.sum((3, 5))
    np.testing.assert_allclose(layer("StochasticPooling2D", x).y, expected, rtol=1e-12)
    assert not layer("StochasticPooling2D", np.zeros((1, 1, 2, 2))).y.any()


def test_stochastic_pooling_gradient_goes_to_the_sampled_element():
    x = np.random.default_rng(10).uniform(0.1, 1, (2, 3, 4, 4))
    result = layer("StochasticPooling2D", x, training=True)
    (dx,) = result.gradient(np.ones((2, 3, 2, 2)))
    assert dx.sum() == 2 * 3 * 2 * 2
    np.testing.assert_array_equal((x * dx).reshape(2, 3, 2, 2, 2, 2).sum((3, 5)), result.y)


def test_default_strides_and_dropped_remainder():
    x = np.arange(25.0).reshape(1, 1, 5, 5)
    np.testing.assert_array_equal(layer("MaxPooling2D", x).y[0, 0], [[6, 8], [16, 18]])


@pytest.mark.parametrize(("size", "pool", "stride"), [(5, 2, 2), (7, 3, 2), (6, 3, 3), (5, 1, 2)])
def test_same_padding_is_ignored_by_pooling(size, pool, stride):
    x = np.full((1, 1, size, size), -3.0)
    fields = {"pool_size": pool, "strides": stride, "padding": "same"}
    for name in ("MaxPooling2D", "AveragePooling2D"):
        y = layer({"type": name, **fields}, x).y
        assert y.shape == (1, 1, ceil(size / stride), ceil(size / stride))
        np.testing.assert_allclose(y, -3, rtol=1e-15)


def test_the_first_of_equal_maxima_gets_the_gradient():
    (dx,) = layer("MaxPooling2D", np.zeros((1, 1, 2, 4))).gradient(np.array([2.0, 3.0]).reshape(1, 1, 1, 2))
    np.testing.assert_array_equal(dx[0, 0], [[2, 0, 3, 0], [0, 0, 0, 0]])


def test_gradients_of_overlapping_windows_are_summed():
    x = np.zeros((1, 1, 3, 3))
    x[0, 0, 1, 1] = 1
    (dx,) = layer({"type": "MaxPooling2D", "strides": 1}, x).gradient(np.ones((1, 1, 2, 2)))
    assert dx[0, 0, 1, 1] == dx.sum() == 4


def test_max_pooling_of_nan_is_nan():
    for position in range(4):
        x = np.zeros(4)
        x[position] = np.nan
        assert np.isnan(layer("MaxPooling2D", x.reshape(1, 1, 2, 2)).y).all()


def test_global_average_is_the_mean_of_each_channel():
    x = np.random.default_rng(0).normal(size=(2, 3, 4, 5))
    np.testing.assert_allclose(layer("GlobalAveragePooling2D", x).y, x.mean((2, 3)), rtol=1e-12)
    pooled = layer({"type": "GlobalAveragePooling2D", "keepdims": True}, x).y
    np.testing.assert_allclose(pooled, x.mean((2, 3), keepdims=True), rtol=1e-12)


@pytest.mark.parametrize("name", ["MaxPooling", "AveragePooling"])
def test_3d_pooling_matches_its_definition(name):
    x, function = np.random.default_rng(1).normal(size=(2, 2, 5, 4, 6)), np.max if name.startswith("Max") else np.mean
    y = layer({"type": f"{name}3D", "pool_size": [2, 1, 3], "strides": [1, 2, 3]}, x).y
    for i, j, k in np.ndindex(4, 2, 2):
        window = x[:, :, i : i + 2, 2 * j : 2 * j + 1, 3 * k : 3 * k + 3]
        np.testing.assert_allclose(y[:, :, i, j, k], function(window, (2, 3, 4)), rtol=1e-12)
    assert y.shape == (2, 2, 4, 2, 2)


@pytest.mark.parametrize("rank", [1, 2, 3])
def test_global_pooling_reduces_all_spatial_axes(rank):
    x = np.random.default_rng(0).normal(size=(2, 3, 4, 5, 2)[: rank + 2])
    axes = tuple(range(2, rank + 2))
    np.testing.assert_allclose(layer(f"GlobalAveragePooling{rank}D", x).y, x.mean(axes), rtol=1e-12)
    np.testing.assert_array_equal(layer(f"GlobalMaxPooling{rank}D", x).y, x.max(axes))


def test_integer_images_are_averaged_as_floats():
    y = layer("AveragePooling2D", np.array([[1, 2], [3, 5]], np.uint8).reshape(1, 1, 2, 2)).y
    assert y == 2.75


@pytest.mark.parametrize(
    ("fields", "shape", "message"),
    [
        ({}, (2, 8), "the input is not an image"),
        ({"pool_size": 9}, (1, 1, 8, 8), "the window is larger than the input"),
        ({"padding": 2}, (1, 1, 8, 8), "some windows would contain only padding"),
    ],
)
def test_shape_mismatch_messages(fields, shape, message):
    for name in ("MaxPooling2D", "AveragePooling2D"):
        with pytest.raises(ShapeMismatch, match=message):
            layer({"type": name, **fields}, np.zeros(shape))


def test_fractional_windows_are_random_in_training_only():
    # Elements are their column numbers, so a maximum is the end of its window.
    x = np.tile(np.arange(40.0), (2, 3, 40, 1))
    fields = {"type": "FractionalMaxPooling2D", "output_size": 23}
    first, continued, later = (layer(fields, x, training=True, rng=(1, step, 0)).y for step in (1, 1, 2))
    np.testing.assert_array_equal(first, continued)
    assert (first != later).any()
    assert len({channel.tobytes() for sample in first for channel in sample}) > 1
    fixed = layer(fields, x).y
    assert len({channel.tobytes() for sample in fixed for channel in sample}) == 1


def test_fractional_windows_do_not_depend_on_batch_partition():
    x = np.random.default_rng(1).normal(size=(4, 2, 9, 9))
    fields = {"type": "FractionalMaxPooling2D", "output_ratio": 0.6}
    full = layer(fields, x, training=True).y
    np.testing.assert_array_equal(layer(fields, x[2:], training=True, rng=(1, 1, 2)).y, full[2:])


@pytest.mark.parametrize("size", [{"output_size": 8}, {"output_ratio": 0.05}])
def test_invalid_fractional_ratios_are_rejected(size):
    with pytest.raises(ShapeMismatch, match=r"distinct windows of 3 elements do not fit into 9"):
        layer({"type": "FractionalMaxPooling2D", "pool_size": 3, **size}, np.zeros((1, 1, 9, 9)))
