"""Messages between workers and servers, besides gradients and parameters: records of fixed size."""

from __future__ import annotations

from enum import IntEnum
from typing import Any

import numpy as np

NEVER = 2**62
"""Index of a step that never comes."""

TO_COORDINATOR, COMMANDS, REPLIES, GRADIENTS, PARAMETERS = range(5)
"""Tags of messages."""


class WorkerRequest(IntEnum):
    """A request of a worker to the coordinator."""

    PUSH = 0
    """The worker has started to send its gradient to all servers."""
    CONTINUE = 1
    """The worker has finished a step, and asks for the parameters as soon as it may continue."""
    FETCH = 2
    """The worker asks for the current parameters."""
    GATHER = 3
    """All workers are in the collective call that gathers full states from pieces."""
    ASSEMBLE = 4
    """All workers are in the collective call that assembles a checkpoint."""
    LEAVE = 5
    """The worker is done."""
    FAIL = 6
    """A worker has failed: its gradients never come."""


class Command(IntEnum):
    """A command of the coordinator, which all servers execute in the same order."""

    RECEIVE = 0
    """Receive the gradient of a worker."""
    UPDATE = 1
    """Update the parameters with the gradients of some workers."""
    DROP = 2
    """Drop the gradient of a worker."""
    SEND = 3
    """Send the parameters to a worker."""
    GATHER = 4
    """Take part in gathering full states."""
    ASSEMBLE = 5
    """Take part in assembling a checkpoint."""
    END = 6
    """Stop serving."""


def request_record(rates: int) -> Any:
    """Return an empty message from a worker to the coordinator; `rates` is the number of scheduled values."""
    return np.zeros(1, np.dtype([
        ("request", "i8"), ("step", "i8"), ("weight", "f8"), ("loss", "f8"), ("stop", "?"), ("snapshot", "?"),
        ("rates", "f8", (rates,)),
    ]))  # fmt: skip


def command_record(rates: int, workers: int) -> Any:
    """Return an empty message from the coordinator to the other servers."""
    return np.zeros(1, np.dtype([
        ("command", "i8"), ("count", "i8"), ("share", "f8"), ("rates", "f8", (rates,)), ("workers", "?", (workers,)),
    ]))  # fmt: skip


def reply_record() -> Any:
    """Return an empty message from the coordinator to a worker.

    It has the step to continue with, the steps at which all stop or save, the mean loss of the gradients used, and
    whether a worker has failed: then the receiver ends if the step is `NEVER`, and else after one more step.
    """
    return np.zeros(1, np.dtype([
        ("step", "i8"), ("failed", "?"), ("stop", "i8"), ("snapshot", "i8"), ("loss", "f8"), ("weight", "f8"),
        ("dropped", "i8"),
    ]))  # fmt: skip
