"""Read arrays of NumPy's format from files that may be damaged."""

from __future__ import annotations

from math import prod
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

_FORMAT = np.lib.format
_HEADERS = {(1, 0): _FORMAT.read_array_header_1_0, (2, 0): _FORMAT.read_array_header_2_0}


def read_header(file: IO[bytes]) -> tuple[tuple[int, ...], bool, np.dtype[Any]]:
    """Read the shape, whether the elements are in Fortran order, and the element type of an open .npy file.

    Raises `ValueError` for a version of the format that numeric arrays do not have.
    """
    version = _FORMAT.read_magic(file)
    if version not in _HEADERS:
        raise ValueError(f"version {version[0]}.{version[1]} of the format is not read")
    return _HEADERS[version](file)


def read_array(file: IO[bytes], size: int) -> NDArray[Any]:
    """Read the array in an open .npy file of `size` bytes, up to its end, at which a zip compares the checksum.

    Raises `ValueError` before anything is allocated if the header claims more elements than the file has, or Python
    objects; and if the file continues after the elements.
    """
    shape, _, dtype = read_header(file)
    if dtype.hasobject:
        raise ValueError("Python objects, which run code when they are read")
    if any(length < 0 for length in shape) or file.tell() + prod(shape) * dtype.itemsize > size:
        raise ValueError(f"the shape {list(shape)} of {dtype} in {size:,} bytes")
    file.seek(0)
    array: NDArray[Any] = _FORMAT.read_array(file, allow_pickle=False)
    if file.read(1):
        raise ValueError(f"bytes after the elements of {dtype} of shape {list(shape)}")
    return array
