"""Distributions of the random values of transforms of images, and other documented properties."""

from __future__ import annotations

from math import exp, log, sqrt
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from netspec.data.base import FieldType, SampleKeys
from netspec.data.imaging.base import Draw, ImageTransform
from netspec.data.loader import Loader
from netspec.data.pipeline import Learned
from netspec.data.readers.arrays import ArrayDataset
from netspec.data.transforms.cropping import RandomResizedCrop
from netspec.data.transforms.rand_augment import RandAugment
from netspec.errors import InputError
from netspec.schema.specs.data import TRANSFORMS
from tests.data.conftest import located, problems_of, split_of

MANY = 4000
PLACES = np.arange(MANY)


def build_transform(name: str, **fields: Any) -> ImageTransform:
    transform = TRANSFORMS.parse({"type": name, **fields})
    assert isinstance(transform, ImageTransform)
    return transform


def applied(transform: ImageTransform, image: np.ndarray, samples: int = MANY, epoch: int = 0) -> np.ndarray:
    """Apply a transform to N copies of an image (C, H, W)."""
    batch = np.broadcast_to(image, (samples, *image.shape))
    return np.asarray(transform.apply(batch, SampleKeys(1, epoch, np.arange(samples), 0)))


def even(counts: np.ndarray) -> bool:
    """Return whether outcomes are equally likely by a chi-square test, which wrongly says no once in a million."""
    expected = counts.sum() / counts.size
    degrees = counts.size - 1
    away = ((counts - expected) ** 2 / expected).sum()
    # Wilson and Hilferty's normal approximation of chi-square, five standard deviations.
    return bool((away / degrees) ** (1 / 3) < 1 - 2 / (9 * degrees) + 5 * sqrt(2 / (9 * degrees)))


def often(hits: int, chance: float) -> bool:
    """Return whether a count out of `MANY` matches a probability, within five standard deviations."""
    return abs(hits - MANY * chance) <= 5 * sqrt(MANY * chance * (1 - chance))


def test_flips_in_both_directions_are_independent():
    corner = np.zeros((1, 2, 2), np.uint8)
    corner[0, 0, 0] = 1
    corners = applied(build_transform("RandomFlip"), corner).reshape(MANY, 4).argmax(axis=1)
    assert even(np.bincount(corners, minlength=4))
    across = applied(build_transform("RandomFlip", mode="horizontal"), corner).reshape(MANY, 4).argmax(axis=1)
    assert set(across.tolist()) == {0, 1}
    assert often(int(across.sum()), 0.5)


def test_crop_offsets_are_uniform():
    numbered = np.arange(7 * 6, dtype=np.uint8).reshape(1, 7, 6)
    crops = applied(build_transform("RandomCrop", height=3, width=4), numbered)
    assert even(np.bincount(crops[:, 0, 0, 0], minlength=42).reshape(7, 6)[:5, :3])
    assert np.array_equal(crops[:, 0, 1, 2] - crops[:, 0, 0, 0], np.full(MANY, 8))
    padded = applied(build_transform("RandomCrop", height=7, width=6, padding=1, fill_value=99), numbered)
    middles = padded[:, 0, 3, 3]
    assert even(
        np.array([(middles == 3 * 6 + 3 + down * 6 + across).sum() for down in (-1, 0, 1) for across in (-1, 0, 1)])
    )
    assert (padded == 99).any()


@pytest.mark.parametrize(
    ("fill_mode", "row"),
    [
        ("constant", [9, 9, 9, 0, 1, 2, 3, 9, 9, 9]),
        ("nearest", [0, 0, 0, 0, 1, 2, 3, 3, 3, 3]),
        ("reflect", [2, 1, 0, 0, 1, 2, 3, 3, 2, 1]),
        ("wrap", [1, 2, 3, 0, 1, 2, 3, 0, 1, 2]),
    ],
)
def test_padding_modes_beyond_the_edges(fill_mode, row):
    line = np.arange(4, dtype=np.uint8).reshape(1, 1, 4).repeat(2, axis=1)
    full_pass = build_transform("RandomCrop", height=8, width=10, padding=3, fill_mode=fill_mode, fill_value=9)
    result = applied(full_pass, line, samples=1)[0, 0]
    assert result[3].tolist() == row
    far = build_transform("RandomCrop", height=2, width=24, padding=10, fill_mode=fill_mode, fill_value=9)
    assert (
        applied(far, line, samples=1)[0, 0, 0].tolist()[7:17] == applied(far, line, samples=1)[0, 0, 1].tolist()[7:17]
    )


