"""Functions that are called before this process ends all workers: they cancel pending calls of libraries."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from contextlib import suppress

WITHIN = 2.0
"""Seconds that all calls together may take: a library that hangs does not keep the job."""

_calls: list[Callable[[], None]] = []


def on_abort(call: Callable[[], None]) -> None:
    """Have something called then; what it raises tells nobody anything."""
    _calls.append(call)


def run_abort_hooks() -> None:
    """Call all, each in a thread of its own, and wait for them for as long as they may take: one may be stuck."""

    def run(one: Callable[[], None]) -> None:
        with suppress(Exception):
            one()

    threads = [threading.Thread(target=run, args=(one,), name="last call", daemon=True) for one in _calls]
    until = time.monotonic() + WITHIN
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(max(0.0, until - time.monotonic()))
