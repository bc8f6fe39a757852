"""PReLU, a layer with a learned slope for negative elements."""

from __future__ import annotations

import numpy as np

from tests.layers.apply import layer

X = np.random.default_rng(3).normal(size=(2, 3, 4))


def test_slopes_are_per_element_or_shared() -> None:
    alpha = np.random.default_rng(4).normal(size=(3, 4))
    np.testing.assert_array_equal(layer("PReLU", X, alpha=alpha).y, np.where(X > 0, X, alpha * X))
    shared = layer({"type": "PReLU", "shared_axes": [-1]}, X, alpha=alpha[:, :1]).y
    np.testing.assert_array_equal(shared, np.where(X > 0, X, alpha[:, :1] * X))


def test_it_starts_as_relu() -> None:
    np.testing.assert_array_equal(layer("PReLU", X).y, np.maximum(X, 0))
