"""Images with masks: layouts of folders, values of masks, training with transformed masks, and errors."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from netspec.data.base import DamagedSamples, Dataset, FieldType, Source
from netspec.data.input_binding import ValueRange
from netspec.data.loader import Loader
from netspec.errors import InputError
from tests.data.conftest import arrays_of, problems_of, split_of

CLASSES = ["background", "cat", "dog"]
SHAPE = (12, 16)


def mask_of(index: int) -> np.ndarray:
    mask = np.zeros(SHAPE, np.uint8)
    mask[2:8, index : index + 6] = 1 + index % 2
    mask[0] = 255
    return mask


def image_of(index: int) -> np.ndarray:
    return np.repeat((mask_of(index) % 255 * 80)[..., None], 3, axis=2)


def write_pair(image: Path, mask: Path, index: int, *, palette: bool = False) -> None:
    for path in (image, mask):
        path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(image_of(index)).save(image)
    classes = Image.fromarray(mask_of(index), mode="P" if palette else "L")
    if palette:
        classes.putpalette([0, 0, 0, 200, 0, 0, 0, 200, 0] + [255] * 759)  # Pillow chooses the number of bits
    classes.save(mask)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Six pairs in `images` and `masks`, one of them in a subfolder."""
    for index in range(6):
        name = f"more/{index}" if index == 5 else str(index)
        write_pair(tmp_path / f"images/{name}.png", tmp_path / f"masks/{name}.png", index, palette=index % 2 == 0)
    return tmp_path


def source(folder: Path, **fields: Any) -> Source:
    return split_of(str(folder / "train.yaml"), source="segmentation_folder", **{"path": ".", **fields})


def assert_pairs(data: Dataset, expected: list[int]) -> None:
    assert len(data) == len(expected)
    samples = arrays_of(data, np.arange(len(data)))
    for row, index in enumerate(expected):
        np.testing.assert_array_equal(samples["mask"][row], mask_of(index))
        np.testing.assert_array_equal(samples["image"][row], image_of(index).transpose(2, 0, 1))


def test_masks_in_a_parallel_folder(folder):
    data = source(folder, classes=CLASSES).open()
    assert data.fields == {"image": FieldType((3, *SHAPE), "uint8"), "mask": FieldType(SHAPE, "uint8")}
    assert data.classes == {"mask": tuple(CLASSES)}
    assert_pairs(data, [0, 1, 2, 3, 4, 5])
    assert data.identify(5) == ("file", str(folder / "images/more/5.png"))


@pytest.mark.parametrize(("image", "mask"), [("bmp", "png"), ("tif", "gif"), ("png", "tiff")])
def test_masks_next_to_images(tmp_path, image, mask):
    for index in range(3):
        write_pair(tmp_path / f"{index}.{image}", tmp_path / f"{index}_mask.{mask}", index)
    assert_pairs(source(tmp_path, images=".", masks=".", mask_suffix="_mask").open(), [0, 1, 2])


@pytest.mark.parametrize(
    ("pixels", "suffix", "got"),
    [
        (np.full(SHAPE, -1, np.int32), "tif", "a pixel of -1"),
        (np.full(SHAPE, 0.5, np.float32), "tif", "a pixel of 0.5"),
        (np.full(SHAPE, 300, np.uint16), "png", "a pixel of 300"),
        (np.full((*SHAPE, 3), (200, 0, 0), np.uint8), "gif", "an image in color"),
    ],
)
def test_masks_of_other_values_are_refused(tmp_path, pixels, suffix, got):
    Image.fromarray(image_of(0)).save(tmp_path / "0.png")
    Image.fromarray(pixels).save(tmp_path / f"0_mask.{suffix}")
    data = source(tmp_path, images=".", masks=".", mask_suffix="_mask").open()
    with pytest.raises(InputError) as error:
        arrays_of(data, np.array([0]))
    assert error.value.problems[0].got == got


def test_two_masks_of_an_image_are_refused(folder):
    Image.fromarray(mask_of(3)).save(folder / "masks/3.tif")
    with pytest.raises(InputError) as error:
        source(folder).open()
    (problem,) = error.value.problems
    assert problem.message == "1 of 6 images have several masks"
    assert problem.got == f"{folder}/masks/3.png and {folder}/masks/3.tif"


def test_integers_of_32_bits_may_be_class_indices(tmp_path):
    Image.fromarray(image_of(0)).save(tmp_path / "0.png")
    Image.fromarray(mask_of(0).astype(np.int32)).save(tmp_path / "0_mask.tif")
    assert_pairs(source(tmp_path, images=".", masks=".", mask_suffix="_mask").open(), [0])


