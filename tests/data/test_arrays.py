"""Arrays in `.npy`, several `.npz` and HDF5 files: reading by row and by chunk, other types and shapes, damage."""

from __future__ import annotations

import gc
import weakref
from pathlib import Path
from typing import Any
from zipfile import ZipFile

import h5py
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from netspec.data.base import DamagedSamples, Dataset, FieldType
from netspec.data.readers import records
from netspec.data.readers.arrays import ArrayDataset
from netspec.errors import InputError
from tests.data.conftest import arrays_of, complaint, problems_of, split_of

X = np.random.default_rng(0).normal(size=(50, 3, 4)).astype(np.float32)
Y = np.arange(50, dtype=np.int64)
ROWS = np.array([49, 0, 1, 2, 17, 0])


def opened(folder: Path, **fields: Any) -> Dataset:
    return split_of(str(folder / "train.yaml"), **fields).open()


def test_arrays_in_memory_are_neither_copied_nor_kept():
    x = np.zeros((1000, 3), np.float32)
    data = ArrayDataset({"x": x}, digest="", describe=str)
    assert np.shares_memory(data.values_of("x"), x)
    array = weakref.ref(x)
    gc.disable()
    try:
        del x, data
        assert array() is None  # without a garbage collection
    finally:
        gc.enable()


@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize("dtype", ["<f4", ">f4", ">i2", "bool", "uint64"])
def test_npy_files_are_read_by_row(tmp_path, dtype, order):
    x = np.asarray((X * 10).astype(dtype), order=order)
    np.save(tmp_path / "x.npy", x)
    np.save(tmp_path / "y.npy", Y)
    data = opened(tmp_path, source="npy", files={"x": "x.npy", "label": "y.npy"})
    assert data.fields == {"x": FieldType((3, 4), np.dtype(dtype).name), "label": FieldType((), "int64")}
    arrays = arrays_of(data, ROWS)
    assert arrays["x"].dtype.isnative
    assert np.array_equal(arrays["x"], x[ROWS])
    assert np.array_equal(arrays["label"], Y[ROWS])
    assert data.describe(3) == "x.npy and y.npy, sample 3"


@given(parts=st.lists(st.integers(1, 7), min_size=1, max_size=4), seed=st.integers(0, 99))
def test_several_npy_files_are_one_array(tmp_path_factory, parts, seed):
    folder = tmp_path_factory.mktemp("npy")
    ends = np.cumsum(parts)
    for number, (end, count) in enumerate(zip(ends, parts, strict=True)):
        np.save(folder / f"{number}.npy", X[end - count : end])
    data = opened(folder, source="npy", files={"x": [f"{number}.npy" for number in range(len(parts))]})
    assert len(data) == ends[-1]
    rows = np.random.default_rng(seed).integers(0, ends[-1], 9)
    assert np.array_equal(arrays_of(data, rows)["x"], X[rows])


def test_all_npy_files_that_do_not_match_are_reported(tmp_path):
    np.save(tmp_path / "a.npy", X)
    np.save(tmp_path / "b.npy", Y[:49])
    np.save(tmp_path / "c.npy", np.array([{}], object), allow_pickle=True)
    (tmp_path / "d.npy").write_bytes((tmp_path / "a.npy").read_bytes()[:-1])
    (tmp_path / "e.npy").write_text("hello")
    np.savez(tmp_path / "f.npy.npz", x=X)
    (tmp_path / "f.npy.npz").rename(tmp_path / "f.npy")
    with pytest.raises(InputError) as error:
        opened(tmp_path, source="npy", files={name: f"{name}.npy" for name in "cdefg"})
    assert problems_of(error, tmp_path) == NPY_ERRORS
    with pytest.raises(InputError, match="differ in their number of samples") as error:
        opened(tmp_path, source="npy", files={"a": "a.npy", "b": "b.npy"})
    assert error.value.problems[0].got == "`a` has 50, `b` has 49"
    with pytest.raises(InputError, match="differ in their number of files"):
        opened(tmp_path, source="npy", files={"a": ["a.npy", "a.npy"], "b": "a.npy"})
    with pytest.raises(InputError, match=r"b\.npy has different fields"):
        opened(tmp_path, source="npy", files={"a": ["a.npy", "b.npy"]})


