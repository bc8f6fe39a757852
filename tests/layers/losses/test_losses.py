from __future__ import annotations

import itertools

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
    applied = loss({"type": "SparseCategoricalCrossentropy", "from_logits": True}, SCORES, labels)
    assert applied.y == pytest.approx(expected, rel=1e-12)
    # (softmax - one hot) / N, as in textbooks
    one_hot = np.eye(3)[LABELS]
    np.testing.assert_allclose(
        applied.gradient(np.ones(()))[0], (softmax(SCORES) - one_hot) / 5, rtol=1e-12, atol=1e-15
    )


def test_sparse_crossentropy_of_probabilities_divides_them_by_their_sum():
    shares = PROBABILITIES / PROBABILITIES.sum(axis=1, keepdims=True)
    expected = -np.mean([np.log(shares[i, label]) for i, label in enumerate(LABELS)])
    assert loss("SparseCategoricalCrossentropy", PROBABILITIES, LABELS).y == pytest.approx(expected, rel=1e-12)


def test_sparse_crossentropy_over_another_axis():
    scores, labels = RANDOM.normal(size=(2, 4, 3, 2)), RANDOM.integers(0, 4, (2, 3, 2)).astype(np.int32)
    probability = softmax(scores, 1)
    picked = [probability[n, labels[n, i, j], i, j] for n in range(2) for i in range(3) for j in range(2)]
    for fields, values in (({"from_logits": True}, scores), ({}, 3 * probability)):
        applied = loss({"type": "SparseCategoricalCrossentropy", "axis": 1, **fields}, values, labels)
        assert applied.y == pytest.approx(-np.mean(np.log(picked)), rel=1e-12)


def test_large_scores_do_not_overflow():
    scores = np.array([[1e4, 0.0, -1e4]], np.float32)
    for label, expected in ((0, 0.0), (1, 1e4), (2, 2e4)):
        applied = loss({"type": "SparseCategoricalCrossentropy", "from_logits": True}, scores, np.array([label]))
        assert applied.y == expected
    binary = loss({"type": "BinaryCrossentropy", "from_logits": True}, scores, np.array([[0.0, 0.0, 1.0]], np.float32))
    assert binary.y == pytest.approx((1e4 + np.log(2) + 1e4) / 3, rel=1e-6)


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
@pytest.mark.parametrize("from_logits", [False, True])
def test_categorical_crossentropy(from_logits, smoothing):
    target = np.eye(3)[LABELS]
    probability = softmax(SCORES) if from_logits else PROBABILITIES / PROBABILITIES.sum(axis=1, keepdims=True)
    expected = -np.mean(((target * (1 - smoothing) + smoothing / 3) * np.log(probability)).sum(axis=1))
    fields = {"type": "CategoricalCrossentropy", "from_logits": from_logits, "label_smoothing": smoothing}
    applied = loss(fields, SCORES if from_logits else PROBABILITIES, target)
    assert applied.y == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize("smoothing", [0.0, 0.2])
@pytest.mark.parametrize("from_logits", [False, True])
def test_binary_crossentropy(from_logits, smoothing):
    target = RANDOM.integers(0, 2, (5, 3)).astype(np.int32)
    p = 1 / (1 + np.exp(-SCORES)) if from_logits else PROBABILITIES
    t = target * (1 - smoothing) + smoothing / 2
    expected = -np.mean(t * np.log(p) + (1 - t) * np.log(1 - p))
    fields = {"type": "BinaryCrossentropy", "from_logits": from_logits, "label_smoothing": smoothing}
    applied = loss(fields, SCORES if from_logits else PROBABILITIES, target)
    assert applied.y == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize("name", ["BinaryCrossentropy", "CategoricalCrossentropy"])
def test_crossentropy_of_probabilities_0_and_1_is_finite(name):
    applied = loss(name, np.array([[0.0, 1.0]], np.float32), np.array([[1.0, 0.0]], np.float32))
    assert applied.y == pytest.approx(-np.log(1e-7), rel=0.02)  # 1 - 1e-7 in float32 is 1 - 1.19e-7


