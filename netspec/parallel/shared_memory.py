"""How much memory the processes of this host can share."""

from __future__ import annotations

import os
from pathlib import Path

from netspec.errors import RunError

SHARED = Path("/dev/shm")  # noqa: S108  nothing is written there by name
"""Where Linux has the memory that processes share."""


def check_room(nbytes: int, folder: Path = SHARED) -> None:
    """Raise `RunError` where there is no room for so many bytes.

    The system gives out more than there is, and ends whoever then writes to it by SIGBUS.
    """
    if not folder.is_dir():
        return
    found = os.statvfs(folder)
    free = found.f_bavail * found.f_frsize
    if free < nbytes:
        raise RunError(
            f"there is not enough shared memory: {nbytes / 1e6:,.1f} MB are needed",
            got=f"{free / 1e6:,.1f} MB are free in {folder}",
            hint="a container has 64 MB unless told otherwise: `docker run --shm-size 4g`",
        )
