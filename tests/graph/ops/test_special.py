from __future__ import annotations

from math import erf, exp, pi, sqrt
from statistics import NormalDist

import numpy as np

from netspec.graph.ops.special import Erf, Gelu, GeluGrad, NormalQuantile


def test_erf_matches_math_erf():
    x = np.concatenate([np.linspace(-7, 7, 200_001), [0.46875, -0.46875, 1e-300, -1e-20, 0.0, np.inf, -np.inf]])
    expected = np.array([erf(v) for v in x])
    # Two ulps of 1: the approximation is accurate to half an ulp, the rest is arithmetic.
    assert np.abs(Erf().forward(np, x) - expected).max() <= 4.5e-16
    # Near 0 the relative error counts.
    small = np.geomspace(1e-300, 0.46, 1000)
    np.testing.assert_allclose(Erf().forward(np, small), [erf(v) for v in small], rtol=5e-16)


def test_erf_in_float32_stays_float32():
    x = np.linspace(-5, 5, 10_001, dtype=np.float32)
    y = Erf().forward(np, x)
    assert y.dtype == np.float32
    assert np.abs(y - np.array([erf(v) for v in x.astype(float)])).max() < 3e-7


def test_erf_of_nan_is_nan():
    assert np.isnan(Erf().forward(np, np.array([np.nan]))).all()


def test_gelu_and_its_gradient_match_their_formulas():
    x = np.concatenate([np.linspace(-9, 9, 20_001), [0.0, 1e-300, 40.0, -40.0, 1e30, -1e30]])
    probability = np.array([(1 + erf(v / sqrt(2))) / 2 for v in x])
    density = np.array([exp(-min(v * v, 1400) / 2) / sqrt(2 * pi) for v in x])
    # The error of the probability is 4e-16; that of its product with x is x times as much.
    np.testing.assert_allclose(Gelu().forward(np, x), x * probability, rtol=1e-15, atol=1e-14)
    gradient = GeluGrad().forward(np, x, np.full_like(x, 3.0))
    np.testing.assert_allclose(gradient, 3 * (probability + x * density), rtol=1e-15, atol=1e-14)


def test_gelu_of_nan_is_nan():
    nan = np.array([np.nan, 1.0])
    assert np.isnan(Gelu().forward(np, nan)).tolist() == [True, False]
    assert np.isnan(GeluGrad().forward(np, nan, np.ones(2))).tolist() == [True, False]
    assert np.isnan(GeluGrad().forward(np, np.ones(2), nan)).tolist() == [True, False]


def test_normal_quantile_matches_statistics_module():
    """Compare at the ends, in the middle, and where the branches meet."""
    ends = 0.5 - 2.0**-25
    q = np.concatenate([np.linspace(-ends, ends, 2001), [0.425, -0.425, np.nextafter(0.425, 1)]])
    expected = [NormalDist().inv_cdf(0.5 + v) for v in q]
    np.testing.assert_allclose(NormalQuantile().forward(np, q), expected, rtol=2e-15, atol=2e-16)
    single = NormalQuantile().forward(np, q.astype(np.float32))
    assert single.dtype == np.float32
    # q is rounded to 24 bits, which near the ends moves the quantile by up to 1e-2, since its slope is steep; elsewhere
    # the two polynomials have rounding errors of 6e-8 each.
    middle = abs(q) < 0.49
    np.testing.assert_allclose(single[middle], np.array(expected)[middle], rtol=3e-6, atol=3e-7)
