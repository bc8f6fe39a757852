"""Named arrays in `.npz` files, as `netspec predict` takes and gives them."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from netspec.data.readers.npz import open_npz

if TYPE_CHECKING:
    from numpy.typing import NDArray


def read_npz(path: Path) -> dict[str, NDArray[Any]]:
    """All arrays of a file. Raises `InputError` where it is none, or their first axes differ in length."""
    dataset = open_npz(path)
    return dataset.read(np.arange(len(dataset)))
