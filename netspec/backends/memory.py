"""Total and free memory of this machine."""

from __future__ import annotations

import os
from pathlib import Path

MEMINFO = Path("/proc/meminfo")
GROUP = Path("/sys/fs/cgroup")
"""Directory in which a container sees the limits of its control group (version 2)."""


def free_memory(meminfo: Path = MEMINFO, group: Path = GROUP) -> int | None:
    """Bytes that could be allocated without swapping; None if the system does not report it.

    This is the kernel's estimate `MemAvailable`, or what is left of the limit of the control group if that is less;
    cached files count as free.
    """
    try:
        free = _numbers(meminfo)["MemAvailable:"] * 1024
    except (OSError, KeyError, ValueError):
        return None
    try:
        limit, used = (int((group / f"memory.{name}").read_text()) for name in ("max", "current"))
        files = _numbers(group / "memory.stat")["inactive_file"]
    except (OSError, KeyError, ValueError):  # the group does not exist, or its limit is `max`
        return free
    return max(0, min(free, limit - used + files))


def machine_memory(group: Path = GROUP) -> int | None:
    """Bytes of memory of this machine, or the limit of its control group if that is less; None if it is not known."""
    if not hasattr(os, "sysconf"):
        return None
    total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    try:
        return min(total, int((group / "memory.max").read_text()))
    except (OSError, ValueError):  # the group does not exist, or its limit is `max`
        return total


def _numbers(file: Path) -> dict[str, int]:
    """The value in each line, by the name before it."""
    lines = (line.split() for line in file.read_text().splitlines())
    return {words[0]: int(words[1]) for words in lines}
