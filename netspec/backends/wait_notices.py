"""Announces why a command waits: the first compilation of kernels, and the check of a GPU that was never used."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

PATIENCE = 1.0
"""Seconds of compilation before it is announced."""

_compiled_seconds = 0.0
_compilation_listener: Callable[[str], object] | None = None
_check_listener: Callable[[str], object] | None = None


def set_wait_listener(listener: Callable[[str], object]) -> None:
    """Call `listener` with a line if this process compiles kernels for more than a second, or checks a GPU.

    Compiled kernels and the results of the check are stored, so that later processes do not wait.
    """
    global _check_listener, _compilation_listener, _compiled_seconds  # noqa: PLW0603  # one command in a process
    _check_listener = _compilation_listener = listener
    _compiled_seconds = 0.0


@contextmanager
def compilation() -> Iterator[None]:
    """Context in which a kernel is compiled. The first one after `PATIENCE` is announced."""
    global _compilation_listener, _compiled_seconds  # noqa: PLW0603  # one compiler for the process
    if _compilation_listener is not None and _compiled_seconds > PATIENCE:
        listener, _compilation_listener = _compilation_listener, None
        listener("compiling kernels (first run only)…")
    began = time.perf_counter()
    try:
        yield
    finally:
        _compiled_seconds += time.perf_counter() - began


def announce_check(device: str, seconds: float) -> None:
    """Announce that the check of a device begins, which takes at most a number of seconds."""
    if _check_listener is not None:
        _check_listener(f"checking {device} (first use only, at most {seconds:g} s)…")
