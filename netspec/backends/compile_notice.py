"""Announces that kernels are compiled, once in a process, if that takes more than a second."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

PATIENCE = 1.0
"""Seconds of compilation before it is announced."""

_seconds = 0.0
_listener: Callable[[], object] | None = None


def announce_compilation(listener: Callable[[], object]) -> None:
    """Call `listener` if this process compiles kernels for more than a second; compiled kernels are cached on disk."""
    global _listener, _seconds  # one compiler for the process
    _listener, _seconds = listener, 0.0


@contextmanager
def compilation() -> Iterator[None]:
    """Context in which a kernel is compiled."""
    global _listener, _seconds  # noqa: PLW0603  # one compiler for the process
    if _listener is not None and _seconds > PATIENCE:
        listener, _listener = _listener, None
        listener()
    began = time.perf_counter()
    try:
        yield
    finally:
        _seconds += time.perf_counter() - began
