"""LMDBs with Caffe's Datums: written with the library `lmdb` and by hand."""

from __future__ import annotations

import io
import struct
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

import lmdb
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from netspec.data.base import DamagedSamples, Dataset, FieldType
from netspec.data.files import Watched
from netspec.data.readers.datum import parse_datum
from netspec.data.readers.lmdb_datums import DatumDataset
from netspec.data.readers.protobuf_wire import NoMessage
from netspec.errors import InputError
from tests.data.conftest import arrays_of, problems_of, split_of


def varint(value: int) -> bytes:
    out = bytearray()
    value &= 2**64 - 1
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*out, value])


def number(field: int, value: int) -> bytes:
    return varint(field << 3) + varint(value)


def text(field: int, data: bytes) -> bytes:
    return varint(field << 3 | 2) + varint(len(data)) + data


def datum(pixels: np.ndarray, label: int, *, packed: bool = False) -> bytes:
    """A Datum of raw pixels (C, H, W): bytes of uint8, floats of float32."""
    head = b"".join(number(field, size) for field, size in enumerate(pixels.shape, 1))
    if pixels.dtype == np.uint8:
        return head + text(4, pixels.tobytes()) + number(5, label)
    if packed:
        return head + number(5, label) + text(6, pixels.astype("<f4").tobytes())
    return head + number(5, label) + b"".join(b"\x35" + struct.pack("<f", value) for value in pixels.reshape(-1))


def encoded(pixels: np.ndarray, label: int) -> bytes:
    """A Datum of a PNG of pixels (H, W, 3)."""
    file = io.BytesIO()
    Image.fromarray(pixels).save(file, "PNG")
    return number(5, label) + number(7, 1) + text(4, file.getvalue())


def write(path: Path, values: dict[bytes, bytes], *, subdir: bool = True) -> None:
    with lmdb.open(str(path), map_size=2**20, subdir=subdir) as environment, environment.begin(write=True) as txn:
        for key, value in values.items():
            txn.put(key, value)


def noise(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 256, shape).astype(np.uint8)


def opened(folder: Path, **fields: Any) -> Dataset:
    return split_of(str(folder / "train.yaml"), source="lmdb", path="set", **fields).open()


@pytest.mark.parametrize("subdir", [True, False])
def test_raw_pixels_in_the_order_of_the_keys(tmp_path, subdir):
    images = noise(30, 2, 3, 4)
    keys = [f"{index:08d}_{name}" for index, name in enumerate("zyxwvutsrqponmlkjihgfedcba0123")]
    values = {
        key.encode(): datum(image, index - 3) for index, (key, image) in enumerate(zip(keys, images, strict=True))
    }
    write(tmp_path / "set", dict(reversed(values.items())), subdir=subdir)
    data = opened(tmp_path)
    assert len(data) == 30
    assert data.fields == {"image": FieldType((2, 3, 4), "uint8"), "label": FieldType((), "int32")}
    rows = np.array([29, 0, 7, 0])
    arrays = arrays_of(data, rows)
    assert np.array_equal(arrays["image"], images[rows])
    assert arrays["label"].tolist() == [26, -3, 4, -3]
    assert data.describe(7) == "set, key 00000007_s"
    assert opened(tmp_path).digest == data.digest  # a second time, while it is open


@pytest.mark.parametrize("packed", [True, False])
def test_datums_with_floats(tmp_path, packed):
    images = np.random.default_rng(1).normal(size=(4, 3, 2, 2)).astype(np.float32)
    write(tmp_path / "set", {b"%d" % index: datum(image, index, packed=packed) for index, image in enumerate(images)})
    data = opened(tmp_path)
    assert data.fields["image"] == FieldType((3, 2, 2), "float32")
    assert np.array_equal(arrays_of(data, np.arange(4))["image"], images)