def test_crops_have_areas_and_aspect_ratios_in_range():
    transform = TRANSFORMS.parse(
        {"type": "RandomResizedCrop", "height": 8, "width": 8, "scale": [0.1, 0.35], "ratio": [0.5, 2]}
    )
    assert isinstance(transform, RandomResizedCrop)
    keys = SampleKeys(1, 0, PLACES, 0)
    numbers = keys.uniform(transform.draws).tolist()
    parts = np.array([transform.part(300, 400, Draw(numbers[row], keys, row)) for row in range(MANY)])
    top, left, height, width = parts.T
    assert (top >= 0).all()
    assert (left >= 0).all()
    assert (top + height <= 300).all()
    assert (left + width <= 400).all()
    share = height * width / (300 * 400)
    # Sides of at least 77 pixels are rounded to integers, with errors of up to half a pixel in each.
    assert share.min() > 0.1 * (1 - 1 / 70)
    assert share.max() < 0.35 * (1 + 1 / 70)
    assert even(np.histogram(share, bins=10, range=(0.1, 0.35))[0])
    ratio = width / height
    assert ratio.min() > 0.5 * (1 - 1 / 70)
    assert ratio.max() < 2 * (1 + 1 / 70)
    assert even(np.histogram(np.log2(ratio), bins=10, range=(-1, 1))[0])


def test_if_no_crop_fits_the_largest_allowed_is_used():
    transform = TRANSFORMS.parse(
        {"type": "RandomResizedCrop", "height": 8, "width": 8, "scale": [1, 1], "ratio": [0.9, 1.1]}
    )
    assert isinstance(transform, RandomResizedCrop)
    keys = SampleKeys(1, 0, PLACES[:1], 0)
    draw = Draw(keys.uniform(transform.draws).tolist()[0], keys, 0)
    assert transform.part(10, 100, draw) == (0, 44, 10, 11)
    assert transform.part(100, 9, draw) == (45, 0, 10, 9)


def test_a_resized_crop_equals_pillow():
    rng = np.random.default_rng(0)
    image = rng.integers(0, 256, (3, 40, 50)).astype(np.uint8)
    transform = TRANSFORMS.parse({"type": "RandomResizedCrop", "height": 16, "width": 12})
    assert isinstance(transform, RandomResizedCrop)
    keys = SampleKeys(3, 1, np.array([8, 5]), 2)
    resized = transform.apply(np.stack([image, image]), keys)
    numbers = keys.uniform(transform.draws).tolist()
    for row in range(2):
        top, left, height, width = transform.part(40, 50, Draw(numbers[row], keys, row))
        # torchvision's order of draws: area, log-uniform ratio, position
        area = 40 * 50 * (0.08 + 0.92 * numbers[row][0])
        ratio = exp(log(3 / 4) + (log(4 / 3) - log(3 / 4)) * numbers[row][1])
        assert (height, width) == (round(sqrt(area / ratio)), round(sqrt(area * ratio)))
        part = Image.fromarray(np.ascontiguousarray(image.transpose(1, 2, 0)[top : top + height, left : left + width]))
        expected = np.asarray(part.resize((12, 16), Image.Resampling.BILINEAR)).transpose(2, 0, 1)
        assert np.array_equal(resized[row], expected)


@pytest.mark.parametrize(
    ("name", "fields", "chance"),
    [
        ("RandomInvert", {"factor": 0.6}, 0.3),  # a single number is the maximum of the chance, which is uniform from 0
        ("RandomInvert", {"factor": [0.6, 0.6]}, 0.6),
        ("RandomErasing", {"factor": [0.25, 0.25], "scale": [1, 1], "fill_value": 0}, 0.25),
        ("RandomPerspective", {"factor": [0.4, 0.4]}, 0.4),
        ("RandomGaussianBlur", {"factor": [0.4, 0.4], "sigma": [1, 1]}, 0.4),
        ("RandomGrayscale", {"factor": 0.7}, 0.7),
    ],
)
def test_transforms_apply_with_their_probability(name, fields, chance):
    image = np.random.default_rng(2).integers(1, 120, (3, 5, 6)).astype(np.uint8)
    results = applied(build_transform(name, **fields), image)
    assert often(int((results != image).any(axis=(1, 2, 3)).sum()), chance)


