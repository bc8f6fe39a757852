"""Waiting for others, so that the watchdog sees it and MPI gets on."""

from __future__ import annotations

import os
import time
from collections.abc import Callable

from netspec.parallel.activity import ACTIVITY
from netspec.parallel.base import Broken

AWAKE, NAP = 0.1, 5e-5
"""Seconds for which a waiting worker looks again and again, leaving its core to whoever wants it, and how long it
sleeps between two looks after that. MPI moves a message in pieces, each when both sides look: naps make it crawl."""
UNDERWAY = 1.0
"""Seconds that a call is given in which the worker that failed may have taken part."""


def wait_until(done: Callable[[], bool], *, idle: bool = False) -> None:
    """Look again and again, later with naps in between.

    Who is `idle` has nothing to do until others want something of it, and may be left so for as long as they like.
    Raises `Broken` where another worker has failed.
    """
    if done():
        return
    ACTIVITY.waiting_since = began = time.monotonic()
    while not done():
        now = time.monotonic()
        if idle:
            ACTIVITY.waiting_since = now
        if now - began < AWAKE:
            _leave_core()
        elif now < ACTIVITY.gives_up_at or now - began < UNDERWAY:
            time.sleep(NAP)
        else:
            ACTIVITY.waiting_since = None
            raise Broken
    ACTIVITY.waiting_since = None


def _leave_core() -> None:
    """Let another thread have this core, if one wants it."""
    if hasattr(os, "sched_yield"):
        os.sched_yield()
    else:
        time.sleep(0)
