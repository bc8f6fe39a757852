"""Image folders: labels, sizes, modes, orientation, and damaged files."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from netspec.data.base import DamagedSamples, Dataset, FieldType
from netspec.data.loader import open_loader
from netspec.data.pipeline import TransformPipeline
from netspec.data.readers import decode
from netspec.data.readers.images import ImageFiles
from netspec.errors import InputError
from tests.data.conftest import arrays_of, problems_of, split_of

RED, GREEN, BLUE = (255, 0, 0), (0, 255, 0), (0, 0, 255)


def folder_of(root: Path, **fields: Any) -> Dataset:
    return split_of(str(root / "train.yaml"), source="image_folder", path="set", **fields).open()


def write_image(path: Path, pixels: np.ndarray | Image.Image, **options: Any) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    image = pixels if isinstance(pixels, Image.Image) else Image.fromarray(pixels)
    image.save(path, **options)
    return path


def noise(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 256, shape).astype(np.uint8)


@pytest.fixture
def animals(tmp_path):
    """Two classes, with three images of 4 × 6 in all, one of them in a subfolder; and files that are not samples."""
    pixels = [noise(4, 6, 3, seed=seed) for seed in range(3)]
    write_image(tmp_path / "set" / "dog" / "b.png", pixels[2])
    write_image(tmp_path / "set" / "dog" / "a" / "z.BMP", pixels[1])
    write_image(tmp_path / "set" / "cat" / "1.webp", pixels[0], lossless=True)
    write_image(tmp_path / "set" / "dog" / ".hidden.png", pixels[0])
    (tmp_path / "set" / "dog" / "notes.txt").write_text("no image")
    (tmp_path / "set" / ".cache").mkdir()
    return tmp_path, pixels


def test_two_folders_with_one_name_in_different_forms_are_refused(tmp_path):
    for number, name in enumerate(("M\u00fcnzen", "Mu\u0308nzen")):
        write_image(tmp_path / "set" / name / "a.png", noise(4, 6, 3, seed=number))
    if len(list((tmp_path / "set").iterdir())) == 1:
        pytest.skip("this file system has one form of a name")
    with pytest.raises(InputError, match="two folders called `M\u00fcnzen`, in different Unicode forms"):
        folder_of(tmp_path)


@pytest.mark.parametrize("classes", [None, ["M\u00fcnzen", "Scheine"], ["Mu\u0308nzen", "Scheine"]])
def test_names_of_classes_are_compared_in_one_form_of_unicode(classes, tmp_path):
    for number, name in enumerate(("Mu\u0308nzen", "Scheine")):  # u and a combining diaeresis, as macOS writes it
        write_image(tmp_path / "set" / name / f"{number}.png", noise(4, 6, 3))
    data = folder_of(tmp_path, **({} if classes is None else {"classes": classes}))
    assert data.classes == {"label": tuple(classes or ("M\u00fcnzen", "Scheine"))}
    assert arrays_of(data, np.arange(2))["label"].tolist() == [0, 1]


def test_classes_are_folders_and_samples_are_sorted(animals):
    root, pixels = animals
    data = folder_of(root)
    assert data.classes == {"label": ("cat", "dog")}
    assert data.fields == {"image": FieldType((3, 4, 6), "uint8"), "label": FieldType((), "int32")}
    assert [Path(data.describe(index)).name for index in range(len(data))] == ["1.webp", "z.BMP", "b.png"]
    arrays = arrays_of(data, np.array([2, 0, 1]))
    assert arrays["label"].tolist() == [1, 0, 1]
    expected = np.stack([pixels[2], pixels[0], pixels[1]]).transpose(0, 3, 1, 2)
    assert np.array_equal(arrays["image"], expected)


def test_declared_classes_decide_the_labels_and_may_be_empty(animals):
    root, _ = animals
    data = folder_of(root, classes=["fox", "dog", "cat"])
    assert arrays_of(data, np.arange(3))["label"].tolist() == [1, 1, 2]


def test_the_fingerprint_depends_on_names_and_sizes(animals):
    root, _ = animals
    before = folder_of(root).digest
    assert folder_of(root).digest == before
    (root / "set" / "dog" / "b.png").rename(root / "set" / "dog" / "c.png")
    assert folder_of(root).digest != before


def test_images_are_resized(tmp_path):
    write_image(tmp_path / "set" / "x" / "a.png", np.full((8, 8, 3), 77, np.uint8))
    write_image(tmp_path / "set" / "x" / "b.png", np.kron(np.array([[0, 200]], np.uint8), np.ones((2, 2), np.uint8)))
    data = folder_of(tmp_path, size=[2, 4], channels=1, interpolation="nearest")
    assert data.fields["image"] == FieldType((1, 2, 4), "uint8")
    images = arrays_of(data, np.array([0, 1]))["image"]
    assert images.tolist() == [[[[77] * 4] * 2], [[[0, 0, 200, 200]] * 2]]


def test_resized_images_are_decoded_once(tmp_path, monkeypatch):
    for number in range(3):
        write_image(tmp_path / "set" / "a" / f"{number}.png", noise(8, 6, 3, seed=number))
    resized, original = folder_of(tmp_path, size=[4, 3]), folder_of(tmp_path)
    decoded: list[str] = []
    read = decode.ImageDecoder.read_pillow

    def counted(self: decode.ImageDecoder, file: Any, name: str) -> Any:
        decoded.append(name)
        return read(self, file, name)

    monkeypatch.setattr(decode.ImageDecoder, "read_pillow", counted)
    every = np.arange(3)
    first, second = (arrays_of(resized, every)["image"] for _ in range(2))
    np.testing.assert_array_equal(first, second)
    assert len(decoded) == 3
    arrays_of(original, every), arrays_of(original, every)
    assert len(decoded) == 9
    write_image(tmp_path / "set" / "a" / "0.png", noise(9, 7, 3))
    with pytest.raises(DamagedSamples, match=r"0\.png changed while it was read"):
        resized.read(np.array([0]))


@pytest.mark.parametrize(
    ("mode", "colour"), [("RGB", RED), ("RGBA", (*RED, 128)), ("P", RED), ("CMYK", (0, 255, 255, 0))]
)
def test_color_modes_become_rgb(tmp_path, mode, colour):
    image = Image.new("RGB", (3, 2), RED).convert("P") if mode == "P" else Image.new(mode, (3, 2), colour)
    suffix = "jpg" if mode == "CMYK" else "png"
    write_image(tmp_path / "set" / "x" / f"a.{suffix}", image)
    pixels = arrays_of(folder_of(tmp_path), np.array([0]))["image"][0]
    # JPEG rounds coefficients, which changes pixels by a few steps of 255
    assert np.abs(pixels[:, 0, 0].astype(int) - RED).max() <= (6 if suffix == "jpg" else 0)


def test_transparent_palettes_are_read_without_a_warning(tmp_path):
    image = Image.new("P", (2, 2), 1)
    image.putpalette([*RED, *GREEN])
    write_image(tmp_path / "set" / "x" / "a.png", image, transparency=b"\x00\x80")
    assert arrays_of(folder_of(tmp_path), np.array([0]))["image"][0, :, 0, 0].tolist() == list(GREEN)


@pytest.mark.parametrize("channels", [1, 3])
def test_sixteen_bit_gray_keeps_its_upper_bits(tmp_path, channels):
    deep = np.array([[0x0000, 0x12FF], [0x8000, 0xFFFF]], np.uint16)
    write_image(tmp_path / "set" / "x" / "a.png", deep)
    images = arrays_of(folder_of(tmp_path, channels=channels), np.array([0]))["image"]
    assert images.tolist() == [[[[0x00, 0x12], [0x80, 0xFF]]] * channels]


@pytest.mark.parametrize("orientation", range(1, 9))
@pytest.mark.parametrize("suffix", ["png", "tif"])
def test_exif_orientation_is_honoured(tmp_path, orientation, suffix):
    """Every orientation of one upright image is stored as the tag requires, and read upright again."""
    upright = np.zeros((2, 3, 3), np.uint8)
    upright[0, 0], upright[0, 2], upright[1, 0] = RED, GREEN, BLUE
    stored = {
        1: upright,
        2: upright[:, ::-1],
        3: upright[::-1, ::-1],
        4: upright[::-1],
        5: upright.transpose(1, 0, 2),
        6: np.rot90(upright, 1),
        7: upright[::-1, ::-1].transpose(1, 0, 2),
        8: np.rot90(upright, -1),
    }[orientation]
    exif = Image.Exif()
    exif[0x0112] = orientation
    options = {"exif": exif} if suffix == "png" else {"tiffinfo": {0x0112: orientation}}
    write_image(tmp_path / "set" / "x" / f"a.{suffix}", np.ascontiguousarray(stored), **options)
    data = folder_of(tmp_path)  # the size is that of the upright image, without `size`
    assert np.array_equal(arrays_of(data, np.array([0]))["image"][0], upright.transpose(2, 0, 1))


def test_images_of_different_sizes_keep_their_size_until_resized(tmp_path):
    write_image(tmp_path / "set" / "x" / "a.png", noise(4, 6, 3))
    write_image(tmp_path / "set" / "y" / "c.png", noise(6, 4, 3))
    data = folder_of(tmp_path)
    assert data.fields["image"] == FieldType((3, None, None), "uint8")
    assert [image.shape for image in data.read(np.array([1, 0]))["image"]] == [(3, 6, 4), (3, 4, 6)]
    assert folder_of(tmp_path, size=5).fields["image"].shape == (3, 5, 5)
    split = split_of(str(tmp_path / "train.yaml"), source="image_folder", path="set")
    inputs = {"image": FieldType((3, 4, 4), "float32")}
    with pytest.raises(InputError, match="differ in size") as error:
        open_loader(split, seed=1, inputs=inputs)
    (note,) = error.value.problems[0].notes
    assert re.fullmatch(r".*/set/x/\w+\.png is 4 × 6, .*/set/y/c\.png is 6 × 4", note)


@pytest.mark.parametrize("second", [(4, 6), (6, 4)])
def test_images_that_are_cropped_first_are_not_decoded_to_arrays_before(tmp_path, monkeypatch, second):
    write_image(tmp_path / "set" / "x" / "a.png", noise(4, 6, 3))
    write_image(tmp_path / "set" / "y" / "b.png", noise(*second, 3, seed=1))
    crop = {"type": "RandomResizedCrop", "height": 3, "width": 2}
    split = split_of(source="image_folder", path=str(tmp_path / "set"), transforms=[crop, {"type": "RandomFlip"}])
    rows = np.array([1, 0])
    data = split.open()
    raw = TransformPipeline(data, split, seed=3).transform_samples(data.read(rows), rows, 2)
    monkeypatch.setattr(data, "read", None)
    batch = TransformPipeline(data, split, seed=3).read(rows, 2)
    assert np.array_equal(np.asarray(batch["image"]), np.asarray(raw["image"]))
    assert list(batch["label"]) == [1, 0]


def test_damaged_images_are_all_named(tmp_path):
    good = write_image(tmp_path / "set" / "x" / "a.png", noise(40, 40, 3))
    (tmp_path / "set" / "x" / "b.png").write_bytes(good.read_bytes()[:-900])
    (tmp_path / "set" / "x" / "c.jpg").write_text("hello")
    (tmp_path / "set" / "x" / "d.bmp").touch()
    data = folder_of(tmp_path, size=[4, 4])
    with pytest.raises(InputError) as error:
        arrays_of(data, np.arange(4))
    named = [problem.message.replace(str(tmp_path), ".") for problem in error.value.problems]
    assert named == [f"image ./set/x/{name} cannot be read" for name in ("b.png", "c.jpg", "d.bmp")]
    with pytest.raises(InputError, match=r"c\.jpg cannot be read"):
        folder_of(tmp_path)


def test_an_image_found_damaged_later_is_reported_with_the_spec_location(tmp_path):
    (tmp_path / "set" / "x").mkdir(parents=True)
    (tmp_path / "set" / "x" / "a.jpg").write_text("hello")
    split = split_of(str(tmp_path / "train.yaml"), source="image_folder", path="set", size=[4, 4])
    with open_loader(split, seed=1) as loader, pytest.raises(InputError) as error:
        next(loader.one_pass())
    assert problems_of(error, tmp_path) == (
        "./train.yaml:2:9: error: image ./set/x/a.jpg cannot be read\n"
        "  at: source\n"
        "  expected: an intact JPEG, PNG, WEBP, BMP, GIF or TIFF image\n"
        "  got: a file of another kind, or a damaged one\n"
        "  hint: `on_error: skip` leaves out damaged samples"
    )


@given(
    position=st.integers(0, 10**4),
    byte=st.integers(0, 255),
    suffix=st.sampled_from(["png", "jpg", "bmp", "webp", "gif", "tif"]),
)
def test_any_damage_to_an_image_is_read_or_reported(tmp_path_factory, position, byte, suffix):
    root = tmp_path_factory.mktemp("images")
    path = write_image(root / "set" / "x" / f"a.{suffix}", noise(5, 5, 3))
    content = bytearray(path.read_bytes())
    content[position % len(content)] = byte
    path.write_bytes(content)
    data = folder_of(root, size=[5, 5])
    message = str(path)
    try:
        arrays_of(data, np.array([0]))
    except InputError as error:  # any other exception is a failure
        message = str(error)
    assert str(path) in message


def test_the_first_of_several_images_is_read(tmp_path):
    frames = [Image.fromarray(np.full((4, 6), level, np.uint8)) for level in (50, 200)]
    for name in ("a.gif", "b.tiff"):
        write_image(tmp_path / "set" / "x" / name, frames[0], save_all=True, append_images=frames[1:])
    images = arrays_of(folder_of(tmp_path, channels=1), np.arange(2))["image"]
    assert (images == 50).all()


@pytest.mark.parametrize("kind", [np.uint16, np.bool_])
def test_tiff_files_of_scanners_are_read(tmp_path, kind):
    levels = np.arange(24).reshape(4, 6) * 2730 if kind is np.uint16 else np.arange(24).reshape(4, 6) % 2
    write_image(tmp_path / "set" / "x" / "a.tif", levels.astype(kind), compression="tiff_deflate")
    image = arrays_of(folder_of(tmp_path, channels=1), np.array([0]))["image"][0, 0]
    assert np.array_equal(image, levels >> 8 if kind is np.uint16 else levels * 255)


@pytest.mark.parametrize("kind", [np.float32, np.int32, np.int16])
def test_pixels_without_a_known_range_are_refused(tmp_path, kind):
    path = write_image(tmp_path / "set" / "x" / "a.tif", np.ones((4, 6), kind))
    assert not decode.damage_of(path, "a", is_mask=True)
    assert len(decode.damage_of(path, "a")) == 1
    with pytest.raises(InputError) as error:
        arrays_of(folder_of(tmp_path), np.array([0]))
    assert problems_of(error, tmp_path) == (
        "error: image ./set/x/a.tif has signed pixels, or pixels of 32 bits\n"
        "  expected: unsigned ones of 8 or 16 bits\n"
        "  hint: convert it, or train on arrays in .npy files"
    )


@pytest.mark.parametrize("suffix", ["gif", "tif"])
def test_files_that_end_early_are_found_before_the_training(tmp_path, suffix):
    path = write_image(tmp_path / f"a.{suffix}", noise(40, 50, 3))
    assert not decode.damage_of(path, "a")
    content = path.read_bytes()
    path.write_bytes(content[: len(content) // 2])
    assert decode.damage_of(path, "a")


def test_an_image_larger_than_memory_is_refused(tmp_path, monkeypatch):
    write_image(tmp_path / "set" / "x" / "a.png", noise(40, 50, 3))
    monkeypatch.setattr(decode, "MAX_PIXELS", 1999)
    with pytest.raises(InputError) as error:
        arrays_of(folder_of(tmp_path, size=[4, 4]), np.array([0]))
    assert problems_of(error, tmp_path) == (
        "error: image ./set/x/a.png is too large\n  expected: at most 1,999 pixels\n  got: 50 × 40 pixels"
    )


@pytest.mark.parametrize("limit", [1500, 900])
def test_the_size_limit_of_pillow_is_reported_as_an_error(tmp_path, monkeypatch, limit):
    """Pillow warns above its limit, and raises above twice the limit."""
    write_image(tmp_path / "set" / "x" / "a.png", noise(40, 50, 3))
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", limit)
    with pytest.raises(InputError, match="is too large"):
        folder_of(tmp_path)


def test_folders_that_are_no_image_folders_are_refused(tmp_path):
    with pytest.raises(InputError, match=r"folder .* does not exist"):
        folder_of(tmp_path)
    (tmp_path / "set").mkdir()
    with pytest.raises(InputError, match="holds no class folders"):
        folder_of(tmp_path)
    (tmp_path / "set" / "cat").mkdir()
    with pytest.raises(InputError, match="holds no image"):
        folder_of(tmp_path, classes=["cat"])
    write_image(tmp_path / "set" / "dog" / "a.png", noise(2, 2, 3))
    with pytest.raises(InputError) as error:
        folder_of(tmp_path)
    assert problems_of(error, tmp_path) == EMPTY
    with pytest.raises(InputError) as error:
        folder_of(tmp_path, classes=["cat", "dgo"])
    assert problems_of(error, tmp_path) == UNDECLARED


EMPTY = """\
./train.yaml:3:7: error: class folder ./set/cat holds no image
  at: path
  expected: files that end in .bmp, .gif, .jpeg, .jpg, .png, .tif, .tiff, .webp
  hint: declare `classes` if a class may be without images"""

UNDECLARED = """\
./train.yaml:3:7: error: folder `dog` of ./set is not among the declared classes
  at: path
  expected: one of cat, dgo
  hint: did you mean `dgo`?"""


def test_names_of_files_may_be_any_bytes(tmp_path):
    name = os.fsdecode(b"\xff\xfe.png")
    write_image(tmp_path / "set" / "a" / "x.png", noise(2, 2, 3))
    try:
        (tmp_path / "set" / "a" / "x.png").rename(tmp_path / "set" / "a" / name)
    except OSError:
        pytest.skip("this file system has names of text alone")
    write_image(tmp_path / "set" / "a" / "y.png", noise(2, 2, 3))
    data = folder_of(tmp_path)
    assert len(data) == 2
    assert data.digest == folder_of(tmp_path).digest


def test_an_image_removed_while_reading_is_a_damaged_sample(tmp_path, monkeypatch):
    write_image(tmp_path / "set" / "a" / "x.png", noise(2, 2, 3))
    data = folder_of(tmp_path)
    read = ImageFiles.read_one

    def vanish(self: ImageFiles, file: Path, name: str) -> Any:
        content = read(self, file, name)
        file.unlink()
        return content

    monkeypatch.setattr(ImageFiles, "read_one", vanish)
    with pytest.raises(DamagedSamples, match="was removed while it was read"):
        data.read(np.arange(1))


def test_a_class_folder_whose_name_is_not_unicode_is_reported(tmp_path):
    write_image(tmp_path / "set" / "a" / "x.png", noise(2, 2, 3))
    try:
        (tmp_path / "set" / "a").rename(tmp_path / "set" / os.fsdecode(b"\xffcat"))
    except OSError:
        pytest.skip("this file system has names of text alone")
    with pytest.raises(InputError, match="is not text") as error:
        folder_of(tmp_path)
    assert error.value.problems[0].got == repr(b"\xffcat")


def test_an_unreadable_image_is_reported_with_the_system_error(animals, monkeypatch):
    root, _ = animals

    def refused(*_, **__):
        raise PermissionError(13, "Permission denied", "x.png")

    monkeypatch.setattr("PIL.Image.open", refused)  # the superuser may read everything
    with pytest.raises(InputError, match="cannot be read") as error:
        folder_of(root)
    assert {(problem.expected, problem.got) for problem in error.value.problems} == {(None, "Permission denied")}


def test_a_dangling_link_is_reported_or_skipped(animals):
    root, _ = animals
    link = root / "set" / "dog" / "gone.png"
    link.symlink_to("nowhere.png")
    with pytest.raises(InputError, match=r"file .*gone\.png does not exist"):
        folder_of(root)
    for size in ({}, {"size": [4, 6]}):
        data = folder_of(root, on_error="skip", **size)
        assert len(data) == 4
        with pytest.raises(DamagedSamples, match=r"gone\.png") as error:
            data.read(np.arange(4))
        assert list(error.value.rows) == [3]
