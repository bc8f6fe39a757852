from __future__ import annotations

import numpy as np
import pytest

from netspec.graph.value import ShapeMismatch
from tests.layers.apply import metric

SCORES = np.array([[0.1, 0.7, 0.2], [0.5, 0.2, 0.3], [0.2, 0.3, 0.5], [0.4, 0.4, 0.2]])


def test_sparse_accuracy_counts_the_first_of_equal_scores():
    for labels in (np.array([1, 2, 2, 0], np.int32), np.array([[1], [2], [2], [0]], np.int64)):
        applied = metric("SparseCategoricalAccuracy", SCORES, labels)
        assert [int(total) for total in applied.all] == [3, 4]
        assert applied.result() == 0.75
    assert metric("SparseCategoricalAccuracy", SCORES[3:], np.array([1])).result() == 0


def test_sparse_accuracy_over_another_axis():
    scores = np.random.default_rng(0).normal(size=(2, 3, 4))
    labels = np.random.default_rng(1).integers(0, 3, (2, 4))
    applied = metric({"type": "SparseCategoricalAccuracy", "axis": 1}, scores, labels)
    assert applied.result() == (scores.argmax(axis=1) == labels).mean()


def test_categorical_accuracy_compares_argmaxes():
    assert metric("CategoricalAccuracy", SCORES, np.eye(3)[[1, 2, 2, 0]]).result() == 0.75


def test_binary_accuracy_applies_the_threshold():
    prediction, target = np.array([[0.4], [0.5], [0.6], [0.9]]), np.array([0, 0, 1, 0], np.int32)
    assert metric("BinaryAccuracy", prediction, target).result() == 0.75  # 0.5 itself is not over the threshold
    assert metric({"type": "BinaryAccuracy", "threshold": 0.95}, prediction, target).result() == 0.75
    assert metric({"type": "BinaryAccuracy", "threshold": 0.0}, prediction, target).result() == 0.25


@pytest.mark.parametrize("k", [1, 2, 3])
def test_top_k_accuracy(k):
    scores = np.random.default_rng(2).normal(size=(50, 3))
    labels = np.random.default_rng(3).integers(0, 3, 50)
    expected = np.mean([label in np.argsort(row)[-k:] for row, label in zip(scores, labels, strict=True)])
    applied = metric({"type": "SparseTopKCategoricalAccuracy", "k": k}, scores, labels)
    assert applied.result() == pytest.approx(expected, rel=1e-12)


def test_tie_at_rank_k_counts_as_correct():
    scores = np.array([[0.3, 0.3, 0.3, 0.1]] * 4)
    applied = metric({"type": "SparseTopKCategoricalAccuracy", "k": 1}, scores, np.array([0, 1, 2, 3]))
    assert applied.result() == 0.75


def test_nan_scores_are_incorrect():
    scores = np.full((1, 3), np.nan)
    assert metric({"type": "SparseTopKCategoricalAccuracy", "k": 2}, scores, np.array([0])).result() == 0


def test_counts_beyond_float32_are_exact():
    """2²⁴ + 1 is no float32: totals are whole numbers."""
    applied = metric("SparseCategoricalAccuracy", SCORES.astype(np.float32), np.array([1, 0, 2, 0]))
    assert [total.dtype for total in applied.all] == [np.int64, np.int64]


def test_error_metrics_are_means_over_all_elements():
    a, b = np.random.default_rng(5).normal(size=(2, 4, 3))
    assert metric("MeanAbsoluteError", a, b).result() == pytest.approx(abs(a - b).mean(), rel=1e-12)
    assert metric("MeanSquaredError", a, b).result() == pytest.approx(((a - b) ** 2).mean(), rel=1e-12)


def test_k_above_the_number_of_classes_is_rejected():
    with pytest.raises(ShapeMismatch, match="there are fewer than 5 classes"):
        metric("SparseTopKCategoricalAccuracy", SCORES, np.array([0, 0, 0, 0]))


RANDOM = np.random.default_rng(11)
YES = RANDOM.integers(0, 2, (40, 3))
SHARES = np.round(RANDOM.uniform(0, 1, (40, 3)), 1)  # rounded, so that many are equal to a threshold
IMPORTANCE = RANDOM.uniform(0.5, 2, 40)


@pytest.mark.parametrize("thresholds", [0.3, [0.1, 0.3, 0.9], [0.0, 0.5, 1.0]])
@pytest.mark.parametrize("weight", [None, IMPORTANCE])
def test_confusion_counts_at_each_threshold(thresholds, weight):
    factor = np.ones((40, 1)) if weight is None else weight[:, None]
    several = thresholds if isinstance(thresholds, list) else [thresholds]
    for name, right, positive in (("TruePositives", 1, 1), ("FalsePositives", 0, 1), ("TrueNegatives", 0, 0),
                              ("FalseNegatives", 1, 0)):  # fmt: skip
        actual = metric({"type": name, "thresholds": thresholds}, SHARES, YES, weight=weight).figure()
        for threshold in several:
            expected = (factor * ((right == YES) & ((threshold < SHARES) == positive))).sum()
            count = actual[f"{threshold:g}"] if isinstance(actual, dict) else actual
            assert count == pytest.approx(expected, rel=1e-12), (name, threshold)


