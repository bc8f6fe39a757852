"""Safetensors and .npz files: round trips, and reports of damage."""

from __future__ import annotations

import json
import struct
import zipfile
from collections.abc import Callable
from dataclasses import replace
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from netspec.data.readers.npz import open_npz
from netspec.errors import InputError
from netspec.exchange.containers.zip_archive import open_zip
from netspec.exchange.formats.native import weight_files
from netspec.exchange.formats.native.hdf5 import write_weights
from netspec.exchange.formats.native.npz import is_npz, read_npz, write_npz
from netspec.exchange.formats.native.safetensors import is_safetensors, read_safetensors, write_safetensors
from netspec.exchange.formats.native.weight_files import export_safetensors, import_npz, preflight_safetensors
from netspec.exchange.formats.registry import ExportOptions
from netspec.exchange.importing import import_model
from netspec.exchange.interface import ImportOptions
from netspec.schema.language.provenance import canonical_yaml
from netspec.schema.load import load_net
from tests.exchange.formats.caffe.catalogue import exportable
from tests.exchange.nets import Net

ARRAYS = {
    "a.weight": np.arange(6, dtype="float32").reshape(2, 3),
    "a.bias": np.arange(3, dtype="float64"),
    "count": np.array(7, "int64"),
    "none": np.zeros((0, 4), "float16"),
    "flags": np.array([True, False]),
    "turned": np.arange(6, dtype="int8").reshape(2, 3).T,
}


def header(path: Path) -> dict[str, Any]:
    data = path.read_bytes()
    fields: dict[str, Any] = json.loads(data[8 : 8 + int.from_bytes(data[:8], "little")])
    return fields


def file_of(header: Any, data: bytes = b"") -> bytes:
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return len(text).to_bytes(8, "little") + text + data


@pytest.mark.parametrize("write", [lambda path: write_safetensors(path, ARRAYS, {"k": "v"}),
                                   lambda path: write_npz(path, ARRAYS)])  # fmt: skip
def test_arrays_round_trip_and_bytes_are_reproducible(write: Callable[[Path], None], tmp_path: Path) -> None:
    first, second = tmp_path / "one", tmp_path / "two"
    write(first)
    write(second)
    assert first.read_bytes() == second.read_bytes()
    head = first.read_bytes()[:512]
    arrays_read = read_npz(first) if is_npz(head, first) else read_safetensors(first)[0]
    assert is_npz(head, first) != is_safetensors(head, first)
    assert arrays_read.keys() == ARRAYS.keys()
    for name, array in ARRAYS.items():
        assert arrays_read[name].dtype == array.dtype
        assert arrays_read[name].shape == array.shape
        np.testing.assert_array_equal(arrays_read[name], array)


def test_values_are_stored_aligned(tmp_path: Path) -> None:
    write_safetensors(tmp_path / "x", ARRAYS, {})
    data = (tmp_path / "x").read_bytes()
    start = 8 + int.from_bytes(data[:8], "little")
    assert start % 8 == 0
    for name, entry in header(tmp_path / "x").items():
        assert entry["data_offsets"][0] % ARRAYS[name].dtype.itemsize == 0


def test_bfloat16_is_read_as_float32(tmp_path: Path) -> None:
    halves = struct.pack("<3H", 0x3F80, 0xC020, 0x7FC0)  # 1, -2.5, not a number
    entry = {"dtype": "BF16", "shape": [3], "data_offsets": [0, 6]}
    (tmp_path / "x").write_bytes(file_of({"w": entry}, halves))
    array = read_safetensors(tmp_path / "x")[0]["w"]
    assert array.dtype == np.float32
    np.testing.assert_array_equal(array, [1.0, -2.5, np.nan])


GOOD = {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]}
DAMAGED: dict[str, tuple[bytes, str]] = {
    "short": (b"\x10\x00\x00", "is damaged, or not a safetensors file"),
    "header beyond the file": ((1 << 40).to_bytes(8, "little") + b"{}", "is damaged, or not a safetensors file"),
    "no JSON": (file_of(b"{nonsense"), "its header can't be read"),
    "no UTF-8": (file_of(b'{"\xff": 1}'), "its header can't be read"),
    "deep": (file_of(b"[" * 100_000), "its header can't be read"),
    "a list": (file_of([1]), "its header is not a mapping"),
    "twice": (file_of(b'{"w": 1, "w": 2}'), "a name occurs twice"),
    "metadata of numbers": (file_of({"__metadata__": {"a": 1}}), "its metadata is not text"),
    "no entry": (file_of({"w": 5}), "`w` has no shape"),
    "negative": (file_of({"w": GOOD | {"shape": [-2]}}, bytes(8)), "`w` has no shape"),
    "true": (file_of({"w": GOOD | {"shape": [True, 2]}}, bytes(8)), "`w` has no shape"),
    "type": (file_of({"w": GOOD | {"dtype": "F8_E4M3"}}, bytes(8)), "of the type 'F8_E4M3', which is not read"),
    "type is a list": (file_of({"w": GOOD | {"dtype": []}}, bytes(8)), "which is not read"),
    "cut short": (file_of({"w": GOOD}, bytes(7)), "is damaged, or cut short"),
    "backwards": (file_of({"w": GOOD | {"data_offsets": [8, 0]}}, bytes(8)), "`w` lies at [8, 0]"),
    "shape": (file_of({"w": GOOD | {"shape": [3]}}, bytes(8)), "has the shape [3] of F32 in 8 bytes"),
    "huge": (file_of({"w": GOOD | {"shape": [1 << 40, 1 << 40]}}, bytes(8)), "in 8 bytes"),
    "shared": (file_of({"v": GOOD, "w": GOOD}, bytes(8)), "`v` and `w` share bytes"),
}


