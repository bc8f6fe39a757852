"""The shipped MNIST, idx and npz files, and how sources are registered, named and refused."""

from __future__ import annotations

import gzip
import hashlib
import os
import subprocess
import sys
import zipfile
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from netspec.data.base import FieldType
from netspec.data.readers.idx import open_idx, read_idx
from netspec.data.readers.npz import open_npz
from netspec.errors import InputError
from netspec.schema.bundled import zoo_root
from netspec.schema.specs.annotations import fields_by_name
from netspec.schema.specs.data import SOURCES
from netspec.schema.specs.docs import field_docs
from tests.data.conftest import CODES, arrays_of, complaint, problems_of, split_of, write_idx

# The digests are those of the original files, unpacked, as published with other copies of the dataset.
MNIST = {
    "train": (
        60_000,
        [5, 0, 4, 1, 9],
        "ba891046e6505d7aadcbbe25680a0738ad16aec93bde7f9b65e87a2fc25776db",
        "65a50cbbf4e906d70832878ad85ccda5333a97f0f4c3dd2ef09a8a9eef7101c5",
    ),
    "test": (
        10_000,
        [7, 2, 1, 0, 4],
        "0fa7898d509279e482958e8ce81c8e77db3f2f8254e26661ceb7762c4d494ce7",
        "ff7bcfd416de33731a308c3f266cc351222c34898ecbeaf847f06e48f7ec33f2",
    ),
}


@pytest.mark.parametrize("split", ["train", "test"])
def test_the_shipped_mnist_is_the_original(split):
    count, first, images_digest, labels_digest = MNIST[split]
    data = split_of(source="mnist", split=split).open()
    assert len(data) == count
    assert data.fields == {"image": FieldType((1, 28, 28), "uint8"), "label": FieldType((), "int32")}
    everything = arrays_of(data, np.arange(count))
    assert everything["label"][:5].tolist() == first
    images = bytes.fromhex("00000803") + np.array([count, 28, 28], ">u4").tobytes() + everything["image"].tobytes()
    labels = bytes.fromhex("00000801") + np.array([count], ">u4").tobytes() + everything["label"].astype("u1").tobytes()
    assert hashlib.sha256(images).hexdigest() == images_digest
    assert hashlib.sha256(labels).hexdigest() == labels_digest
    prefix = {"train": "train", "test": "t10k"}[split]
    assert data.describe(17) == f"{prefix}-images-idx3-ubyte.gz, image 17 (its label: {prefix}-labels-idx1-ubyte.gz)"


def test_another_folder_in_the_layout_of_mnist(tmp_path):
    images = np.arange(3 * 4, dtype=np.uint8).reshape(3, 2, 2)
    write_idx(tmp_path / "train-images.idx3-ubyte", images)
    write_idx(tmp_path / "train-labels-idx1-ubyte.gz", np.array([1, 0, 1], np.uint8))
    spec = tmp_path / "specs" / "train.yaml"
    spec.parent.mkdir()
    data = split_of(str(spec), source="mnist", split="train", path="..").open()
    assert data.fields["image"] == FieldType((1, 2, 2), "uint8")
    assert arrays_of(data, np.array([2, 0]))["image"].tolist() == images[[2, 0], None].tolist()


def test_the_zoo_folder_exists():
    assert (zoo_root() / "data" / "mnist" / "README.md").is_file()


