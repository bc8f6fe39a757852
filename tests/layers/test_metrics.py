from __future__ import annotations

import numpy as np
import pytest

from netspec.graph.value import ShapeMismatch
from tests.layers.apply import metric

SCORES = np.array([[0.1, 0.7, 0.2], [0.5, 0.2, 0.3], [0.2, 0.3, 0.5], [0.4, 0.4, 0.2]])


def test_sparse_accuracy_counts_the_first_of_equal_scores():
    for labels in (np.array([1, 2, 2, 0], np.int32), np.array([[1], [2], [2], [0]], np.int64)):
        made = metric("SparseCategoricalAccuracy", SCORES, labels)
        assert [int(total) for total in made.all] == [3, 4]
        assert made.result() == 0.75
    assert metric("SparseCategoricalAccuracy", SCORES[3:], np.array([1])).result() == 0


def test_sparse_accuracy_over_another_axis_counts_every_place():
    scores = np.random.default_rng(0).normal(size=(2, 3, 4))
    labels = np.random.default_rng(1).integers(0, 3, (2, 4))
    made = metric({"type": "SparseCategoricalAccuracy", "axis": 1}, scores, labels)
    assert made.result() == (scores.argmax(axis=1) == labels).mean()


def test_categorical_accuracy_compares_the_places_of_the_maxima():
    assert metric("CategoricalAccuracy", SCORES, np.eye(3)[[1, 2, 2, 0]]).result() == 0.75


def test_binary_accuracy_is_a_comparison_with_the_threshold():
    prediction, target = np.array([[0.4], [0.5], [0.6], [0.9]]), np.array([0, 0, 1, 0], np.int32)
    assert metric("BinaryAccuracy", prediction, target).result() == 0.75  # 0.5 itself is not over the threshold
    assert metric({"type": "BinaryAccuracy", "threshold": 0.95}, prediction, target).result() == 0.75
    assert metric({"type": "BinaryAccuracy", "threshold": 0.0}, prediction, target).result() == 0.25


@pytest.mark.parametrize("k", [1, 2, 3])
def test_top_k_accuracy(k):
    scores = np.random.default_rng(2).normal(size=(50, 3))
    labels = np.random.default_rng(3).integers(0, 3, 50)
    expected = np.mean([label in np.argsort(row)[-k:] for row, label in zip(scores, labels, strict=True)])
    made = metric({"type": "SparseTopKCategoricalAccuracy", "k": k}, scores, labels)
    assert made.result() == pytest.approx(expected, rel=1e-12)


def test_a_tie_at_the_border_of_the_top_k_counts_as_right():
    scores = np.array([[0.3, 0.3, 0.3, 0.1]] * 4)
    made = metric({"type": "SparseTopKCategoricalAccuracy", "k": 1}, scores, np.array([0, 1, 2, 3]))
    assert made.result() == 0.75


def test_scores_that_are_not_numbers_are_not_right():
    scores = np.full((1, 3), np.nan)
    assert metric({"type": "SparseTopKCategoricalAccuracy", "k": 2}, scores, np.array([0])).result() == 0


def test_counts_are_exact_where_float32_is_not():
    """2²⁴ + 1 is no float32: totals are whole numbers."""
    made = metric("SparseCategoricalAccuracy", SCORES.astype(np.float32), np.array([1, 0, 2, 0]))
    assert [total.dtype for total in made.all] == [np.int64, np.int64]


def test_errors_are_means_over_all_numbers():
    a, b = np.random.default_rng(5).normal(size=(2, 4, 3))
    assert metric("MeanAbsoluteError", a, b).result() == pytest.approx(abs(a - b).mean(), rel=1e-12)
    assert metric("MeanSquaredError", a, b).result() == pytest.approx(((a - b) ** 2).mean(), rel=1e-12)


def test_more_than_all_classes_cannot_be_asked_for():
    with pytest.raises(ShapeMismatch, match="there are not 5 classes"):
        metric("SparseTopKCategoricalAccuracy", SCORES, np.array([0, 0, 0, 0]))
