"""Damaged .npy files are refused before memory is allocated."""

from __future__ import annotations

from io import BytesIO
from zipfile import ZipFile

import numpy as np
import pytest

from netspec.files.arrays import read_array


def npy(array: np.ndarray, shape: str | None = None) -> bytes:
    """Return the bytes of an .npy file; `shape` replaces the shape in the header."""
    file = BytesIO()
    np.save(file, array, allow_pickle=True)
    data = file.getvalue()
    if shape is None:
        return data
    written = str(array.shape).encode()
    return data.replace(written + b", }" + b" " * (len(shape) - len(written)), shape.encode() + b", }", 1)


def test_an_array_is_read():
    array = np.arange(6, dtype=np.int16).reshape(2, 3)
    data = npy(array)
    assert np.array_equal(read_array(BytesIO(data), len(data)), array)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (npy(np.zeros(3), "(299999999997,)"), r"the shape \[299999999997\] of float64 in 152 bytes"),
        (npy(np.zeros(3), "(-3,)"), r"the shape \[-3\] of float64"),
        (npy(np.array([{}])), "Python objects"),
        (npy(np.zeros(3)) + b"\0", "bytes after the elements of float64 of shape"),
        (npy(np.zeros(3)).replace(b"\x93NUMPY\x01", b"\x93NUMPY\x07"), "version"),
    ],
)
def test_damaged_headers_are_refused(data, message):
    with pytest.raises(ValueError, match=message):
        read_array(BytesIO(data), len(data))


def test_a_member_of_a_zip_with_a_wrong_size_is_refused(tmp_path):
    path = tmp_path / "a.npz"
    np.savez(path, x=np.zeros(3))
    data = bytearray(path.read_bytes())
    data[data.index(bytes(24))] = 1
    start = data.index(b"PK\x01\x02")
    data[start + 20 : start + 28] = (2**20).to_bytes(4, "little") * 2  # the compressed and the full size
    path.write_bytes(data)
    with ZipFile(path) as archive, archive.open("x.npy") as file, pytest.raises(ValueError, match="bytes after"):
        read_array(file, 2**20)
