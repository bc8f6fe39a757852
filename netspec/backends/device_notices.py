"""Reports what a user should know about the device of a command: why it is the CPU, and which kernels are not used."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from netspec.backends.process_group import world

_listener: Callable[[str], object] | None = None
_reported: set[str] = set()


def set_device_listener(listener: Callable[[str], object] | None) -> None:
    """Call `listener` once with each line about the devices that this process opens; None: report nothing.

    Only the first of several workers reports: all of them have equal kernels.
    """
    global _listener  # noqa: PLW0603  # one command in a process
    _listener = listener
    _reported.clear()


def report_device(remark: str | None, warnings: Sequence[str]) -> None:
    """Report a device that was opened."""
    if _listener is None or world().rank != 0:
        return
    for line in (*(f"note: {text}" for text in (remark,) if text), *(f"warning: {text}" for text in warnings)):
        if line not in _reported:
            _reported.add(line)
            _listener(line)
