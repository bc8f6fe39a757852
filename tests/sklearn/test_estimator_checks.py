"""scikit-learn's own checks of estimators."""

from __future__ import annotations

from typing import Any

import pytest
from sklearn.utils.estimator_checks import parametrize_with_checks

from netspec.sklearn import Classifier, Regressor

SETTINGS: dict[str, Any] = {
    # The reference device compiles nothing.
    "device": "reference",
    "max_epochs": 12,
    "solver": {"type": "Adam", "learning_rate": 0.03},
    # test_estimators.py tests early stopping.
    "validation_fraction": None,
    # A check compares batches of different sizes to 7 digits.
    "overrides": ("train.precision=float64",),
}


@parametrize_with_checks([Classifier(**SETTINGS)])
def test_classifier(estimator: Any, check: Any) -> None:
    check(estimator)


OF_REGRESSOR = parametrize_with_checks([Regressor(**SETTINGS)])
SPARSE = {"check_estimator_sparse_array", "check_estimator_sparse_matrix"}
"""Checks of code that both estimators share; they take seconds."""


def mark(check: Any) -> pytest.MarkDecorator:
    return pytest.mark.exhaustive if check.func.__name__ in SPARSE else pytest.mark.slow


@pytest.mark.parametrize(
    OF_REGRESSOR.args[0],
    [pytest.param(*case, marks=mark(case[1])) for case in OF_REGRESSOR.args[1]],
    ids=OF_REGRESSOR.kwargs["ids"],
)
def test_regressor(estimator: Any, check: Any) -> None:
    check(estimator)
