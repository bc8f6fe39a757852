"""The cache folder of `netspec.data`: derived data, stored under a fingerprint of its origin."""

from __future__ import annotations

import os
from pathlib import Path

from netspec.errors import InputError


def cache_folder(name: str) -> Path:
    """The folder called `name` in the user's cache folder, which `XDG_CACHE_HOME` names; it may not be there yet."""
    base = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")  # noqa: PTH111  may fail to expand
    return Path(base, "netspec", name)


def make_folder(folder: Path) -> Path:
    """The folder, made where it is not there. Raises InputError where it cannot be made."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(
            f"cannot make the cache folder {folder}",
            got=error.strerror or str(error),
            hint="XDG_CACHE_HOME=FOLDER names another place",
        ) from None
    return folder
