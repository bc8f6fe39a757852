from __future__ import annotations

from math import erf

import numpy as np

from netspec.graph.ops.special import Erf


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
