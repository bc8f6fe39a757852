from __future__ import annotations

from itertools import product

import numpy as np
import pytest
from pydantic import ValidationError

from netspec.graph.value import ShapeMismatch
from netspec.schema.specs.kinds import LAYERS
from tests.layers.apply import layer

X = np.random.default_rng(3).normal(size=(2, 6, 5, 4))
FIELDS = {"type": "LocalResponseNormalization", "alpha": 0.7, "beta": 0.6, "k": 2.0}


@pytest.mark.parametrize("size", [1, 2, 3, 4, 5, 12, 13])
def test_lrn_across_channels_matches_its_definition(size):
    expected = np.empty_like(X)
    for c in range(6):
        around = X[:, max(0, c - size // 2) : c + (size + 1) // 2]
        expected[:, c] = X[:, c] * (2 + 0.7 / size * (around**2).sum(1)) ** -0.6
    np.testing.assert_allclose(layer({**FIELDS, "size": size}, X).y, expected, rtol=1e-12)


@pytest.mark.parametrize("size", [1, 3, 5])
def test_lrn_within_channels_matches_its_definition(size):
    expected = np.empty_like(X)
    for i, j in product(range(5), range(4)):
        h = size // 2
        around = X[:, :, max(0, i - h) : i + h + 1, max(0, j - h) : j + h + 1]
        expected[:, :, i, j] = X[:, :, i, j] * (2 + 0.7 / size**2 * (around**2).sum((2, 3))) ** -0.6
    y = layer({**FIELDS, "size": size, "region": "within_channel"}, X).y
    np.testing.assert_allclose(y, expected, rtol=1e-12)


def test_lrn_defaults_equal_caffe():
    x = np.array([[1.0, 2.0, 3.0]])
    np.testing.assert_allclose(layer("LocalResponseNormalization", x).y, x * (1 + 14 / 5) ** -0.75, rtol=1e-12)


def test_lrn_within_channels_requires_an_odd_size():
    with pytest.raises(ValidationError, match="must be odd"):
        LAYERS["LocalResponseNormalization"].model_validate({"size": 4, "region": "within_channel"})


def test_lrn_within_channels_requires_images():
    with pytest.raises(ShapeMismatch, match="not an image"):
        layer({**FIELDS, "region": "within_channel"}, np.zeros((2, 6)))


def test_caffe_name_gets_a_hint():
    assert "use `size`" in LAYERS["LocalResponseNormalization"].foreign_fields["local_size"]
