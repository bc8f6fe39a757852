"""A worker's side: it pushes gradients to all servers, and fetches the parameters from them."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from netspec.backends.process_group import PeerFailure
from netspec.distributed.communicators.base import Communicator, Pending
from netspec.distributed.parameter_server.protocol import (
    ANSWERS,
    GRADIENTS,
    NEVER,
    PARAMETERS,
    TO_COORDINATOR,
    WorkerRequest,
    reply_record,
    request_record,
)

ANSWERED_WITHIN = 60.0
"""Seconds in which servers must do what a worker waits for, once another worker has failed."""


class Client:
    """A worker's connection to the servers."""

    def __init__(self, group: Communicator, workers: int, sizes: Sequence[int], dtype: str, rates: int) -> None:
        """`group` is all ranks, workers first; `sizes` holds the number of elements of each server."""
        self._group, self._workers, self._rates = group, workers, rates
        self._parts = [np.zeros(size, dtype) for size in sizes]
        self.stop = self.snapshot = NEVER
        """The steps after which all stop, and after which all meet for a checkpoint."""
        self.step = 0
        """The step, from 0, with which this worker goes on."""
        self.loss: float | None = None
        """Mean loss of all samples by whose gradients the parameters were moved since this worker went on before; None
        where there are none."""
        self.late = 0
        """Gradients of all workers that came too late."""
        self.failed = False
        """Whether a worker has failed, so that this one is to do no further step."""

    def push(self, gradient: Sequence[Any], step: int, weight: float, loss: float, rates: Sequence[float]) -> None:
        """Send the pieces of a gradient to the servers; returns when they are there."""
        self._say(WorkerRequest.PUSH, step=step, weight=weight, loss=loss, rates=rates)
        _complete(
            self._group.start_send(part, server, GRADIENTS) for server, part in enumerate(gradient, self._workers)
        )

    def go_on(self, step: int, *, stop: bool, snapshot: bool) -> list[Any]:
        """Wait until this worker may continue after `step` steps; return the parameters, by servers.

        Raises `PeerFailure` if it would wait for a worker that has failed.
        """
        self._say(WorkerRequest.GO_ON, step=step, stop=stop, snapshot=snapshot)
        before, found = self.step, self._answered()
        if self.step == NEVER:
            self.step = before
            raise PeerFailure
        return found

    def look(self) -> list[Any]:
        """The parameters, by servers, as they are."""
        self._say(WorkerRequest.LOOK, step=self.step)
        return self._answered()

    def gather(self) -> None:
        """Have the servers join the collective call that gathers wholes of pieces of states."""
        self._say(WorkerRequest.GATHER)

    def assemble(self) -> None:
        """Have the servers join the collective call that assembles what a checkpoint holds."""
        self._say(WorkerRequest.ASSEMBLE)

    def leave(self) -> None:
        """Say that this worker is done."""
        self._say(WorkerRequest.LEAVE)

    def fail(self) -> None:
        """Say that a worker has failed, this one or another: the servers let all go that wait for it."""
        self._say(WorkerRequest.FAIL)

    def _say(self, wish: WorkerRequest, **facts: Any) -> None:
        told = request_record(self._rates)
        told["wish"] = wish
        for name, value in facts.items():
            told[name] = value
        _complete([self._group.start_send(told, self._workers, TO_COORDINATOR)])

    def _answered(self) -> list[Any]:
        told = reply_record()
        calls = [self._group.start_receive(told, self._workers, ANSWERS)]
        calls += [
            self._group.start_receive(part, server, PARAMETERS)
            for server, part in enumerate(self._parts, self._workers)
        ]
        _complete(calls)
        found = told[0]
        self.failed |= bool(found["failed"])
        self.step, self.stop, self.snapshot = int(found["step"]), int(found["stop"]), int(found["snapshot"])
        self.loss = float(found["loss"]) if found["weight"] else None
        self.late = int(found["dropped"])
        return self._parts


def _complete(calls: Iterable[Pending]) -> None:
    """Wait for calls. Servers serve on where a worker fails, and what they are in the midst of is to be whole."""
    until: float | None = None
    for call in list(calls):
        done = False
        while not done:
            try:
                call.wait()
                done = True
            except PeerFailure:
                until = until or time.monotonic() + ANSWERED_WITHIN
                if time.monotonic() > until:
                    raise
