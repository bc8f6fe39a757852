"""Functions that are called before this process ends all workers: they cancel pending calls of libraries."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from contextlib import suppress

TIMEOUT = 2.0
"""Seconds that all hooks together may take, so that a library that hangs does not keep the job alive."""

_hooks: list[Callable[[], None]] = []


def on_abort(call: Callable[[], None]) -> None:
    """Register a hook; its exceptions are ignored."""
    _hooks.append(call)


def run_abort_hooks() -> None:
    """Run each hook in a separate thread, since it may hang, and wait up to `TIMEOUT` seconds for all."""

    def run(hook: Callable[[], None]) -> None:
        with suppress(Exception):
            hook()

    threads = [threading.Thread(target=run, args=(hook,), name="abort-hook", daemon=True) for hook in _hooks]
    until = time.monotonic() + TIMEOUT
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(max(0.0, until - time.monotonic()))