def test_a_list_selects_and_orders_the_images(folder):
    (folder / "some.txt").write_text("3\nmore/5.png\n\n0\n")
    assert_pairs(source(folder, list="some.txt").open(), [3, 5, 0])
    assert_pairs(source(folder, split="some").open(), [3, 5, 0])


@pytest.mark.parametrize("layout", ["train/images", "images/train"])
def test_a_part_of_the_folder(tmp_path, layout):
    for index in range(2):
        image = tmp_path / layout / f"{index}.png"
        write_pair(image, Path(str(image).replace("images", "masks")), index)
    write_pair(tmp_path / "images/other/9.png", tmp_path / "masks/other/9.png", 0)
    assert_pairs(source(tmp_path, split="train").open(), [0, 1])


def test_class_names_come_from_a_file(folder):
    (folder / "classes.txt").write_text("\n".join(CLASSES))
    assert source(folder).open().classes == {"mask": tuple(CLASSES)}
    assert source(folder).known_classes() == {"mask": 3}
    (folder / "names.txt").write_text("a\nb\nc\n")
    assert source(folder, class_file="names.txt").open().classes == {"mask": ("a", "b", "c")}


def test_pixel_values_are_mapped_to_classes(tmp_path):
    write_pair(tmp_path / "images/a.png", tmp_path / "masks/a.png", 0)
    black_and_white = np.where(mask_of(0) == 1, 255, 0).astype(np.uint8)
    Image.fromarray(black_and_white).save(tmp_path / "masks/a.png")
    mask = arrays_of(source(tmp_path, mask_values=[0, 255]).open(), np.array([0]))["mask"]
    np.testing.assert_array_equal(mask[0], black_and_white // 255)
    with pytest.raises(InputError) as error:
        source(tmp_path, classes=["background", "cat"]).open()
    problems = problems_of(error, tmp_path)
    assert "masks in ./masks hold only the values 0, 255" in problems
    assert "set `mask_values: [0, 255]`" in problems


def test_a_mask_saved_in_three_equal_channels_is_read(folder):
    Image.fromarray(mask_of(0)).convert("RGB").save(folder / "masks/0.png")
    assert_pairs(source(folder, classes=CLASSES).open(), [0, 1, 2, 3, 4, 5])


def test_size_resizes_both_and_keeps_class_indices(folder):
    data = source(folder, classes=CLASSES, size=[7, 9]).open()
    samples = arrays_of(data, np.arange(6))
    assert samples["image"].shape == (6, 3, 7, 9)
    assert samples["mask"].shape == (6, 7, 9)
    assert set(np.unique(samples["mask"])) <= {0, 1, 2, 255}


def test_missing_masks_and_other_sizes_are_reported_together(folder):
    for index in range(15):
        Image.fromarray(image_of(0)).save(folder / f"images/new{index:02}.png")
    Image.fromarray(mask_of(0)[:-1]).save(folder / "masks/0.png")
    with pytest.raises(InputError) as error:
        source(folder).open()
    missing, other = error.value.problems
    assert missing.message == "15 of 21 images have no mask"
    assert missing.got is not None
    assert missing.got.count("new") == 10
    assert missing.got.endswith(" and 5 more")
    assert missing.location is not None
    assert other.message == "1 of 21 images differ in size from their masks"
    assert other.got == f"{folder}/images/0.png (12 × 16, its mask 11 × 16)"
    data = source(folder, on_error="skip").open()
    assert (len(data), data.skipped) == (5, 16)
    assert_pairs(data, [1, 2, 3, 4, 5])


def test_pixels_of_no_class_name_the_files(folder):
    wrong = mask_of(1)
    wrong[5, :4] = 7
    Image.fromarray(wrong).save(folder / "masks/1.png")
    data = source(folder, classes=CLASSES).open()
    with pytest.raises(DamagedSamples) as error:
        data.read(np.arange(4))
    assert list(error.value.rows) == [1]
    assert problems_of(error, folder) == (
        "error: mask ./masks/1.png has pixels of no class\n  expected: 0 to 2, the classes, or 255, to ignore\n"
        "  got: 4 pixels of 7"
    )


def test_classes_that_the_net_lacks_are_reported_before_the_first_batch(tmp_path):
    for index in range(12):
        write_pair(tmp_path / f"images/{index:02}.png", tmp_path / f"masks/{index:02}.png", index % 4)
    (tmp_path / "masks/11.png").write_bytes((tmp_path / "masks/11.png").read_bytes()[:60])
    split = source(tmp_path, batch_size=2)
    ranges = {"mask": ValueRange(0, 1, "`scores` has 2 classes", (255,))}
    inputs = {"mask": FieldType(SHAPE, "int32")}
    with pytest.raises(InputError) as error:
        Loader(split.open(), split, seed=1, inputs=inputs, ranges=ranges)
    wrong, damaged = error.value.problems
    odd = [index for index in range(11) if 2 in mask_of(index % 4)]
    assert wrong.message == f"`mask` is out of range in {len(odd)} of 12 samples"
    assert wrong.got == f"2 ({sum((mask_of(index % 4) == 2).sum() for index in odd)} values)"
    assert wrong.expected == "0 to 1 or 255: `scores` has 2 classes"
    assert wrong.notes == ("samples: " + "; ".join(f"{tmp_path}/images/{index:02}.png" for index in odd),)
    assert wrong.location is not None
    assert damaged.message == "`mask` cannot be used in 1 of 12 samples"
    assert "masks/11.png" in damaged.notes[0]
    skipping = source(tmp_path, batch_size=2, on_error="skip")
    with pytest.raises(InputError) as error:
        Loader(skipping.open(), skipping, seed=1, inputs=inputs, ranges=ranges)
    assert [problem.message for problem in error.value.problems] == [wrong.message]


def test_at_most_ten_damaged_masks_of_a_batch_are_named(tmp_path):
    for index in range(14):
        write_pair(tmp_path / f"images/{index}.png", tmp_path / f"masks/{index}.png", index % 4)
        Image.fromarray(np.full(SHAPE, 9, np.uint8)).save(tmp_path / f"masks/{index}.png")
    with pytest.raises(DamagedSamples) as error:
        source(tmp_path, classes=CLASSES).open().read(np.arange(14))
    messages = [problem.message for problem in error.value.problems]
    assert len(messages) == 11
    assert messages[-1] == "4 more samples of this batch of 14 cannot be used"


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"path": "nowhere"}, "folder ./nowhere/masks does not exist"),
        ({"masks": "mask"}, "folder ./mask does not exist"),
        ({"list": "list.txt"}, "1 of 2 listed images are not in ./images"),
        ({"class_file": "list.txt", "mask_values": [0, 1, 2]}, "each class needs one pixel value"),
    ],
)
def test_wrong_fields_and_folders(folder, fields, message):
    (folder / "list.txt").write_text("0\n77\n")
    with pytest.raises(InputError) as error:
        source(folder, **fields).open()
    assert message in problems_of(error, folder)


