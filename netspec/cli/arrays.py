"""Named arrays in `.npz` files, as `netspec predict` takes and gives them."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any
from zipfile import ZipFile, ZipInfo

import numpy as np

from netspec.data.readers.npz import open_npz
from netspec.exchange.files import write_atomically

if TYPE_CHECKING:
    from numpy.typing import NDArray


def read_npz(path: Path) -> dict[str, NDArray[Any]]:
    """All arrays of a file. Raises `InputError` where it is none, or their first axes differ in length."""
    dataset = open_npz(path)
    return dataset.read(np.arange(len(dataset)))


def write_npz(path: Path, arrays: Mapping[str, NDArray[Any]]) -> None:
    """Write arrays under their names, whole or not at all.

    `numpy.savez` takes names as Python arguments and has some of its own; here any name of a layer will do.
    """

    def write(temporary: Path) -> None:
        with ZipFile(temporary, "w") as archive:
            for name, array in arrays.items():
                with archive.open(ZipInfo(f"{name}.npy"), "w", force_zip64=True) as member:
                    np.lib.format.write_array(member, np.ascontiguousarray(array), allow_pickle=False)

    write_atomically(path, write)
