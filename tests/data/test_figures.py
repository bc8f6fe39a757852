"""FieldStatistics: independent of chunks, for samples of one size or several."""

from __future__ import annotations

import numpy as np
import pytest

from netspec.data.base import FieldType
from netspec.data.contact_sheet import Strip, contact_sheet, displayable, span_of
from netspec.data.statistics import FieldStatistics

RNG = np.random.default_rng(8)


@pytest.mark.parametrize("cuts", [(), (1,), (3, 4, 30)])
@pytest.mark.parametrize("offset", [0, 1e8])
def test_statistics_do_not_depend_on_chunks(cuts, offset):
    values = RNG.standard_normal((40, 3, 5, 4)) + offset
    figures = FieldStatistics(FieldType((3, 5, 4), "float64"))
    for chunk in np.split(values, cuts):
        figures.add(chunk)
    np.testing.assert_allclose(figures.mean, values.mean((0, 2, 3)), rtol=1e-12)
    # An ulp of 1e8 is 1.5e-8, and deviations are 1.
    np.testing.assert_allclose(figures.deviation, values.std((0, 2, 3)), rtol=1e-6)
    assert np.array_equal(figures.low, values.min((0, 2, 3)))
    assert np.array_equal(figures.high, values.max((0, 2, 3)))
    assert figures.samples == 40


def test_statistics_of_samples_of_several_sizes():
    images = [RNG.integers(0, 256, (3, height, 6)).astype(np.uint8) for height in (4, 9, 5)]
    figures = FieldStatistics(FieldType((3, None, None), "uint8"))
    figures.add(images[:2])
    figures.add(images[2:])
    assert figures.as_json()["sizes"] == [[3, 3], [4, 9], [6, 6]]
    joined = np.concatenate(images, axis=1)
    np.testing.assert_allclose(figures.mean, joined.mean((1, 2)), rtol=1e-12)
    np.testing.assert_allclose(figures.deviation, joined.std((1, 2)), rtol=1e-12)


def test_missing_values_are_counted_and_excluded():
    values = RNG.standard_normal((6, 2)).astype(np.float32)
    values[1, 0], values[2, 0], values[:, 1] = np.nan, np.inf, np.nan
    figures = FieldStatistics(FieldType((2,), "float32"))
    figures.add(values[:3])
    figures.add(values[3:])
    assert figures.missing == 8
    np.testing.assert_allclose(figures.mean[0], values[[0, 3, 4, 5], 0].astype(np.float64).mean(), rtol=1e-12)
    assert figures.as_json()["low"][1] is None


@pytest.mark.parametrize(
    ("shape", "dtype", "separate"),
    [
        ((3, 4, 5), "uint8", 3),
        ((7,), "float32", 7),
        ((7,), "int32", 1),
        ((1000,), "float32", 1),
        ((4, 5), "float32", 1),
        ((), "int32", 1),
    ],
)
def test_channels_and_columns_are_distinguished(shape, dtype, separate):
    figures = FieldStatistics(FieldType(shape, dtype))
    figures.add(np.zeros((2, *shape), dtype))
    assert len(figures.mean) == separate == figures.channels


def test_classes_are_counted_by_name_or_number():
    figures = FieldStatistics(FieldType((), "int32"), ("cat", "dog", "bird"))
    figures.add(np.array([0, 1, 1, 7]))
    assert figures.classes() == {"cat": 1, "dog": 2, "bird": 0, "7": 1}
    quantities = FieldStatistics(FieldType((), "int64"))
    quantities.add(np.arange(3000))
    assert quantities.counts is None
    assert "classes" not in quantities.as_json()


def test_images_keep_the_range_of_values():
    assert span_of([np.array([[[3]]], np.uint8)]) == (0, 255)
    assert span_of([np.array([[[0.5]]])]) == (0, 1)
    assert span_of([np.array([[[-2.0, 3.0]]]), np.array([[[7.0]]])]) == (-2, 7)
    assert span_of([np.array([[[4.0]]])]) == (4, 5)
    pixels = displayable(np.array([[[-2.0, 7.0, np.nan]]]), (-2, 7))
    assert pixels[0, :2].tolist() == [[0, 0, 0], [255, 255, 255]]
    assert displayable(np.zeros((4, 2, 3), np.uint8), (0, 255)).shape == (2, 3, 3)


def test_a_sheet_holds_small_large_and_odd_images():
    small, large = np.zeros((5, 3, 3), np.uint8), np.full((700, 20, 3), 9, np.uint8)
    strips = [
        Strip([small, large], ["ß, and a name that is by far too long for the place that there is"]),
        Strip([small], ["a", "b"]),
    ]
    sheet = contact_sheet(strips, "title")
    assert sheet.mode == "RGB"
    assert sheet.height < 2 * 220
    assert (np.asarray(sheet) == 9).any()