def test_squared_and_absolute_errors_are_means_over_all_elements():
    a, b = RANDOM.normal(size=(4, 3)), RANDOM.normal(size=(4, 3))
    assert loss("MeanSquaredError", a, b).y == pytest.approx(((a - b) ** 2).mean(), rel=1e-12)
    assert loss("MeanAbsoluteError", a, b).y == pytest.approx(abs(a - b).mean(), rel=1e-12)


def test_column_and_vector_are_not_broadcast():
    a, b = RANDOM.normal(size=(4, 1)), RANDOM.normal(size=4)
    for prediction, other in ((a, b), (b, a)):
        assert loss("MeanSquaredError", prediction, other).y == pytest.approx(((a[:, 0] - b) ** 2).mean(), rel=1e-12)


@pytest.mark.parametrize(
    ("name", "prediction", "target", "message"),
    [
        ("MeanSquaredError", np.zeros((4, 3)), np.zeros((4, 2)), "prediction and target differ in shape"),
        ("BinaryCrossentropy", np.zeros((4, 3)), np.zeros(4), "prediction and target differ in shape"),
        ("SparseCategoricalCrossentropy", np.zeros((4, 3)), np.zeros(4), "class indices must be integers"),
        ("SparseCategoricalCrossentropy", np.zeros((4, 3)), np.zeros((4, 3), int), "do not match the prediction"),
        ("SparseCategoricalCrossentropy", np.zeros(4), np.zeros(4, int), "no axis for classes"),
        ({"type": "SparseCategoricalCrossentropy", "axis": 2}, np.zeros((4, 3)), np.zeros(4, int), "no axis 2 for"),
        ({"type": "CategoricalCrossentropy", "axis": 0}, np.zeros((4, 3)), np.zeros((4, 3)), "no axis 0 for classes"),
    ],
)  # fmt: skip
def test_shape_mismatch_messages(name, prediction, target, message):
    with pytest.raises(ShapeMismatch, match=message):
        loss(name, prediction, target)


def test_labels_have_a_domain():
    domain = loss("SparseCategoricalCrossentropy", PROBABILITIES, LABELS).net.domains["x1"]
    assert (domain.low, domain.high) == (0, 3)
    assert domain.why == "`x0` has 3 scores, one for each class"


VALUES = (RANDOM.normal(size=(4, 3)) - RANDOM.normal(size=(4, 3))) ** 2
WEIGHTS = np.array([0.5, 2.0, 0.0, 1.5])


def squares(reduction: str, weight: np.ndarray | None = None, mask: np.ndarray | None = None) -> np.ndarray:
    """The loss with the unreduced values `VALUES`."""
    fields = {"type": "MeanSquaredError", "reduction": reduction}
    return loss(fields, np.sqrt(VALUES), np.zeros((4, 3)), weight=weight, mask=mask).y


def test_reductions_of_weighted_losses():
    losses = VALUES.mean(axis=1) * WEIGHTS
    expected = {
        "sum_over_batch_size": losses.sum() / 4,
        "mean": losses.sum() / 4,
        "full": losses.sum() / 4,
        "batch_size": losses.sum() / 4,
        "sum": losses.sum(),
        "mean_with_sample_weight": losses.sum() / WEIGHTS.sum(),
    }
    for reduction, value in expected.items():
        for weight in (WEIGHTS, WEIGHTS[:, None], np.repeat(WEIGHTS[:, None], 3, 1)):
            assert squares(reduction, weight) == pytest.approx(value, rel=1e-12), reduction


def test_masked_elements_are_left_out_of_means():
    mask = np.array([True, False, True, True])
    losses = VALUES.mean(axis=1) * mask
    expected = {"sum_over_batch_size": losses.sum() / 3, "mean": losses.sum() / 3, "full": losses.sum() / 4,
                "batch_size": losses.sum() / 4, "sum": losses.sum(),
                "mean_with_sample_weight": losses.sum() / 3}  # fmt: skip
    for reduction, value in expected.items():
        assert squares(reduction, mask=mask) == pytest.approx(value, rel=1e-12), reduction
    assert squares("mean", WEIGHTS, mask) == pytest.approx((losses * WEIGHTS).sum() / 3, rel=1e-12)
    assert squares("mean_with_sample_weight", WEIGHTS, mask) == pytest.approx(
        (losses * WEIGHTS).sum() / (WEIGHTS * mask).sum(), rel=1e-12
    )


