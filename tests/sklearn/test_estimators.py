"""Estimators with scikit-learn: pipelines, grid search, pickles, custom nets, early stopping."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.compose import ColumnTransformer
from sklearn.datasets import load_diabetes, load_digits, load_iris
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.impute import SimpleImputer
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler

from netspec.errors import InputError
from netspec.sklearn import Classifier, Regressor

FAST: dict[str, Any] = {"random_state": 0, "device": "reference", "solver": {"type": "Adam", "learning_rate": 0.01}}
CONVOLUTION = """
netspec: 1
inputs:
  image: {shape: [1, 8, 8]}
  label: {shape: [LABEL], dtype: float32}
layers:
  - {type: Conv2D, filters: 4, kernel_size: 3, activation: relu}
  - {type: Flatten}
  - {type: Dense, units: UNITS}
losses: [{type: LOSS, from_logits: true}]
"""


def two_digits() -> tuple[Any, Any]:
    X, y = load_digits(n_class=2, return_X_y=True)
    return X.reshape(-1, 1, 8, 8) / 16, np.where(y == 1, "one", "a zero")


def convolution(label: str, units: int, loss: str) -> str:
    return CONVOLUTION.replace("LABEL", label).replace("UNITS", str(units)).replace("LOSS", loss)


def test_pipeline_cross_validates_well() -> None:
    X, y = load_iris(return_X_y=True)
    pipeline = make_pipeline(StandardScaler(), Classifier(**FAST, max_epochs=30))
    assert cross_val_score(pipeline, X, y, cv=3).min() > 0.85


@pytest.mark.parametrize("estimator", [Classifier(**FAST, max_epochs=60), Regressor(**FAST, max_epochs=60)])
def test_pipeline_of_columns_with_names_texts_and_missing_values(estimator: Any) -> None:
    random = np.random.default_rng(0)
    rows = np.empty((90, 3), object)
    rows[:, 0] = random.integers(18, 80, 90)
    rows[:, 1] = random.choice(["clerk", "cook"], 90)
    rows[:, 2] = random.choice(["very good work", "bad work", "late again"], 90)
    targets = np.array([int(row[2] == "bad work") for row in rows])
    rows[::9, 0] = np.nan
    columns = ColumnTransformer(
        [("age", SimpleImputer(), [0]), ("job", OneHotEncoder(), [1]), ("note", TfidfVectorizer(), 2)],
        sparse_threshold=1,
    )
    search = GridSearchCV(
        make_pipeline(columns, estimator), {f"{type(estimator).__name__.lower()}__batch_size": [16]}, cv=2
    )
    search.fit(rows, targets)
    assert search.best_score_ > 0.7
    assert search.predict(rows[:1]).shape == (1,)


def test_regressor_predicts_in_units_of_the_target() -> None:
    X, y = load_diabetes(return_X_y=True)
    large = Regressor(**FAST, max_epochs=15).fit(X, 1e9 * y)
    assert large.score(X, 1e9 * y) > 0.4
    np.testing.assert_allclose(
        large.predict(X) / 1e9, Regressor(**FAST, max_epochs=15).fit(X, y).predict(X), rtol=1e-3
    )  # rounding of float32, over 15 epochs


@pytest.mark.slow
def test_grid_search_varies_the_solver_and_the_net() -> None:
    X, y = load_iris(return_X_y=True)
    grid = {"solver": [{"type": "SGD", "learning_rate": 1e-6}, FAST["solver"]], "batch_size": [16]}
    search = GridSearchCV(Classifier(**FAST, max_epochs=10), grid, cv=2).fit(X, y)
    assert search.best_params_["solver"] == FAST["solver"]


@pytest.mark.parametrize(
    ("label", "units", "loss"),
    [
        ("", 2, "SparseCategoricalCrossentropy"),
        ("2", 2, "CategoricalCrossentropy"),
        ("1", 1, "BinaryCrossentropy"),
    ],
)
def test_net_file_with_each_form_of_target(label: str, units: int, loss: str, tmp_path: Path) -> None:
    file = tmp_path / "net.yaml"
    text = convolution(label, units, loss)
    file.write_text(text.replace("float32", "int32") if not label else text)
    X, y = two_digits()
    classifier = Classifier(file, **FAST, max_epochs=3, validation_fraction=None).fit(X, y)
    assert classifier.score(X, y) > 0.95
    probabilities = classifier.predict_proba(X)
    assert classifier.classes_.tolist() == ["a zero", "one"]
    np.testing.assert_allclose(probabilities.sum(axis=1), 1, rtol=1e-6)  # rounding of float32
    assert ((probabilities[:, 1] > 0.5) == (classifier.predict(X) == "one")).all()


def test_net_with_other_classes_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "net.yaml"
    file.write_text(convolution("", 10, "SparseCategoricalCrossentropy").replace("float32", "int32"))
    with pytest.raises(InputError, match="does not fit the classes") as raised:
        Classifier(file, **FAST).fit(*two_digits())
    assert "expected: shape [2], or [1] for two classes" in str(raised.value)
    assert "got: [10]" in str(raised.value)


def test_net_without_probabilities_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "net.yaml"
    file.write_text(convolution("1", 1, "MeanSquaredError").replace(", from_logits: true", ""))
    with pytest.raises(InputError, match="does not have the probabilities of classes"):
        Classifier(file, **FAST).fit(*two_digits())


def test_net_needs_a_target() -> None:
    net = {"netspec": 1, "inputs": {"x": {"shape": [4]}}, "layers": [{"type": "Dense", "units": 3}]}
    with pytest.raises(InputError, match="exactly one input for the target"):
        Classifier(net, **FAST).fit(*load_iris(return_X_y=True))


def test_training_stops_early_and_keeps_the_best_weights() -> None:
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(100, 20)), rng.integers(0, 2, 100)  # random labels, so there is nothing to learn
    classifier = Classifier(**FAST, max_epochs=60, patience=3).fit(X, y)
    losses = [event["loss"] for event in classifier.history_ if event["event"] == "test"]
    assert 4 <= len(losses) < 60
    assert min(losses) == losses[-4]
    longest = Classifier(**FAST, max_epochs=len(losses) - 3, patience=60).fit(X, y)
    np.testing.assert_array_equal(classifier.predict_proba(X), longest.predict_proba(X))


def test_pickle_holds_arrays_and_predicts_the_same() -> None:
    X, y = load_iris(return_X_y=True)
    classifier = Classifier(**FAST, max_epochs=2, overrides=["train.precision=float64"]).fit(X, y)
    assert "Model" not in {type(value).__name__ for value in classifier.__getstate__().values()}
    restored = pickle.loads(pickle.dumps(classifier))
    assert restored.predict_proba(X).dtype == np.float64
    np.testing.assert_array_equal(restored.predict_proba(X), classifier.predict_proba(X))
    assert not hasattr(clone(classifier), "model_")


def test_random_state_decides_the_result() -> None:
    X, y = load_iris(return_X_y=True)
    results = [
        Classifier(**{**FAST, "random_state": seed}, max_epochs=1).fit(X, y).predict_proba(X) for seed in (0, 0, 1)
    ]
    np.testing.assert_array_equal(results[0], results[1])
    assert (results[0] != results[2]).any()


def test_verbose_prints_losses(capsys: pytest.CaptureFixture[str]) -> None:
    Classifier(**FAST, max_epochs=1, verbose=1).fit(*load_iris(return_X_y=True))
    assert "validation loss" in capsys.readouterr().out
    Classifier(**FAST, max_epochs=1).fit(*load_iris(return_X_y=True))
    assert not capsys.readouterr().out