def test_encoded_images_of_one_size_several_sizes_and_resized(tmp_path):
    images = [noise(4, 6, 3, seed=1), noise(4, 6, 3, seed=2), noise(5, 3, 3, seed=3)]
    write(tmp_path / "set", {b"%d" % index: encoded(image, index) for index, image in enumerate(images)})
    data = opened(tmp_path)
    assert data.fields["image"] == FieldType((3, 4, 6), "uint8")
    assert np.array_equal(arrays_of(data, np.array([1, 0]))["image"], np.stack(images[1::-1]).transpose(0, 3, 1, 2))
    turned = arrays_of(opened(tmp_path, order="bgr"), np.array([1, 0]))["image"]
    assert np.array_equal(turned[:, ::-1], np.stack(images[1::-1]).transpose(0, 3, 1, 2))
    with pytest.raises(DamagedSamples) as error:
        data.read(np.array([1, 2]))
    assert sorted(error.value.rows) == [1]
    assert problems_of(error, tmp_path) == (
        "error: set, key 2 is of a different kind than the first\n"
        "  expected: uint8 of shape [3, 4, 6]\n"
        "  got: uint8 of shape [3, 5, 3]\n"
        "  hint: `size: varied` takes images of any sizes"
    )
    varied = opened(tmp_path, size="varied")
    assert varied.fields["image"].shape == (3, None, None)
    images_read = varied.read(np.arange(3))["image"]
    assert isinstance(images_read, list)
    assert [image.shape for image in images_read] == [(3, 4, 6), (3, 4, 6), (3, 5, 3)]
    assert np.array_equal(images_read[2], images[2].transpose(2, 0, 1))
    assert arrays_of(opened(tmp_path, size=[8, 8], channels=1), np.arange(3))["image"].shape == (3, 1, 8, 8)


def test_damaged_datums_are_reported_with_their_keys(tmp_path):
    good = datum(noise(1, 2, 2), 1)
    short = number(1, 1) + number(2, 2) + number(3, 2) + text(4, b"abc")
    broken = number(7, 1) + text(4, b"\x89PNG no more")
    write(tmp_path / "set", {b"a": good, b"b": good[:-3], b"c": short, b"d": broken, b"e": good})
    data = opened(tmp_path)
    with pytest.raises(DamagedSamples) as error:
        data.read(np.arange(5))
    assert sorted(error.value.rows) == [1, 2, 3]
    assert [problem.message for problem in error.value.problems] == [
        "set, key b is not a Datum of Caffe",
        "set, key c is damaged",
        "image set, key d cannot be read",
    ]


def test_raw_images_are_not_resized(tmp_path):
    write(tmp_path / "set", {b"a": datum(noise(1, 2, 2), 1)})
    with pytest.raises(InputError, match="are not encoded"):
        opened(tmp_path, size=[4, 4])


def test_files_that_are_no_lmdb_are_refused(tmp_path):
    with pytest.raises(InputError, match="there is no LMDB"):
        opened(tmp_path)
    (tmp_path / "set").mkdir()
    with pytest.raises(InputError, match="is not an LMDB") as error:
        opened(tmp_path)
    assert error.value.problems[0].got == "a folder without it"
    for name in ("CURRENT", "LOG", "MANIFEST-000001", "000005.sst"):
        (tmp_path / "set" / name).touch()
    with pytest.raises(InputError, match="is a LevelDB, which is not read") as error:
        opened(tmp_path)
    assert error.value.problems[0].hint == "write it again with Caffe: `convert_imageset -backend lmdb …`"
    for content in (b"", b"hello" * 2000):
        (tmp_path / "set" / "data.mdb").write_bytes(content)
        with pytest.raises(InputError, match="is not an LMDB"):
            opened(tmp_path)
    (tmp_path / "set" / "data.mdb").unlink()
    write(tmp_path / "set", {})
    with pytest.raises(InputError, match="holds nothing"):
        opened(tmp_path)


def test_truncated_and_changed_files_are_reported(tmp_path):
    write(tmp_path / "set", {b"%d" % index: datum(noise(1, 40, 40), 1) for index in range(20)})
    path = tmp_path / "set" / "data.mdb"
    data = opened(tmp_path)
    data.read(np.arange(20))
    content = path.read_bytes()
    path.unlink()  # the mapped file stays unchanged
    path.write_bytes(content[:-5000])
    with pytest.raises(InputError, match="changed while it was read"):
        data.read(np.arange(20))
    with pytest.raises(InputError, match="is cut short"):
        opened(tmp_path)
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "data.mdb").write_bytes(content[:-5000])
    with pytest.raises(InputError, match="is cut short"):
        split_of(str(tmp_path / "train.yaml"), source="lmdb", path="other").open()


