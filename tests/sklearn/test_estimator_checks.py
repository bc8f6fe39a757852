"""scikit-learn's own checks of estimators."""

from __future__ import annotations

from typing import Any

from sklearn.utils.estimator_checks import parametrize_with_checks

from netspec.sklearn import Classifier, Regressor

SETTINGS: dict[str, Any] = {
    "device": "reference",  # compiles nothing
    "max_epochs": 12,
    "solver": {"type": "Adam", "learning_rate": 0.03},
    "validation_fraction": None,  # test_estimators.py stops early
    "overrides": ("train.precision=float64",),  # a check compares batches of different sizes to 7 digits
}


@parametrize_with_checks([Classifier(**SETTINGS), Regressor(**SETTINGS)])
def test_estimator(estimator: Any, check: Any) -> None:
    check(estimator)
