"""The folders in which netspec stores datasets and results that it can compute again."""

from __future__ import annotations

import os
from pathlib import Path

from netspec.errors import InputError

DATA_VARIABLE = "NETSPEC_DATA"
"""Environment variable that names the folder of downloaded datasets; paths in specs may start with `$NETSPEC_DATA`."""


def cache_folder(name: str) -> Path:
    """Return the folder `name` in the user's cache folder, which `XDG_CACHE_HOME` may set. It may not exist yet."""
    base = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")  # noqa: PTH111  may fail to expand
    return Path(base, "netspec", name)


def data_folder() -> Path:
    """Return the folder of downloaded datasets: `NETSPEC_DATA`, by default `data` in the cache folder."""
    folder = os.environ.get(DATA_VARIABLE)
    return Path(folder).expanduser().absolute() if folder else cache_folder("data")


def make_folder(folder: Path) -> Path:
    """Create a folder if it does not exist, and return it. Raises `InputError` if it cannot be created."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(
            f"cannot create the cache folder {folder}",
            got=error.strerror or str(error),
            hint="choose another folder with XDG_CACHE_HOME=FOLDER",
        ) from None
    return folder
