"""Synthetic samples: independent of the order, with the requested types and values, and learnable."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

import netspec.data  # noqa: F401  # the sources are found through it
from netspec.data.base import Dataset, FieldType
from netspec.errors import InputError
from netspec.schema.specs.data import SOURCES
from tests.data.conftest import split_of

IMAGE = {"image": {"shape": [1, 12, 12]}, "label": {"classes": 3}}


def open_synthetic(seed: int = 1, **fields: Any) -> Dataset:
    return split_of(source="synthetic", **{"samples": 300, **fields}).open(seed=seed)


def everything(data: Dataset) -> dict[str, Any]:
    return dict(data.read(np.arange(len(data))))


@given(order=st.permutations(range(8)), task=st.sampled_from([None, "classification"]))
def test_a_sample_does_not_depend_on_the_reading_order(order, task):
    data = open_synthetic(fields=IMAGE, task=task)
    straight = data.read(np.arange(8))
    for name, values in data.read(np.array(order)).items():
        assert np.array_equal(values, np.asarray(straight[name])[order])


def test_samples_depend_only_on_seed_and_index():
    data, later = (
        open_synthetic(fields=IMAGE, task="classification"),
        open_synthetic(fields=IMAGE, task="classification", first=5),
    )
    image = np.asarray(everything(data)["image"])
    assert np.array_equal(image, everything(open_synthetic(fields=IMAGE, task="classification"))["image"])
    assert np.array_equal(image[5:], np.asarray(everything(later)["image"])[:-5])
    other = open_synthetic(seed=2, fields=IMAGE, task="classification")
    assert not np.array_equal(image, everything(other)["image"])
    assert len({data.digest, later.digest, other.digest}) == 3
    assert later.describe(0) == "synthetic sample 5"


def test_fields_have_the_requested_types_and_values():
    data = open_synthetic(
        samples=4000,
        fields={
            "byte": {"shape": [3], "dtype": "uint8"},
            "token": {"shape": [4], "dtype": "int64", "low": -2, "high": 3},
            "even": {"shape": [2], "low": -1, "high": 2},
            "normal": {"shape": [5], "mean": 7, "stddev": 0.25, "dtype": "float64"},
            "label": {"classes": 5},
            "one": {},
        },
    )
    arrays = {name: np.asarray(values) for name, values in everything(data).items()}
    assert {name: FieldType(array.shape[1:], array.dtype.name) for name, array in arrays.items()} == data.fields
    assert (arrays["byte"].min(), arrays["byte"].max()) == (0, 255)
    assert set(np.unique(arrays["token"])) == {-2, -1, 0, 1, 2}
    assert set(np.unique(arrays["label"])) == set(range(5))
    assert -1 <= arrays["even"].min() < -0.95 < 1.95 < arrays["even"].max() < 2
    # with 4000 samples, a mean has a standard error of 1.6 % of the deviation: four standard errors are safe
    assert abs(arrays["normal"].mean() - 7) < 0.02
    assert abs(arrays["normal"].std() - 0.25) < 0.02
    assert abs(arrays["even"].mean() - 0.5) < 0.05
    assert abs(arrays["one"].std() - 1) < 0.07
    assert np.abs(np.bincount(arrays["label"]) - 800).max() < 120
    assert np.abs(np.bincount(arrays["byte"].ravel() // 64) - 3000).max() < 300


@pytest.mark.parametrize("dtype", ["float32", "uint8"])
def test_classes_differ_in_their_patterns(dtype):
    fields = {**IMAGE, "image": {"shape": [1, 12, 12], "dtype": dtype}}
    train, test = (
        open_synthetic(fields=fields, task="classification"),
        open_synthetic(fields=fields, task="classification", first=300),
    )
    data, new = everything(train), everything(test)
    image, label = np.asarray(data["image"], float), np.asarray(data["label"])
    means = np.stack([image[label == class_number].mean(axis=0) for class_number in range(3)])
    distances = ((np.asarray(new["image"], float)[:, None] - means) ** 2).sum(axis=(2, 3, 4))
    assert (distances.argmin(axis=1) == new["label"]).mean() > 0.98


def test_least_squares_recovers_the_linear_map():
    data = everything(
        open_synthetic(fields={"x": {"shape": [4, 2]}, "y": {"shape": [2], "mean": 3}}, task="regression", noise=0.1)
    )
    x = np.asarray(data["x"]).reshape(300, 8)
    y = np.asarray(data["y"])
    solution, *_ = np.linalg.lstsq(np.c_[x, np.ones(300)], y, rcond=None)
    left = y - np.c_[x, np.ones(300)] @ solution
    assert 0.08 < left.std() < 0.12
    np.testing.assert_allclose(solution[-1], 3, atol=0.03)


def test_spirals_turn():
    data = everything(open_synthetic(fields={"x": {"shape": [2]}, "label": {"classes": 2}}, task="spirals", noise=0.0))
    x, label = np.asarray(data["x"]), np.asarray(data["label"])
    radius = np.hypot(*x.T)
    angle = np.arctan2(x[:, 1], x[:, 0]) / (2 * np.pi)
    off = (angle - radius - label / 2 + 0.25) % 1
    np.testing.assert_allclose(off, 0.25, atol=1e-5)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"fields": {}}, "at least 1 item"),
        ({"fields": {"x": {"classes": 3, "low": 0, "high": 1}}}, "has two distributions"),
        ({"fields": {"x": {"low": 1}}}, "`high` is missing"),
        ({"fields": {"x": {"low": 1, "high": 1}}}, "`high` must be greater than `low`"),
        ({"fields": {"x": {"classes": 2, "dtype": "float32"}}}, "`dtype` of class labels must be an integer type"),
        ({"fields": {"x": {"dtype": "int32"}}}, "the distribution is missing"),
        ({"fields": {"x": {}}, "task": "classification"}, "do not fit the task `classification`"),
        (
            {"fields": {"x": {"shape": [3]}, "l": {"classes": 2}}, "task": "spirals"},
            "the fields do not fit the task `spirals`",
        ),
        (
            {"fields": {"x": {}, "y": {"classes": 2}}, "task": "regression"},
            "the fields do not fit the task `regression`",
        ),
    ],
)
def test_invalid_fields_are_refused(fields, message):
    with pytest.raises(ValidationError, match=message):
        SOURCES["synthetic"].model_validate({"batch_size": 1, "samples": 2, **fields})


def test_a_linear_map_has_a_maximum_size():
    with pytest.raises(InputError, match="the linear map is too large"):
        open_synthetic(fields={"x": {"shape": [10000]}, "y": {"shape": [10000]}}, task="regression")
