"""A mean image out of an .npy or .npz file, read without ever unpickling."""

from __future__ import annotations

import zipfile
import zlib
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from netspec.data.files import existing
from netspec.errors import InputError

if TYPE_CHECKING:
    from netspec.data.base import Array

_DAMAGED = (
    OSError,
    ValueError,
    EOFError,
    zlib.error,
    zipfile.BadZipFile,
    MemoryError,
    KeyError,
    TypeError,
    SyntaxError,
)


def read_mean(path: Path) -> Array:
    """The file's only array as float32; a first axis of one sample is left out. Raises InputError for anything else."""
    existing(path)
    try:
        with path.open("rb") as file:
            found = np.load(file, allow_pickle=False)
            if not isinstance(found, np.ndarray):
                names = list(found.files)
                if len(names) != 1:
                    raise InputError(f"{path} is no mean image", expected="one array", got=f"{len(names)} arrays")
                found = found[names[0]]
    except _DAMAGED as error:
        raise InputError(
            f"{path} cannot be read as a mean image",
            expected="an intact .npy file, or an .npz file with one array",
            got=str(error) or type(error).__name__,
        ) from None
    if found.dtype.kind not in "iuf" or not np.isfinite(found).all():
        got = str(found.dtype) if found.dtype.kind not in "iuf" else "values that are not finite"
        raise InputError(f"{path} is no mean image", expected="finite numbers", got=got)
    mean: Array = found.astype(np.float32)
    return mean[0] if mean.ndim > 1 and mean.shape[0] == 1 and mean.ndim != 3 else mean
