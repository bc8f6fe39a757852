from __future__ import annotations

from statistics import NormalDist

import numpy as np
import pytest
from pydantic import ValidationError

from netspec.graph.value import ShapeMismatch
from netspec.layers.core.dropout import Dropout
from tests.layers.apply import layer

X = np.ones((64, 50))


def test_dropout_scales_kept_elements_and_drops_the_given_fraction():
    y = layer({"type": "Dropout", "rate": 0.25}, X, training=True).y
    assert set(np.unique(y)) == {0.0, 1 / 0.75}
    # binomial: 3200 draws with a standard deviation of 0.0077; within five of them
    assert (y == 0).mean() == pytest.approx(0.25, abs=0.04)


def test_dropout_is_the_identity_in_inference_and_at_rate_0():
    for fields, training in (({"rate": 0.5}, False), ({"rate": 0.0}, True)):
        np.testing.assert_array_equal(layer({"type": "Dropout", **fields}, X, training=training).y, X)


def test_gradient_flows_through_kept_elements():
    applied = layer({"type": "Dropout", "rate": 0.5}, X, training=True)
    np.testing.assert_array_equal(applied.gradient(np.ones_like(X))[0], applied.y)


def test_dropout_mask_does_not_depend_on_batch_partition():
    """A worker with samples 24 … 63 of the global batch drops the same elements of them as a single worker."""
    fields = {"type": "Dropout", "rate": 0.5}
    full = layer(fields, X[:, :7], training=True, rng=(3, 9, 0)).y
    parts = [
        layer(fields, X[part, :7], training=True, rng=(3, 9, part.start)).y for part in (slice(0, 24), slice(24, 64))
    ]
    np.testing.assert_array_equal(np.concatenate(parts), full)


def test_dropout_mask_depends_on_seed_and_step_but_not_on_precision():
    fields = {"type": "Dropout", "rate": 0.5}
    masks = [layer(fields, X, training=True, rng=rng).y != 0 for rng in ((1, 1, 0), (1, 1, 0), (2, 1, 0), (1, 2, 0))]
    np.testing.assert_array_equal(masks[0], masks[1])
    for other in masks[2:]:
        assert (masks[0] != other).mean() == pytest.approx(0.5, abs=0.05)
    single = layer(fields, X.astype(np.float32), training=True, rng=(1, 1, 0)).y != 0
    np.testing.assert_array_equal(single, masks[0])


@pytest.mark.parametrize("rate", [-0.1, 1.0, 1.5])
def test_dropout_rate_must_be_below_1(rate):
    with pytest.raises(ValidationError, match="Input should be"):
        Dropout.model_validate({"type": "Dropout", "rate": rate})


WIDE = np.random.default_rng(2).normal(size=(200, 30, 4, 5))
"""120000 normal numbers."""


@pytest.mark.parametrize(("rank", "shape"), [(1, (6, 9)), (2, (6, 3, 3)), (3, (6, 3, 3, 1))])
def test_spatial_dropout_drops_full_channels(rank, shape):
    x = np.ones((100, *shape))
    y = layer({"type": f"SpatialDropout{rank}D", "rate": 0.25}, x, training=True).y
    channels = y.reshape(100, 6, -1)
    assert (channels == channels[:, :, :1]).all()
    assert set(np.unique(y)) == {0.0, 1 / 0.75}
    # 600 draws: the standard error of the mean is 0.018; within five of them
    assert (channels[:, :, 0] == 0).mean() == pytest.approx(0.25, abs=0.09)


def test_noise_shape_shares_the_mask_along_axes():
    y = layer({"type": "Dropout", "rate": 0.5, "noise_shape": [None, 1, 5]}, np.ones((50, 4, 5)), training=True).y
    assert (y == y[:, :1]).all()
    assert (y[:, 0] == 0).mean() == pytest.approx(0.5, abs=0.16)  # 250 draws, within five standard errors of 0.032


@pytest.mark.parametrize("noise_shape", [[1, 4, 5], [None, 4], [None, 2, 5], [None, None, None, None]])
def test_invalid_noise_shapes_are_rejected(noise_shape):
    with pytest.raises(ShapeMismatch, match="`noise_shape` does not fit the input"):
        layer({"type": "Dropout", "rate": 0.5, "noise_shape": noise_shape}, np.ones((3, 4, 5)))


@pytest.mark.parametrize("rate", [0.1, 0.5])
def test_alpha_dropout_keeps_mean_and_variance(rate):
    y = layer({"type": "AlphaDropout", "rate": rate}, WIDE, training=True).y
    # 120000 values of variance 1: standard errors of 0.003 and about 0.006; within five of them
    assert y.mean() == pytest.approx(0, abs=0.015)
    assert y.var() == pytest.approx(1, abs=0.03)
    alpha = -1.7580993408473766
    a = ((1 - rate) * (1 + rate * alpha**2)) ** -0.5
    least = a * alpha - a * alpha * rate
    assert np.isclose(y, least).mean() == pytest.approx(rate, abs=0.01)
    changed = ~np.isclose(y, least)
    np.testing.assert_allclose(y[changed], a * WIDE[changed] - a * alpha * rate, rtol=1e-12)


def test_gaussian_dropout_multiplies_by_normal_numbers():
    y = layer({"type": "GaussianDropout", "rate": 0.2}, np.full(WIDE.shape, 3.0), training=True).y / 3
    assert y.mean() == pytest.approx(1, abs=5 * 0.5 / np.sqrt(y.size))
    assert y.std() == pytest.approx(0.5, rel=5 / np.sqrt(2 * y.size))


def test_gaussian_noise_is_normal():
    """Compares moments up to the fourth, and the share of values below several limits."""
    noise = layer({"type": "GaussianNoise", "stddev": 2.0}, WIDE, training=True).y - WIDE
    z = noise.ravel() / 2
    for power, (moment, variance) in {1: (0, 1), 2: (1, 2), 3: (0, 15), 4: (3, 96)}.items():
        assert (z**power).mean() == pytest.approx(moment, abs=5 * np.sqrt(variance / z.size))
    for limit in (-3.0, -1.5, -0.2, 0.7, 2.0, 4.0):
        share = NormalDist().cdf(limit)
        assert (z < limit).mean() == pytest.approx(share, abs=5 * np.sqrt(share * (1 - share) / z.size))
    assert abs(np.corrcoef(z[:-1], z[1:])[0, 1]) < 5 / np.sqrt(z.size)


def test_noise_does_not_depend_on_batch_partition():
    fields, x = {"type": "GaussianNoise", "stddev": 1.0}, np.zeros((10, 7))
    full = layer(fields, x, training=True, rng=(3, 9, 0)).y
    parts = [layer(fields, x[part], training=True, rng=(3, 9, part.start)).y for part in (slice(0, 3), slice(3, 10))]
    np.testing.assert_array_equal(np.concatenate(parts), full)


@pytest.mark.parametrize(
    "fields",
    [
        {"type": "SpatialDropout2D", "rate": 0.5}, {"type": "AlphaDropout", "rate": 0.5},
        {"type": "GaussianDropout", "rate": 0.5}, {"type": "GaussianNoise", "stddev": 1.0},
    ],
    ids=lambda fields: fields["type"],
)  # fmt: skip
def test_noise_layers_are_the_identity_in_inference(fields):
    np.testing.assert_array_equal(layer(fields, WIDE).y, WIDE)
