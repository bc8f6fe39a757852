"""ConvLSTM: with kernels of size 1, an LSTM at each pixel; states and masks as in other recurrent layers."""

from __future__ import annotations

from typing import Any

import numpy as np

from tests.layers.apply import layer

RANDOM = np.random.default_rng(4)
X = RANDOM.normal(size=(2, 5, 3, 4))
FIELDS = {"type": "ConvLSTM1D", "filters": 2, "kernel_size": 3, "padding": "same", "return_state": True}


def test_conv_lstm_with_kernel_1_matches_lstm_at_each_pixel():
    shapes = {"kernel": (3, 8), "recurrent_kernel": (2, 8), "bias": (8,)}
    weights: dict[str, Any] = {name: RANDOM.normal(size=shape) for name, shape in shapes.items()}
    turned: dict[str, Any] = {
        name: array.T[:, :, None] if array.ndim == 2 else array for name, array in weights.items()
    }
    y = layer({**FIELDS, "kernel_size": 1, "return_sequences": True}, X, **turned).y
    for pixel in range(4):
        expected = layer({"type": "LSTM", "units": 2, "return_sequences": True}, X[..., pixel], **weights).y
        np.testing.assert_allclose(y[..., pixel], expected, rtol=1e-12)


def test_initial_states_continue_a_sequence():
    full = layer(FIELDS, X).all
    first = layer(FIELDS, X[:, :2]).all
    np.testing.assert_array_equal(full[0], full[1])
    for actual, expected in zip(layer(FIELDS, X[:, 2:], *first[1:]).all, full, strict=True):
        np.testing.assert_allclose(actual, expected, rtol=1e-12)


def test_masked_steps_are_skipped():
    counts = np.array([[0, 1, 0, 1, 1], [1, 1, 1, 0, 0]], bool)
    y = layer(FIELDS, np.where(counts[:, :, None, None], X, np.nan), mask=counts).all
    for sample, steps in enumerate(counts):
        for actual, expected in zip(y, layer(FIELDS, X[[sample]][:, steps]).all, strict=True):
            np.testing.assert_allclose(actual[sample], expected[0], rtol=1e-12)
