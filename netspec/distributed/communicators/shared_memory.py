"""Memory that the processes of this host share: how much there is, and its names."""

from __future__ import annotations

import os
import re
from contextlib import suppress
from pathlib import Path

from netspec.errors import RunError

SHARED = Path("/dev/shm")  # noqa: S108  nothing is written there by name
"""Where Linux has the memory that processes share."""

MORE = "a container has 64 MB unless told otherwise: `docker run --shm-size 4g`"
"""How a container gets more of it."""


def free_room(folder: Path = SHARED) -> tuple[int, str] | None:
    """Bytes that are free, and the same in words; None where the system has no such folder."""
    if not folder.is_dir():
        return None
    found = os.statvfs(folder)
    free, whole = found.f_bavail * found.f_frsize, found.f_blocks * found.f_frsize
    return free, f"{free / 1e6:,.1f} MB of {whole / 1e6:,.1f} MB are free in {folder}"


def check_room(nbytes: int, folder: Path = SHARED) -> None:
    """Raise `RunError` if less than `nbytes` bytes of shared memory are free.

    Linux allocates more than is free, and ends a process that then writes to it with SIGBUS.
    """
    room = free_room(folder)
    if room is not None and room[0] < nbytes:
        raise RunError(f"there is not enough shared memory: {nbytes / 1e6:,.1f} MB are needed", got=room[1], hint=MORE)


def free_names(folder: Path = SHARED, maps: Path = Path("/proc/self/maps")) -> None:
    """Remove the names of the memory by which MPICH sends on this host; all that it sends by have it already.

    It lasts for as long as a process has it. With a name it would last for ever where all are killed.
    """
    with suppress(OSError):  # elsewhere than on Linux there is nothing to be read
        for name in set(re.findall(rf"{re.escape(str(folder))}/mpich_shm_\w+(?=\n)", maps.read_text())):
            Path(name).unlink(missing_ok=True)