@pytest.mark.parametrize(
    ("name", "factor", "low", "high"),
    [
        ("RandomBrightness", 0.2, 127.5 - 51, 127.5 + 51),
        ("RandomBrightness", [0.1, 0.3], 127.5 + 25.5, 127.5 + 76.5),
        ("RandomContrast", 0.5, 50, 150),
        ("RandomContrast", [0.2, 0.6], 80, 160),
        ("RandomSaturation", [0, 0.5], 0, 100),
    ],
)
def test_factors_are_uniform_in_their_range(name, factor, low, high):
    if name == "RandomBrightness":
        image = np.full((3, 1, 1), 127.5, np.float32)
    else:  # contrast scales the difference of two pixels
        image = np.tile(np.array([50, 150], np.float32), (3, 1, 1))
    if name == "RandomSaturation":
        image = np.array([200, 100, 100], np.float32).reshape(3, 1, 1)
    results = applied(build_transform(name, factor=factor, value_range=[0, 255]), image)
    values = results[:, 0, 0, 0] if name == "RandomBrightness" else results[:, 0, 0, -1] - results[:, 0, 0, 0]
    if name == "RandomSaturation":
        share = (results[:, 0, 0, 0] - results[:, 1, 0, 0]) / 100  # f / (1 − f)
        values = 200 * share / (1 + share)
    assert values.min() >= low - 0.01
    assert values.max() <= high + 0.01
    assert even(np.histogram(values, bins=10, range=(low, high))[0])


def test_quarter_rotations_are_exact():
    image = np.random.default_rng(4).integers(0, 256, (3, 9, 9)).astype(np.uint8)
    quarter = applied(
        build_transform("RandomRotation", factor=[0.25, 0.25], interpolation="nearest"), image, samples=1
    )[0]
    assert np.array_equal(quarter, np.rot90(image, axes=(1, 2)))


def test_posterized_images_have_the_requested_bits():
    values = np.arange(256, dtype=np.uint8).reshape(1, 16, 16)
    results = applied(build_transform("RandomPosterization", factor=[2, 5]), values)
    kinds = np.array([len(np.unique(image)) for image in results])
    assert even(np.array([(kinds == 2**bits).sum() for bits in (2, 3, 4, 5)]))
    assert kinds.min() == 4
    assert kinds.max() == 32


def test_noise_has_the_requested_mean_and_deviation():
    image = np.full((3, 40, 40), 0.5, np.float32)
    noise = applied(build_transform("GaussianNoise", mean=0.1, sigma=0.05, value_range=[0, 1]), image, samples=50) - 0.5
    # 240,000 values: five standard errors of mean and deviation
    assert abs(noise.mean() - 0.1) < 5 * 0.05 / sqrt(240_000)
    assert abs(noise.std() - 0.05) < 5 * 0.05 / sqrt(2 * 240_000)


def test_all_eleven_operations_are_equally_likely():
    transform = TRANSFORMS.parse({"type": "RandAugment", "num_ops": 1, "factor": [0.4, 0.4]})
    assert isinstance(transform, RandAugment)
    keys = SampleKeys(1, 0, PLACES, 0)
    names = [type(choice).__name__ for choice in transform._choices]
    assert len(set(names)) == 11
    assert even(np.bincount((keys.uniform(transform.draws)[:, 0] * 11).astype(int), minlength=11))
    assert transform.draws == 1 + max(choice.draws for choice in transform._choices)


def test_zero_strength_changes_at_most_the_contrast():
    """Two of the eleven operations, AutoContrast and Equalization, have no strength; all others change no byte."""
    image = np.random.default_rng(5).integers(60, 180, (3, 9, 9)).astype(np.uint8)
    transform = TRANSFORMS.parse({"type": "RandAugment", "num_ops": 1, "factor": 0})
    assert isinstance(transform, RandAugment)
    unchanged = {
        type(choice).__name__: bool((applied(choice, image, 20) == image).all()) for choice in transform._choices
    }
    assert [name for name, same in unchanged.items() if not same] == ["AutoContrast", "Equalization"]


