"""Tests of all transforms of images: their samples, on bytes and floats, of one size and of several."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from functools import cache
from typing import Any, TypeAlias

import numpy as np
import pytest
from PIL import Image

import netspec.data  # noqa: F401  # the transforms are found through it
from netspec.data.base import FieldType, SampleKeys
from netspec.data.imaging.arrays import PillowImage
from netspec.data.imaging.base import ColorTransform, ImageTransform
from netspec.errors import InputError
from netspec.schema.specs.data import TRANSFORMS

Array: TypeAlias = np.ndarray
Samples: TypeAlias = Array | list[Array]

TYPES = [cls for cls in TRANSFORMS if issubclass(cls, ImageTransform)]
CASES = [
    pytest.param(cls, sample, id=f"{cls.__name__}-{number}")
    for cls in TYPES
    for number, sample in enumerate(cls.samples)
]
ACCEPTS_PILLOW_IMAGES = [(cls, sample) for cls in TYPES if cls.accepts_pillow_images for sample in cls.samples]
SIZES = [(28, 30), (30, 28), (40, 29), (28, 28), (29, 51), (33, 28)]
SEED, EPOCH, STAGE = 5, 2, 1
SEVERAL = ("RandomColorJitter", "RandAugment", "AugMix")
"""Transforms of several steps that each round to bytes: a later step may amplify the rounding of an earlier one."""


def build_transform(cls: type[Any], sample: dict[str, Any]) -> ImageTransform:
    """Return the transform of a sample, with the range of bytes as its value range, also for floats here."""
    extra_fields = {"value_range": [0, 255]} if issubclass(cls, ColorTransform) else {}
    transform = TRANSFORMS.parse({"type": cls.__name__, **sample, **extra_fields})
    assert isinstance(transform, ImageTransform)
    return transform


@cache
def images(channels: int, dtype: str) -> tuple[Array, ...]:
    """Images of all sizes: smooth colors with some noise."""
    rng = np.random.default_rng(3)
    batch = []
    for height, width in SIZES:
        slope = np.linspace(0, 200, height)[:, None] * np.linspace(0.2, 1, width)
        values = slope + rng.integers(0, 56, (channels, height, width))
        array = values.astype(np.uint8).astype(dtype)
        array.flags.writeable = False
        batch.append(array)
    return tuple(batch)


def one_size(channels: int, dtype: str) -> Array:
    batch = np.stack([image[:, :28, :28] for image in images(channels, dtype)])
    batch.flags.writeable = False
    return batch


def keys(rows: Array) -> SampleKeys:
    return SampleKeys(SEED, EPOCH, rows, STAGE)


def applied(transform: ImageTransform, batch: Samples) -> Samples:
    return transform.apply(batch, keys(np.arange(len(batch)) + 40))


@pytest.mark.parametrize(("cls", "sample"), CASES)
def test_image_transform_round_trips_through_yaml(cls, sample):
    transform = build_transform(cls, sample)
    assert TRANSFORMS.parse(transform.model_dump()) == transform


@pytest.mark.parametrize(("cls", "sample"), CASES)
@pytest.mark.parametrize("dtype", ["uint8", "float32", "float64"])
def test_results_have_the_inferred_type_for_one_and_several_sizes(cls, sample, dtype):
    transform = build_transform(cls, sample)
    for channels in (3, 1, 4):
        try:
            field = transform.infer(FieldType((channels, 28, 28), dtype))
        except InputError:
            assert channels != 3
            continue
        batch = one_size(channels, dtype)
        results = applied(transform, batch)
        assert isinstance(results, np.ndarray)
        assert (results.shape, results.dtype.name) == ((len(batch), *field.shape), field.dtype)
        if dtype != "uint8":
            assert np.isfinite(results).all()
        several = transform.infer(FieldType((channels, None, None), dtype))
        ragged = applied(transform, list(images(channels, dtype)))
        assert isinstance(ragged, list) == several.ragged
        for image in ragged:
            assert image.dtype.name == field.dtype
            assert image.shape[0] == field.shape[0]
            assert several.ragged or image.shape == several.shape


@pytest.mark.parametrize(("cls", "sample"), CASES)
def test_results_do_not_depend_on_batches_order_threads_and_memory(cls, sample):
    transform = build_transform(cls, sample)
    batch = one_size(3, "uint8")
    rows = np.arange(len(batch))
    expected = np.asarray(transform.apply(batch, keys(rows)))

    def transform_row(row: int) -> Array:
        (result,) = transform.apply(batch[row : row + 1], keys(rows[row : row + 1]))
        return result

    with ThreadPoolExecutor(3) as pool:
        assert np.array_equal(np.stack(list(pool.map(transform_row, rows.tolist()))), expected)
    assert np.array_equal(transform.apply(batch[::-1], keys(rows[::-1])), expected[::-1])
    lists = transform.apply(list(batch), keys(rows))
    assert np.array_equal(np.stack(list(lists)), expected)
    # the memory order of decoded images
    pixels = np.ascontiguousarray(batch.transpose(0, 2, 3, 1)).transpose(0, 3, 1, 2)
    assert np.array_equal(transform.apply(pixels, keys(rows)), expected)


@pytest.mark.parametrize(("cls", "sample"), CASES)
def test_uint8_and_float_results_differ_only_by_rounding(cls, sample):
    transform = build_transform(cls, sample)
    batch = one_size(3, "uint8")
    floats = np.clip(applied(transform, batch.astype(np.float32)), 0, 255)  # bicubic interpolation may overshoot
    away = np.abs(np.asarray(applied(transform, batch), np.float64) - floats)
    # Bytes are rounded; for geometric transforms, Pillow truncates: by ½ on average, by less than 1.
    assert away.mean() <= 0.55
    if cls.__name__ not in SEVERAL:
        assert away.max() <= 1.01


@pytest.mark.parametrize(("cls", "sample"), CASES)
def test_the_smallest_images_and_nan_are_accepted(cls, sample):
    transform = build_transform(cls, sample)
    for dtype in ("uint8", "float32"):
        field = transform.infer(FieldType((3, None, None), dtype))
        for size in ((1, 1), (1, 7), (5, 1), (2, 2)):
            small = [image[:, : size[0], : size[1]].copy() for image in images(3, dtype)]
            if dtype == "float32":
                small[0][:] = np.nan
                small[1][0, 0, 0] = np.inf
            results = applied(transform, small)
            assert all(image.dtype == dtype and image.ndim == 3 for image in results)
            assert all(
                static_size in (None, size)
                for image in results
                for static_size, size in zip(field.shape, image.shape, strict=True)
            )
            if (
                dtype == "float32"
                and "fill" not in str(sample)
                and cls.__name__ not in ("RandomErasing", "RandomPerspective")
            ):
                assert np.isnan(results[0]).any()  # so that the guard of a training notices it


@pytest.mark.parametrize("cls", TYPES)
def test_random_results_differ_between_samples_and_epochs(cls):
    alike = np.repeat(one_size(3, "uint8")[:1], 32, axis=0)
    rows = np.arange(32)
    outcomes = []
    for sample in cls.samples:
        results = np.asarray(build_transform(cls, sample).apply(alike, keys(rows)))
        other = np.asarray(build_transform(cls, sample).apply(alike, SampleKeys(SEED, EPOCH + 1, rows, STAGE)))
        outcomes.append((len({image.tobytes() for image in results}) > 1, not np.array_equal(results, other)))
    draws = max(build_transform(cls, sample).draws for sample in cls.samples) > 0 or cls.__name__ == "GaussianNoise"
    assert ((True, True) in outcomes) == draws


@pytest.mark.parametrize("cls", TYPES)
def test_fields_that_are_no_images_are_refused(cls):
    transform = build_transform(cls, cls.samples[0])
    for field in (FieldType((5,), "float32"), FieldType((3, 8, 8), "int32"), FieldType((None, 8, 8), "uint8")):
        with pytest.raises(InputError, match=f"{cls.__name__} changes images"):
            transform.infer(field)


@pytest.mark.parametrize(("cls", "sample"), ACCEPTS_PILLOW_IMAGES)
@pytest.mark.parametrize("channels", [1, 3])
def test_pillow_images_give_the_same_results_as_arrays(cls, sample, channels):
    transform = build_transform(cls, sample)
    arrays = list(images(channels, "uint8"))
    # Only samples of one size form a batch.
    assert None not in transform.infer(FieldType((channels, None, None), "uint8")).shape
    pillow_images = [PillowImage(Image.fromarray(image.transpose(1, 2, 0).squeeze())) for image in arrays]
    batch = keys(np.arange(len(arrays)) + 40)
    assert np.array_equal(np.asarray(transform.apply(pillow_images, batch)), np.asarray(transform.apply(arrays, batch)))