def test_naming_a_source_loads_no_array_library():
    code = (
        "import sys, netspec.data; from netspec.schema.specs.data import SOURCES, TRANSFORMS; "
        "SOURCES.parse({'source': 'mnist', 'split': 'train', 'batch_size': 1, "
        "'transforms': [{'type': 'Normalization', 'adapt': True}]}); "
        "sys.exit(sum(name in sys.modules for name in ('numpy', 'PIL')))"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_all_sources_are_registered_and_documented():
    assert set(SOURCES.names()) >= {"mnist", "idx", "npz", "csv", "image_folder"}
    for source in SOURCES:
        assert source.__doc__
        assert fields_by_name(source).keys() - field_docs(source).keys() <= {"source"}


@pytest.mark.parametrize("dtype", sorted(CODES))
@pytest.mark.parametrize("suffix", ["idx", "idx.gz"])
@given(shape=st.lists(st.integers(0, 4), min_size=1, max_size=4), seed=st.integers(0, 9))
@pytest.mark.slow
def test_idx_files_round_trip(tmp_path_factory, suffix, dtype, shape, seed):
    array = np.random.default_rng(seed).integers(0, 100, shape).astype(dtype)
    path = write_idx(tmp_path_factory.mktemp("idx") / f"some.{suffix}", array)
    array_read, _ = read_idx(path)
    assert array_read.dtype == array.dtype
    assert np.array_equal(array_read, array)


def test_the_fingerprint_depends_on_the_content(tmp_path):
    first = write_idx(tmp_path / "one", np.zeros(5, np.uint8))
    other = write_idx(tmp_path / "other", np.eye(1, 5, dtype=np.uint8)[0])
    assert read_idx(first)[1] != read_idx(other)[1]
    other.write_bytes(first.read_bytes())
    assert read_idx(first)[1] == read_idx(other)[1]


GOOD = bytes.fromhex("00000801 00000003 010203")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "NOT_IDX_EMPTY"),
        (b"\x89PNG....", "NOT_IDX"),
        (b"\0\0\x08\0", "NOT_IDX_AXES"),
        (GOOD[:6], "SHORT_HEADER"),
        (GOOD[:-1], "SHORT"),
        (GOOD + b"\0", "LONG"),
        (bytes.fromhex("00000802 ffffffff ffffffff 00"), "HUGE"),
        (gzip.compress(GOOD, mtime=0)[:-6], "GZIP_SHORT"),
        (gzip.compress(GOOD, mtime=0)[:-8] + bytes(8), "GZIP_CRC"),
        (gzip.compress(GOOD[:-1], mtime=0), "GZIP_IDX_SHORT"),
        (gzip.compress(GOOD + b"\0", mtime=0), "GZIP_IDX_LONG"),
    ],
)
def test_damaged_idx_files_are_reported(tmp_path, content, message):
    path = tmp_path / "labels"
    path.write_bytes(content)
    for read in (read_idx, open_idx):
        with pytest.raises(InputError) as error:
            read(path)
        messages = problems_of(error, tmp_path)
        assert messages == IDX_ERRORS[message]


@pytest.mark.parametrize("packed", [False, True])
@given(position=st.integers(0, 60), byte=st.integers(0, 255))
def test_any_damage_to_an_idx_file_is_read_or_reported(tmp_path_factory, packed, position, byte):
    content = bytearray(gzip.compress(GOOD, mtime=0) if packed else GOOD)
    content[position % len(content)] = byte
    path = tmp_path_factory.mktemp("idx") / "labels"
    path.write_bytes(content)
    assert str(path) in complaint(open_idx, path)


@pytest.mark.parametrize("suffix", ["", ".gz"])
def test_images_are_read_by_index_or_all_at_once(tmp_path, suffix):
    images = np.random.default_rng(0).integers(0, 2**15, (7, 2, 3)).astype(np.int16)
    write_idx(tmp_path / f"images{suffix}", images)
    write_idx(tmp_path / f"labels{suffix}", np.arange(7, dtype=np.uint8))
    file = str(tmp_path / "train.yaml")
    data = split_of(file, source="idx", images=f"images{suffix}", labels=f"labels{suffix}").open()
    rows = np.array([6, 0, 1, 0])
    assert np.array_equal(arrays_of(data, rows)["image"], images[rows, None])
    assert arrays_of(data, rows)["label"].tolist() == rows.tolist()
    with (tmp_path / f"images{suffix}").open("ab") as more:
        more.write(b"!")
    if suffix:  # a compressed file was read completely
        data.read(rows)
    else:
        with pytest.raises(InputError, match="images changed while it was read"):
            data.read(rows)


def test_images_and_labels_that_do_not_match_are_reported(tmp_path):
    write_idx(tmp_path / "images", np.zeros((3, 2, 2), np.uint8))
    write_idx(tmp_path / "labels", np.zeros(4, np.uint8))
    file = str(tmp_path / "train.yaml")
    with pytest.raises(InputError) as error:
        split_of(file, source="idx", images="images", labels="labels").open()
    assert problems_of(error, tmp_path) == (
        "./train.yaml:3:9: error: images and labels do not belong together\n"
        "  at: images\n"
        "  expected: as many images as labels\n"
        "  got: 3 images and 4 labels"
    )
    with pytest.raises(InputError, match="holds no labels") as error:
        split_of(file, source="idx", images="labels", labels="images").open()
    assert error.value.problems[0].hint == "are `images` and `labels` swapped?"


