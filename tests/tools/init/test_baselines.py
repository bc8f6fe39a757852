"""Nets of `netspec init` for small tables are as good as a linear model that scikit-learn tunes on the same rows."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.datasets import load_diabetes, make_friedman1
from sklearn.linear_model import RidgeCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import netspec
from netspec.data.tabular.rows import rows_of_part
from netspec.tools.specs import load_train


def error_ratio(x: Any, y: Any, folder: Path) -> float:
    """Return the root mean squared test error of the written net, divided by that of ridge regression."""
    names = ",".join([*(f"x{index}" for index in range(x.shape[1])), "target"])
    table = np.column_stack([x, y])
    np.savetxt(folder / "t.csv", table, fmt="%.6g", delimiter=",", header=names, comments="")
    result = netspec.init(folder / "t.csv")
    run = netspec.train(str(result.train), run_dir=folder / "run")
    source: Any = load_train(result.train).data.splits()["test"]
    test: Any = rows_of_part(source, source.opened_file())
    ridge = make_pipeline(StandardScaler(), RidgeCV(np.logspace(-3, 4, 30))).fit(x[~test], y[~test])
    assert run.test is not None
    error = np.sqrt((1 - run.test.metrics["r2"]) * y[test].var())
    return float(error / np.sqrt(np.mean((ridge.predict(x[test]) - y[test]) ** 2)))


@pytest.mark.slow
def test_a_linear_relation_of_few_rows_is_learned(tmp_path: Path) -> None:
    diabetes = load_diabetes()
    assert error_ratio(diabetes.data, diabetes.target, tmp_path) < 1.05


@pytest.mark.slow
def test_a_nonlinear_relation_of_few_rows_is_learned(tmp_path: Path) -> None:
    x, y = make_friedman1(442, 10, noise=1.0, random_state=0)
    assert error_ratio(x, y, tmp_path) < 0.9
