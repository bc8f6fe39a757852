"""Nets as scikit-learn estimators, for its pipelines, grids and cross-validation: `Classifier` and `Regressor`.

Needs the extra `sklearn`.

    >>> from netspec.sklearn import Classifier
    >>> cross_val_score(make_pipeline(StandardScaler(), Classifier(random_state=0)), X, y)
"""

from __future__ import annotations

from netspec.errors import InputError, install_command

try:
    import sklearn  # noqa: F401  # the absolute name: scikit-learn, not this package
except ImportError:
    raise InputError("scikit-learn is not installed", hint=install_command("sklearn")) from None

from netspec.sklearn.estimators import Classifier, Regressor

__all__ = ["Classifier", "Regressor"]
