"""Lines for the user of a command: about the device, and why the command waits."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from netspec.backends.process_group import world

PATIENCE = 1.0
"""Seconds of compilation before it is announced."""


class Notices:
    """Passes each line once to a listener, if there is one."""

    def __init__(self) -> None:
        self._listener: Callable[[str], object] | None = None
        self._passed: set[str] = set()

    def set_listener(self, listener: Callable[[str], object] | None) -> None:
        """Call `listener` once with each different line; None: report nothing."""
        self._listener = listener
        self._passed.clear()

    def _pass_on(self, line: str) -> None:
        if self._listener is not None and line not in self._passed:
            self._passed.add(line)
            self._listener(line)


class DeviceNotices(Notices):
    """Notes and warnings about the devices that this process opens."""

    def report(self, remark: str | None, warnings: Sequence[str]) -> None:
        """Report a device: why it is the CPU, and which kernels are not used.

        Only the first of several workers reports: all of them have equal kernels.
        """
        if world().rank == 0:
            for line in (*(f"note: {text}" for text in (remark,) if text), *(f"warning: {text}" for text in warnings)):
                self._pass_on(line)


class WaitNotices(Notices):
    """Announces the first compilation of kernels, and the check of a GPU that was never used.

    Compiled kernels and the results of the check are stored, so that later processes do not wait.
    """

    def __init__(self) -> None:
        super().__init__()
        self._compiled_seconds = 0.0

    def set_listener(self, listener: Callable[[str], object] | None) -> None:
        """Call `listener` once with each different line, and count compilation time from 0; None: report nothing."""
        super().set_listener(listener)
        self._compiled_seconds = 0.0

    @contextmanager
    def compilation(self) -> Iterator[None]:
        """Context in which a kernel is compiled. After `PATIENCE` seconds of compilation, a notice is printed."""
        if self._compiled_seconds > PATIENCE:
            self._pass_on("compiling kernels (first run only)…")
        began = time.perf_counter()
        try:
            yield
        finally:
            self._compiled_seconds += time.perf_counter() - began

    def announce_check(self, device: str, seconds: float) -> None:
        """Announce that the check of a device begins, which takes at most a number of seconds."""
        self._pass_on(f"checking {device} (first use only, at most {seconds:g} s)…")


device_notices, wait_notices = DeviceNotices(), WaitNotices()
"""The notices of this process."""