def test_epochs_differ_and_repeat_exactly():
    transform = build_transform("RandomCrop", height=20, width=20, padding=4)
    image = np.random.default_rng(1).integers(0, 256, (3, 20, 20)).astype(np.uint8)
    first, first_again, next_one = (applied(transform, image, 8, epoch) for epoch in (0, 0, 1))
    assert np.array_equal(first, first_again)
    assert not np.array_equal(first, next_one)


def test_reversed_channels_equal_opencv():
    image = np.random.default_rng(1).integers(0, 256, (3, 4, 5)).astype(np.uint8)
    assert np.array_equal(applied(build_transform("ReverseChannels"), image), [image[::-1]] * MANY)


# MeanImage

IMAGES = np.random.default_rng(0).integers(0, 256, (50, 3, 4, 5)).astype(np.uint8)


def loader_of(
    images: np.ndarray, transform: dict[str, Any], learned: Learned | None = None, file: str = "t.yaml"
) -> Loader:
    data = ArrayDataset({"image": images}, digest="", describe=lambda index: f"sample {index}")
    split = split_of(_file=file, source="npz", path="unused", transforms=[located(transform, file)])
    return Loader(data, split, seed=3, learned=learned, prefetch=0)


def full_pass(loader: Loader) -> np.ndarray:
    return np.concatenate([batch.inputs["image"] for batch in loader.one_pass()])