def test_missing_files_are_reported_with_the_nearest_names(tmp_path):
    (tmp_path / "labels").mkdir()
    (tmp_path / "images.idx").touch()
    file = str(tmp_path / "train.yaml")
    with pytest.raises(InputError) as error:
        split_of(file, source="idx", images="image.idx", labels="labels").open()
    assert problems_of(error, tmp_path) == (
        "./train.yaml:3:9: error: file ./image.idx does not exist\n"
        "  at: images\n"
        "  hint: did you mean `./images.idx`?\n"
        "./train.yaml:4:9: error: ./labels is not a file\n"
        "  at: labels\n"
        "  expected: a file\n"
        "  got: a folder\n"
        "2 errors"
    )
    with pytest.raises(InputError, match="has no file train-images-idx3-ubyte"):
        split_of(file, source="mnist", split="train", path=".").open()
    with pytest.raises(InputError, match=r"folder .* does not exist"):
        split_of(file, source="mnist", split="train", path="nowhere").open()


def test_a_path_is_relative_to_its_file_but_not_on_the_command_line(tmp_path, monkeypatch):
    for folder in ("", "specs"):
        (tmp_path / folder).mkdir(exist_ok=True)
        np.savez(tmp_path / folder / "a.npz", x=np.full(1, len(folder)))
    monkeypatch.chdir(tmp_path)
    for file, path, expected in [
        ("specs/train.yaml", "a.npz", 5),
        ("specs/train.yaml", "../a.npz", 0),
        ("<command line>", "a.npz", 0),
        ("train.yaml", str(tmp_path / "specs" / "a.npz"), 5),
    ]:
        data = split_of(file, source="npz", path=path).open()
        assert arrays_of(data, np.array([0]))["x"].tolist() == [expected]


def test_npz(tmp_path):
    x = np.arange(12, dtype=">f8").reshape(4, 3)
    np.savez_compressed(tmp_path / "some.npz", x=x, y=np.array([True, False, True, True]))
    data = split_of(str(tmp_path / "train.yaml"), source="npz", path="some.npz").open()
    assert len(data) == 4
    assert data.fields == {"x": FieldType((3,), "float64"), "y": FieldType((), "bool")}
    assert arrays_of(data, np.array([3, 1]))["x"].tolist() == x[[3, 1]].tolist()
    assert data.describe(3) == "some.npz, sample 3"


def test_all_problems_of_an_npz_file_are_reported_at_once(tmp_path):
    path = tmp_path / "some.npz"
    arrays = {"objects": np.array([{}, []], object), "words": np.array(["a", "b"]), "one": np.array(1)}
    np.savez(path, allow_pickle=True, **arrays, x=np.zeros((2, 3)), y=np.zeros(3))
    with pytest.raises(InputError) as error:
        open_npz(path)
    assert problems_of(error, tmp_path) == NPZ_ERRORS


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("array.npy", "a single array (.npy)"),
        ("text.npz", "a text file"),
        ("e.npz", "an empty file"),
        ("cut.npz", "a zip whose end is missing"),
    ],
)
def test_files_that_are_not_npz_are_refused(tmp_path, name, message):
    path = tmp_path / name
    if name == "array.npy":
        np.save(path, np.zeros(3))
    else:
        path.write_bytes({"text.npz": b"hello", "cut.npz": b"PK\x03\x04" + bytes(40)}.get(name, b""))
    with pytest.raises(InputError) as error:
        open_npz(path)
    assert error.value.problems[0].got == message


def test_an_npz_without_arrays_is_refused(tmp_path):
    np.savez(tmp_path / "none.npz")
    with pytest.raises(InputError, match="holds no arrays"):
        open_npz(tmp_path / "none.npz")


@given(position=st.integers(0, 10**4), byte=st.integers(0, 255), compressed=st.booleans())
def test_any_damage_to_an_npz_file_is_read_or_reported(tmp_path_factory, position, byte, compressed):
    path = tmp_path_factory.mktemp("npz") / "some.npz"
    (np.savez_compressed if compressed else np.savez)(path, x=np.arange(6.0), y=np.arange(6))
    content = bytearray(path.read_bytes())
    content[position % len(content)] = byte
    path.write_bytes(content)
    assert str(path) in complaint(open_npz, path)


def test_an_npz_source_recognizes_files_of_pytorch_and_hdf5(tmp_path):
    path = tmp_path / "tensors.pt"
    with zipfile.ZipFile(path, "w") as archive:
        for name in ("tensors/data.pkl", "tensors/version", "tensors/data/0"):
            archive.writestr(name, b"3")
    with pytest.raises(InputError) as caught:
        open_npz(path)
    (problem,) = caught.value.problems
    assert problem.message == f"{path} is a PyTorch file (.pt, .pth): a pickle, which runs code when it is read"
    path.write_bytes(b"\x89HDF\r\n\x1a\n" + bytes(100))
    with pytest.raises(InputError) as caught:
        open_npz(path)
    assert caught.value.problems[0].got == "an HDF5 file"
    assert caught.value.problems[0].hint == "read an HDF5 file by `source: hdf5`"


