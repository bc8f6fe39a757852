"""What workers and servers tell each other beside gradients and parameters: records of fixed size."""

from __future__ import annotations

from enum import IntEnum
from typing import Any

import numpy as np

NEVER = 2**62
"""The number of a step that does not come."""

TO_COORDINATOR, ORDERS, ANSWERS, GRADIENTS, PARAMETERS = range(5)
"""Tags of messages."""


class Wish(IntEnum):
    """What a worker tells the coordinator."""

    PUSH = 0
    """Its gradient is on the way to all servers."""
    GO_ON = 1
    """It has done so many steps, and wants the parameters, as soon as it may go on."""
    LOOK = 2
    """It wants the parameters as they are."""
    GATHER = 3
    """All workers are in the collective call that gathers wholes of pieces of states."""
    ASSEMBLE = 4
    """All workers are in the collective call that assembles what a checkpoint holds."""
    LEAVE = 5
    """It is done."""
    FAIL = 6
    """A worker has failed: nobody is to wait for its gradients."""


class Act(IntEnum):
    """What all servers do, in the same order."""

    RECEIVE = 0
    """Receive the gradient of a worker."""
    UPDATE = 1
    """Move the parameters by the gradients of some workers."""
    DROP = 2
    """Forget the gradient of a worker."""
    SEND = 3
    """Send the parameters to a worker."""
    GATHER = 4
    """Take part in gathering wholes."""
    ASSEMBLE = 5
    """Take part in assembling a checkpoint."""
    END = 6
    """Be done."""


def letter(rates: int) -> Any:
    """What a worker tells the coordinator; a training has so many learning rates."""
    return np.zeros(1, np.dtype([
        ("wish", "i8"), ("step", "i8"), ("weight", "f8"), ("loss", "f8"), ("stop", "?"), ("snapshot", "?"),
        ("rates", "f8", (rates,)),
    ]))  # fmt: skip


def order(rates: int, workers: int) -> Any:
    """What the coordinator tells the other servers."""
    return np.zeros(1, np.dtype([
        ("act", "i8"), ("count", "i8"), ("share", "f8"), ("rates", "f8", (rates,)), ("workers", "?", (workers,)),
    ]))  # fmt: skip


def answer() -> Any:
    """What the coordinator tells a worker: where it goes on, when all stop or save, what the gradients were like.

    And whether a worker has failed: it does not go on then where the step is `NEVER`, and else for one step more.
    """
    return np.zeros(1, np.dtype([
        ("step", "i8"), ("failed", "?"), ("stop", "i8"), ("snapshot", "i8"), ("loss", "f8"), ("weight", "f8"),
        ("dropped", "i8"),
    ]))  # fmt: skip
