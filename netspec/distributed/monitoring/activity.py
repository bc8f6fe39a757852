"""Current activity of this worker, for the watchdog and the launching command; and waiting for other workers."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from math import inf

from netspec.backends.process_group import PeerFailure
from netspec.distributed.launcher import control_socket

STARTING = "starting"
"""Activity before the first step, when nothing can be resumed yet."""


@dataclass
class Activity:
    """Step and activity of this worker, and since when it has waited for others."""

    step: int = 0
    doing: str = STARTING
    run_dir: str | None = None
    """Run directory of the outermost training run: the one to resume, even if one of its stages fails."""
    waiting_since: float | None = None
    """Time of `time.monotonic`; None if it does not wait."""
    gives_up_at: float = inf
    """Time after which this worker stops waiting because another one has failed."""
    trainings: int = 0
    """Number of training runs begun and ended so far, so that a late failure message does not affect the next run."""
    depth: int = 0
    """Nesting depth of the current activity: a stage of a training run is a training run itself."""

    def waited(self) -> float:
        """Return the seconds that this worker has waited in the current call."""
        since = self.waiting_since
        return 0.0 if since is None else time.monotonic() - since


ACTIVITY = Activity()
"""Activity of this process."""


def report_activity(step: int, doing: str = "training") -> None:
    """Record what this worker does from now on."""
    ACTIVITY.step, ACTIVITY.doing = step, doing


@contextmanager
def training() -> Iterator[None]:
    """Enclose a training run: if a worker fails during the run, the others give up this run, but no later one."""
    ACTIVITY.trainings += 1
    ACTIVITY.depth += 1
    try:
        yield
    finally:
        ACTIVITY.trainings += 1
        ACTIVITY.depth -= 1
        ACTIVITY.gives_up_at = inf


def report_run_dir(run_dir: str | os.PathLike[str]) -> None:
    """Record the run directory, so that a failure message can show how to resume; ignored in a nested training run."""
    if ACTIVITY.depth > 1:
        return
    ACTIVITY.run_dir = os.fspath(run_dir)
    control_socket.send_facts(run_dir=ACTIVITY.run_dir)


SPIN_SECONDS, SLEEP_SECONDS = 0.1, 5e-5
"""Seconds for which a waiting worker polls and yields its core, and seconds of sleep between later polls. MPI moves
a message in pieces, each while both sides poll: sleeping slows it down."""
COMPLETION_GRACE = 1.0
"""Seconds in which a call may still complete after a worker has failed."""


def wait_until(done: Callable[[], bool], *, idle: bool = False) -> None:
    """Poll until `done` returns True. Raises `PeerFailure` if another worker has failed.

    A worker that is `idle` waits for requests, and is never reported as stalled.
    """
    if done():
        return
    ACTIVITY.waiting_since = began = time.monotonic()
    while not done():
        now = time.monotonic()
        if idle:
            ACTIVITY.waiting_since = now
        if now - began < SPIN_SECONDS:
            _yield_core()
        elif now < ACTIVITY.gives_up_at or now - began < COMPLETION_GRACE:
            time.sleep(SLEEP_SECONDS)
        else:
            ACTIVITY.waiting_since = None
            raise PeerFailure
    ACTIVITY.waiting_since = None


def _yield_core() -> None:
    """Yield the core to another thread."""
    if hasattr(os, "sched_yield"):
        os.sched_yield()
    else:
        time.sleep(0)
