"""MixUp and CutMix against their formulas, and the labels that they make."""

from __future__ import annotations

from itertools import islice
from math import lgamma
from typing import Any

import numpy as np
import pytest

from netspec.data.base import SampleKeys
from netspec.data.loader import Loader
from netspec.data.transforms.mixing import symmetric_beta
from netspec.errors import InputError
from netspec.schema.specs.data import SplitFields
from tests.data.conftest import split_of
from tests.data.test_transforms import dataset

COUNT = 24
RANDOM = np.random.default_rng(3)
IMAGES = RANDOM.normal(size=(COUNT, 2, 6, 5)).astype(np.float32)
LABELS = np.arange(COUNT, dtype=np.int32) % 3


def split(*transforms: dict[str, Any], **fields: Any) -> SplitFields:
    return split_of(source="npz", path="x", transforms=list(transforms), **{"batch_size": 8, **fields})


def batches_of(*transforms: dict[str, Any], images: np.ndarray = IMAGES, **fields: Any) -> list[Any]:
    loader = Loader(dataset(image=images, label=LABELS), split(*transforms, **fields), seed=4, prefetch=0)
    return list(loader.one_pass())


def drawn(indices: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return partners, weights and centers of the samples, as drawn by the first transform in the list."""
    numbers = SampleKeys(4, 0, indices, 0).uniform(7)
    return np.argsort(numbers[:, 0], kind="stable"), numbers[:, 1:5], numbers[:, 5:]


def test_mixup_matches_the_formula_of_the_paper():
    for batch in batches_of({"type": "MixUp", "num_classes": 3, "alpha": 0.4}):
        partner, numbers, _ = drawn(batch.indices)
        weight = symmetric_beta(0.4, numbers)
        images, other = IMAGES[batch.indices], IMAGES[batch.indices[partner]]
        share = weight[:, None, None, None]
        # Three roundings of values below 5 in float32.
        np.testing.assert_allclose(batch.inputs["image"], share * images + (1 - share) * other, atol=3 * 5 * 2**-24)
        labels = np.eye(3)[LABELS[batch.indices]], np.eye(3)[LABELS[batch.indices[partner]]]
        np.testing.assert_allclose(
            batch.inputs["label"], weight[:, None] * labels[0] + (1 - weight[:, None]) * labels[1], atol=2**-22
        )
        assert np.abs(batch.inputs["label"].sum(axis=1) - 1).max() <= 2**-22
        assert batch.inputs["label"].dtype == np.float32


def test_cutmix_matches_the_formula_of_the_paper():
    for batch in batches_of({"type": "CutMix", "num_classes": 3}, images=(IMAGES * 100).astype(np.int8).view(np.uint8)):
        pixels = (IMAGES * 100).astype(np.int8).view(np.uint8)
        partner, numbers, centers = drawn(batch.indices)
        weight = symmetric_beta(1.0, numbers)
        for row, index in enumerate(batch.indices):
            pixels_of_one, other = pixels[index], pixels[batch.indices[partner[row]]]
            height, width = 6 * np.sqrt(1 - weight[row]), 5 * np.sqrt(1 - weight[row])
            y, x = centers[row] * (6, 5)
            inside = np.zeros((6, 5), bool)
            top, bottom = (int(np.clip(round(edge), 0, 6)) for edge in (y - height / 2, y + height / 2))
            left, right = (int(np.clip(round(edge), 0, 5)) for edge in (x - width / 2, x + width / 2))
            inside[top:bottom, left:right] = True
            assert np.array_equal(batch.inputs["image"][row], np.where(inside, other, pixels_of_one))
            share = 1 - inside.sum() / 30
            expected = share * np.eye(3)[LABELS[index]] + (1 - share) * np.eye(3)[LABELS[batch.indices[partner[row]]]]
            np.testing.assert_allclose(batch.inputs["label"][row], expected, atol=2**-22)
        assert batch.inputs["image"].dtype == np.uint8


@pytest.mark.parametrize("alpha", [0.05, 0.2, 0.5, 1.0, 3.0])
def test_weights_are_beta_distributed(alpha):
    """Compares moments, and the share below 0.1, of 200,000 draws with the distribution, within 5 standard errors."""
    count = 200_000
    weights = symmetric_beta(alpha, np.random.default_rng(1).random((count, 4)))
    assert np.isfinite(weights).all()
    variance = 1 / (4 * (2 * alpha + 1))
    assert abs(weights.mean() - 0.5) < 5 * np.sqrt(variance / count)
    fourth = 3 * variance**2 * (2 * alpha + 1) / (2 * alpha + 3)
    assert abs(((weights - 0.5) ** 2).mean() - variance) < 5 * np.sqrt((fourth - variance**2) / count)
    # P(X < 0.1): substituting x = u^(1/alpha) makes the density of x^(alpha-1) constant, so a sum is accurate.
    u = (np.arange(100_000) + 0.5) / 100_000 * 0.1**alpha
    beta = np.exp(2 * lgamma(alpha) - lgamma(2 * alpha))
    below = 0.1**alpha * ((1 - u ** (1 / alpha)) ** (alpha - 1)).mean() / alpha / beta
    assert abs((weights < 0.1).mean() - below) < 5 * np.sqrt(below * (1 - below) / count) + 1e-6


def test_labels_that_are_probabilities_are_mixed_again():
    for batch in batches_of({"type": "CategoryEncoding", "num_tokens": 3}, {"type": "MixUp"}, {"type": "CutMix"}):
        assert batch.inputs["label"].shape == (8, 3)
        assert np.abs(batch.inputs["label"].sum(axis=1) - 1).max() <= 2**-21
        assert len(np.unique(batch.inputs["label"])) > 3


def test_encoded_labels():
    (first, *_) = batches_of({"type": "CategoryEncoding", "num_tokens": 4})
    assert first.inputs["label"].tolist() == np.eye(4, dtype=np.float32)[LABELS[:8]].tolist()


def test_later_transforms_receive_the_mixed_batch():
    plain, scaled = (
        batches_of({"type": "MixUp", "num_classes": 3}, *more) for more in ([], [{"type": "Rescaling", "scale": 2}])
    )
    for plain_batch, other in zip(plain, scaled, strict=True):
        assert np.array_equal(2 * plain_batch.inputs["image"], other.inputs["image"])


@pytest.mark.parametrize("kind", ["MixUp", "CutMix"])
def test_mixing_does_not_depend_on_threads(monkeypatch: pytest.MonkeyPatch, kind):
    monkeypatch.setattr("netspec.data.prefetch.SLOW", -1.0)

    def run(prefetch: int) -> list[list[Any]]:
        data = dataset(image=IMAGES, label=LABELS)
        fields = split({"type": kind, "num_classes": 3}, shuffle=True, workers=3, batch_size=5)
        with Loader(data, fields, seed=4, prefetch=prefetch) as loader:
            return [[batch.inputs["image"].tolist(), batch.inputs["label"].tolist()] for batch in islice(loader, 12)]

    assert run(0) == run(2)


def test_damaged_samples_are_no_mixing_partners():
    images = IMAGES.copy()
    images[[2, 9]] = np.nan
    for step in ({"type": "MixUp", "num_classes": 3}, {"type": "CutMix", "num_classes": 3}):
        batches = batches_of(step, images=images, on_error="skip")
        assert sum(map(len, batches)) == COUNT - 2
        assert [sample.index for batch in batches for sample in batch.skipped] == [2, 9]
        with pytest.raises(InputError, match="a value of `image` is not finite") as error:
            batches_of(step, images=images)
        assert error.value.problems[0].got == "one in sample 2"


@pytest.mark.parametrize("step", [{"type": "MixUp", "num_classes": 2}, {"type": "CategoryEncoding", "num_tokens": 2}])
@pytest.mark.parametrize("on_error", ["error", "skip"])
def test_labels_out_of_range_are_reported(step, on_error):
    with pytest.raises(InputError) as error:
        batches_of(step, on_error=on_error)
    assert [(problem.message, problem.got) for problem in error.value.problems] == [
        ("`label` is 2, out of range", "2 in sample 2"),
        ("`label` is 2, out of range", "2 in sample 5"),
    ]


@pytest.mark.parametrize(
    ("step", "message"),
    [
        ({"type": "MixUp"}, "the number of classes is missing"),
        ({"type": "MixUp", "num_classes": 3, "label": "lable"}, "the source has no field `lable`"),
        ({"type": "CutMix", "num_classes": 3, "label": "image"}, "`image` cannot be mixed as a label"),
        ({"type": "CutMix", "num_classes": 3, "apply_to": "label"}, "rectangles are cut from images only"),
        ({"type": "CategoryEncoding", "num_tokens": 3, "apply_to": "image"}, "only class numbers can be encoded"),
    ],
)
def test_fields_that_cannot_be_mixed_are_refused(step, message):
    with pytest.raises(InputError) as error:
        batches_of(step)
    assert error.value.problems[0].message == message
    assert str(error.value.problems[0].location).startswith("train.yaml")


def named(classes: int) -> Any:
    data = dataset(image=IMAGES, label=LABELS)
    data.classes = {"label": tuple("abcdef"[:classes])}
    return data


@pytest.mark.parametrize("transform", [{"type": "MixUp"}, {"type": "CutMix"}, {"type": "CategoryEncoding"}])
def test_the_number_of_classes_comes_from_the_source(transform):
    with Loader(named(4), split(transform), seed=4) as loader:
        batch = next(loader.one_pass())
        assert batch.inputs["label"].shape == (8, 4)
        learned = loader.learned
    # A test split whose source has no class names uses those of the training split.
    with Loader(dataset(image=IMAGES, label=LABELS), split(transform), seed=4, learned=learned) as loader:
        assert next(loader.one_pass()).inputs["label"].shape == (8, 4)


def test_label_vectors_override_the_number_of_classes_of_the_source():
    transforms: list[dict[str, Any]] = [{"type": "CategoryEncoding", "num_tokens": 6}, {"type": "MixUp"}]
    with Loader(named(4), split(*transforms), seed=4) as loader:
        assert next(loader.one_pass()).inputs["label"].shape == (8, 6)


@pytest.mark.parametrize("transform", ["MixUp", "CategoryEncoding"])
def test_an_unknown_number_of_classes_is_an_error(transform):
    with pytest.raises(InputError, match="the number of classes is missing"):
        batches_of({"type": transform})
