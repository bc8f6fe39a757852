"""Weights that do not fit a net are all reported; with `partial`, fitting ones are loaded."""

from __future__ import annotations

import numpy as np
import pytest

from netspec.errors import InputError
from netspec.exchange.match_weights import match_weights
from netspec.graph.types import DType, TensorType

WANTED = {
    "conv1/kernel": TensorType((2, 3), DType.FLOAT32),
    "conv1/bias": TensorType((2,), DType.FLOAT32),
    "head/kernel": TensorType((4, 10), DType.FLOAT32),
}
GIVEN = {
    "conv1/kernel": np.ones((2, 3), "float32"),
    "conv_1/bias": np.ones(2, "float32"),
    "head/kernel": np.ones((4, 1000), "float32"),
}


def test_all_that_fits_is_given_back() -> None:
    arrays = {name: np.zeros(kind.shape) for name, kind in WANTED.items()}
    actual = match_weights(WANTED, arrays)
    assert actual.arrays.keys() == WANTED.keys()
    assert actual.count("loaded") == 3


def test_everything_that_does_not_fit_is_reported_at_once() -> None:
    with pytest.raises(InputError) as error:
        match_weights(WANTED, GIVEN, source="old.h5")
    assert error.value.render() == (
        "error: old.h5: `conv1/bias` is missing\n"
        "  expected: [2]\n"
        "  hint: did you mean `conv_1/bias`?\n"
        "error: old.h5: `head/kernel` has the wrong shape\n"
        "  expected: [4, 10]\n"
        "  got: [4, 1000]\n"
        "error: old.h5: the net has no `conv_1/bias`\n"
        "  got: [2]\n"
        "  hint: did you mean `conv1/bias`?\n"
        "3 errors"
    )


def test_partial_loads_weights_that_fit_and_reports_the_rest() -> None:
    actual = match_weights(WANTED, GIVEN, partial=True)
    assert list(actual.arrays) == ["conv1/kernel"]
    assert actual.render().splitlines() == [
        "conv1/kernel  [2, 3]             [2, 3]             loaded",
        "conv1/bias    [2]                -                  missing",
        "head/kernel   [4, 10]            [4, 1000]          shape differs",
        "conv_1/bias   -                  [2]                not in the net",
        "1 loaded, 1 missing, 1 shape differs, 1 not in the net",
    ]


def test_partial_with_nothing_that_fits_is_an_error() -> None:
    with pytest.raises(InputError, match=r"nothing in other\.h5 fits"):
        match_weights(WANTED, {"x": np.ones(1)}, partial=True, source="other.h5")
