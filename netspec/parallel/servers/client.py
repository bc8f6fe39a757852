"""A worker's side: it pushes gradients to all servers, and fetches the parameters from them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from netspec.parallel.base import Communicator
from netspec.parallel.servers.letters import (
    ANSWERS,
    GRADIENTS,
    NEVER,
    PARAMETERS,
    TO_COORDINATOR,
    Wish,
    answer,
    letter,
)


class Client:
    """What a worker knows of the servers."""

    def __init__(self, group: Communicator, workers: int, sizes: Sequence[int], dtype: str, rates: int) -> None:
        """`group` is all ranks, the workers first; `sizes` says how many numbers each server has."""
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

    def push(self, gradient: Sequence[Any], step: int, weight: float, loss: float, rates: Sequence[float]) -> None:
        """Send the pieces of a gradient to the servers; returns when they are there."""
        self._say(Wish.PUSH, step=step, weight=weight, loss=loss, rates=rates)
        for call in [
            self._group.start_send(part, server, GRADIENTS) for server, part in enumerate(gradient, self._workers)
        ]:
            call.wait()

    def go_on(self, step: int, *, stop: bool, snapshot: bool) -> list[Any]:
        """The parameters, by servers, as soon as this worker may go on after so many steps."""
        self._say(Wish.GO_ON, step=step, stop=stop, snapshot=snapshot)
        return self._answered()

    def look(self) -> list[Any]:
        """The parameters, by servers, as they are."""
        self._say(Wish.LOOK, step=self.step)
        return self._answered()

    def gather(self) -> None:
        """Have the servers join the collective call that gathers wholes of pieces of states."""
        self._say(Wish.GATHER)

    def assemble(self) -> None:
        """Have the servers join the collective call that assembles what a checkpoint holds."""
        self._say(Wish.ASSEMBLE)

    def leave(self) -> None:
        """Say that this worker is done."""
        self._say(Wish.LEAVE)

    def _say(self, wish: Wish, **facts: Any) -> None:
        told = letter(self._rates)
        told["wish"] = wish
        for name, value in facts.items():
            told[name] = value
        self._group.start_send(told, self._workers, TO_COORDINATOR).wait()

    def _answered(self) -> list[Any]:
        told = answer()
        calls = [self._group.start_receive(told, self._workers, ANSWERS)]
        calls += [
            self._group.start_receive(part, server, PARAMETERS)
            for server, part in enumerate(self._parts, self._workers)
        ]
        for call in calls:
            call.wait()
        found = told[0]
        self.step, self.stop, self.snapshot = int(found["step"]), int(found["stop"]), int(found["snapshot"])
        self.loss = float(found["loss"]) if found["weight"] else None
        self.late = int(found["dropped"])
        return self._parts
