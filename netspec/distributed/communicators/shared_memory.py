"""Shared memory of this host: free space, and the names of MPICH's segments."""

from __future__ import annotations

import os
import re
from contextlib import suppress
from pathlib import Path

from netspec.errors import RunError

SHM_FOLDER = Path("/dev/shm")  # noqa: S108  nothing is written there by name
"""File system of Linux for shared memory."""

SHM_SIZE_HINT = "a container has 64 MB by default; give it more: `docker run --shm-size 4g`"


def free_space(folder: Path = SHM_FOLDER) -> tuple[int, str] | None:
    """Return the free bytes, and a description of them; None if the system has no such folder."""
    if not folder.is_dir():
        return None
    stat = os.statvfs(folder)
    free, total = stat.f_bavail * stat.f_frsize, stat.f_blocks * stat.f_frsize
    return free, f"{free / 1e6:,.1f} MB of {total / 1e6:,.1f} MB are free in {folder}"


def check_space(nbytes: int, folder: Path = SHM_FOLDER) -> None:
    """Raise `RunError` if less than `nbytes` bytes of shared memory are free.

    Linux allocates more than is free, and kills a process that then writes to it with SIGBUS.
    """
    room = free_space(folder)
    if room is not None and room[0] < nbytes:
        raise RunError(
            f"there is not enough shared memory: {nbytes / 1e6:,.1f} MB are needed", got=room[1], hint=SHM_SIZE_HINT
        )


def unlink_mpich_segments() -> None:
    """Unlink the shared memory through which MPICH sends on this host, once all workers have mapped it.

    Unlinked, it lasts until the last process ends. Otherwise it would stay forever if all processes are killed.
    """
    with suppress(OSError):  # only Linux has this file
        maps = Path("/proc/self/maps").read_text()
        for name in set(re.findall(rf"{re.escape(str(SHM_FOLDER))}/mpich_shm_\w+(?=\n)", maps)):
            Path(name).unlink(missing_ok=True)