@pytest.mark.parametrize("case", DAMAGED)
def test_a_damaged_safetensors_file_is_reported(case: str, tmp_path: Path) -> None:
    data, message = DAMAGED[case]
    path = tmp_path / "x.safetensors"
    path.write_bytes(data)
    with pytest.raises(InputError) as caught:
        read_safetensors(path)
    assert message in str(caught.value)


def test_a_safetensors_file_that_is_cut_short_is_one_problem(tmp_path: Path) -> None:
    path = tmp_path / "x.safetensors"
    content = file_of({"v": GOOD, "w": GOOD | {"data_offsets": [8, 16]}}, bytes(16))
    path.write_bytes(content[:-12])
    with pytest.raises(InputError) as caught:
        read_safetensors(path)
    (problem,) = caught.value.problems
    assert problem.expected == f"{len(content):,} bytes, as its header states"
    assert problem.got == f"{len(content) - 12:,} bytes"


def npy(header: str, data: bytes = b"") -> bytes:
    return b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header.encode() + data


def zipped(**members: bytes) -> bytes:
    buffer = BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in members.items():
            archive.writestr(name.replace("_npy", ".npy"), data)
    return buffer.getvalue()


UNREADABLE: dict[str, tuple[bytes, str]] = {
    "cut short": (zipped(w_npy=npy("{}"))[:-30], "can't be read"),
    "objects": (
        zipped(w_npy=npy("{'descr': '|O', 'fortran_order': False, 'shape': (1,)}\n")),
        "Python objects, which run code",
    ),
    "claims too much": (
        zipped(w_npy=npy("{'descr': '<f8', 'fortran_order': False, 'shape': (1099511627776,)}\n", bytes(8))),
        "the shape [1099511627776] of float64 in",
    ),
    "header": (zipped(w_npy=npy("{'descr': __import__('os')}\n")), "`w`"),
    "no array": (zipped(w_npy=b"hello"), "`w`"),
    "records": (
        zipped(w_npy=npy("{'descr': [('a', '<f4')], 'fortran_order': False, 'shape': (1,)}\n", bytes(4))),
        "is not a numeric type",
    ),
}


@pytest.mark.parametrize("case", UNREADABLE)
def test_a_damaged_npz_file_is_reported(case: str, tmp_path: Path) -> None:
    data, message = UNREADABLE[case]
    path = tmp_path / "x.npz"
    path.write_bytes(data)
    with pytest.raises(InputError) as caught:
        read_npz(path)
    assert message in str(caught.value)


def spoiled(name: str = "a.txt", *, size: int | None = None, twice: bool = False, encrypted: bool = False) -> bytes:
    """Return an archive of one member whose directory contradicts its content."""
    buffer = BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr(name, b"hello" * 100)
        entry = archive.filelist[0]
        entry.file_size = entry.file_size if size is None else size
        entry.flag_bits |= encrypted
        if twice:
            archive.filelist.append(entry)
    return buffer.getvalue()


HOSTILE: dict[str, tuple[bytes, str]] = {
    "outside": (spoiled("../../a"), "members outside of the archive: ../../a"),
    "absolute": (spoiled("/etc/a"), "members outside of the archive: /etc/a"),
    "twice": (spoiled(twice=True), "duplicate members: a.txt"),
    "bomb": (spoiled(size=1 << 40), "members whose declared size cannot be right: "),
    "encrypted": (spoiled(encrypted=True), "encrypted members: a.txt"),
    "renamed": (spoiled().replace(b"a.txt", b"b.txt", 1), "headers are damaged or have another name: a.txt"),
}


@pytest.mark.parametrize("case", HOSTILE)
def test_a_hostile_archive_is_refused_before_it_is_unpacked(case: str, tmp_path: Path) -> None:
    data, message = HOSTILE[case]
    path = tmp_path / "x.npz"
    path.write_bytes(data)
    with pytest.raises(InputError) as caught, open_zip(path, "a test"):
        pass
    assert message in str(caught.value)


