from __future__ import annotations

from itertools import product
from math import ceil
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from netspec.errors import SpecError
from netspec.graph.value import ShapeMismatch
from netspec.schema.specs.kinds import LAYERS
from tests.layers.apply import layer


def naive(x: Any, w: Any, strides: Any, pads: Any, dilation: Any, groups: int) -> np.ndarray:
    """The definition, as loops over every index."""
    (N, _, H, W), (M, per_group, KH, KW) = x.shape, w.shape
    (sh, sw), (dh, dw), ((top, bottom), (left, right)) = strides, dilation, pads
    OH = (H + top + bottom - ((KH - 1) * dh + 1)) // sh + 1
    OW = (W + left + right - ((KW - 1) * dw + 1)) // sw + 1
    y = np.zeros((N, M, OH, OW))
    for n, m, i, j in product(range(N), range(M), range(OH), range(OW)):
        first = (m // (M // groups)) * per_group
        for c, k, l in product(range(per_group), range(KH), range(KW)):
            row, column = i * sh + k * dh - top, j * sw + l * dw - left
            if 0 <= row < H and 0 <= column < W:
                y[n, m, i, j] += x[n, first + c, row, column] * w[m, c, k, l]
    return y


def pair(low: int, high: int) -> st.SearchStrategy[tuple[int, int]]:
    return st.tuples(st.integers(low, high), st.integers(low, high))


@given(
    size=pair(5, 8), kernel=pair(1, 3), strides=pair(1, 3), dilation=pair(1, 2), pads=st.tuples(pair(0, 2), pair(0, 2)),
    groups=st.sampled_from([1, 2]), seed=st.integers(0, 2**16),
)  # fmt: skip
def test_matches_its_definition_for_any_geometry(size, kernel, strides, dilation, pads, groups, seed):
    random = np.random.default_rng(seed)
    x = random.normal(size=(2, 2, *size))
    w = random.normal(size=(4, 2 // groups, *kernel))
    fields = {"type": "Conv2D", "filters": 4, "kernel_size": list(kernel), "strides": list(strides), "groups": groups,
              "padding": [list(side) for side in pads], "dilation_rate": list(dilation), "use_bias": False}  # fmt: skip
    expected = naive(x, w, strides, pads, dilation, groups)
    applied = layer(fields, x, kernel=w)
    np.testing.assert_allclose(applied.y, expected, atol=1e-12)
    # <conv(x), dy> is linear in x and in w, which determines both gradients
    dy = random.normal(size=expected.shape)
    (dx,) = applied.gradient(dy)
    (dw,) = applied.gradient(dy, "kernel")
    assert (dx * x).sum() == pytest.approx((expected * dy).sum(), abs=1e-9)
    assert (dw * w).sum() == pytest.approx((expected * dy).sum(), abs=1e-9)


@pytest.mark.parametrize(
    ("size", "kernel", "stride", "dilation"),
    [(7, 3, 2, 1), (6, 3, 2, 1), (6, 4, 1, 1), (9, 3, 1, 3), (5, 1, 3, 1), (4, 2, 5, 1)],
)
def test_same_padding_size_and_sides(size, kernel, stride, dilation):
    x = np.random.default_rng(0).normal(size=(1, 1, size, size))
    w = np.random.default_rng(1).normal(size=(1, 1, kernel, kernel))
    fields = {"type": "Conv2D", "filters": 1, "kernel_size": kernel, "strides": stride, "padding": "same",
              "dilation_rate": dilation}  # fmt: skip
    # TensorFlow's rule, which is Keras's: https://www.tensorflow.org/api_docs/python/tf/nn#notes_on_padding_2
    out = ceil(size / stride)
    total = max((out - 1) * stride + (kernel - 1) * dilation + 1 - size, 0)
    pads = (total // 2, total - total // 2)
    y = layer(fields, x, kernel=w).y
    assert y.shape == (1, 1, out, out)
    np.testing.assert_allclose(y, naive(x, w, (stride,) * 2, (pads, pads), (dilation,) * 2, 1), atol=1e-12)


def test_convolution_adds_bias_and_activation():
    x = np.ones((1, 1, 2, 2))
    w = np.array([1.0, -1.0]).reshape(2, 1, 1, 1)
    fields = {"type": "Conv2D", "filters": 2, "kernel_size": 1, "activation": "relu"}
    np.testing.assert_array_equal(layer(fields, x, kernel=w, bias=[0.5, 0.25]).y[0, :, 0, 0], [1.5, 0.0])


def test_softmax_of_a_convolution_is_over_channels():
    fields = {"type": "Conv2D", "filters": 3, "kernel_size": 1, "activation": "softmax"}
    y = layer(fields, np.random.default_rng(0).normal(size=(2, 1, 2, 2))).y
    np.testing.assert_allclose(y.sum(axis=1), 1, rtol=1e-12)


@pytest.mark.parametrize(
    ("fields", "shape", "message"),
    [
        ({}, (2, 8), "the input is not an image"),
        ({"kernel_size": 9}, (1, 1, 8, 8), "the window is larger than the input"),
        ({"groups": 2}, (1, 3, 8, 8), "3 input channels cannot be split into 2 groups"),
    ],
)
def test_shape_mismatch_messages(fields, shape, message):
    with pytest.raises((ShapeMismatch, SpecError), match=message):
        layer({"type": "Conv2D", "filters": 4, "kernel_size": 3, **fields}, np.zeros(shape))


@pytest.mark.parametrize("rank", [1, 3])
def test_1d_and_3d_convolutions_match_2d_with_axes_of_size_1(rank):
    random = np.random.default_rng(8)
    x, kernel = random.normal(size=(2, 3, 7, 6)), random.normal(size=(4, 3, 3, 2))
    fields = {"filters": 4, "use_bias": False}
    if rank == 1:
        y = layer({"type": "Conv1D", "kernel_size": 3, **fields}, x[..., 0], kernel=kernel[..., 0]).y[..., None]
        x, kernel = x[..., :1], kernel[..., :1]
    else:
        y = layer({"type": "Conv3D", "kernel_size": [3, 2, 1], **fields}, x[..., None], kernel=kernel[..., None]).y
        y = y[..., 0]
    plane = layer({"type": "Conv2D", "kernel_size": list(kernel.shape[2:]), **fields}, x, kernel=kernel)
    np.testing.assert_allclose(y, plane.y, rtol=1e-12)


def test_causal_convolution_ignores_later_steps():
    x = np.random.default_rng(2).normal(size=(1, 2, 9))
    fields = {"type": "Conv1D", "filters": 3, "kernel_size": 3, "dilation_rate": 2, "padding": "causal"}
    changed = x.copy()
    changed[:, :, 5:] = 7
    first, second = layer(fields, x).y, layer(fields, changed).y
    assert first.shape == (1, 3, 9)
    np.testing.assert_array_equal(first[:, :, :5], second[:, :, :5])
    assert not np.any(first[:, :, 5] == second[:, :, 5])


def test_depthwise_convolution_convolves_each_channel_separately():
    random = np.random.default_rng(4)
    x, kernel = random.normal(size=(2, 3, 6, 5)), random.normal(size=(6, 1, 3, 3))
    fields = {"kernel_size": 3, "strides": 2, "padding": "same", "use_bias": False}
    y = layer({"type": "DepthwiseConv2D", "depth_multiplier": 2, **fields}, x, kernel=kernel).y
    for channel in range(3):
        filters = slice(2 * channel, 2 * channel + 2)
        result = layer(
            {"type": "Conv2D", "filters": 2, **fields}, x[:, channel : channel + 1], kernel=kernel[filters]
        ).y
        np.testing.assert_allclose(y[:, filters], result, rtol=1e-12)


def test_separable_convolution_is_depthwise_then_pointwise():
    random = np.random.default_rng(5)
    x, kernel, mix = random.normal(size=(2, 3, 6)), random.normal(size=(3, 1, 2)), random.normal(size=(4, 3, 1))
    applied = layer({"type": "SeparableConv1D", "filters": 4, "kernel_size": 2}, x, depthwise_kernel=kernel,
                 pointwise_kernel=mix, bias=np.arange(4.0))  # fmt: skip
    separate = layer({"type": "DepthwiseConv1D", "kernel_size": 2, "use_bias": False}, x, kernel=kernel).y
    np.testing.assert_allclose(applied.y, np.einsum("oc,ncl->nol", mix[..., 0], separate) + np.arange(4.0)[:, None])


@pytest.mark.parametrize(
    ("kind", "shape", "message"),
    [
        ("Conv1D", (2, 3, 8, 8), "not a sequence of channels"),
        ("Conv3D", (2, 3, 8, 8), "not a volume"),
        ("DepthwiseConv1D", (2, 8), "not a sequence of channels"),
        ("SeparableConv2D", (2, 8, 8), "not an image"),
    ],
)
def test_inputs_of_another_rank_are_rejected(kind, shape, message):
    filters = {} if kind.startswith("Depthwise") else {"filters": 2}
    with pytest.raises(ShapeMismatch, match=message):
        layer({"type": kind, "kernel_size": 2, **filters}, np.zeros(shape))


@pytest.mark.parametrize(
    ("kind", "fields"),
    [
        ("Conv1D", {"padding": [1, 2, 3]}),
        ("Conv1D", {"strides": [1, 2]}),
        ("Conv2D", {"padding": "causal"}),
        ("Conv3D", {"padding": [[1, 1], [0, 0]]}),
        ("Conv3D", {"dilation_rate": [1, 1]}),
        ("SeparableConv1D", {"padding": "causal"}),
    ],
)
def test_fields_of_another_rank_are_rejected(kind, fields):
    with pytest.raises(ValidationError):
        LAYERS[kind].model_validate({"filters": 2, "kernel_size": 2, **fields})