@pytest.mark.parametrize("source", ["npy", "npz"])
def test_a_truncated_header_is_refused(tmp_path: Path, source: str) -> None:
    """NumPy passes the text after an unclosed brace to Python's tokenizer."""
    text = b"{'descr': '<f4', 'fortran_order': False, 'shape': (2"
    (tmp_path / "x.npy").write_bytes(b"\x93NUMPY\x01\x00" + len(text).to_bytes(2, "little") + text)
    with ZipFile(tmp_path / "x.npz", "w") as archive:
        archive.write(tmp_path / "x.npy", "x.npy")
    fields: dict[str, Any] = {"files": {"x": "x.npy"}} if source == "npy" else {"path": "x.npz"}
    with pytest.raises(InputError, match=rf"cannot read .*x\.{source}"):
        opened(tmp_path, source=source, **fields)


def test_hdf5_samples_larger_than_their_file_are_refused(tmp_path):
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file.create_dataset("x", (10, 2**28), "f4", chunks=(1, 2**20))
    with pytest.raises(InputError, match="claims more bytes than are stored"):
        opened(tmp_path, source="hdf5", path="a.h5")


def test_hdf5_samples_that_were_never_written_are_zeros(tmp_path):
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file.create_dataset("x", (2**40, 4), "f4", chunks=(1, 4))
    assert not arrays_of(opened(tmp_path, source="hdf5", path="a.h5"), np.array([0, 2**40 - 1]))["x"].any()


def test_several_npz_files_with_selected_arrays(tmp_path):
    np.savez(tmp_path / "a.npz", x=X[:20], y=Y[:20], rest=np.zeros((20, 2)))
    np.savez_compressed(tmp_path / "b.npz", x=X[20:], y=Y[20:])
    data = opened(tmp_path, source="npz", path=["a.npz", "b.npz"], arrays=["y", "x"])
    assert list(data.fields) == ["y", "x"]
    assert np.array_equal(arrays_of(data, ROWS)["x"], X[ROWS])
    assert data.describe(20) == "b.npz, sample 0"
    with pytest.raises(InputError, match=r"b\.npz has different fields"):
        opened(tmp_path, source="npz", path=["a.npz", "b.npz"])
    with pytest.raises(InputError, match="has no array `z`") as error:
        opened(tmp_path, source="npz", path="b.npz", arrays=["z", "x"])
    assert error.value.problems[0].expected == "one of x, y"


HDF5: dict[str, dict[str, Any]] = {
    "in one piece": {},
    "in chunks": {"chunks": (7, 3, 2)},
    "compressed": {"chunks": (8, 3, 4), "compression": "gzip", "shuffle": True},
    "lzf": {"chunks": (50, 3, 4), "compression": "lzf", "fletcher32": True},
}


@pytest.mark.parametrize("form", HDF5)
@pytest.mark.parametrize("dtype", ["<f4", ">f8"])
def test_hdf5_files_are_read_by_row(tmp_path, form, dtype):
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file.create_dataset("x", data=X.astype(dtype), **HDF5[form])
        file.create_dataset("group/y", data=Y)
    data = opened(tmp_path, source="hdf5", path="a.h5")
    assert data.fields == {"x": FieldType((3, 4), np.dtype(dtype).name)}
    assert np.array_equal(arrays_of(data, ROWS)["x"], X.astype(dtype)[ROWS])
    everything = arrays_of(data, np.arange(50))["x"]
    assert everything.dtype.isnative
    assert np.array_equal(everything, X.astype(dtype))
    named = opened(tmp_path, source="hdf5", path="a.h5", arrays=["x", "group/y"])
    assert arrays_of(named, ROWS)["group/y"].tolist() == Y[ROWS].tolist()


def test_hdf5_files_with_a_user_block_are_read(tmp_path):
    with h5py.File(tmp_path / "a.h5", "w", userblock_size=512) as file:
        file["x"] = X
    assert np.array_equal(arrays_of(opened(tmp_path, source="hdf5", path="a.h5"), ROWS)["x"], X[ROWS])


def test_hdf5_lists_of_caffe_with_float_labels(tmp_path, monkeypatch):
    (tmp_path / "sets").mkdir()
    for number, rows in enumerate([slice(0, 30), slice(30, 50)]):
        with h5py.File(tmp_path / "sets" / f"{number}.h5", "w") as file:
            file["data"], file["label"] = X[rows], Y[rows, None].astype(np.float32)
    (tmp_path / "sets" / "list.txt").write_text("0.h5\n\nsets/1.h5\n")
    monkeypatch.chdir(tmp_path)  # paths in Caffe's lists are relative to the current folder
    data = opened(
        tmp_path, source="hdf5", path="sets/list.txt", dtypes={"label": "int32"}, shapes={"label": [], "data": [12]}
    )
    assert data.fields == {"data": FieldType((12,), "float32"), "label": FieldType((), "int32")}
    arrays = arrays_of(data, ROWS)
    assert arrays["label"].tolist() == Y[ROWS].tolist()
    assert np.array_equal(arrays["data"], X.reshape(50, 12)[ROWS])
    (tmp_path / "sets" / "list.txt").write_text("0.h5\n2.h5\n")
    with pytest.raises(InputError, match=r"file .*sets/2\.h5 does not exist"):
        opened(tmp_path, source="hdf5", path="sets/list.txt")
    (tmp_path / "sets" / "list.txt").write_text("\n")
    with pytest.raises(InputError, match="names no file"):
        opened(tmp_path, source="hdf5", path="sets/list.txt")