def test_confusion_counts_beyond_float32_are_exact():
    applied = metric("Precision", SHARES.astype(np.float32), YES)
    assert applied.y.dtype == np.int64


def test_nan_prediction_exceeds_no_threshold():
    scores = np.array([[np.nan], [0.9]])
    assert metric("TruePositives", scores, np.array([[1], [1]])).result() == 1
    fields = {"type": "SensitivityAtSpecificity", "specificity": 0.5, "num_thresholds": 5}
    assert metric(fields, scores, np.array([[1], [1]])).y[0, 1].tolist() == [1, 0, 0, 0, 1, 0]


def test_even_thresholds_match_listed_ones():
    """Half of the scores equal a threshold: only greater scores exceed it."""
    shares = np.array([[0.0], [0.25], [0.3], [0.5], [0.75], [0.99], [1.0]])
    even = metric({"type": "SensitivityAtSpecificity", "specificity": 0.5, "num_thresholds": 5}, shares, shares > 0.4)
    listed = metric({"type": "TruePositives", "thresholds": [0.0, 0.25, 0.5, 0.75, 1.0]}, shares, shares > 0.4)
    np.testing.assert_array_equal(even.y, listed.y)


def test_auc_is_the_fraction_of_ordered_pairs():
    scores = RANDOM.permutation(60)[:, None] / 60 + 0.01
    answers = RANDOM.integers(0, 2, (60, 1))
    higher = scores[answers == 1][:, None] > scores[answers == 0][None]
    actual = metric({"type": "AUC", "num_thresholds": 2000}, scores, answers).result()
    assert actual == pytest.approx(higher.mean(), abs=1e-12)


@pytest.mark.parametrize("labels", [np.array([1, 0, 2, 0, 1]), np.array([[1], [0], [2], [0], [1]], np.int32)])
def test_auc_and_f1_take_class_indices(labels):
    scores = np.random.default_rng(4).normal(size=(5, 3))
    probabilities = np.exp(scores) / np.exp(scores).sum(axis=1, keepdims=True)
    one_hot = np.eye(3)[labels.reshape(-1)]
    by_vectors = metric({"type": "AUC", "multi_label": True}, probabilities, one_hot).result()
    assert metric({"type": "AUC", "from_logits": True}, scores, labels).result() == pytest.approx(by_vectors, rel=1e-12)
    assert metric("F1Score", probabilities, labels).figure() == metric("F1Score", probabilities, one_hot).figure()


def test_auc_of_two_classes_is_the_auc_of_class_1():
    scores = np.random.default_rng(5).normal(size=(40, 2))
    labels = np.random.default_rng(6).integers(0, 2, 40)
    margin = scores[:, 1:] - scores[:, :1]  # its sigmoid is the softmax of class 1
    expected = metric({"type": "AUC", "from_logits": True}, margin, labels).result()
    assert metric({"type": "AUC", "from_logits": True}, scores, labels).result() == pytest.approx(expected, rel=1e-12)


def test_scores_of_classes_have_the_names_of_the_data():
    applied = metric("F1Score", np.eye(3), np.array([0, 1, 1]))
    assert list(applied.figure()) == ["0", "1", "2"]
    assert list(applied.spec.with_class_names(["a", "b", "c"]).result(*applied.all)) == ["a", "b", "c"]
    assert list(applied.spec.with_class_names(["a", "b"]).result(*applied.all)) == [
        "0",
        "1",
        "2",
    ]  # the number of names differs, so they are not used


def test_precision_at_k_of_equal_scores():
    scores, answers = np.array([[0.5, 0.5, 0.5, 0.1]]), np.array([[1, 0, 0, 0]])
    assert metric({"type": "Precision", "top_k": 1}, scores, answers).result() == 1
    assert metric({"type": "Precision", "top_k": 2}, scores, answers).result() == 0.5
    assert metric({"type": "Recall", "top_k": 1}, scores, answers).result() == 1


NUMBERS = RANDOM.integers(0, 3, 50)
GUESSES = RANDOM.normal(size=(50, 3))