def test_fully_masked_loss_and_gradient_are_0():
    nothing = {"mean": {"mask": np.zeros(4, bool)}, "mean_with_sample_weight": {"weight": np.zeros(4)}}
    for reduction, more in nothing.items():
        applied = loss({"type": "MeanSquaredError", "reduction": reduction}, np.sqrt(VALUES), np.zeros((4, 3)), **more)
        assert applied.y == 0
        assert not applied.gradient(np.ones(()))[0].any()


def test_step_mask_applies_to_losses_of_steps():
    scores, labels = RANDOM.normal(size=(2, 3, 4)), RANDOM.integers(0, 4, (2, 3)).astype(np.int32)
    mask = np.array([[True, True, False], [True, False, False]])
    values = -np.log(np.take_along_axis(softmax(scores), labels[..., None], -1))[..., 0]
    applied = loss({"type": "SparseCategoricalCrossentropy", "from_logits": True}, scores, labels, mask=mask)
    assert applied.y == pytest.approx(values[mask].mean(), rel=1e-12)


@pytest.mark.parametrize("ignored", [-1, 1, 255])
@pytest.mark.parametrize("from_logits", [False, True])
def test_ignored_class_has_no_loss_and_no_gradient(ignored, from_logits):
    labels = np.array([0, ignored, 2, ignored, 0], np.int32)
    fields = {"type": "SparseCategoricalCrossentropy", "from_logits": from_logits, "ignore_class": ignored}
    applied = loss(fields, SCORES if from_logits else PROBABILITIES, labels)
    p = softmax(SCORES) if from_logits else PROBABILITIES / PROBABILITIES.sum(axis=1, keepdims=True)
    assert applied.y == pytest.approx(-np.mean([np.log(p[i, labels[i]]) for i in (0, 2, 4)]), rel=1e-12)
    gradient = applied.gradient(np.ones(()))[0]
    assert not gradient[[1, 3]].any()
    assert gradient[[0, 2, 4]].all()
    full = loss({**fields, "reduction": "full"}, SCORES if from_logits else PROBABILITIES, labels)
    assert full.y == pytest.approx(applied.y * 3 / 5, rel=1e-12)


def test_class_weights_match_sample_weights():
    fields = {"type": "SparseCategoricalCrossentropy", "from_logits": True}
    plain = -np.log(softmax(SCORES)[range(5), LABELS])
    factors = np.array([2.0, 1.0, 0.5])[LABELS]
    for values in ({0: 2.0, 2: 0.5}, {"0": 2.0, "2": 0.5}, [2.0, 1.0, 0.5]):
        applied = loss({**fields, "class_weight": values}, SCORES, LABELS)
        assert applied.y == pytest.approx((plain * factors).mean(), rel=1e-12)
    fields |= {"class_weight": {0: 2.0, 2: 0.5}, "reduction": "mean_with_sample_weight"}
    both = loss(fields, SCORES, LABELS, weight=WEIGHTS[[0, 1, 2, 3, 3]])
    factors *= WEIGHTS[[0, 1, 2, 3, 3]]
    assert both.y == pytest.approx((plain * factors).sum() / factors.sum(), rel=1e-12)
    vectors = loss({**fields, "type": "CategoricalCrossentropy", "reduction": "mean"}, SCORES, np.eye(3)[LABELS])
    assert vectors.y == pytest.approx((plain * np.array([2.0, 1.0, 0.5])[LABELS]).mean(), rel=1e-12)


