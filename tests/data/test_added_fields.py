"""Transforms that add fields to samples: pairs of samples, and random numbers."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from netspec.data.loader import Loader
from netspec.data.transforms.pairs import Pairs
from netspec.errors import InputError
from netspec.schema.specs.data import SplitFields
from tests.data.conftest import split_of
from tests.data.test_transforms import dataset

COUNT = 400
IMAGES = np.arange(COUNT, dtype=np.float32).reshape(COUNT, 1, 1, 1)
LABELS = np.arange(COUNT, dtype=np.int32) % 5


def split(*transforms: dict[str, Any]) -> SplitFields:
    return split_of(source="npz", path="x", transforms=list(transforms), batch_size=40)


def inputs_of(*transforms: dict[str, Any]) -> dict[str, np.ndarray]:
    loader = Loader(dataset(image=IMAGES, label=LABELS), split(*transforms), seed=4, prefetch=0)
    batches = [batch.inputs for batch in loader.one_pass()]
    return {name: np.concatenate([batch[name] for batch in batches]) for name in batches[0]}


@pytest.mark.parametrize("fraction", [0.0, 0.25, 1.0])
def test_pairs_have_partners_of_the_wanted_classes(fraction: float) -> None:
    samples = inputs_of({"type": "Pairs", "similar_fraction": fraction, "partner": "image_2"})
    partners = samples["image_2"].reshape(-1).astype(int)
    assert (partners != np.arange(COUNT)).all(), "no sample is its own partner"
    assert (partners // 40 == np.arange(COUNT) // 40).all(), "partners are in the same batch"
    np.testing.assert_array_equal(samples["similar"], LABELS[partners] == LABELS)
    # 400 draws: within 4 standard deviations of a fraction of 0.25
    assert abs(samples["similar"].mean() - fraction) <= 4 * np.sqrt(fraction * (1 - fraction) / COUNT)
    assert len(np.unique(partners)) > 0.5 * COUNT, "the partners vary"


def test_a_sample_without_partner_of_the_wanted_kind_gets_another() -> None:
    pairs, drawn = Pairs(similar_fraction=1.0), np.full((3, 2), 0.5)
    np.testing.assert_array_equal(pairs._partners(np.array([1, 1, 2]), drawn)[:2], [1, 0])
    assert pairs._partners(np.array([1, 1, 2]), drawn)[2] in (0, 1)
    np.testing.assert_array_equal(pairs._partners(np.array([7]), drawn[:1]), [0])


def test_random_numbers_depend_on_the_sample_alone() -> None:
    samples = inputs_of({"type": "LatentNoise", "field": "latent", "shape": [30], "mean": 2.0, "stddev": 3.0})
    latent = samples["latent"]
    assert latent.shape == (COUNT, 30)
    assert latent.dtype == np.float32
    # 12,000 draws: within 5 standard errors of the mean and of the deviation
    assert abs(latent.mean() - 2) < 5 * 3 / np.sqrt(latent.size)
    assert abs(latent.std() - 3) < 5 * 3 / np.sqrt(2 * latent.size)
    assert len(np.unique(latent)) > 0.99 * latent.size
    few = Loader(
        dataset(image=IMAGES[:7], label=LABELS[:7]),
        split({"type": "LatentNoise", "field": "latent", "shape": [30], "mean": 2.0, "stddev": 3.0}),
        seed=4,
        prefetch=0,
    )
    np.testing.assert_array_equal(next(iter(few.one_pass())).inputs["latent"], latent[:7])


def test_added_fields_are_inputs_of_an_exported_model() -> None:
    """An export compares results on samples before the transforms; the source does not have the added fields."""
    transforms = {"type": "Rescaling", "scale": 0.5}, {"type": "LatentNoise", "field": "latent", "shape": [3]}
    loader = Loader(dataset(image=IMAGES, label=LABELS), split(*transforms), seed=4, prefetch=0)
    assert loader.source_fields["latent"].shape == (3,)
    samples = loader.source_samples(np.array([5, 2]))
    np.testing.assert_array_equal(samples["image"], IMAGES[[5, 2]])
    np.testing.assert_array_equal(samples["latent"], next(iter(loader.one_pass())).inputs["latent"][[5, 2]])


@pytest.mark.parametrize(
    ("transform", "message"),
    [
        ({"type": "LatentNoise", "field": "label", "shape": [2]}, "the samples already have a field `label`"),
        ({"type": "Pairs", "partner": "image"}, "the samples already have a field `image`"),
        ({"type": "Pairs", "partner": "similar"}, "the samples already have a field `similar`"),
        ({"type": "Pairs", "label": "lable"}, "the source has no field `lable`"),
        ({"type": "Pairs", "label": "image"}, "`image` is not a class number"),
    ],
)
def test_mistakes_are_refused(transform: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError) as caught:
        inputs_of(transform)
    assert [problem.message for problem in caught.value.problems] == [message]