def test_confusion_matrix_and_report():
    predicted = GUESSES.argmax(axis=1)
    matrix = np.array([[((i == NUMBERS) & (predicted == j)).sum() for j in range(3)] for i in range(3)])
    fields = {"class_names": ["a", "b", "c"]}
    actual = metric({"type": "ConfusionMatrix", **fields}, GUESSES, NUMBERS).figure()
    assert [[actual[row][column] for column in "abc"] for row in "abc"] == matrix.tolist()
    report = metric({"type": "ClassificationReport", **fields}, GUESSES, NUMBERS).figure()
    precision, recall = matrix.diagonal() / matrix.sum(axis=0), matrix.diagonal() / matrix.sum(axis=1)
    for number, name in enumerate("abc"):
        assert report[name]["precision"] == pytest.approx(precision[number], rel=1e-12)
        assert report[name]["recall"] == pytest.approx(recall[number], rel=1e-12)
        both = 2 * precision[number] * recall[number] / (precision[number] + recall[number])
        assert report[name]["f1_score"] == pytest.approx(both, rel=1e-12)
        assert report[name]["support"] == matrix[number].sum()
    assert report["accuracy"]["f1_score"] == pytest.approx((predicted == NUMBERS).mean(), rel=1e-12)
    assert report["macro average"]["recall"] == pytest.approx(recall.mean(), rel=1e-12)
    weighted = (precision * matrix.sum(axis=1)).sum() / 50
    assert report["weighted average"]["precision"] == pytest.approx(weighted, rel=1e-12)


def test_report_of_masks_has_the_iou_of_each_class():
    scores, label = RANDOM.normal(size=(2, 4, 6, 5)), RANDOM.integers(0, 3, (2, 6, 5))
    scores[:, 3] = -9  # class 3 is absent from targets and predictions
    label[0, 0] = 255
    fields = {"axis": 1, "ignore_class": 255}
    report = metric({"type": "ClassificationReport", "iou": True, **fields}, scores, label).figure()
    predicted, counted = scores.argmax(axis=1), label != 255
    for index in range(3):
        both = ((predicted == index) & (label == index) & counted).sum()
        either = (((predicted == index) | (label == index)) & counted).sum()
        assert report[str(index)]["iou"] == pytest.approx(both / either, rel=1e-12)
    mean = metric({"type": "MeanIoU", "num_classes": 4, "sparse_y_pred": False, **fields}, scores, label).result()
    assert report["macro average"]["iou"] == pytest.approx(mean, rel=1e-6)
    assert "iou" not in metric({"type": "ClassificationReport", **fields}, scores, label).figure()["0"]


def test_ignored_classes_and_weights_in_a_confusion_matrix():
    labels = np.where(RANDOM.uniform(size=50) < 0.3, 255, NUMBERS)
    weight = RANDOM.uniform(0.5, 2, 50)
    actual = metric({"type": "ConfusionMatrix", "ignore_class": 255}, GUESSES, labels, weight=weight).y
    predicted = GUESSES.argmax(axis=1)
    expected = [[(weight * ((labels == i) & (predicted == j))).sum() for j in range(3)] for i in range(3)]
    np.testing.assert_allclose(actual, expected, rtol=1e-12)


def test_iou_ignores_elements_of_no_class():
    predicted, label = np.array([0, 1, 1, 2, 7]), np.array([0, 1, 0, -1, 1])
    actual = metric({"type": "MeanIoU", "num_classes": 4}, predicted, label).result()
    assert actual == pytest.approx((1 / 2 + 1 / 2) / 2, rel=1e-6)


def test_iou_of_scores_along_another_axis():
    scores, label = RANDOM.normal(size=(4, 3, 5)), RANDOM.integers(0, 3, (4, 5))
    fields = {"type": "MeanIoU", "num_classes": 3, "sparse_y_pred": False}
    first, other = metric({**fields, "axis": 1}, scores, label), metric(fields, np.moveaxis(scores, 1, -1), label)
    np.testing.assert_array_equal(first.y, other.y)


def test_metrics_ignore_masked_steps():
    scores, labels = RANDOM.normal(size=(3, 4, 5)), RANDOM.integers(0, 5, (3, 4))
    mask = RANDOM.uniform(size=(3, 4)) < 0.6
    applied = metric("SparseCategoricalAccuracy", scores, labels, mask=mask)
    assert applied.result() == pytest.approx((scores.argmax(axis=-1) == labels)[mask].mean(), rel=1e-12)
    assert metric("ConfusionMatrix", scores, labels, mask=mask).y.sum() == mask.sum()


def test_a_regression_report_has_errors_quantiles_and_r2():
    random = np.random.default_rng(3)
    target = random.normal(size=(40, 1))
    prediction = target + 0.1 * random.normal(size=(40, 1))
    applied = metric("RegressionReport", prediction, target[:, 0])
    table, errors = applied.figure(), prediction - target
    assert table["mean error"] == pytest.approx(errors.mean())
    assert table["mean absolute error"] == pytest.approx(np.abs(errors).mean())
    assert table["root mean squared error"] == pytest.approx(np.sqrt((errors**2).mean()))
    assert table["95% of errors below"] == pytest.approx(np.quantile(errors, 0.95))
    assert table["R²"] == pytest.approx(metric("R2Score", prediction, target).result())
    scaled = applied.spec.with_unit_scale(50.0)
    in_unit = scaled.result(*scaled.collect(*applied.all))
    assert in_unit["mean error"]["in the target's unit"] == pytest.approx(50 * errors.mean())
    assert list(in_unit["R²"]) == ["value"]