def test_values_out_of_range_of_the_type_are_damaged_samples(tmp_path):
    np.savez(tmp_path / "a.npz", y=np.array([1.0, 2.5, 300.0, np.nan, -1.0, 7.0]))
    data = opened(tmp_path, source="npz", path="a.npz", dtypes={"y": "uint8"})
    assert arrays_of(data, np.array([0, 5]))["y"].tolist() == [1, 7]
    with pytest.raises(DamagedSamples) as error:
        data.read(np.arange(5))
    assert sorted(error.value.rows) == [1, 2, 3, 4]
    assert error.value.problems[0].render() == (
        "error: a value of `y` does not fit in uint8\n  expected: uint8\n  got: 2.5 in a.npz, sample 1"
    )


def test_types_and_shapes_of_missing_fields_are_refused(tmp_path):
    np.savez(tmp_path / "a.npz", image=X)
    with pytest.raises(InputError) as error:
        opened(tmp_path, source="npz", path="a.npz", dtypes={"imag": "uint8"}, shapes={"image": [3, 5]})
    assert [problem.message for problem in error.value.problems] == [
        "the source has no field `imag`",
        "`image` cannot have this shape",
    ]


def test_damaged_and_other_files_are_refused_as_hdf5(tmp_path):
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file["x"], file["y"], file["words"] = X, Y[:5], np.array([b"a"] * 50)
    content = (tmp_path / "a.h5").read_bytes()
    (tmp_path / "short.h5").write_bytes(content[: len(content) // 2])
    (tmp_path / "text.h5").write_text("hello")
    with pytest.raises(InputError) as error:
        opened(tmp_path, source="hdf5", path=["a.h5", "short.h5", "text.h5", "none.h5"])
    messages = [problem.message.replace(str(tmp_path), ".") for problem in error.value.problems]
    assert messages == [
        "array `words` of ./a.h5 holds no numbers that a net can take",
        "./short.h5 is damaged",
        "./text.h5 is not an HDF5 file",
        "file ./none.h5 does not exist",
    ]
    assert error.value.problems[0].hint == "list those to read in `arrays`"
    with pytest.raises(InputError, match="differ in their number of samples"):
        opened(tmp_path, source="hdf5", path="a.h5", arrays=["x", "y"])
    with h5py.File(tmp_path / "g.h5", "w") as file:
        file["train/x"] = X
    with pytest.raises(InputError, match="holds no arrays at its top") as error:
        opened(tmp_path, source="hdf5", path="g.h5")
    assert error.value.problems[0].hint == "list those to read, such as `arrays: [train/…]`"


def test_a_damaged_chunk_is_reported_with_its_rows(tmp_path):
    with h5py.File(tmp_path / "a.h5", "w") as file:
        array = file.create_dataset("x", data=X, chunks=(10, 3, 4), compression="gzip")
        offset = array.id.get_chunk_info(2).byte_offset
    content = bytearray((tmp_path / "a.h5").read_bytes())
    content[offset : offset + 40] = bytes(40)
    (tmp_path / "a.h5").write_bytes(content)
    data = opened(tmp_path, source="hdf5", path="a.h5")
    assert np.array_equal(arrays_of(data, np.array([19, 30]))["x"], X[[19, 30]])
    with pytest.raises(DamagedSamples) as error:
        data.read(np.array([19, 25, 30, 20]))
    assert sorted(error.value.rows) == [1, 3]
    assert error.value.problems[0].message.startswith("sample 25 of array `x` of ")


def test_a_shuffle_window_keeps_the_rows_of_a_chunk_together(tmp_path):
    for name in ("a", "b"):
        with h5py.File(tmp_path / f"{name}.h5", "w") as file:
            file.create_dataset("x", data=X, chunks=(10, 3, 4), compression="gzip")
            file["y"] = np.arange(len(X))
    assert opened(tmp_path, source="hdf5", path="a.h5").block == 10
    assert opened(tmp_path, source="hdf5", path=["a.h5", "b.h5"]).block == 10
    assert opened(tmp_path, source="hdf5", path="a.h5", arrays=["y"]).block == 1


@pytest.mark.parametrize("source", ["npy", "hdf5"])
def test_a_file_that_changes_while_it_is_read(tmp_path, source):
    np.save(tmp_path / "a.npy", X)
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file.create_dataset("x", data=X, chunks=(10, 3, 4), compression="gzip")
    fields = {"files": {"x": "a.npy"}} if source == "npy" else {"path": "a.h5"}
    data = opened(tmp_path, source=source, **fields)
    path = tmp_path / ("a.npy" if source == "npy" else "a.h5")
    path.write_bytes(path.read_bytes() + b"more")
    with pytest.raises(InputError, match="changed while it was read"):
        data.read(ROWS)


@given(position=st.integers(0, 10**4), byte=st.integers(0, 255), kind=st.sampled_from(["npy", "hdf5"]))
def test_any_damage_is_read_or_reported(tmp_path_factory, position, byte, kind):
    folder = tmp_path_factory.mktemp("damage")
    np.save(folder / "a.npy", X[:3])
    with h5py.File(folder / "a.h5", "w") as file:
        file.create_dataset("x", data=X[:3], chunks=(1, 3, 4), compression="gzip")
    path = folder / ("a.npy" if kind == "npy" else "a.h5")
    content = bytearray(path.read_bytes())
    content[position % len(content)] = byte
    path.write_bytes(content)

    def read(path: Path) -> None:
        fields = {"files": {"x": path.name}} if kind == "npy" else {"path": path.name}
        data = opened(folder, source=kind, **fields)
        data.read(np.arange(len(data)))

    assert path.name in complaint(read, path)


def test_the_fingerprint_of_a_large_file_reads_parts_of_it(tmp_path, monkeypatch):
    monkeypatch.setattr(records, "WHOLE", 10)
    monkeypatch.setattr(records, "BLOCK", 8)
    path = tmp_path / "x"
    path.write_bytes(bytes(20_000))
    before = records.file_fingerprint(path)
    assert records.file_fingerprint(path) == before
    for offset in (0, 19_999):  # the fingerprint always includes the first and the last bytes
        path.write_bytes(bytes(offset) + b"\1" + bytes(19_999 - offset))
        assert records.file_fingerprint(path) != before
    path.write_bytes(bytes(20_001))
    assert records.file_fingerprint(path) != before


NPY_ERRORS = """\
./train.yaml:1:4: error: array `c` of ./c.npy holds Python objects, which are never loaded
  at: files.c
  expected: numbers
  got: pickled objects
  hint: write the array with a numeric dtype
./train.yaml:2:4: error: ./d.npy is cut short
  at: files.d
  expected: 2,528 bytes for float32 of shape [50, 3, 4]
  got: 2,527 bytes
./train.yaml:3:4: error: ./e.npy is not an .npy file
  at: files.e
  expected: an array as `numpy.save` writes it
  got: a text file
./train.yaml:4:4: error: ./f.npy is not an .npy file
  at: files.f
  expected: an array as `numpy.save` writes it
  got: a zip archive, which is what .npz files are
  hint: `source: npz` reads it
./train.yaml:5:4: error: file ./g.npy does not exist
  at: files.g
5 errors"""


def test_a_virtual_array_needs_its_source_files(tmp_path):
    layout = h5py.VirtualLayout((50, 3, 4), X.dtype)
    for number in range(2):
        with h5py.File(tmp_path / f"part{number}.h5", "w") as file:
            file["x"] = X[25 * number : 25 * number + 25]
        layout[25 * number : 25 * number + 25] = h5py.VirtualSource(f"part{number}.h5", "x", (25, 3, 4))
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file.create_virtual_dataset("x", layout)
    data = opened(tmp_path, source="hdf5", path="a.h5")
    assert np.array_equal(arrays_of(data, ROWS)["x"], X[ROWS])
    (tmp_path / "part1.h5").unlink()  # HDF5 itself would return zeros
    with pytest.raises(InputError, match=r"part1\.h5 was removed while it was read"):
        data.read(ROWS)
    with pytest.raises(InputError, match="is stored in other files") as error:
        opened(tmp_path, source="hdf5", path="a.h5")
    assert error.value.problems[0].got == f"no {tmp_path / 'part1.h5'}"
