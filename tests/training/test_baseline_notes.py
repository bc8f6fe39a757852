"""Evaluations state which metrics a constant prediction would reach too."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import netspec

SCORES = np.eye(3, dtype=np.float32)


def notes(metric: dict[str, Any], prediction: np.ndarray, target: np.ndarray, batch: int = 4) -> tuple[str, ...]:
    """The notes on a metric of a net whose prediction is its input."""
    label = {"shape": list(target.shape[1:]), "dtype": str(target.dtype)}
    inputs = {"x": {"shape": list(prediction.shape[1:])}, "label": label}
    net = {
        "netspec": 1, "inputs": inputs, "layers": [{"name": "y", "type": "Reshape", "from": "x",
                                                    "target_shape": list(prediction.shape[1:])}],
        "outputs": ["y"], "metrics": [{"name": "score", "from": ["y", "label"], **metric}],
    }  # fmt: skip
    return netspec.load(net).evaluate({"x": prediction, "label": target}, batch_size=batch).notes


@pytest.mark.parametrize(("predicted", "noted"), [([2] * 10, True), ([0, 0, 0, 1, 1, 2, 2, 2, 2, 0], False)])
def test_accuracy_is_compared_with_the_largest_class(predicted: list[int], noted: bool) -> None:
    labels = np.array([0, 0, 0, 1, 1, 2, 2, 2, 2, 2], np.int32)
    expected = ("score 0.5000 is not better than always predicting class 2, the most frequent class: 0.5000",)
    for metric, target in (("SparseCategoricalAccuracy", labels), ("CategoricalAccuracy", SCORES[labels])):
        assert notes({"type": metric}, SCORES[predicted], target) == (expected if noted else ())


def test_ignored_pixels_do_not_count() -> None:
    labels = np.array([[0, 1], [1, 255], [255, 255], [0, 0], [1, 1]], np.int32)
    scores = np.zeros((5, 3, 2), np.float32)
    metric = {"type": "SparseCategoricalAccuracy", "axis": 1, "ignore_class": 255}
    (note,) = notes(metric, scores, labels, batch=1)
    assert note == "score 0.4286 is not better than always predicting class 1, the most frequent class: 0.5714"
    assert notes(metric, scores, np.full_like(labels, 255)) == ()


def test_binary_accuracy_is_compared_with_the_larger_class() -> None:
    target = np.array([0, 0, 0, 1], np.float32)
    assert notes({"type": "BinaryAccuracy"}, np.array([0.1, 0.2, 0.9, 0.9], np.float32), target) == (
        "score 0.7500 is not better than always predicting class 0, the most frequent class: 0.7500",
    )
    assert notes({"type": "BinaryAccuracy"}, target, target) == ()


def test_r2_is_compared_with_the_mean() -> None:
    target = np.array([1, 2, 3, 4], np.float32)
    (note,) = notes({"type": "R2Score"}, target[::-1].copy(), target)
    assert note == "score -3.0000 is not better than always predicting the mean of the targets"
    assert notes({"type": "R2Score"}, target, target) == ()
    assert notes({"type": "MeanAbsoluteError"}, target[::-1].copy(), target) == ()
