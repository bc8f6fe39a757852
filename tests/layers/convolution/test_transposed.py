from __future__ import annotations

import numpy as np
import pytest
from pydantic import ValidationError

from netspec.graph.value import ShapeMismatch
from netspec.schema.specs.kinds import LAYERS
from tests.layers.apply import layer

RANDOM = np.random.default_rng(9)
X, KERNEL = RANDOM.normal(size=(2, 3, 4, 3)), RANDOM.normal(size=(3, 2, 3, 2))
FIELDS = {"type": "Conv2DTranspose", "filters": 2, "kernel_size": [3, 2], "strides": [2, 3], "use_bias": False}


def spread(x: np.ndarray, kernel: np.ndarray, strides: tuple[int, int], dilation: tuple[int, int]) -> np.ndarray:
    """Return the full result by definition: each element times the kernel, added at its position."""
    (N, _, H, W), (_, M, KH, KW), (sh, sw), (dh, dw) = x.shape, kernel.shape, strides, dilation
    y = np.zeros((N, M, (H - 1) * sh + (KH - 1) * dh + 1, (W - 1) * sw + (KW - 1) * dw + 1))
    for i, j, k, l in np.ndindex(H, W, KH, KW):
        y[:, :, i * sh + k * dh, j * sw + l * dw] += np.einsum("nc,cm->nm", x[:, :, i, j], kernel[:, :, k, l])
    return y


def test_transposed_convolution_matches_its_definition():
    full = spread(X, KERNEL, (2, 3), (1, 1))
    y = layer(FIELDS, X, kernel=KERNEL).y
    assert y.shape == (2, 2, 9, 9)  # the last column is the gap between windows: max(2, 3) after the last step
    np.testing.assert_allclose(y[..., :8], full, rtol=1e-12)
    np.testing.assert_array_equal(y[..., 8], 0)


def test_transposed_explicit_and_output_padding():
    fields = {**FIELDS, "strides": 2, "dilation_rate": 2, "padding": [[1, 2], [0, 1]], "output_padding": [1, 0]}
    full = np.pad(spread(X, KERNEL, (2, 2), (2, 2)), [(0, 0), (0, 0), (0, 1), (0, 0)])
    np.testing.assert_allclose(layer(fields, X, kernel=KERNEL).y, full[:, :, 1:-2, :-1], rtol=1e-12)


@pytest.mark.parametrize("kernel", [1, 2, 3, 4, 5])
@pytest.mark.parametrize("stride", [1, 2, 3])
def test_transposed_same_padding_multiplies_sizes_by_the_stride(kernel, stride):
    fields = {"type": "Conv1DTranspose", "filters": 1, "kernel_size": kernel, "strides": stride, "padding": "same"}
    assert layer(fields, np.zeros((1, 1, 5))).y.shape == (1, 1, 5 * stride)


def test_transposed_groups_are_independent():
    x, kernel = RANDOM.normal(size=(1, 4, 5)), RANDOM.normal(size=(4, 1, 3))
    fields = {"type": "Conv1DTranspose", "kernel_size": 3, "use_bias": False}
    y = layer({**fields, "filters": 2, "groups": 2}, x, kernel=kernel).y
    halves = [layer({**fields, "filters": 1}, x[:, k : k + 2], kernel=kernel[k : k + 2]).y for k in (0, 2)]
    np.testing.assert_allclose(y, np.concatenate(halves, 1), rtol=1e-12)


def test_transposed_convolution_is_the_gradient_of_a_convolution():
    image, dy = RANDOM.normal(size=(1, 2, 7, 6)), RANDOM.normal(size=(1, 3, 3, 5))
    conv = {"type": "Conv2D", "filters": 3, "kernel_size": [3, 2], "strides": [2, 1], "use_bias": False}
    (dx,) = layer(conv, image, kernel=KERNEL).gradient(dy)
    np.testing.assert_allclose(layer({**conv, "type": "Conv2DTranspose", "filters": 2}, dy, kernel=KERNEL).y, dx)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"output_padding": 2, "strides": 2}, "must be smaller than `strides`"),
        ({"groups": 3}, "2 filters cannot be split into 3 groups"),
        ({"output_padding": -1}, "not an integer of 0 or more"),
    ],
)
def test_transposed_fields_are_validated(fields, message):
    with pytest.raises(ValidationError, match=message):
        LAYERS["Conv2DTranspose"].model_validate({**FIELDS, **fields})


@pytest.mark.parametrize(
    ("fields", "shape", "message"),
    [
        ({}, (2, 8), "not an image"),
        ({"groups": 2}, (1, 3, 4, 4), "3 input channels cannot be split"),
        ({"padding": 9}, (1, 2, 4, 4), "the padding removes the whole output"),
    ],
)
def test_shape_mismatch_messages(fields, shape, message):
    with pytest.raises(ShapeMismatch, match=message):
        layer({**FIELDS, **fields}, np.zeros(shape))
