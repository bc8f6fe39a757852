"""What this worker is at: told by who does it, read by the watchdog and by the command that started the workers."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from math import inf

from netspec.parallel import tether

STARTING = "starting"
"""What a worker is at before anything was begun that can be gone on with."""


@dataclass
class Activity:
    """A step, what is done in it, and since when this worker waits for the others, if it does."""

    step: int = 0
    doing: str = STARTING
    run_dir: str | None = None
    waiting_since: float | None = None
    """By `time.monotonic`."""
    gives_up_at: float = inf
    """When this worker stops waiting for others, since one of them has failed; by the same clock."""
    trainings: int = 0
    """How many were begun and ended so far. Of a failure in one that has ended nobody is to hear in the next."""

    def waited(self) -> float:
        """Seconds that this worker has waited for the others in one call."""
        since = self.waiting_since
        return 0.0 if since is None else time.monotonic() - since


ACTIVITY = Activity()
"""Of this process."""


def at_work(step: int, doing: str = "training") -> None:
    """Say what this worker is at from now on."""
    ACTIVITY.step, ACTIVITY.doing = step, doing


@contextmanager
def training() -> Iterator[None]:
    """What one training does, all workers: the failure of one has them give up this training, and none after it."""
    ACTIVITY.trainings += 1
    try:
        yield
    finally:
        ACTIVITY.trainings += 1
        ACTIVITY.gives_up_at = inf


def writes_to(run_dir: str | os.PathLike[str]) -> None:
    """Say where the run is, so that what ends the job can say how to go on."""
    ACTIVITY.run_dir = os.fspath(run_dir)
    tether.tell(run_dir=ACTIVITY.run_dir)
