"""`netspec init` for folders of sounds: rates, lengths, unreadable files, and files that train."""

from __future__ import annotations

from pathlib import Path

import pytest

import netspec
from netspec.errors import InputError
from netspec.schema.load import load_train
from netspec.tools.init import init


@pytest.mark.slow
def test_folders_of_sounds(sounds: Path, tmp_path: Path) -> None:
    result = init(sounds)
    assert result.task == "audio classification"
    assert result.findings == (
        "25 sounds of 2 classes: high (12), low (13)",
        "0.3 to 0.4 s at 8,000, 22,050 Hz, in a sample of 24",
    )
    assert any("cannot be read" in warning and "broken.wav" in warning for warning in result.warnings)
    train = result.train.read_text()
    assert "sampling_rate: 8000" in train
    assert "on_error: skip" in train
    checked = netspec.check(result.train)
    assert (checked.kind, checked.warnings) == ("training", ())
    overrides = {"train.max_epochs": 2, "data.train.batch_size": 8}
    run = netspec.train(str(result.train), run_dir=tmp_path / "run", device="reference", **overrides)
    assert run.test is not None
    assert run.test.samples == 5
    answers = netspec.predict(run.run_dir, sounds / "high" / "01.wav", device="reference").answers
    assert answers["class"][0] in ("high", "low")


def test_sounds_for_training_and_test_are_used(sounds: Path, tmp_path: Path) -> None:
    root = tmp_path / "sets"
    root.mkdir()
    for part in ("train", "val"):
        (root / part).symlink_to(sounds)
    result = init(root)
    data = load_train(result.train).data
    assert data.train.hold_out is not None
    assert data.train.hold_out.parts == ("test",)
    assert data.validation is not None
    assert [type(step).__name__ for step in data.validation.transforms] == [
        "Padding",
        "MelSpectrogram",
        "Normalization",
    ]
    assert netspec.check(result.train).warnings == ()


def test_one_class_is_not_enough(sounds: Path) -> None:
    for file in (sounds / "low").iterdir():
        file.unlink()
    with pytest.raises(InputError, match="has 1 class folder with sounds"):
        init(sounds)


def test_no_sound_can_be_read(tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / "tones" / name).mkdir(parents=True)
        (tmp_path / "tones" / name / "x.wav").write_bytes(b"no sound")
    with pytest.raises(InputError, match=r"no sound in .* can be read"):
        init(tmp_path / "tones")
    assert not (tmp_path / "tones" / "train.yaml").exists()