def test_members_that_overlap_are_refused(tmp_path: Path) -> None:
    """A zip bomb without recursion: many entries of the directory share the same compressed bytes."""
    buffer = BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("0", bytes(100_000))
        for number in range(1, 1000):
            entry = zipfile.ZipInfo(str(number))
            same = archive.filelist[0]
            entry.header_offset, entry.CRC, entry.compress_type = same.header_offset, same.CRC, same.compress_type
            entry.compress_size, entry.file_size = same.compress_size, same.file_size
            archive.filelist.append(entry)
    path = tmp_path / "x.zip"
    path.write_bytes(buffer.getvalue())
    with pytest.raises(InputError, match="its members overlap"), open_zip(path, "a test"):
        pass


def test_a_member_that_the_directory_hides_is_missed(tmp_path: Path) -> None:
    """A comment that is too long covers the entry after it."""
    path = tmp_path / "x.npz"
    np.savez(path, x=np.arange(3), y=np.arange(4))
    data = bytearray(path.read_bytes())
    entry = data.index(b"PK\x01\x02")
    data[entry + 33] = 2  # the high byte of the length of the comment
    path.write_bytes(data)
    with pytest.raises(InputError, match="1 members instead of 2"), open_zip(path, "a test"):
        pass
    with pytest.raises(InputError, match="1 members instead of 2"):
        open_npz(path)


def test_a_net_that_is_not_text_is_reported(tmp_path: Path) -> None:
    path = tmp_path / "x.npz"
    write_npz(path, {"netspec.net": np.frombuffer(b"\xff\xff\xff\xff", "<U1").reshape(())})
    with pytest.raises(InputError, match=r"its `netspec\.net` is not text"):
        import_npz(path, ImportOptions())


def test_a_damaged_member_is_reported(tmp_path: Path) -> None:
    path = tmp_path / "x.npz"
    write_npz(path, {"w": np.arange(100)})
    data = bytearray(path.read_bytes())
    data[300] ^= 1
    path.write_bytes(data)
    with pytest.raises(InputError, match="`w`") as caught:
        read_npz(path)
    assert "CRC" in str(caught.value)


def test_arrays_without_a_net_are_not_unpacked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_npz(tmp_path / "a.npz", ARRAYS)
    monkeypatch.setattr(weight_files, "read_npz", lambda path: pytest.fail("they are read"))
    with pytest.raises(InputError, match="weights without the net"):
        import_npz(tmp_path / "a.npz", ImportOptions())


ATTENTION = {"type": "MultiHeadAttention", "num_heads": 1, "key_dim": 2}


@pytest.mark.parametrize(
    ("layers", "kind"),
    [
        ([("a/b", {"type": "Dense", "units": 2}), ("a.b", {"type": "Dense", "units": 2})],
         "the layers `a/b` and `a.b` would both have `a.b.weight`"),
        ([("a", ATTENTION), ("a.out_proj", {"type": "Dense", "units": 2})],
         "the layers `a` and `a.out_proj` would both have `a.out_proj.weight`"),
    ],
)  # fmt: skip
def test_layers_whose_arrays_would_have_one_name_are_refused(layers: Any, kind: str, tmp_path: Path) -> None:
    data = {
        "netspec": 1,
        "inputs": {"x": {"shape": [3, 2]}},
        "layers": [{"name": name, **layer} for name, layer in layers],
    }
    (tmp_path / "net.yaml").write_text(canonical_yaml(load_net(data)))
    exported = exportable(Net.of(tmp_path / "net.yaml"))
    lost = preflight_safetensors(replace(exported, arrays={}), ExportOptions()).problems
    with pytest.raises(InputError) as error:
        export_safetensors(tmp_path / "x.safetensors", exported)
    assert [*lost] == [*error.value.problems]
    assert [problem.message for problem in lost] == [f"{kind} in a safetensors file"]
    assert all(problem.location is not None and problem.location.line > 4 for problem in lost)
    assert not (tmp_path / "x.safetensors").exists()


WRITERS: dict[str, Callable[[Path, str, dict[str, Any]], None]] = {
    ".safetensors": lambda path, net, arrays: write_safetensors(
        path, arrays, {"netspec_net": net, "netspec_shapes": "{}"}
    ),
    ".npz": lambda path, net, arrays: write_npz(path, {"netspec.net": np.asarray(net), **arrays}),
    ".h5": lambda path, net, arrays: write_weights(path, arrays, net=net),
}


@pytest.mark.parametrize(
    ("suffix", "name"), [(".safetensors", "a\0b"), (".safetensors", ""), *((writer, "a\x1b[2J") for writer in WRITERS)]
)
def test_names_of_arrays_are_checked_when_a_file_is_read(suffix: str, name: str, tmp_path: Path) -> None:
    path = tmp_path / f"x{suffix}"
    data = {"netspec": 1, "inputs": {"x": {"shape": [3]}}, "layers": [{"name": "d", "type": "Dense", "units": 2}]}
    WRITERS[suffix](path, canonical_yaml(load_net(data)), {name: np.zeros(2, "float32")})
    with pytest.raises(InputError, match="cannot be the name of an array") as caught:
        import_model(path)
    assert str(path) in caught.value.summary
    assert repr(name) in caught.value.summary
