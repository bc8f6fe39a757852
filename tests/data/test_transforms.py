"""Rescaling, Normalization, and the interface that random transforms rely on."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from netspec.data.base import FieldType, SampleKeys, Transform
from netspec.data.loader import Loader
from netspec.data.pipeline import Learned
from netspec.data.readers.arrays import ArrayDataset
from netspec.errors import InputError
from netspec.schema.specs.data import TRANSFORMS
from tests.data.conftest import arrays_of, split_of

if TYPE_CHECKING:
    from netspec.data.base import Samples


def dataset(**arrays: np.ndarray) -> ArrayDataset:
    return ArrayDataset(arrays, digest="", describe=lambda index: f"sample {index}")


def loader_of(data: ArrayDataset, *transforms: object, learned: Learned | None = None, **fields: Any) -> Loader:
    split = split_of(source="npz", path="unused", transforms=list(transforms), **fields)
    return Loader(data, split, seed=3, learned=learned, prefetch=0)


def full_pass(loader: Loader) -> dict[str, np.ndarray]:
    batches = list(loader.one_pass())
    return {name: np.concatenate([batch.inputs[name] for batch in batches]) for name in batches[0].inputs}


IMAGES = np.random.default_rng(0).integers(0, 256, (50, 3, 4, 5)).astype(np.uint8)


def test_rescaling_is_scale_and_offset_in_float32():
    image = full_pass(loader_of(dataset(image=IMAGES), {"type": "Rescaling", "scale": 1 / 255, "offset": -0.5}))[
        "image"
    ]
    assert image.dtype == np.float32
    # rounding twice, values below 1: half an ulp each, 2⁻²⁴
    assert np.abs(image - (IMAGES / 255 - 0.5)).max() <= 2**-23


def test_transforms_apply_to_the_first_uint8_or_float_field_by_default():
    data = dataset(label=np.arange(50), weight=np.ones(50, np.float32), count=np.ones((50, 2), np.int32), image=IMAGES)
    arrays = full_pass(loader_of(data, {"type": "Rescaling", "scale": 2}))
    assert [name for name, values in arrays.items() if values.max() > arrays_of(data, np.arange(50))[name].max()] == [
        "image"
    ]
    arrays = full_pass(loader_of(data, {"type": "Rescaling", "scale": 2, "apply_to": "weight"}))
    assert arrays["weight"].tolist() == [2.0] * 50
    assert arrays["image"].max() == 255


@pytest.mark.parametrize(
    ("mean", "variance"), [(100, 900.0), ([100, 110, 120], [900, 400, 100]), ([100, 110, 120], 0.25)]
)
def test_normalization_by_given_values(mean, variance):
    transform = {"type": "Normalization", "mean": mean, "variance": variance}
    image = full_pass(loader_of(dataset(image=IMAGES), transform))["image"]
    axes = (-1, 1, 1)
    expected = (IMAGES - np.reshape(mean, axes)) / np.sqrt(np.reshape(variance, axes))
    assert image.dtype == np.float32
    np.testing.assert_allclose(image, expected, rtol=2**-22)  # a difference and a quotient, each rounded to 24 bits


@pytest.mark.parametrize("shape", [(3000,), (3000, 4), (2500, 3, 5, 2)])
@pytest.mark.parametrize("dtype", ["uint8", "float32", "float64", "int32"])
def test_adapting_gives_zero_mean_and_unit_variance_per_channel(shape, dtype):
    rng = np.random.default_rng(1)
    data = dataset(x=(rng.random(shape) * 200 + 20).astype(dtype))
    transform = {"type": "Normalization", "adapt": True, "apply_to": "x"}
    values_read = full_pass(loader_of(data, transform, batch_size=64))["x"].astype(np.float64)
    axes = (0, *range(2, len(shape)))
    np.testing.assert_allclose(values_read.mean(axes), 0, atol=1e-6)  # averages of values about 1, with 24 bits
    np.testing.assert_allclose(values_read.var(axes), 1, rtol=1e-6)


def test_adapting_is_accurate_with_a_large_mean():
    values = 1e8 + np.random.default_rng(2).standard_normal(5000)
    values_read = full_pass(loader_of(dataset(x=values[:, None]), {"type": "Normalization", "adapt": True}))["x"]
    # In float64, an ulp near 1e8 is 1.5e-8; a naive sum of squares would be off by about 2.
    assert abs(float(values_read.astype(np.float64).std()) - 1) < 1e-6


def test_a_constant_channel_becomes_zeros():
    values_read = full_pass(loader_of(dataset(x=np.full((10, 2), 7.25)), {"type": "Normalization", "adapt": True}))["x"]
    assert not values_read.any()


@given(batch=st.integers(1, 60), limit=st.integers(1, 50))
def test_learned_values_do_not_depend_on_batches_and_obey_limit(batch, limit):
    transforms = [{"type": "Rescaling", "scale": 0.5}, {"type": "Normalization", "adapt": True}]
    loader = loader_of(dataset(image=IMAGES), *transforms, batch_size=batch, limit=limit)
    values = loader.learned.values["Normalization image 0"]
    expected = (IMAGES[:limit] * 0.5).mean((0, 2, 3))
    np.testing.assert_allclose(values["mean"], expected, rtol=1e-12)
    assert values == loader_of(dataset(image=IMAGES), *transforms, limit=limit).learned.values["Normalization image 0"]


def test_the_test_split_uses_values_learned_from_training():
    adapt = {"type": "Normalization", "adapt": True}
    train = loader_of(dataset(image=IMAGES), adapt)
    values = train.learned.values["Normalization image 0"]
    other = IMAGES[::-1] // 2
    learned = Learned.from_json(train.learned.as_json())
    image = full_pass(loader_of(dataset(image=other), adapt, learned=learned))["image"]
    given_values = full_pass(loader_of(dataset(image=other), {"type": "Normalization", **values}))["image"]
    assert np.array_equal(image, given_values)


def test_a_test_split_cannot_adapt_without_learned_values():
    with pytest.raises(InputError) as error:
        loader_of(dataset(image=IMAGES), {"type": "Normalization", "adapt": True}, learned=Learned())
    assert error.value.render() == NOT_LEARNED


def test_all_transforms_that_do_not_fit_are_reported_at_once():
    transforms = [
        {"type": "Normalization", "mean": [1, 2], "variance": [1.0, 2, 3, 4]},
        {"type": "Rescaling", "scale": 1, "apply_to": "imge"},
        {"type": "Normalization", "adapt": True, "apply_to": "image"},
    ]
    with pytest.raises(InputError) as error:
        loader_of(dataset(image=IMAGES), *transforms)
    assert error.value.render() == DO_NOT_FIT


def test_transforms_need_a_field_to_apply_to():
    with pytest.raises(InputError, match="no field that this transform can change"):
        loader_of(dataset(label=np.arange(3)), {"type": "Rescaling", "scale": 1})


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({}, "`mean` or `variance` is missing"),
        ({"mean": 1}, "`mean` or `variance` is missing"),
        ({"variance": 1}, "`mean` or `variance` is missing"),
        ({"mean": 1, "variance": 1, "adapt": True}, "`adapt` computes `mean`, which is also set"),
        ({"variance": 1, "adapt": True}, "`adapt` computes `variance`, which is also set"),
    ],
)
def test_normalization_needs_either_adapt_or_values(fields, message):
    with pytest.raises(ValidationError, match=message):
        TRANSFORMS["Normalization"].model_validate(fields)


def test_a_negative_variance_is_refused():
    for variance in (-1, [1, -1]):
        with pytest.raises(ValidationError, match="greater than or equal to 0"):
            TRANSFORMS["Normalization"].model_validate({"mean": 0, "variance": variance})


class Jitter(Transform):
    """Adds a random number to every sample; only for these tests."""

    type: Literal["Jitter"] = "Jitter"

    def infer(self, field: FieldType) -> FieldType:
        return field

    def apply(self, batch: Samples, keys: SampleKeys) -> Samples:
        drawn = np.array([[keys.generator(row).random()] for row in range(len(batch))])
        jittered: np.ndarray = np.asarray(batch) + drawn
        return jittered


def jittered(batch_size: int, prefetch: int, transforms: int = 1) -> dict[tuple[int, int], list[float]]:
    """Return the sample of each (epoch, index) of two epochs."""
    split = split_of(source="npz", path="unused", batch_size=batch_size, shuffle=True)
    split = split.model_copy(update={"transforms": [Jitter()] * transforms})
    results = {}
    with Loader(dataset(x=np.zeros((10, 1))), split, seed=5, prefetch=prefetch) as loader:
        for batch in loader:
            if batch.epoch == 2:
                break
            for row, index in enumerate(batch.indices.tolist()):
                results[batch.epoch, index] = batch.inputs["x"][row].tolist()
    return results


def test_random_transforms_depend_only_on_seed_epoch_and_sample():
    expected = jittered(1, 0)
    assert len({value for (value,) in expected.values()}) == 20
    assert jittered(4, 0) == jittered(10, 2) == expected
    two_transforms = jittered(3, 0, transforms=2)
    assert all(
        two_transforms[key] != [2 * value] for key, (value,) in expected.items()
    )  # each stage draws its own numbers


NOT_LEARNED = """\
train.yaml:1:1: error: Normalization has no values for `image`: the training split does not learn any
  at: transforms.0
  expected: the same transform in the training split
  got: nothing learned"""

DO_NOT_FIT = """\
train.yaml:2:7: error: `mean` does not match the data
  at: transforms.0.mean
  expected: a number, or one for each channel of the data: 3
  got: [1.0, 2.0]
train.yaml:3:11: error: `variance` does not match the data
  at: transforms.0.variance
  expected: a number, or one for each channel of the data: 3
  got: [1.0, 2.0, 3.0, 4.0]
train.yaml:3:11: error: the source has no field `imge`
  at: transforms.1.apply_to
  expected: one of image
  hint: did you mean `image`?
3 errors"""
