from __future__ import annotations

from math import erf, exp, pi, sqrt
from statistics import NormalDist

import numpy as np

from netspec.graph.ops.special import Erf, Gelu, GeluGrad, NormalQuantile


def test_the_error_function_is_that_of_the_c_library_to_rounding():
    x = np.concatenate([np.linspace(-7, 7, 200_001), [0.46875, -0.46875, 1e-300, -1e-20, 0.0, np.inf, -np.inf]])
    expected = np.array([erf(one) for one in x])
    # Two units in the last place of 1: the approximation errs by less than half of one, the arithmetic by some.
    assert np.abs(Erf().forward(np, x) - expected).max() <= 4.5e-16
    # Near 0 the relative error counts.
    small = np.geomspace(1e-300, 0.46, 1000)
    np.testing.assert_allclose(Erf().forward(np, small), [erf(one) for one in small], rtol=5e-16)


def test_single_precision_stays_single_and_is_right_to_rounding():
    x = np.linspace(-5, 5, 10_001, dtype=np.float32)
    y = Erf().forward(np, x)
    assert y.dtype == np.float32
    assert np.abs(y - np.array([erf(one) for one in x.astype(float)])).max() < 3e-7


def test_what_is_not_a_number_stays_so():
    assert np.isnan(Erf().forward(np, np.array([np.nan]))).all()


def test_gelu_and_its_gradient_are_their_formulas():
    x = np.concatenate([np.linspace(-9, 9, 20_001), [0.0, 1e-300, 40.0, -40.0, 1e30, -1e30]])
    share = np.array([(1 + erf(one / sqrt(2))) / 2 for one in x])
    density = np.array([exp(-min(one * one, 1400) / 2) / sqrt(2 * pi) for one in x])
    # The share is right to 4e-16; x times it as much as x is large.
    np.testing.assert_allclose(Gelu().forward(np, x), x * share, rtol=1e-15, atol=1e-14)
    found = GeluGrad().forward(np, x, np.full_like(x, 3.0))
    np.testing.assert_allclose(found, 3 * (share + x * density), rtol=1e-15, atol=1e-14)


def test_gelu_keeps_what_is_not_a_number():
    nan = np.array([np.nan, 1.0])
    assert np.isnan(Gelu().forward(np, nan)).tolist() == [True, False]
    assert np.isnan(GeluGrad().forward(np, nan, np.ones(2))).tolist() == [True, False]
    assert np.isnan(GeluGrad().forward(np, np.ones(2), nan)).tolist() == [True, False]


def test_quantiles_are_those_of_the_standard_library():
    """Over all that random numbers can be: the ends, the middle, and where the branches meet."""
    ends = 0.5 - 2.0**-25
    q = np.concatenate([np.linspace(-ends, ends, 2001), [0.425, -0.425, np.nextafter(0.425, 1)]])
    expected = [NormalDist().inv_cdf(0.5 + one) for one in q]
    np.testing.assert_allclose(NormalQuantile().forward(np, q), expected, rtol=2e-15, atol=2e-16)
    single = NormalQuantile().forward(np, q.astype(np.float32))
    assert single.dtype == np.float32
    # q itself is rounded to 24 bits, which at the ends moves the quantile by up to 1e-2 of its steep slope; elsewhere
    # the two polynomials round at 6e-8 each.
    middle = abs(q) < 0.49
    np.testing.assert_allclose(single[middle], np.array(expected)[middle], rtol=3e-6, atol=3e-7)