def test_a_mask_in_color_is_refused(folder):
    colors = np.random.default_rng(0).integers(0, 256, (*SHAPE, 3)).astype(np.uint8)
    Image.fromarray(colors).save(folder / "masks/3.png")
    with pytest.raises(DamagedSamples, match="does not hold class indices"):
        source(folder).open().read(np.array([3]))


def test_held_out_images_have_masks_that_follow_fixed_transforms(folder):
    crop = {"type": "RandomResizedCrop", "height": 6, "width": 8}
    train = source(folder, classes=CLASSES, split={"validation": 0.34}, transforms=[crop, {"type": "RandomFlip"}])
    validation = train.held_out("validation")
    assert isinstance(validation, Source)
    with Loader(train.open(), train, seed=1) as loader:
        learned = loader.learned
        batches = [dict(batch.inputs) for _, batch in zip(range(3), loader, strict=False)]
    assert all(batch["mask"].shape[1:] == (6, 8) for batch in batches)
    with Loader(validation.open(), validation, seed=1, learned=learned) as loader:
        (batch,) = list(loader.one_pass())
    assert batch.inputs["image"].shape == (2, 3, 6, 8)
    assert batch.inputs["mask"].shape == (2, 6, 8)


def test_resumed_loader_continues_with_the_same_images_and_masks(folder):
    def loader() -> Loader:
        split = source(folder, classes=CLASSES, shuffle=True, transforms=[{"type": "RandomRotation", "factor": 0.2}])
        return Loader(split.open(), split, seed=4)

    with loader() as uninterrupted:
        batches = [batch for _, batch in zip(range(5), uninterrupted, strict=False)]
    with loader() as first:
        _ = [batch for _, batch in zip(range(2), first, strict=False)]
        state = first.state()
    with loader() as resumed:
        resumed.restore(state)
        remaining = [batch for _, batch in zip(range(3), resumed, strict=False)]
    for expected, batch in zip(batches[2:], remaining, strict=True):
        for name in ("image", "mask"):
            np.testing.assert_array_equal(batch.inputs[name], expected.inputs[name])


def test_unlabeled_images_are_read_without_masks(folder):
    (other,) = source(folder, classes=CLASSES).with_files([folder / "images"], ["image"])
    assert other.open().fields == {"image": FieldType((3, *SHAPE), "uint8")}