def test_label_smoothing_of_indices_matches_vectors():
    for from_logits, values in ((True, SCORES), (False, PROBABILITIES)):
        fields = {"from_logits": from_logits, "label_smoothing": 0.3}
        sparse = loss({"type": "SparseCategoricalCrossentropy", **fields}, values, LABELS)
        dense = loss({"type": "CategoricalCrossentropy", **fields}, values, np.eye(3)[LABELS])
        assert sparse.y == pytest.approx(dense.y, rel=1e-12)
        first, second = (applied.gradient(np.ones(()))[0] for applied in (sparse, dense))
        np.testing.assert_allclose(first, second, rtol=1e-9, atol=1e-15)


def test_caffe_losses():
    a, b = RANDOM.normal(size=(4, 3, 2)), RANDOM.normal(size=(4, 3, 2))
    assert loss("Euclidean", a, b).y == pytest.approx(((a - b) ** 2).sum() / 8, rel=1e-12)
    p = PROBABILITIES[range(5), LABELS]
    assert loss("MultinomialLogistic", PROBABILITIES, LABELS).y == pytest.approx(-np.log(p).mean(), rel=1e-12)
    q = loss({"type": "CategoricalGeneralizedCrossEntropy", "q": 0.7}, PROBABILITIES, LABELS)
    assert q.y == pytest.approx(((1 - p**0.7) / 0.7).mean(), rel=1e-12)


def test_focal_loss_of_large_logits_is_finite():
    scores = np.array([[60.0, -60.0], [0.0, 200.0]], np.float32)
    for fields in ({"type": "BinaryFocalCrossentropy"}, {"type": "CategoricalFocalCrossentropy", "gamma": 0.5}):
        for target in (np.array([[1.0, 0.0], [0.0, 1.0]], np.float32), np.array([[0.0, 1.0], [1.0, 0.0]], np.float32)):
            applied = loss({**fields, "from_logits": True}, scores, target)
            assert np.isfinite(applied.y)
            assert np.isfinite(applied.gradient(np.ones(()))[0]).all()


@pytest.mark.parametrize(
    ("fields", "weight", "message"),
    [
        ("MeanSquaredError", np.ones(3), "the weights do not match the values"),
        ("MeanSquaredError", np.ones((4, 3, 2)), "the weights do not match the values"),
        ({"type": "SparseCategoricalCrossentropy", "class_weight": {3: 1.0}}, None, "`class_weight` has a class 3"),
        ({"type": "BinaryCrossentropy", "class_weight": [1.0, 1.0, 1.0]}, None, "has 3 weights for 2 classes"),
    ],
)  # fmt: skip
def test_invalid_weights_are_reported(fields, weight, message):
    target = np.zeros(4, int) if "Sparse" in str(fields) else np.zeros((4, 3))
    with pytest.raises(ShapeMismatch, match=message):
        loss(fields, np.full((4, 3), 0.5), target, weight=weight)


def test_domain_includes_the_ignored_class():
    fields = {"type": "SparseCategoricalCrossentropy", "ignore_class": 255}
    domain = loss(fields, PROBABILITIES, LABELS).net.domains["x1"]
    assert [number in domain for number in (0, 2, 3, 255)] == [True, True, False, True]
    both = domain.within(loss("SparseCategoricalCrossentropy", PROBABILITIES, LABELS).net.domains["x1"])
    assert 255 not in both


def test_hinge_losses_treat_0_as_minus_1():
    scores, yes = RANDOM.normal(size=(5, 3)), RANDOM.integers(0, 2, (5, 3))
    signs = 2 * yes - 1
    for target in (yes, signs):
        hinge = np.maximum(0, 1 - signs * scores)
        assert loss("Hinge", scores, target).y == pytest.approx(hinge.mean(), rel=1e-12)
        assert loss("SquaredHinge", scores, target).y == pytest.approx((hinge**2).mean(), rel=1e-12)


@pytest.mark.parametrize("norm", ["L1", "L2"])
def test_one_vs_rest_hinge_matches_caffe(norm):
    signs = 2 * np.eye(3)[LABELS] - 1
    expected = (np.maximum(0, 1 - signs * SCORES) ** int(norm[1])).sum() / 5
    assert loss({"type": "OneVsRestHinge", "norm": norm}, SCORES, LABELS).y == pytest.approx(expected, rel=1e-12)


