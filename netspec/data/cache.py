"""The cache folder of `netspec.data`, which stores derived data under a fingerprint of its origin."""

from __future__ import annotations

import os
from pathlib import Path

from netspec.errors import InputError


def cache_folder(name: str) -> Path:
    """Return the folder `name` in the user's cache folder, which `XDG_CACHE_HOME` may set. It may not exist yet."""
    base = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")  # noqa: PTH111  may fail to expand
    return Path(base, "netspec", name)


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
