"""What is called before this process ends all workers: libraries let go of what they wait for."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from contextlib import suppress

WITHIN = 2.0
"""Seconds that all calls together may take: a library that hangs does not keep the job."""

_calls: list[Callable[[], None]] = []


def before_the_end(call: Callable[[], None]) -> None:
    """Have something called then; what it raises tells nobody anything."""
    _calls.append(call)


def let_go() -> None:
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