WHOLE = datum(noise(2, 3, 3), 7) + number(9, 5) + text(10, b"new") + varint(11 << 3 | 5) + b"abcd"


def test_unknown_fields_of_a_datum_are_ignored():
    datum_read = parse_datum(WHOLE)
    assert (datum_read.label, datum_read.pixels().shape) == (7, (2, 3, 3))


@given(position=st.integers(0, len(WHOLE) - 1), byte=st.integers(0, 255), cut=st.integers(0, len(WHOLE)))
def test_any_damage_to_a_datum_is_read_or_reported(position, byte, cut):
    message = bytearray(WHOLE)
    message[position] = byte
    with suppress(NoMessage):
        assert parse_datum(bytes(message[:cut])).pixels().size


def test_a_damaged_first_datum_is_reported_or_skipped(tmp_path):
    good = datum(noise(1, 2, 2), 1)
    short = number(1, 2**30) + number(2, 2**30) + number(3, 2**30) + text(4, b"abc")
    write(tmp_path / "set", {b"a": short, b"b": b"\xff" * 9, b"c": good})
    with pytest.raises(InputError, match="set, key a is damaged"):
        opened(tmp_path)
    data = opened(tmp_path, on_error="skip")
    assert data.fields["image"].shape == (1, 2, 2)
    with pytest.raises(DamagedSamples) as error:
        data.read(np.arange(3))
    assert sorted(error.value.rows) == [0, 1]


def test_an_lmdb_truncated_while_reading_is_reported(tmp_path, monkeypatch):
    write(tmp_path / "set", {b"%04d" % number: datum(noise(3, 32, 32), 1) for number in range(64)})
    data = opened(tmp_path)
    data.read(np.arange(64))
    with (tmp_path / "set" / "data.mdb").open("r+b") as file:
        file.truncate(file.seek(0, io.SEEK_END) // 2)
    with pytest.raises(InputError, match="changed while it was read"):
        data.read(np.arange(64))
    # Simulate a truncation after the check: only the separate process that reads the pages ends.
    monkeypatch.setattr(Watched, "check", lambda self: None)
    for _ in range(2):
        with pytest.raises(InputError, match="is damaged, or changed while it was read") as error:
            data.read(np.arange(64))
        assert error.value.problems[0].got == "the process that reads it ended (SIGBUS)"


def test_pages_that_claim_too_many_keys_end_the_search(tmp_path):
    """Damaged pages can form a cycle: the number of entries in the meta pages bounds the search."""
    write(tmp_path / "set", {f"{index}".encode(): datum(noise(3, 2, 2), 0) for index in range(5)}, subdir=False)
    data = bytearray((tmp_path / "set").read_bytes())
    for meta in (0, 4096):  # the number of entries of the main database
        data[meta + 120 : meta + 128] = (4).to_bytes(8, "little")
    (tmp_path / "set").write_bytes(data)
    with pytest.raises(InputError, match="is damaged") as error:
        opened(tmp_path)
    assert "more keys than the 4" in str(error.value.problems[0].got)


def test_several_threads_read_one_lmdb(tmp_path):
    write(tmp_path / "set", {b"%04d" % number: datum(noise(3, 8, 8, seed=number), number) for number in range(64)})
    data = opened(tmp_path)
    parts = [np.arange(first, 64, 7) for first in range(7)]
    with ThreadPoolExecutor(4) as pool:
        results = list(pool.map(data.read, parts * 5))
    for part, read in zip(parts * 5, results, strict=True):
        np.testing.assert_array_equal(read["label"], part)


def test_the_reading_process_ends_with_the_dataset(tmp_path):
    write(tmp_path / "set", {b"a": datum(noise(1, 2, 2), 1)})
    data = opened(tmp_path)
    assert isinstance(data, DatumDataset)
    process = data._values._helper.process
    assert process.poll() is None
    del data
    assert process.poll() == 0