IDX_ERRORS = {
    "NOT_IDX_EMPTY": """\
error: ./labels is not an idx file
  expected: two zero bytes, a type code (8, 9, 11 to 14) and a number of axes (1 to 8)
  got: an empty file""",
    "NOT_IDX": """\
error: ./labels is not an idx file
  expected: two zero bytes, a type code (8, 9, 11 to 14) and a number of axes (1 to 8)
  got: a file that begins with the bytes 89 50 4e 47 2e 2e 2e 2e""",
    "NOT_IDX_AXES": """\
error: ./labels is not an idx file
  expected: two zero bytes, a type code (8, 9, 11 to 14) and a number of axes (1 to 8)
  got: a file that begins with the bytes 00 00 08 00""",
    "SHORT_HEADER": """\
error: ./labels is cut short
  expected: a header of 8 bytes
  got: 6 bytes""",
    "SHORT": """\
error: ./labels is cut short
  expected: 11 bytes for 3 elements
  got: 10 bytes
  hint: download the file again""",
    "LONG": """\
error: ./labels is longer than its header says
  expected: 11 bytes for 3 elements
  got: 12 bytes or more
  hint: download the file again""",
    "HUGE": """\
error: ./labels is cut short
  expected: 18,446,744,065,119,617,037 bytes for 4294967295 × 4294967295 elements
  got: 13 bytes
  hint: download the file again""",
    "GZIP_SHORT": """\
error: ./labels is damaged
  expected: a complete gzip file
  got: Compressed file ended before the end-of-stream marker was reached
  hint: download the file again""",
    "GZIP_CRC": """\
error: ./labels is damaged
  expected: a complete gzip file
  got: CRC check failed 0x0 != 0xa4bde58b
  hint: download the file again""",
    "GZIP_IDX_SHORT": """\
error: ./labels is cut short
  expected: 11 bytes for 3 elements
  got: 10 bytes
  hint: download the file again""",
    "GZIP_IDX_LONG": """\
error: ./labels is longer than its header says
  expected: 11 bytes for 3 elements
  got: 12 bytes or more
  hint: download the file again""",
}

NPZ_ERRORS = """\
error: array `objects` of ./some.npz holds Python objects, which are never loaded
  expected: numbers
  got: pickled objects
  hint: write the array with a numeric dtype
error: array `words` of ./some.npz holds no numbers that a net can take
  expected: numbers
  got: <U1
error: array `one` of ./some.npz has no axis of samples
  expected: one axis or more
  got: a single number
error: the arrays of ./some.npz differ in their number of samples
  expected: first axes of equal length
  got: `x` has 2, `y` has 3
4 errors"""


def bomb(path: Path, header: str, content: bytes = b"") -> Path:
    """An .npz whose array `x` has this header and content."""
    text = header.encode().ljust(117) + b"\n"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("x.npy", b"\x93NUMPY\x01\x00" + len(text).to_bytes(2, "little") + text + content)
    return path


@pytest.mark.parametrize("shape", ["(4000000000000,)", "(1000000, 1000000, 1000)", "(2,)"])
def test_an_array_larger_than_its_file_is_refused_before_allocation(tmp_path, monkeypatch, shape):
    path = bomb(tmp_path / "x.npz", f"{{'descr': '<f8', 'fortran_order': False, 'shape': {shape}, }}", b"\0" * 8)
    monkeypatch.setattr(np, "ndarray", None)  # nothing may be allocated
    with pytest.raises(InputError, match="claims more bytes than are stored"):
        open_npz(path)


def test_a_highly_compressed_array_is_read(tmp_path):
    np.savez_compressed(tmp_path / "zeros.npz", x=np.zeros((1000, 1000)))
    assert open_npz(tmp_path / "zeros.npz").fields["x"] == FieldType((1000,), "float64")


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="the platform has no named pipes")
@pytest.mark.parametrize(
    "fields",
    [
        {"source": "npz", "path": "pipe"},
        {"source": "csv", "path": "pipe", "header": False},
        {"source": "idx", "images": "pipe", "labels": "pipe"},
        {"source": "image_folder", "path": "."},
    ],
    ids=lambda fields: fields["source"],
)
def test_a_pipe_is_refused_without_waiting(tmp_path, fields):
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "class").mkdir()
    os.mkfifo(tmp_path / "class" / "image.png")
    with pytest.raises(InputError) as error:
        split_of(str(tmp_path / "train.yaml"), **fields).open()
    assert error.value.problems[0].got == "not a regular file but a pipe"