def test_the_mean_image_comes_from_the_training_split():
    train = loader_of(IMAGES, {"type": "MeanImage", "adapt": True})
    mean_image = full_pass(train)
    assert mean_image.dtype == np.float32
    np.testing.assert_allclose(mean_image.mean(axis=0), 0, atol=2e-5)  # averages of values up to 255, with 24 bits
    learned = Learned.from_json(train.learned.as_json())
    other = full_pass(loader_of(IMAGES[:7] // 2, {"type": "MeanImage", "adapt": True}, learned))
    mean = IMAGES.mean(axis=0).astype(np.float32)
    assert np.array_equal(other, (IMAGES[:7] // 2).astype(np.float32) - mean)


def tagged(field: int, data: bytes) -> bytes:
    """A field of bytes in the wire format of protocol buffers; lengths below 2¹⁴."""
    return bytes([field << 3 | 2, len(data) & 0x7F | 0x80, len(data) >> 7]) + data


def blob_of_caffe(path: Path, mean: np.ndarray, kind: str) -> None:
    """A BlobProto: as compute_image_mean writes it (sizes one by one), with a shape, of doubles, or without packing."""
    sizes = b"".join(bytes([field << 3, size]) for field, size in enumerate(mean.shape, 1))
    shape = tagged(7, tagged(1, bytes(mean.shape)))
    floats = mean.astype("<f4")
    path.write_bytes(
        {
            "sizes": sizes + tagged(5, floats.tobytes()),
            "shape": tagged(5, floats.tobytes()) + shape,
            "double": shape + tagged(8, mean.astype("<f8").tobytes()),
            "unpacked": sizes + b"".join(b"\x2d" + value.tobytes() for value in floats.reshape(-1)),
        }[kind]
    )


@pytest.mark.parametrize(
    "name", ["mean.npy", "mean.npz", *(f"{kind}.binaryproto" for kind in ("sizes", "shape", "double", "unpacked"))]
)
def test_the_mean_image_can_come_from_a_file(tmp_path: Path, name: str):
    mean = IMAGES.mean(axis=0, keepdims=True)
    if name.endswith(".npz"):
        np.savez(tmp_path / name, mean)
    elif name.endswith(".npy"):
        np.save(tmp_path / name, mean)
    else:
        blob_of_caffe(tmp_path / name, mean, name.removesuffix(".binaryproto"))
    loader = loader_of(IMAGES, {"type": "MeanImage", "file": name}, file=str(tmp_path / "t.yaml"))
    assert np.array_equal(full_pass(loader), IMAGES - mean[0].astype(np.float32))
    # The weights contain the image, not only the name of its file.
    assert set(loader.learned.values) == {"MeanImage image 0"}


def fault(tmp_path: Path, name: str) -> str:
    with pytest.raises(InputError) as error:
        loader_of(IMAGES, {"type": "MeanImage", "file": name}, file=str(tmp_path / "t.yaml"))
    return problems_of(error, tmp_path)


def test_files_without_a_mean_image_are_refused(tmp_path: Path):
    np.save(tmp_path / "shape.npy", np.zeros((3, 5, 4)))
    np.save(tmp_path / "nan.npy", np.full((3, 4, 5), np.nan))
    np.save(tmp_path / "objects.npy", np.array([{}]), allow_pickle=True)
    np.savez(tmp_path / "two.npz", a=np.zeros(3), b=np.zeros(3))
    (tmp_path / "cut.npy").write_bytes((tmp_path / "shape.npy").read_bytes()[:150])
    whole = (tmp_path / "nan.npy").read_bytes()
    (tmp_path / "large.npy").write_bytes(whole.replace(b"(3, 4, 5), }   ", b"(3, 4, 5000), }"))
    (tmp_path / "text.npy").write_text("mean")
    (tmp_path / "folder.npy").mkdir()
    blob_of_caffe(tmp_path / "whole.binaryproto", np.zeros((1, 3, 4, 5)), "sizes")
    (tmp_path / "cut.binaryproto").write_bytes((tmp_path / "whole.binaryproto").read_bytes()[:-1])
    (tmp_path / "few.binaryproto").write_bytes(b"\x08\x01" + tagged(5, bytes(8)))
    assert "got: a field of 240 bytes where 239 are left" in fault(tmp_path, "cut.binaryproto")
    assert "got: 2 values for 1 × 0 × 0 × 0" in fault(tmp_path, "few.binaryproto")
    assert "file ./missing.binaryproto does not exist" in fault(tmp_path, "missing.binaryproto")
    assert "a different shape from the samples" in fault(tmp_path, "shape.npy")
    assert "got: [3, 5, 4]" in fault(tmp_path, "shape.npy")
    assert "values that are not finite" in fault(tmp_path, "nan.npy")
    assert "expected: one array\n  got: 2 arrays" in fault(tmp_path, "two.npz")
    assert "error: ./text.npy is not a mean image" in fault(tmp_path, "text.npy")
    assert "got: a file of another kind" in fault(tmp_path, "text.npy")
    assert "the shape [3, 4, 5000] of float64 in 608 bytes" in fault(tmp_path, "large.npy")
    for name in ("objects.npy", "cut.npy"):
        assert f"error: cannot read ./{name}" in fault(tmp_path, name)
    assert "./folder.npy is not a file" in fault(tmp_path, "folder.npy")
    assert "file ./missing.npy does not exist" in fault(tmp_path, "missing.npy")
    assert all("t.yaml:2:" in fault(tmp_path, name) for name in ("nan.npy", "missing.npy", "text.npy"))


@pytest.mark.parametrize("shape", [(3, 4, 5), (3, 5, 4)])
def test_problems_of_mean_files_have_the_path_of_the_field(tmp_path: Path, shape: tuple[int, ...]):
    np.save(tmp_path / "mean.npy", np.full(shape, np.nan if shape == (3, 4, 5) else 0))
    with pytest.raises(InputError) as error:
        loader_of(IMAGES, {"type": "MeanImage", "file": "mean.npy"}, file=str(tmp_path / "t.yaml"))
    assert [each.path for each in error.value.problems] == ["transforms.0.file"]


def test_samples_of_several_sizes_have_no_mean_image():
    data = ArrayDataset({"image": IMAGES}, digest="", describe=str)
    data.fields = {"image": FieldType((3, None, 5), "uint8")}
    split = split_of(source="npz", path="unused", transforms=[located({"type": "MeanImage", "adapt": True}, "t.yaml")])
    with pytest.raises(InputError, match="differ in size have no mean") as error:
        Loader(data, split, seed=1)
    assert error.value.problems[0].path == "transforms.0.type"


def test_a_missing_mean_is_not_reported_twice():
    images = ArrayDataset({"image": IMAGES.astype(np.float32)}, digest="", describe=str)
    build_transform = [
        located(fields, "t.yaml") for fields in ({"type": "GaussianNoise"}, {"type": "MeanImage", "adapt": True})
    ]
    with pytest.raises(InputError, match="value_range") as error:
        Loader(images, split_of(source="npz", path="unused", transforms=build_transform), seed=1)
    assert len(error.value.problems) == 1
