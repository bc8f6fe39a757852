"""Padding and MelSpectrogram: formulas in plain NumPy, and independence from the rest of the batch."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

import netspec.data  # noqa: F401  # the transforms are found through it
from netspec.data.base import Dataset, FieldType, SampleKeys, Transform
from netspec.data.loader import Loader
from netspec.errors import InputError
from netspec.schema.specs.data import TRANSFORMS
from tests.data.conftest import split_of


def transform(_type: str, **fields: Any) -> Transform:
    spec = TRANSFORMS.parse({"type": _type, **fields})
    assert isinstance(spec, Transform)
    return spec


def keys(count: int, seed: int = 1, epoch: int = 0) -> SampleKeys:
    return SampleKeys(seed, epoch, np.arange(count), 0)


def ragged(*sizes: int) -> list[np.ndarray]:
    return [np.arange(1, size + 1, dtype=np.int32) for size in sizes]


@pytest.mark.parametrize(
    ("fields", "rows"),
    [
        ({}, [[1, 2, 0, 0], [1, 2, 3, 4], [0, 0, 0, 0]]),
        ({"padding": "pre", "value": -1}, [[-1, -1, 1, 2], [1, 2, 3, 4], [-1, -1, -1, -1]]),
        ({"truncating": "pre"}, [[1, 2, 0, 0], [3, 4, 5, 6], [0, 0, 0, 0]]),
    ],
)
def test_padding_makes_lengths_equal(fields, rows):
    padded = transform("Padding", length=4, **fields).apply(ragged(2, 6, 0), keys(3))
    assert isinstance(padded, np.ndarray)
    assert padded.dtype == np.int32
    assert padded.tolist() == rows


def test_random_crops_differ_between_epochs_and_cover_all_offsets():
    padding = transform("Padding", length=3, truncating="random")
    starts = [int(np.asarray(padding.apply(ragged(3, 6, 2), keys(3, epoch=epoch)))[1, 0]) for epoch in range(60)]
    assert set(starts) == {1, 2, 3, 4}
    later_epoch = padding.apply(ragged(3, 6, 2), keys(3, epoch=7))
    assert np.asarray(later_epoch)[:, 0].tolist() == [1, starts[7], 1]
    row = np.asarray(later_epoch)[1]
    assert (np.diff(row) == 1).all()


def test_padding_along_other_axes():
    padding = transform("Padding", length=2, axis=0, value=0.5)
    assert padding.infer(FieldType((None, 3), "float32")) == FieldType((2, 3), "float32")
    padded = padding.apply([np.ones((1, 3), np.float32), np.ones((4, 3), np.float32)], keys(2))
    assert np.asarray(padded).tolist() == [[[1] * 3, [0.5] * 3], [[1] * 3, [1] * 3]]
    padded_pair = padding.apply([np.ones((1, 3), np.float32), np.ones((4, 2), np.float32)], keys(2))
    assert [array.shape for array in padded_pair] == [(2, 3), (2, 2)]


@pytest.mark.parametrize(
    ("field", "fields", "message"),
    [
        (FieldType((), "int32"), {}, "a sample has no axis -1"),
        (FieldType((None,), "int32"), {"axis": 1}, "a sample has no axis 1"),
        (FieldType((None,), "int32"), {"value": 0.5}, "samples of int32 cannot be padded with 0.5"),
    ],
)
def test_fields_that_cannot_be_padded_are_refused(field, fields, message):
    with pytest.raises(InputError) as error:
        transform("Padding", length=4, **fields).infer(field)
    assert error.value.problems[0].message == message


class _Sequences(Dataset):
    """Texts of several lengths, and another field."""

    digest = ""
    fields = {"weight": FieldType((1,), "float32"), "text": FieldType((None,), "int32")}  # noqa: RUF012  so in the base

    def __len__(self) -> int:
        return 5

    def read(self, indices: np.ndarray) -> dict[str, Any]:
        return {
            "weight": np.zeros((len(indices), 1), np.float32),
            "text": [np.arange(index, dtype=np.int32) for index in indices],
        }

    def describe(self, index: int) -> str:
        return f"sequence {index}"


def test_padding_applies_to_the_field_of_varying_length():
    split = split_of(source="npz", path="unused", batch_size=5, transforms=[{"type": "Padding", "length": 3}])
    with Loader(_Sequences(), split, seed=1) as loader:
        (batch,) = loader.one_pass()
    assert batch.inputs["text"].tolist() == [[0, 0, 0], [0, 0, 0], [0, 1, 0], [0, 1, 2], [0, 1, 2]]


# MelSpectrogram. Keras's answers: tests/peers/test_mel_spectrograms.py.


def slow_spectrogram(sound: np.ndarray, *, length: int, stride: int, bins: int, rate: int, low: float) -> np.ndarray:
    """Return the power in mel bands by definition, as sums over all samples and frequencies in float64."""
    padded = np.concatenate([sound[length // 2 : 0 : -1], sound, sound[-2 : -length // 2 - 2 : -1]]).astype(np.float64)
    hann = 0.5 - 0.5 * np.cos(2 * np.pi * np.arange(length) / length)
    turns = np.exp(-2j * np.pi * np.outer(np.arange(length // 2 + 1), np.arange(length)) / length)
    frames = [padded[start : start + length] * hann for start in range(0, len(sound) + 1, stride)]
    power = np.array([np.abs(turns @ frame) ** 2 for frame in frames])

    def mel(hertz: float) -> float:
        return float(1127 * np.log(1 + hertz / 700))

    edges = np.linspace(mel(low), mel(rate / 2), bins + 2)
    magnitudes = np.zeros((bins, len(frames)))
    for band in range(bins):
        begin, top, end = edges[band : band + 3]
        for k in range(1, length // 2 + 1):
            at = mel(k * rate / length)
            magnitudes[band] += power[:, k] * max(0.0, min((at - begin) / (top - begin), (end - at) / (end - top)))
    return magnitudes


@given(
    size=st.integers(20, 90), length=st.sampled_from([16, 24, 32]), stride=st.integers(1, 40), seed=st.integers(0, 9)
)
def test_a_mel_spectrogram_matches_the_formula(size, length, stride, seed):
    sound = np.random.default_rng(seed).normal(size=size).astype(np.float32)
    fields = {"fft_length": length, "sequence_stride": stride, "num_mel_bins": 3, "sampling_rate": 8000}
    mel = transform("MelSpectrogram", **fields, min_freq=100.0, power_to_db=False)
    actual = np.asarray(mel.apply(sound[None, None], keys(1)))[0, 0]
    assert mel.infer(FieldType((1, size), "float32")) == FieldType((1, *actual.shape), "float32")
    expected = slow_spectrogram(sound, length=length, stride=stride, bins=3, rate=8000, low=100.0)
    # sums of some dozens of float32 products: rounding errors of about 1e-6 of the largest value
    np.testing.assert_allclose(actual, expected, atol=1e-5 * expected.max())


def test_a_spectrogram_does_not_depend_on_the_rest_of_the_batch():
    sounds = np.random.default_rng(1).normal(size=(4, 1, 300)).astype(np.float32) * np.array([1, 1e-3, 1e3, 0])[
        :, None, None
    ].astype(np.float32)  # fmt: skip
    mel = transform("MelSpectrogram", fft_length=64, sequence_stride=32, num_mel_bins=8)
    batch_result = np.asarray(mel.apply(sounds, keys(4)))
    listed = mel.apply(list(sounds), keys(4))
    assert mel.infer(FieldType((1, None), "int16")) == FieldType((1, 8, None), "float32")
    for row, sound in enumerate(sounds):
        single_result = np.asarray(mel.apply(sound[None], keys(1)))[0]
        assert np.array_equal(batch_result[row], single_result)
        assert np.array_equal(listed[row], single_result)
    assert (batch_result.max(axis=(1, 2, 3)) - batch_result.min(axis=(1, 2, 3)) <= 80.001).all()


def test_long_sounds_are_processed_in_blocks_of_frames(monkeypatch):
    sound = np.random.default_rng(1).normal(size=(1, 500)).astype(np.float32)
    mel = transform("MelSpectrogram", fft_length=64, sequence_stride=10, num_mel_bins=8)
    full = mel.apply(sound, keys(1))
    monkeypatch.setattr("netspec.data.transforms.spectra.AT_A_TIME", 64 * 7)
    np.testing.assert_allclose(np.asarray(mel.apply(sound, keys(1))), np.asarray(full), atol=1e-4)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"fft_length": 64, "sequence_length": 65}, "`sequence_length` is larger than `fft_length`"),
        ({"min_freq": 9000.0}, "the frequency range is not valid"),
        ({"max_freq": 9000.0}, "the frequency range is not valid"),
    ],
)
def test_invalid_spectrogram_settings_are_refused(fields, message):
    with pytest.raises(ValidationError, match=message):
        TRANSFORMS["MelSpectrogram"].model_validate(fields)


def test_sounds_that_are_too_short_are_reported():
    mel = transform("MelSpectrogram", fft_length=64)
    with pytest.raises(InputError, match="too short to be mirrored"):
        mel.infer(FieldType((1, 32), "float32"))
    with pytest.raises(InputError, match="too short to be mirrored") as error:
        mel.apply([np.ones((1, 33), np.float32), np.ones((1, 32), np.float32)], keys(2))
    assert list(getattr(error.value, "rows")) == [1]  # noqa: B009  DamagedSamples