def test_info_gain_weights_errors(tmp_path):
    worth = np.array([[1.0, 0.2, 0.0], [0.1, 2.0, 0.0], [0.0, 0.3, 0.5]])
    expected = -(worth[LABELS] * np.log(softmax(SCORES))).sum() / 5
    np.save(tmp_path / "h.npy", worth)
    np.savetxt(tmp_path / "h.csv", worth, delimiter=",")
    for values in ({"matrix": worth.tolist()}, {"file": str(tmp_path / "h.npy")}, {"file": str(tmp_path / "h.csv")}):
        applied = loss({"type": "InfoGain", "from_logits": True, **values}, SCORES, LABELS)
        assert applied.y == pytest.approx(expected, rel=1e-12)
    plain = loss({"type": "InfoGain", "matrix": np.eye(3).tolist()}, PROBABILITIES, LABELS)
    assert plain.y == pytest.approx(loss("SparseCategoricalCrossentropy", PROBABILITIES, LABELS).y, rel=1e-12)


@pytest.mark.parametrize("legacy", [False, True])
def test_contrastive_loss_matches_caffe(legacy):
    a, b, same = RANDOM.normal(size=(6, 3)), RANDOM.normal(size=(6, 3)), np.array([0, 1, 0, 1, 0, 0])
    square = ((a - b) ** 2).sum(axis=1)
    separate = np.maximum(3 - square, 0) if legacy else np.maximum(3 - np.sqrt(square), 0) ** 2
    applied = loss({"type": "Contrastive", "margin": 3.0, "legacy_version": legacy}, a, b, same)
    assert applied.y == pytest.approx((same * square + (1 - same) * separate).sum() / 12, rel=1e-12)


def test_equal_embeddings_have_a_finite_gradient():
    a = RANDOM.normal(size=(3, 2))
    for fields in ("Contrastive", {"type": "Triplet"}):
        applied = loss(fields, a, a, np.zeros(3, int) if fields == "Contrastive" else a)
        assert np.isfinite(applied.gradient(np.ones(()))[0]).all()


@pytest.mark.parametrize(("p", "swap"), [(2.0, False), (1.0, False), (3.0, True)])
def test_triplet_loss_matches_pytorch(p, swap):
    anchor, positive, negative = RANDOM.normal(size=(3, 5, 4))

    def distance(a: np.ndarray, b: np.ndarray) -> np.ndarray:
        return np.asarray((np.abs(a - b + 1e-6) ** p).sum(axis=-1) ** (1 / p))

    far = distance(anchor, negative)
    far = np.minimum(far, distance(positive, negative)) if swap else far
    expected = np.maximum(distance(anchor, positive) - far + 0.5, 0).mean()
    applied = loss({"type": "Triplet", "margin": 0.5, "p": p, "swap": swap}, anchor, positive, negative)
    assert applied.y == pytest.approx(expected, rel=1e-12)


def test_circle_loss_without_pairs_of_a_class_is_0():
    applied = loss("Circle", RANDOM.normal(size=(3, 2)), np.array([0, 1, 2]))
    assert applied.y == 0
    assert not applied.gradient(np.ones(()))[0].any()


def test_overlap_regions_per_batch_or_per_sample():
    p, t = RANDOM.uniform(0.1, 0.9, (2, 3, 4)), RANDOM.integers(0, 2, (2, 3, 4))
    full = 1 - 2 * (p * t).sum() / (p.sum() + t.sum() + 1e-7)
    each = 1 - 2 * (p * t).sum(axis=(1, 2)) / (p.sum(axis=(1, 2)) + t.sum(axis=(1, 2)) + 1e-7)
    assert loss("Dice", p, t).y == pytest.approx(full, rel=1e-12)
    assert loss({"type": "Dice", "axis": [1, 2]}, p, t).y == pytest.approx(each.mean(), rel=1e-12)
    assert loss({"type": "Tversky", "axis": [1, 2]}, p, t).y == pytest.approx(each.mean(), rel=1e-6)
    with pytest.raises(ShapeMismatch, match="need a loss with one value per sample"):
        loss("Dice", p, t, weight=np.ones(2))


