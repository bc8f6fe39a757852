"""A worker's side: it pushes gradients to all servers, and fetches the parameters from them."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from netspec.backends.process_group import PeerFailure
from netspec.distributed.communicators.base import Communicator, Pending
from netspec.distributed.parameter_server.protocol import (
    GRADIENTS,
    NEVER,
    PARAMETERS,
    REPLIES,
    TO_COORDINATOR,
    WorkerRequest,
    reply_record,
    request_record,
)

COMPLETION_TIMEOUT = 60.0
"""Seconds that servers have to complete a worker's call after another worker has failed."""


class Client:
    """A worker's connection to the servers."""

    def __init__(self, group: Communicator, workers: int, sizes: Sequence[int], dtype: str, rates: int) -> None:
        """`group` is all ranks, workers first; `sizes` holds the number of elements of each server."""
        self._group, self._workers, self._rates = group, workers, rates
        self._parts = [np.zeros(size, dtype) for size in sizes]
        self.stop = self.snapshot = NEVER
        """Steps after which all workers stop, and after which all write a checkpoint."""
        self.step = 0
        """Step, from 0, with which this worker continues."""
        self.loss: float | None = None
        """Mean loss of all samples whose gradients updated the parameters since this worker last continued; None if
        there are none."""
        self.late = 0
        """Number of gradients of all workers that arrived too late."""
        self.failed = False
        """Whether a worker has failed, so that this one must not begin another step."""

    def push(self, gradient: Sequence[Any], step: int, weight: float, loss: float, rates: Sequence[float]) -> None:
        """Send the pieces of a gradient to the servers, and wait until they have arrived."""
        self._request(WorkerRequest.PUSH, step=step, weight=weight, loss=loss, rates=rates)
        _complete(
            self._group.start_send(part, server, GRADIENTS) for server, part in enumerate(gradient, self._workers)
        )

    def wait_to_continue(self, step: int, *, stop: bool, snapshot: bool) -> list[Any]:
        """Wait until this worker may continue after `step` steps; return each server's parameters.

        Raises `PeerFailure` if it would wait for a worker that has failed.
        """
        self._request(WorkerRequest.CONTINUE, step=step, stop=stop, snapshot=snapshot)
        before, parameters = self.step, self._receive_reply()
        if self.step == NEVER:
            self.step = before
            raise PeerFailure
        return parameters

    def fetch(self) -> list[Any]:
        """Return each server's current parameters."""
        self._request(WorkerRequest.FETCH, step=self.step)
        return self._receive_reply()

    def gather(self) -> None:
        """Make the servers join the collective call that gathers full states from pieces."""
        self._request(WorkerRequest.GATHER)

    def assemble(self) -> None:
        """Make the servers join the collective call that assembles a checkpoint."""
        self._request(WorkerRequest.ASSEMBLE)

    def leave(self) -> None:
        """Report that this worker is done."""
        self._request(WorkerRequest.LEAVE)

    def fail(self) -> None:
        """Report that a worker, possibly this one, has failed: the servers release all workers that wait for it."""
        self._request(WorkerRequest.FAIL)

    def _request(self, request: WorkerRequest, **facts: Any) -> None:
        record = request_record(self._rates)
        record["request"] = request
        for name, value in facts.items():
            record[name] = value
        _complete([self._group.start_send(record, self._workers, TO_COORDINATOR)])

    def _receive_reply(self) -> list[Any]:
        record = reply_record()
        calls = [self._group.start_receive(record, self._workers, REPLIES)]
        calls += [
            self._group.start_receive(part, server, PARAMETERS)
            for server, part in enumerate(self._parts, self._workers)
        ]
        _complete(calls)
        reply = record[0]
        self.failed |= bool(reply["failed"])
        self.step, self.stop, self.snapshot = int(reply["step"]), int(reply["stop"]), int(reply["snapshot"])
        self.loss = float(reply["loss"]) if reply["weight"] else None
        self.late = int(reply["dropped"])
        return self._parts


def _complete(calls: Iterable[Pending]) -> None:
    """Wait for calls. After a failure, keep waiting for a while, since the servers complete what they have begun."""
    until: float | None = None
    for call in list(calls):
        done = False
        while not done:
            try:
                call.wait()
                done = True
            except PeerFailure:
                until = until or time.monotonic() + COMPLETION_TIMEOUT
                if time.monotonic() > until:
                    raise
