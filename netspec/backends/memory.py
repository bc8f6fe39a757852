"""How much memory this machine has left."""

from __future__ import annotations

from pathlib import Path

MEMINFO = Path("/proc/meminfo")
GROUP = Path("/sys/fs/cgroup")
"""Where a container sees the limits of its own control group (version 2)."""


def free_memory(meminfo: Path = MEMINFO, group: Path = GROUP) -> int | None:
    """Bytes that could be allocated without swapping; None where the system does not tell.

    That is the kernel's estimate `MemAvailable`, or what is left of the limit of the control group if that is less;
    files that are held in memory and can be read again count as free.
    """
    try:
        free = _numbers(meminfo)["MemAvailable:"] * 1024
    except (OSError, KeyError, ValueError):
        return None
    try:
        limit, used = (int((group / f"memory.{name}").read_text()) for name in ("max", "current"))
        files = _numbers(group / "memory.stat")["inactive_file"]
    except (OSError, KeyError, ValueError):  # no such group, or its limit is `max`
        return free
    return max(0, min(free, limit - used + files))


def _numbers(file: Path) -> dict[str, int]:
    """The first two words of each line: a name and a number."""
    lines = (line.split() for line in file.read_text().splitlines())
    return {words[0]: int(words[1]) for words in lines}
