"""`Lockstep`: what trainings share that run in turns, one step each: batches, compiled programs, signals."""

from __future__ import annotations

from contextlib import ExitStack
from types import TracebackType
from typing import Self

from netspec.compile.shared_plans import SharedPlans
from netspec.data.shared_loaders import SharedLoaders
from netspec.training.signals import Signals

MOST_STATE_BYTES = 2**26
"""Size of the states of all trainings from which no other one joins: large nets gain nothing by taking turns."""


class Lockstep:
    """Use it as a context manager around all of the trainings."""

    def __init__(self) -> None:
        self.loaders, self.plans, self.signals = SharedLoaders(), SharedPlans(), Signals()
        self._stack = ExitStack()

    def has_room(self, count: int) -> bool:
        """Whether another training can join `count` of them, none of which has its own plans, and their states."""
        compilers = self.plans.compilers
        return len(compilers) >= count and sum(each.states.nbytes for each in compilers) < MOST_STATE_BYTES

    def __enter__(self) -> Self:
        self._stack.enter_context(self.signals)
        self._stack.enter_context(self.loaders)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stack.close()
