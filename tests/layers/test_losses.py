from __future__ import annotations

import numpy as np
import pytest

from netspec.graph.value import ShapeMismatch
from tests.layers.apply import loss

RANDOM = np.random.default_rng(4)
SCORES = RANDOM.normal(size=(5, 3)) * 3
LABELS = np.array([0, 2, 1, 1, 0], np.int32)
PROBABILITIES = RANDOM.uniform(0.05, 0.9, (5, 3))


def softmax(x: np.ndarray, axis: int = -1) -> np.ndarray:
    e = np.exp(x)
    return np.asarray(e / e.sum(axis=axis, keepdims=True))


@pytest.mark.parametrize("labels", [LABELS, LABELS[:, None], LABELS.astype(np.int64)])
def test_sparse_crossentropy_of_scores(labels):
    expected = -np.mean([np.log(softmax(SCORES)[i, label]) for i, label in enumerate(LABELS)])
    made = loss({"type": "SparseCategoricalCrossentropy", "from_logits": True}, SCORES, labels)
    assert made.y == pytest.approx(expected, rel=1e-12)
    # (softmax - one hot) / N, the textbook's gradient
    one_hot = np.eye(3)[LABELS]
    np.testing.assert_allclose(made.gradient(np.ones(()))[0], (softmax(SCORES) - one_hot) / 5, rtol=1e-12, atol=1e-15)


def test_sparse_crossentropy_of_probabilities_divides_them_by_their_sum():
    shares = PROBABILITIES / PROBABILITIES.sum(axis=1, keepdims=True)
    expected = -np.mean([np.log(shares[i, label]) for i, label in enumerate(LABELS)])
    assert loss("SparseCategoricalCrossentropy", PROBABILITIES, LABELS).y == pytest.approx(expected, rel=1e-12)


def test_sparse_crossentropy_over_another_axis():
    scores, labels = RANDOM.normal(size=(2, 4, 3, 2)), RANDOM.integers(0, 4, (2, 3, 2)).astype(np.int32)
    probability = softmax(scores, 1)
    picked = [probability[n, labels[n, i, j], i, j] for n in range(2) for i in range(3) for j in range(2)]
    for fields, given in (({"from_logits": True}, scores), ({}, 3 * probability)):
        made = loss({"type": "SparseCategoricalCrossentropy", "axis": 1, **fields}, given, labels)
        assert made.y == pytest.approx(-np.mean(np.log(picked)), rel=1e-12)


def test_large_scores_do_not_overflow():
    scores = np.array([[1e4, 0.0, -1e4]], np.float32)
    for label, expected in ((0, 0.0), (1, 1e4), (2, 2e4)):
        made = loss({"type": "SparseCategoricalCrossentropy", "from_logits": True}, scores, np.array([label]))
        assert made.y == expected
    binary = loss({"type": "BinaryCrossentropy", "from_logits": True}, scores, np.array([[0.0, 0.0, 1.0]], np.float32))
    assert binary.y == pytest.approx((1e4 + np.log(2) + 1e4) / 3, rel=1e-6)


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
@pytest.mark.parametrize("from_logits", [False, True])
def test_categorical_crossentropy(from_logits, smoothing):
    target = np.eye(3)[LABELS]
    probability = softmax(SCORES) if from_logits else PROBABILITIES / PROBABILITIES.sum(axis=1, keepdims=True)
    expected = -np.mean(((target * (1 - smoothing) + smoothing / 3) * np.log(probability)).sum(axis=1))
    fields = {"type": "CategoricalCrossentropy", "from_logits": from_logits, "label_smoothing": smoothing}
    made = loss(fields, SCORES if from_logits else PROBABILITIES, target)
    assert made.y == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize("smoothing", [0.0, 0.2])
@pytest.mark.parametrize("from_logits", [False, True])
def test_binary_crossentropy(from_logits, smoothing):
    target = RANDOM.integers(0, 2, (5, 3)).astype(np.int32)
    p = 1 / (1 + np.exp(-SCORES)) if from_logits else PROBABILITIES
    t = target * (1 - smoothing) + smoothing / 2
    expected = -np.mean(t * np.log(p) + (1 - t) * np.log(1 - p))
    fields = {"type": "BinaryCrossentropy", "from_logits": from_logits, "label_smoothing": smoothing}
    made = loss(fields, SCORES if from_logits else PROBABILITIES, target)
    assert made.y == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize("name", ["BinaryCrossentropy", "CategoricalCrossentropy"])
def test_probabilities_of_0_and_1_are_kept_from_infinity(name):
    made = loss(name, np.array([[0.0, 1.0]], np.float32), np.array([[1.0, 0.0]], np.float32))
    assert made.y == pytest.approx(-np.log(1e-7), rel=0.02)  # 1 - 1e-7 in float32 is 1 - 1.19e-7


def test_squared_and_absolute_errors_are_means_over_all_numbers():
    a, b = RANDOM.normal(size=(4, 3)), RANDOM.normal(size=(4, 3))
    assert loss("MeanSquaredError", a, b).y == pytest.approx(((a - b) ** 2).mean(), rel=1e-12)
    assert loss("MeanAbsoluteError", a, b).y == pytest.approx(abs(a - b).mean(), rel=1e-12)


def test_a_column_beside_a_vector_is_not_broadcast():
    a, b = RANDOM.normal(size=(4, 1)), RANDOM.normal(size=4)
    for one, other in ((a, b), (b, a)):
        assert loss("MeanSquaredError", one, other).y == pytest.approx(((a[:, 0] - b) ** 2).mean(), rel=1e-12)


@pytest.mark.parametrize(
    ("name", "prediction", "target", "message"),
    [
        ("MeanSquaredError", np.zeros((4, 3)), np.zeros((4, 2)), "prediction and target differ in shape"),
        ("BinaryCrossentropy", np.zeros((4, 3)), np.zeros(4), "prediction and target differ in shape"),
        ("SparseCategoricalCrossentropy", np.zeros((4, 3)), np.zeros(4), "class numbers must be whole numbers"),
        ("SparseCategoricalCrossentropy", np.zeros((4, 3)), np.zeros((4, 3), int), "do not fit the prediction"),
        ("SparseCategoricalCrossentropy", np.zeros(4), np.zeros(4, int), "no axis of classes"),
        ({"type": "SparseCategoricalCrossentropy", "axis": 2}, np.zeros((4, 3)), np.zeros(4, int), "no axis 2 of"),
        ({"type": "CategoricalCrossentropy", "axis": 0}, np.zeros((4, 3)), np.zeros((4, 3)), "no axis 0 of classes"),
    ],
)  # fmt: skip
def test_says_what_does_not_fit(name, prediction, target, message):
    with pytest.raises(ShapeMismatch, match=message):
        loss(name, prediction, target)


def test_labels_have_a_domain_that_the_loader_checks():
    domain = loss("SparseCategoricalCrossentropy", PROBABILITIES, LABELS).net.domains["x1"]
    assert (domain.low, domain.high) == (0, 3)
    assert domain.why == "`x0` has 3 scores, one for each class"
