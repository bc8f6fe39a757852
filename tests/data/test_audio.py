"""Sounds in class folders and lists: samples, rates and channels, and files that cannot be used."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from netspec.data.audio.resampling import resampled
from netspec.data.base import DamagedSamples, Dataset, FieldType
from netspec.data.loader import open_loader
from netspec.errors import InputError
from tests.data.conftest import problems_of, split_of
from tests.data.test_riff import encoded, form, wav


def write(path: Path, samples: np.ndarray, rate: int = 8000) -> np.ndarray:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(wav(form(3, 32, len(samples), rate), encoded(samples, 3, 32)))
    return samples


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name, size in (("yes/b.wav", 30), ("yes/a.WAV", 50), ("no/x.wave", 20), ("no/notes.txt", 1), ("no/.h.wav", 1)):
        write(tmp_path / "words" / name, np.linspace(-1, 1, size)[None].astype(np.float32))
    return tmp_path


def sounds(folder: Path, **fields: Any) -> Dataset:
    settings = {"path": "words", "sampling_rate": 8000, **fields}
    return split_of(str(folder / "train.yaml"), source="audio", **settings).open()


def everything(data: Dataset) -> Any:
    return data.read(np.arange(len(data)))


def test_sounds_are_ordered_by_class_and_path_and_keep_their_length(folder):
    data = sounds(folder)
    assert data.fields == {"audio": FieldType((1, None), "float32"), "label": FieldType((), "int32")}
    assert data.classes == {"label": ("no", "yes")}
    arrays = everything(data)
    assert [sound.shape for sound in arrays["audio"]] == [(1, 20), (1, 50), (1, 30)]
    assert arrays["label"].tolist() == [0, 1, 1]
    assert np.array_equal(arrays["audio"][1][0], np.linspace(-1, 1, 50).astype(np.float32))
    assert data.describe(1) == str(folder / "words" / "yes" / "a.WAV")


def test_sounds_of_a_file_list(folder):
    (folder / "list.csv").write_text("path,label\nyes/b.wav,ja\nno/x.wave,nein\n", encoding="utf-8")
    data = sounds(folder, list="list.csv", classes=["nein", "ja"])
    assert everything(data)["label"].tolist() == [1, 0]
    assert [sound.shape[1] for sound in everything(data)["audio"]] == [30, 20]


def test_channels_are_mixed_or_selected(tmp_path):
    stereo = write(tmp_path / "words" / "a" / "1.wav", np.array([[0.5, -1, 0.25], [0.25, 1, -0.25]], np.float32))
    results = {"mix": stereo.mean(axis=0, keepdims=True), "left": stereo[:1], "right": stereo[1:], "stereo": stereo}
    for channels, expected in results.items():
        data = sounds(tmp_path, channels=channels)
        assert data.fields["audio"].shape == (len(expected), None)
        assert np.array_equal(everything(data)["audio"][0], expected)
    write(tmp_path / "words" / "a" / "1.wav", stereo[:1])
    with pytest.raises(DamagedSamples) as error:
        everything(sounds(tmp_path, channels="stereo"))
    assert problems_of(error, tmp_path) == (
        "error: sound ./words/a/1.wav has no `stereo`\n"
        "  expected: two channels\n"
        "  got: 1 channel\n"
        "  hint: `channels: mix` averages all channels"
    )


def test_another_rate_is_an_error_or_resampled(folder):
    tone = write(folder / "words" / "no" / "x.wave", np.sin(np.arange(300) / 9)[None].astype(np.float32), 44100)
    with pytest.raises(DamagedSamples) as error:
        everything(sounds(folder))
    assert list(error.value.rows) == [0]
    assert problems_of(error, folder) == (
        "error: sound ./words/no/x.wave has the wrong sampling rate\n"
        "  expected: 8,000 samples a second, as in the training data\n"
        "  got: 44,100\n"
        "  hint: `resample: true` brings every sound to that rate"
    )
    sounds_read = everything(sounds(folder, resample=True))["audio"]
    assert np.array_equal(sounds_read[0], resampled(tone, 44100, 8000))
    assert [sound.shape[1] for sound in sounds_read] == [55, 50, 30]


def test_damaged_sounds_are_errors_or_skipped(folder):
    path = folder / "words" / "yes" / "a.WAV"
    path.write_bytes(path.read_bytes()[:-5])
    padding = {"type": "Padding", "length": 40, "truncating": "random"}
    fields = {"path": "words", "sampling_rate": 8000, "transforms": [padding], "batch_size": 2}
    split = split_of(str(folder / "train.yaml"), source="audio", **fields)
    with open_loader(split, seed=1) as loader, pytest.raises(InputError, match=r"a\.WAV is cut short"):
        list(loader.one_pass())
    split = split_of(str(folder / "train.yaml"), source="audio", on_error="skip", **fields)
    with open_loader(split, seed=1) as loader:
        (batch,) = loader.one_pass()
        assert batch.inputs["audio"].shape == (2, 1, 40)
        assert batch.indices.tolist() == [0, 2]


def test_sounds_of_several_lengths_need_padding_before_the_net(folder):
    split = split_of(str(folder / "train.yaml"), source="audio", path="words", sampling_rate=8000)
    with pytest.raises(InputError, match="Padding"):
        open_loader(split, seed=1, inputs={"audio": FieldType((1, 40), "float32")})


def test_a_changed_sound_file_is_reported(folder):
    data = sounds(folder)
    write(folder / "words" / "no" / "x.wave", np.zeros((1, 7), np.float32))
    with pytest.raises(DamagedSamples, match=r"x\.wave changed while it was read"):
        everything(data)


def test_folders_without_sounds_are_reported(tmp_path):
    (tmp_path / "words" / "a").mkdir(parents=True)
    with pytest.raises(InputError, match="holds no sound") as error:
        sounds(tmp_path)
    assert error.value.problems[0].expected == "files that end in .wav, .wave"


@pytest.mark.parametrize("rate", [1, 31, 4194301])
def test_absurd_sampling_rates_are_reported_without_allocation(folder, rate):
    write(folder / "words" / "no" / "x.wave", np.zeros((1, 300), np.float32), rate)
    with pytest.raises(DamagedSamples, match="cannot be resampled to 8,000 samples a second"):
        everything(sounds(folder, resample=True))
