"""scikit-learn's own checks of estimators."""

from __future__ import annotations

from typing import Any

import pytest
from sklearn.utils.estimator_checks import parametrize_with_checks

from netspec.sklearn import Classifier, Regressor

SETTINGS: dict[str, Any] = {
    "device": "reference",  # compiles nothing
    "max_epochs": 12,
    "solver": {"type": "Adam", "learning_rate": 0.03},
    "validation_fraction": None,  # test_estimators.py stops early
    "overrides": ("train.precision=float64",),  # a check compares batches of different sizes to 7 digits
}


@parametrize_with_checks([Classifier(**SETTINGS)])
def test_classifier(estimator: Any, check: Any) -> None:
    check(estimator)


@pytest.mark.slow
@parametrize_with_checks([Regressor(**SETTINGS)])
def test_regressor(estimator: Any, check: Any) -> None:
    check(estimator)