def paths(scores: np.ndarray, labels: list[int], blank: int) -> float:
    """-ln of the probability of the labels, by trying every class at every frame."""
    p = softmax(scores)
    total = 0.0
    for path in itertools.product(range(p.shape[1]), repeat=len(p)):
        merged = [k for k, before in zip(path, (None, *path), strict=False) if k != before]
        if [k for k in merged if k != blank] == labels:
            total += np.prod([p[t, k] for t, k in enumerate(path)])
    return -np.log(total) if total else np.inf


@pytest.mark.parametrize("blank", [0, 2])
def test_ctc_sums_over_all_alignments(blank):
    scores, (a, b) = RANDOM.normal(size=(4, 4, 3)), [k for k in range(3) if k != blank]
    labels = np.array([[a, b, a], [a, a, blank], [b, blank, blank], [blank, blank, blank]])
    rows = [[k for k in row if k != blank] for row in labels.tolist()]
    expected = [paths(score, row, blank) for score, row in zip(scores, rows, strict=True)]
    applied = loss({"type": "CTC", "mask_index": blank}, scores, labels)
    assert applied.y == pytest.approx(np.mean(expected), rel=1e-9)
    weighted = loss({"type": "CTC", "mask_index": blank, "reduction": "sum"}, scores, labels, weight=WEIGHTS)
    assert weighted.y == pytest.approx(expected @ WEIGHTS, rel=1e-9)


def test_ctc_lengths_from_inputs_or_masks():
    scores, labels = RANDOM.normal(size=(2, 5, 3)), np.array([[1, 2], [2, 2]])
    expected = np.mean([paths(scores[0, :4], [1, 2], 0), paths(scores[1, :3], [2], 0)])
    applied = loss("CTC", scores, labels, np.array([4, 3]), np.array([2, 1]))
    assert applied.y == pytest.approx(expected, rel=1e-9)
    gradient = applied.gradient(np.ones(()))[0]
    assert not gradient[0, 4:].any()
    assert not gradient[1, 3:].any()
    mask = np.arange(5) < np.array([[4], [3]])
    masked = loss("CTC", scores, np.array([[1, 2], [2, 0]]), mask=mask)
    assert masked.y == pytest.approx(expected, rel=1e-9)


def test_ctc_without_alignment_is_infinite():
    # Repeated labels need a blank between them.
    applied = loss("CTC", RANDOM.normal(size=(1, 2, 3)), np.array([[1, 1]]))
    assert applied.y == np.inf
    assert not applied.gradient(np.ones(()))[0].any()


def test_multi_label_margin_stops_at_the_first_negative_class():
    scores = np.array([[0.1, 0.2, 0.4, 0.8]])
    applied = loss("MultiLabelMargin", scores, np.array([[3, 0, -1, 1]], np.int32))
    # the example of PyTorch's MultiLabelMarginLoss: ¼ ((1 - (0.1 - 0.2)) + (1 - (0.1 - 0.4)) + (1 - (0.8 - 0.2)) + …)
    assert applied.y == pytest.approx(0.85, rel=1e-12)
    assert loss("MultiLabelMargin", scores, np.array([[-1, 0, 1, 2]], np.int32)).y == 0


def test_net_value_as_loss():
    prediction, target = RANDOM.normal(size=(2, 5, 3))
    actual, expected = loss("Value", (prediction - target) ** 2), loss("MeanSquaredError", prediction, target)
    assert actual.y == pytest.approx(expected.y, rel=1e-12)
    weight = RANDOM.uniform(0.1, 1, 5)
    fields = {"type": "Value", "reduction": "mean_with_sample_weight"}
    assert loss(fields, target[:, 0], weight=weight).y == pytest.approx(
        (weight @ target[:, 0]) / weight.sum(), rel=1e-12
    )


def test_gaussian_nll_clips_variances_to_epsilon():
    zeros = np.zeros((2, 1))
    applied = loss({"type": "GaussianNLL", "epsilon": 0.25}, zeros, zeros + 1.0, zeros - 3.0)
    assert applied.y == pytest.approx(0.5 * (np.log(0.25) + 4.0), rel=1e-12)
