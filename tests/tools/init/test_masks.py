"""`netspec.init` for images with masks: a U-Net that fits the data, in every layout of folders."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

import netspec
from netspec.errors import InputError
from netspec.tools.init import init
from netspec.tools.specs import load_train


def write_pairs(
    images: Path, masks: Path, count: int, size: tuple[int, int] = (32, 48), values: tuple[int, ...] = (0, 1, 2),
    suffix: str = "",
) -> None:  # fmt: skip
    random = np.random.default_rng(count)
    images.mkdir(parents=True, exist_ok=True)
    masks.mkdir(parents=True, exist_ok=True)
    for index in range(count):
        mask = np.array(values, np.uint8)[random.integers(0, len(values), size)]
        Image.fromarray(random.integers(0, 256, (*size, 3)).astype(np.uint8)).save(images / f"{index}.png")
        Image.fromarray(mask).save(masks / f"{index}{suffix}.png")


def fields(train: Path) -> Any:
    return load_train(train).data.train


def trains(train: Path, folder: Path) -> netspec.Run:
    assert netspec.check(train).kind == "training"
    return netspec.train(str(train), run_dir=folder / "run", device="reference", **{"train.max_epochs": 1})


def test_a_folder_of_images_and_masks_trains(tmp_path: Path) -> None:
    write_pairs(tmp_path / "set/images", tmp_path / "set/masks", 10)
    (tmp_path / "set/classes.txt").write_text("soil\ncrop\nweed\n")
    result = init(tmp_path / "set")
    assert result.task == "semantic segmentation"
    assert "10 images with masks of 3 classes; pixels: soil 33" in result.findings[0]
    assert not [warning for warning in result.warnings if "unknown" in warning]
    split = fields(result.train)
    assert (split.source, split.classes, split.size) == ("segmentation_folder", ["soil", "crop", "weed"], (32, 48))
    assert split.hold_out.parts == ("validation", "test")
    assert split.hold_out.stratify is None
    run = trains(result.train, tmp_path)
    assert run.test is not None
    assert run.test.samples == 2
    assert set(run.test.metrics) == {"mean_iou", "accuracy"}


def test_black_and_white_masks_with_a_suffix_are_mapped(tmp_path: Path) -> None:
    write_pairs(tmp_path / "imgs", tmp_path / "mask", 10, (100, 90), (0, 255), "_mask")
    result = init(tmp_path)
    split = fields(result.train)
    assert (split.images, split.masks, split.mask_suffix) == ("imgs", "mask", "_mask")
    assert (split.mask_values, split.classes) == ([0, 255], ["background", "object"])
    assert split.size == (96, 96)
    assert any("names of the classes are unknown" in warning for warning in result.warnings)
    assert netspec.check(result.train).kind == "training"


@pytest.mark.slow
def test_folders_for_training_and_test_are_used(tmp_path: Path) -> None:
    for part, count in (("train", 12), ("test", 4)):
        write_pairs(tmp_path / part / "images", tmp_path / part / "masks", count)
    result = init(tmp_path)
    data = load_train(result.train).data
    assert set(data.splits()) == {"train", "validation", "test"}
    run = trains(result.train, tmp_path)
    assert run.test is not None
    assert run.test.samples == 4


def test_incomplete_pairs_are_left_out(tmp_path: Path) -> None:
    write_pairs(tmp_path / "images", tmp_path / "masks", 12)
    (tmp_path / "masks/3.png").unlink()
    (tmp_path / "masks/4.png").write_bytes(b"damaged")
    result = init(tmp_path)
    assert any(warning == "left out: 1 image without a mask" for warning in result.warnings)
    assert any("1 of 11 pairs that were opened cannot be read and is left out" in text for text in result.warnings)
    assert fields(result.train).on_error == "skip"


def test_duplicates_are_reported(tmp_path: Path) -> None:
    write_pairs(tmp_path / "images", tmp_path / "masks", 12)
    (tmp_path / "images/3.png").write_bytes((tmp_path / "images/4.png").read_bytes())
    (warning,) = (text for text in init(tmp_path).warnings if "duplicate" in text)
    assert warning.startswith("1 of 12 images is a duplicate (")


def test_rare_classes_are_reported(tmp_path: Path) -> None:
    write_pairs(tmp_path / "images", tmp_path / "masks", 10, values=(0,))
    rare = np.zeros((32, 48), np.uint8)
    rare[0, 0] = 1
    Image.fromarray(rare).save(tmp_path / "masks/0.png")
    assert any("`class_weight: balanced`" in warning for warning in init(tmp_path).warnings)


def test_masks_that_are_images_are_refused(tmp_path: Path) -> None:
    write_pairs(tmp_path / "images", tmp_path / "masks", 4, values=tuple(range(200)))
    with pytest.raises(InputError, match="are not class indices"):
        init(tmp_path)
    for file in (tmp_path / "masks").iterdir():
        file.rename(file.with_name(f"other{file.name}"))
    with pytest.raises(InputError, match="has a mask in"):
        init(tmp_path, force=True)
