"""`Lockstep`: several trainings that take turns, one step each, and share batches, compiled programs and signals."""

from __future__ import annotations

from contextlib import ExitStack
from typing import Self

from netspec.compile.shared_plans import SharedPlans
from netspec.data.shared_loaders import SharedLoaders
from netspec.training.signals import Signals

MAX_STATE_BYTES = 2**26
"""Total size of states above which no further training joins: large nets gain nothing by taking turns."""


class Lockstep:
    """What trainings that take turns have in common: open data, compiled programs, and signals to stop or save.

    Pass it to `training_steps` of each training, inside of its `with` block.
    """

    def __init__(self, signals: Signals) -> None:
        self.loaders, self.plans, self.signals = SharedLoaders(), SharedPlans(), signals
        self._stack = ExitStack()

    def has_room(self, count: int) -> bool:
        """Whether another training can join: all of the `count` so far share plans, and their states are small."""
        compilers = self.plans.compilers
        return len(compilers) >= count and sum(each.states.nbytes for each in compilers) < MAX_STATE_BYTES

    def __enter__(self) -> Self:
        self._stack.enter_context(self.signals)
        self._stack.enter_context(self.loaders)
        return self

    def __exit__(self, *error: object) -> None:
        self._stack.close()
