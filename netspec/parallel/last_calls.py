"""What is called before this process ends all workers: libraries let go of what they wait for."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import suppress

WITHIN = 2.0
"""Seconds that all calls together may take: a library that hangs does not keep the job."""

_calls: list[Callable[[], None]] = []


def before_the_end(call: Callable[[], None]) -> None:
    """Have something called then; what it raises tells nobody anything."""
    _calls.append(call)


def let_go() -> None:
    """Call all, and wait for them for as long as they may take."""

    def run() -> None:
        for one in _calls:
            with suppress(Exception):
                one()

    thread = threading.Thread(target=run, name="last calls", daemon=True)
    thread.start()
    thread.join(WITHIN)
