"""Signals during a training: stop after this step, stop at once, or write a checkpoint now."""

from __future__ import annotations

import os
import signal
import threading
from contextlib import suppress
from types import FrameType
from typing import Any, Self

from netspec.backends.process_group import world

STOP = ("SIGINT", "SIGTERM")
SNAPSHOT = ("SIGUSR1", "SIGHUP")
STDERR = 2
"""File descriptor of the error stream."""


class Signals:
    """Handles signals while its `with` block runs.

    The first Ctrl-C (or SIGTERM) asks the loop to finish the step and save, and prints a note; the second stops at
    once. SIGUSR1 and SIGHUP request a checkpoint. Outside the main thread, where Python allows no handlers, no signal
    is handled.
    """

    def __init__(self, *, handles: bool = True) -> None:
        """Without `handles`, no signal is handled."""
        self._handles = handles
        self.stop: str | None = None
        """Reason to stop: the name of a signal, or that of `request_stop`."""
        self.snapshot = False
        """True once a checkpoint was requested; the loop resets it."""
        self._before: dict[int, Any] = {}
        self._followers: list[Signals] = []

    def follower(self) -> Signals:
        """Return signals for one of several trainings; requests to these signals are passed on to it."""
        follower = Signals(handles=False)
        follower.stop = self.stop
        self._followers.append(follower)
        return follower

    def request_stop(self, reason: str) -> None:
        """Ask the training and all followers to save and stop, as a signal does, unless they were asked before."""
        for signals in (self, *self._followers):
            signals.stop = signals.stop or reason

    def __enter__(self) -> Self:
        if self._handles and threading.current_thread() is threading.main_thread():
            for names, handler in ((STOP, self._stop), (SNAPSHOT, self._snapshot)):
                for name in names:
                    number = getattr(signal, name, None)  # Windows has neither SIGUSR1 nor SIGHUP
                    if number is not None:
                        self._before[number] = signal.signal(number, handler)
        return self

    def __exit__(self, *error: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _stop(self, number: int, frame: FrameType | None) -> None:
        if self.stop is not None:
            raise KeyboardInterrupt
        name = signal.Signals(number).name
        self.request_stop(name)
        stop_signal = "Ctrl-C" if name == "SIGINT" else name
        if world().rank == 0:
            _say(f"finishing this step, then saving; {stop_signal} again stops now")

    def _snapshot(self, number: int, frame: FrameType | None) -> None:
        self.snapshot = True
        for follower in self._followers:
            follower.snapshot = True


def _say(line: str) -> None:
    """Write a line to the error stream from a signal handler, which must not use Python's buffers."""
    with suppress(OSError):  # the reader of a pipe has ended
        newline = b"\n" if os.isatty(STDERR) else b""  # after the ^C that a terminal shows
        os.write(STDERR, newline + line.encode() + b"\n")
